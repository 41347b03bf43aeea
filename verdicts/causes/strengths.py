"""How far each cause explains judged transactions: the decision behind `rmqtx diagnose` and the column `causes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.verdicts.causes import (
    broker_logs,
    checks,
    clients,
    op_messages,
    other_designs,
    proxies,
    roles,
    second_decisions,
    shared_groups,
    traces,
)
from rmqtx.verdicts.causes.cause import NONE, PROVES, Cause, Support
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.model.store_evidence import TRACE, StoreEvidence
from rmqtx.verdicts.model.verdict_words import Strength

#: What follows the word of a cause in the column `causes`, by its strength.
_MARKS = {Strength.EXPLAINS: "", Strength.COULD_EXPLAIN: "?"}


@dataclass(frozen=True, slots=True)
class Applied:
    """What one cause is for the transactions of one store.

    Shape: `rows` by strength: EXPLAINS, COULD_EXPLAIN and RULED_OUT exclude one another, and each transaction
           that the rule fits is in one of them. `facts`: those of the store. `decides`: what would decide it for some
           of them, where their records do not. `rivals`: the causes that fit some of the same transactions.
    """

    cause: Cause
    store: str
    facts: StoreEvidence
    rows: Mapping[Strength, Bools]
    decides: str = ""
    rivals: tuple[str, ...] = ()


def applied(found: Evidence) -> Iterator[Applied]:
    """Apply all causes to judged transactions, but those of whole producer groups (`groups.py`).

    Shape: one value for each cause and each store with a transaction that its rule fits. What a transaction gets
           depends on its own records and on the facts of its store, not on the other rows.
    Order: causes as registered, then stores.
    """
    yield from _applied(found, supports_of(found), np.ones(found.count, np.bool_))


def applied_to_each(found: Evidence) -> Iterator[list[Applied]]:
    """Return for each transaction what `applied` gives for it alone. Order: rows, then as `applied`."""
    supports = supports_of(found)
    for number in range(found.count):
        yield list(_applied(found, supports, np.arange(found.count) == number))


def _applied(found: Evidence, supports: Mapping[str, Support], chosen: Bools) -> Iterator[Applied]:
    """Apply the causes to the chosen transactions."""
    for word, support in supports.items():
        fits = (support > NONE) & chosen
        if fits.any():
            cause = CAUSES[word]
            for number, (store, facts) in enumerate(found.stores.items()):
                rows = fits & (found.store == number)
                if rows.any():
                    yield _in_store(cause, store, facts, rows, supports)


def supports_of(found: Evidence) -> dict[str, Support]:
    """Return how far the records support each cause; most rules are applied to eventful transactions only."""
    rows, eventful = found.eventful
    supports = {}
    for word, cause in CAUSES.items():
        if cause.fits_uneventful:
            supports[word] = cause.rule(found)
        elif cause.contradicted is None:
            supports[word] = np.full(found.count, NONE, np.int8)
            supports[word][rows] = cause.rule(eventful)
    return supports


def _in_store(
    cause: Cause, store: str, facts: StoreEvidence, rows: Bools, supports: Mapping[str, Support]
) -> Applied:
    applies = cause.applies(facts)
    if applies is False:
        return Applied(cause, store, facts, {Strength.RULED_OUT: rows})
    support = supports[cause.word]
    rivals = _fitting_rivals(cause, rows, supports, facts)
    is_contested = np.zeros(len(rows), np.bool_)
    for word in rivals:
        is_contested |= supports[word] > NONE
    is_seen = cause.is_seen(facts) or TRACE in cause.shows_in  # the trace that proves it may be in another store
    proven = rows & (support == PROVES) & ~is_contested & bool(applies) & is_seen
    return Applied(
        cause, store, facts, {Strength.EXPLAINS: proven, Strength.COULD_EXPLAIN: rows & ~proven},
        cause.decides if (rows & (support < PROVES)).any() else "", rivals,
    )


def _fitting_rivals(
    cause: Cause, rows: Bools, supports: Mapping[str, Support], facts: StoreEvidence
) -> tuple[str, ...]:
    """Return the rivals that fit some of the rows, and that the broker of the store may have."""
    return tuple(
        word for word in cause.rivals
        if (rows & (supports[word] > NONE)).any()
        and CAUSES[word].applies(facts) is not False
    )


def cause_words() -> list[str]:
    """Return the values of the column `causes`: the words as explaining causes, then as possible ones.

    Causes of whole producer groups are not among them: they are known only after the last transaction.
    """
    words = [word for word, cause in CAUSES.items() if cause.contradicted is None]
    return [f"{word}{mark}" for mark in _MARKS.values() for word in words]


def with_causes(found: Evidence) -> pa.Table:
    """Return the rows of TRANSACTIONS with `causes`: the words of the causes that explain each one, or could.

    Shape: the rows have NEEDED_COLUMNS, and the column at its place, or get it as the last one. It is null if the facts
           of the stores are not given.
    Order: causes that explain it first; then as registered.
    """
    rows, form = found.rows, TRANSACTIONS.field("causes")
    if "causes" not in rows.schema.names:
        rows = rows.append_column(form, pa.nulls(rows.num_rows, form.type))
    place = rows.schema.get_field_index("causes")
    if not found.stores or not rows.num_rows:
        return rows.set_column(place, form, pa.nulls(rows.num_rows, form.type))
    words = cause_words()
    owners, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for one in applied(found):
        for strength, mark in _MARKS.items():
            if strength in one.rows:
                owners.append(np.flatnonzero(one.rows[strength]))
                numbers.append(np.full(len(owners[-1]), words.index(f"{one.cause.word}{mark}")))
    owner, number = np.concatenate(owners), np.concatenate(numbers)
    ends = np.cumsum(np.bincount(owner, minlength=found.count))
    values = pa.array(words, pa.string()).take(pa.array(number[np.lexsort((number, owner))]))
    lists = pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), values, type=form.type)
    return rows.set_column(place, form, lists)


def have_causes(rows: pa.Table, stores: Mapping[str, StoreEvidence]) -> bool:
    """Whether a cause explains any row, or could; rules are applied only until one does, and only those of causes that
    the release and the settings of a row's store allow.

    Shape: as in `with_causes`; `rows` with `causes` have been given them.
    """
    if "causes" in rows.schema.names:
        return bool(pc.any(pc.greater(pc.list_value_length(rows["causes"]), 0)).as_py())
    if not stores or not rows.num_rows:
        return False
    found = Evidence(rows, stores)
    _, eventful = found.eventful

    def fits(cause: Cause) -> bool:
        some = found if cause.fits_uneventful else eventful
        may_be = some.of_store(lambda facts: cause.applies(facts) is not False) & (some.store >= 0)
        return bool(may_be.any() and ((cause.rule(some) > NONE) & may_be).any())

    return any(fits(cause) for cause in CAUSES.values() if cause.contradicted is None)


def cause_counts(rows: pa.Table) -> Counter[tuple[str, str, Strength]]:
    """Return the number of transactions by store, cause and strength; `rows` has `store` and `causes`."""
    lists = rows["causes"].combine_chunks()
    stores = rows["store"].combine_chunks().take(pc.list_parent_indices(lists))
    counted = Counter(zip(stores.to_pylist(), pc.list_flatten(lists).to_pylist(), strict=True))
    mark = _MARKS[Strength.COULD_EXPLAIN]
    return Counter({
        (store, value.removesuffix(mark), Strength.COULD_EXPLAIN if value.endswith(mark) else Strength.EXPLAINS): count
        for (store, value), count in counted.items()
    })


_FAMILIES = (
    second_decisions, checks, op_messages, roles, clients, broker_logs, other_designs, proxies, shared_groups, traces,
)

CAUSES: dict[str, Cause] = {cause.word: cause for family in _FAMILIES for cause in family.CAUSES}
