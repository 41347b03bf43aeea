"""What the other files of a store know of its commit log, asked before the log itself is read.

A broker writes a record into the commit log first, and only then into queues, index, checkpoint and tables. So each of
those is a witness: a log that ends before a record that one of them knows has lost records, whatever its own bytes say.
That holds for a killed broker too, and for a running one, as far as the claims are older than the reading of the log.

Nothing is compared here; `claim_proofs.py` says which claims the log does not keep, and which of those to believe.
How far back the other files reach proves nothing: brokers delete the oldest files of a log and leave the slots behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from readers.cursors.cursors import CheckCursors, check_cursors
from readers.model.errors import SourceError
from readers.store.store import Store
from verdicts.claims.claims_of_other_files import (
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
from verdicts.claims.claims_of_queues import QUEUES_ASKED_MAX, queue_claims, rocksdb_queue_claims
from verdicts.claims.log_claim import LogClaim

_Ask = Callable[[Store], Iterator[LogClaim]]

#: Everything that is asked, cheap ones first.
_WITNESSES: tuple[_Ask, ...] = (
    checkpoint_claims, index_claims, table_claims, epoch_claims, file_claims, timer_claims, metrics_claims,
    rocksdb_table_claims, rocksdb_queue_claims,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogClaims:
    """What a store's other files know of its log.

    Shape: `newest` are the claims, the furthest first, those without a place last. `has_unasked_queues`: there are more
           than QUEUES_ASKED_MAX queues, and not all were asked; index and transaction topics were.
    """

    newest: tuple[LogClaim, ...] = ()
    has_unasked_queues: bool = False

    @property
    def note(self) -> str | None:
        """What to say of queues that were not asked."""
        if not self.has_unasked_queues:
            return None
        return f"more than {QUEUES_ASKED_MAX} queues: not all were asked how far they know the log"


def log_claims(store: Store, cursors: CheckCursors | None = None) -> LogClaims:
    """What the other files of a store know of its log: the newest entry of each, no more than their ends are read.

    `cursors`: those of the check, if they were read already.
    Damage: a witness that cannot be read claims nothing; whatever reads it reports that.
    """
    claims, has_unasked_queues = queue_claims(store)
    for ask in _WITNESSES:
        try:
            claims.extend(ask(store))
        except SourceError:
            continue
    claims.extend(cursor_claims(check_cursors(store) if cursors is None else cursors))
    claims.sort(key=lambda claim: -1 if claim.reach_offset is None else claim.reach_offset, reverse=True)
    return LogClaims(tuple(claims), has_unasked_queues)
