"""The facts of one store that the rules of causes read, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from readers.model.releases import Version
from verdicts.model.check_stop import CheckStop
from verdicts.model.log_evidence import LogEvidence

#: Where a cause shows: the records, which files have and live brokers serve; what a live broker reports of its state
#: and clients; the text log of a broker process. Each with what must be read.
FILES, WIRE, BROKER_LOG = "files", "wire", "broker log"
SOURCES: dict[str, str] = {
    FILES: "the records of the store",
    WIRE: "the running broker: -n HOST:PORT",
    BROKER_LOG: "the logs of the broker: --broker-logs DIR",
}


@dataclass(frozen=True, slots=True)
class StoreEvidence:
    """The facts of one store that rules read; they are known before the first transaction is judged.

    Shape: `last_op_offset`: commit-log offset of the last op message, -1 without any; None if unknown.
           `first_op_offset`: that of the op message with queue offset 0; None if unknown or if the queue has none.
           `stop`: where the check of its half queue is stopped. `conf`: the configuration of its broker; None if
           unknown. `read`: what was read, of SOURCES. `are_cursors_damaged`: neither the cursor file nor its backup can
           be parsed. `topics`: those in config/topics.json; None if unknown. `logs`: what the logs of its broker show;
           None if they were not read.
    Units: commit-log offsets; versions are (5, 1, 4).
    """

    version_low: Version | None = None
    version_high: Version | None = None
    last_op_offset: int | None = None
    first_op_offset: int | None = None
    was_killed: bool = False
    stop: CheckStop | None = None
    conf: Mapping[str, str] | None = None
    read: frozenset[str] = frozenset({FILES})
    are_cursors_damaged: bool = False
    topics: frozenset[str] | None = None
    logs: LogEvidence | None = None
