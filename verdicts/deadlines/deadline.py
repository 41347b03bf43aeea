"""The deadline of a transaction as one value: the prediction for its copies, in the form that pages use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import rows_where
from rmqtx.verdicts.model.predicted import (
    CUT_OFF,
    NEVER_ASKED,
    NEVER_DISCARDED,
    NO_SLOT,
    NOT_BEFORE,
    OUT_OF_REACH,
    UNPLAYED,
    Prediction,
    Why,
)
from rmqtx.verdicts.model.transaction import OPEN_AGAIN_FLAG
from rmqtx.verdicts.model.verdict_words import Advice, NextEvent, State

#: The flag of transactions that the check never reaches (`transactions/flags.py`).
NEVER_ASKED_FLAG = "never_asked"

#: The advice for decided or discarded transactions that the broker checks again.
_ASKED_ADVICE = (Advice.CLOSE, Advice.WAIT)


#: The next events of copies that the check reads.
_REACHED = (NextEvent.ASKED, NextEvent.PUT_BACK, NextEvent.EXPIRED, NextEvent.DISCARDED, NextEvent.DROPPED)


def _is_open(transaction: Mapping[str, Any]) -> bool:
    """The same rule as `is_open_row`, for one row; `next_event` may be missing."""
    is_asked = transaction["advice"] in _ASKED_ADVICE or transaction.get("next_event") in _REACHED
    return transaction["state"] == State.PENDING or is_asked


def is_open_row(rows: pa.Table) -> pa.Array:
    """Which rows the check will still reach: PENDING, and decided or discarded ones of which it reads a copy again."""
    is_asked = pc.is_in(rows["advice"], value_set=pa.array(_ASKED_ADVICE))
    is_asked = pc.or_(is_asked, pc.is_in(rows["next_event"], value_set=pa.array(_REACHED)))
    return pc.or_(pc.equal(rows["state"], State.PENDING), is_asked)


def open_rows(rows: pa.Table) -> pa.Table:
    """Return the rows that the check will still reach: PENDING, and decided or discarded ones that it checks again.

    Of the latter some have nothing that would close them: a broker 3.1 that rebuilt its state table asks again and
    refuses every answer, so their advice is `none`.
    """
    flags = rows["flags"].combine_chunks()
    owners = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), OPEN_AGAIN_FLAG))
    are_open = np.asarray(is_open_row(rows)).astype(np.bool_)
    are_open[np.asarray(owners)] = True
    return rows_where(rows, pa.array(are_open))


@dataclass(frozen=True, slots=True)
class Deadline:
    """The prediction for one transaction; without one, only `why` is set.

    Shape: `checks_to_come`: how many times the broker still asks the producer. `may_be_later`: it may happen one round
           later. `assumed`: what the prediction rests on without evidence, of ASSUMED.
    """

    discard_at_ms: int | None
    checks_to_come: int = 0
    is_expired: bool = False
    may_be_later: bool = False
    is_running: bool = False
    why: Why | None = None
    assumed: tuple[str, ...] = ()


def deadline_of(transaction: Mapping[str, Any], predicted: Mapping[str, Prediction]) -> Deadline | None:
    """Return the deadline of a row of TRANSACTIONS; None if the check will not reach it again."""
    if not _is_open(transaction):
        return None
    known = predicted.get(transaction["store"])
    if transaction.get("next_event") == NextEvent.CUT:
        assumed = () if known is None else known.assumed
        return Deadline(None, is_running=known is not None and known.is_running, why=CUT_OFF, assumed=assumed)
    if NEVER_ASKED_FLAG in transaction["flags"] and transaction["discard_at_ms"] is None:
        of_table = {NEVER_DISCARDED: NO_SLOT, NEVER_ASKED: NEVER_ASKED}
        return Deadline(
            None, is_running=known is not None and known.is_running, assumed=() if known is None else known.assumed,
            why=of_table.get(known.why if known else NOT_BEFORE, OUT_OF_REACH),
        )
    if known is None:
        return Deadline(None, why=NOT_BEFORE)
    offsets = [copy["commit_log_offset"] for copy in transaction["half_copies"]]
    if (time_ms := transaction["discard_at_ms"]) is None:
        why = next((known.whys[offset] for offset in offsets if offset in known.whys), known.why)
        if why == NOT_BEFORE and transaction.get("next_event") == NextEvent.UNKNOWN:
            why = UNPLAYED
        return Deadline(None, is_running=known.is_running, why=why, assumed=known.assumed)
    # Copies of one log are stores of their own: the broker of another one may discard it later.
    for root in dict.fromkeys([transaction["store"], *(copy["store"] for copy in transaction["half_copies"])]):
        if (one := predicted.get(root)) is None:
            continue
        places = np.flatnonzero(np.isin(one.offsets, offsets) & (one.times_ms == time_ms))
        if len(places):
            place = int(places[0])
            return Deadline(
                time_ms, int(one.checks_to_come[place]), bool(one.are_expired[place]), bool(one.may_be_later[place]),
                one.is_running, assumed=one.assumed,
            )
    return Deadline(time_ms, is_running=known.is_running, assumed=known.assumed)
