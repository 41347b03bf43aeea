"""The claims of a store's other files about its commit log, read before the log itself.

A broker writes a record into the commit log first, and only then into queues, index, checkpoint and tables. So each of
these is a witness: if one refers to a record after the end of the log, the log has lost records. This also holds for a
killed broker, and for a running one if the claims are older than the reading of the log.

Nothing is compared here; `claim_proofs.py` decides which claims are broken and trustworthy. Old entries of other files
prove nothing: brokers delete the oldest files of a log and leave the slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmqtx.readers.cursors.cursors import CheckCursors, check_cursors
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.claims.claims_of_other_files import (
    checkpoint_claims,
    cursor_claims,
    epoch_claims,
    file_claims,
    index_claims,
    metrics_claims,
    rocksdb_table_claims,
    table_claims,
    timer_claims,
)
from rmqtx.verdicts.claims.claims_of_queues import QUEUES_ASKED_MAX, queue_claims, rocksdb_queue_claims
from rmqtx.verdicts.claims.log_claim import LogClaim

_Ask = Callable[[Store], Iterator[LogClaim]]

#: All sources of claims, cheap ones first.
_WITNESSES: tuple[_Ask, ...] = (
    checkpoint_claims, index_claims, table_claims, epoch_claims, file_claims, timer_claims, metrics_claims,
    rocksdb_table_claims, rocksdb_queue_claims,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogClaims:
    """The claims of a store's other files about its log.

    Shape: `newest` are the claims, the furthest first, those without a place last. `has_unasked_queues`: there are more
           than QUEUES_ASKED_MAX queues, and some were not read; index and transaction topics were.
    """

    newest: tuple[LogClaim, ...] = ()
    has_unasked_queues: bool = False

    @property
    def note(self) -> str | None:
        """A note about queues that were not read; None if there are none."""
        if not self.has_unasked_queues:
            return None
        return f"more than {QUEUES_ASKED_MAX} queues: some were not compared with the end of the log"


def log_claims(store: Store, cursors: CheckCursors | None = None, *, by_samples: bool = False) -> LogClaims:
    """Return the claims of a store's other files about its log: the newest entry of each; only their ends are read.

    `cursors`: those of the check, if they were read already. `by_samples`: as for `queue_claims`.
    Damage: a witness that cannot be read claims nothing; its reader reports that.
    """
    claims, has_unasked_queues = queue_claims(store, by_samples=by_samples)
    for ask in _WITNESSES:
        try:
            claims.extend(ask(store))
        except SourceError:
            continue
    claims.extend(cursor_claims(check_cursors(store) if cursors is None else cursors))
    claims.sort(key=lambda claim: -1 if claim.reach_offset is None else claim.reach_offset, reverse=True)
    return LogClaims(tuple(claims), has_unasked_queues)
