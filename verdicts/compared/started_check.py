"""What the next start does with the queues that the check reads, where records and slots differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import Version
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.startup.findings import dispatched_findings, not_predictable
from rmqtx.verdicts.startup.log_walk import LogWalk
from rmqtx.verdicts.startup.queues import QueueFacts, recovered
from rmqtx.verdicts.startup.recovery import loaded_log, recover_queues, start_file
from rmqtx.verdicts.startup.rules import rules_of
from rmqtx.verdicts.startup.started_queues import queue_reach


def started_check_findings(
    store: Store, version: Version, conf: Mapping[str, str], facts: Sequence[QueueFacts], log_end: int
) -> Iterator[Finding]:
    """Return the half and op messages that a start of a stopped broker leaves without their own slot.

    `facts`: the compared queues of the check. `log_end`: past the last record; the start does not cut the log.
    Damage: what cannot be read is reported elsewhere; then nothing is predicted.
    """
    try:
        segments, _ = loaded_log(store, conf, rules_of(version, conf))
        if store.in_use or store.is_dledger or not segments or not_predictable(store, conf) is not None:
            return
        rules = rules_of(version, conf)
        reach = -1 if store.aborted else queue_reach(store, [one.name for one in facts]).as_counted(rules)
        fates = [recovered(one, rules, None) for one in facts]
        first = start_file(store, segments, conf, max([reach, *(fate.maximum for fate in fates)]), rules)
        walk = LogWalk(first, len(segments) - 1, log_end, "")
        recover_queues(store, segments, walk, fates, rules, reach=min(reach, log_end))
    except SourceError:
        return
    yield from (one for one in dispatched_findings(store, fates) if one.is_error)
