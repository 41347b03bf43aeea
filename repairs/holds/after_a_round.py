"""After a hold: a round of the check is awaited, and what was discarded before the hold acted is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rmqtx.readers.model.findings import few
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live.lookups import lookup
from rmqtx.remoting.protocol.errors import RemotingError
from rmqtx.repairs.holds.changes import CheckedChange
from rmqtx.repairs.holds.open_halves import read_open_halves
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.verdicts.model.verdict_words import State

#: A round begins up to this time after the interval, and needs some of it.
_MARGIN_MS = 2_000
#: The most transactions that are looked up one by one, for each broker.
_LOOKED_UP_MAX = 2_000
_DISCARDED = (State.DISCARDED, State.LOST)


def round_wait_ms(changes: Sequence[CheckedChange]) -> int:
    """Return how long to wait until each held broker with open half messages has begun a round; 0 if none has any."""
    return max((one.preview.interval_ms + _MARGIN_MS for one in _watched(changes)), default=0)


def discarded_meanwhile(
    changes: Sequence[CheckedChange], journal: Journal, wait_ms: int, note: Callable[[str], None]
) -> None:
    """Wait for a round, and record in each receipt which half messages were discarded since they were listed.

    A receipt of a hold with one gets the outcome `contradicted`; without an answer of the broker it keeps its outcome.
    """
    time.sleep(wait_ms / 1000)
    for one in _watched(changes):
        receipt, broker = one.receipt, one.broker
        assert receipt is not None
        assert broker is not None
        try:
            window = read_open_halves(broker).window
            kept = set() if window is None else set(window.words["transaction_id"].to_pylist())
            late = [half.transaction_id for half in one.preview.late]
            asked = list(dict.fromkeys([*late, *(name for name in one.preview.open_ids if name not in kept)]))
            lost = discarded_of(broker, asked)
        except RemotingError as error:
            receipt.notes.append(f"no round was awaited: {error}")
            journal.end(receipt)
            note(f"{one.root}: unknown whether a half message was discarded meanwhile: {error}")
            continue
        if lost:
            receipt.notes.append(discarded_words(lost, "before the hold acted"))
            receipt.outcome = ActOutcome.CONTRADICTED
        else:
            receipt.notes.append("a round of the check was awaited, and nothing was discarded")
        journal.end(receipt)


def discarded_of(broker: Broker, ids: Sequence[str]) -> list[str]:
    """Return those of some transactions that the broker has discarded. Raises: Unreachable, NoAnswer, Refused."""
    if not ids:
        return []
    rows = lookup([broker], ids[:_LOOKED_UP_MAX]).table().select(["transaction_id", "state"]).to_pylist()
    return [row["transaction_id"] for row in rows if row["state"] in _DISCARDED]


def discarded_words(lost: Sequence[str], when: str) -> str:
    """Return a clause that names discarded transactions and the command that has them checked again."""
    named = few(lost)
    return f"{len(lost)} discarded {when}: {named}; to have them checked again: rmqtx resume {lost[0]}"


def _watched(changes: Sequence[CheckedChange]) -> list[CheckedChange]:
    """The holds that are proved, of brokers with open half messages."""
    return [
        one for one in changes
        if one.action == ActKind.HOLD and one.preview.open_ids
        and one.receipt is not None and one.receipt.outcome == ActOutcome.PROVED
    ]
