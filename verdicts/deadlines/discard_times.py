"""The deadline of each transaction: the predictions for a store's half copies, joined to the rows of TRANSACTIONS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.model.columns import Bools, are_among
from verdicts.deadlines.discard_rounds import NEVER
from verdicts.model.predicted import NEVER_ASKED, NEVER_DISCARDED, NO_SLOT, NOT_BEFORE, OUT_OF_REACH, Prediction, Why

#: The columns from which `with_discard_times` makes the times.
DISCARD_TIME_SOURCES = ("state", "flags", "advice", "half_copies", "discard_at_ms")
#: The flag of transactions that the check never reaches (`check_reach.py`).
NEVER_ASKED_FLAG = "never_asked"


def with_discard_times(rows: pa.Table, predicted: Mapping[str, Prediction]) -> pa.Table:
    """Return rows of TRANSACTIONS with `discard_at_ms`: when the check discards the last of the open copies.

    Shape: null for transactions that are never discarded, and for stores without a prediction.
    """
    times = np.full(rows.num_rows, NEVER, np.int64)
    lists = rows["half_copies"].combine_chunks()
    copies = lists.flatten()
    parents = np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
    offsets = np.asarray(pc.struct_field(copies, "commit_log_offset")).astype(np.int64)
    stores = pc.struct_field(copies, "store")
    for root, known in predicted.items():
        here = np.flatnonzero(np.asarray(pc.equal(stores, root)))
        if not len(here):
            continue
        found = np.flatnonzero(are_among(offsets[here], known.offsets))
        places = np.searchsorted(known.offsets, offsets[here][found])
        np.maximum.at(times, parents[here][found], known.times_ms[places])
        without = are_among(offsets[here], np.array(list(known.whys), np.int64))
        times[parents[here][without]] = NEVER
    is_reached = np.asarray(is_open_row(rows)) & ~_are_never_asked(rows)
    place = rows.schema.get_field_index("discard_at_ms")
    column = pa.array(times, pa.int64(), mask=(times == NEVER) | ~is_reached)
    return rows.set_column(place, rows.schema.field(place), column)


def _are_never_asked(rows: pa.Table) -> Bools:
    """Rows that the check never reaches, because it is stopped before them."""
    flags = rows["flags"].combine_chunks()
    found = np.zeros(rows.num_rows, np.bool_)
    found[np.asarray(pc.list_parent_indices(flags))[np.asarray(pc.equal(flags.flatten(), NEVER_ASKED_FLAG))]] = True
    return found


#: The advice for decided or discarded transactions that the broker checks again.
_ASKED_ADVICE = ("close", "wait")


def is_open_row(rows: pa.Table) -> pa.Array:
    """Which rows the check will still reach: PENDING, and decided or discarded ones that are checked again."""
    is_asked = pc.is_in(rows["advice"], value_set=pa.array(_ASKED_ADVICE))
    return pc.or_(pc.equal(rows["state"], "PENDING"), is_asked)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The prediction for one transaction; if there is none, only `why` is set.

    Shape: `checks_to_come`: how many times the broker still asks the producer, or puts the half back during its
           immunity. `may_be_later`: it may happen one round later.
    """

    discard_at_ms: int | None
    checks_to_come: int = 0
    is_expired: bool = False
    may_be_later: bool = False
    is_running: bool = False
    why: Why | None = None


def deadline_of(transaction: Mapping[str, Any], predicted: Mapping[str, Prediction]) -> Deadline | None:
    """Return the deadline of a row of TRANSACTIONS; None if the check will not reach it again."""
    if transaction["state"] != "PENDING" and transaction["advice"] not in _ASKED_ADVICE:
        return None
    known = predicted.get(transaction["store"])
    if NEVER_ASKED_FLAG in transaction["flags"]:
        of_table = {NEVER_DISCARDED: NO_SLOT, NEVER_ASKED: NEVER_ASKED}
        return Deadline(None, why=of_table.get(known.why if known else NOT_BEFORE, OUT_OF_REACH))
    if known is None:
        return Deadline(None, why=NOT_BEFORE)
    offsets = [copy["commit_log_offset"] for copy in transaction["half_copies"]]
    if (time_ms := transaction["discard_at_ms"]) is None:
        why = next((known.whys[offset] for offset in offsets if offset in known.whys), known.why)
        return Deadline(None, is_running=known.is_running, why=why)
    places = np.flatnonzero(np.isin(known.offsets, offsets) & (known.times_ms == time_ms))
    place = int(places[0])
    return Deadline(
        time_ms, int(known.checks_to_come[place]), bool(known.are_expired[place]), bool(known.may_be_later[place]),
        known.is_running,
    )
