"""A transaction as a value has what its row has, and answers what is asked of it everywhere."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx.readers.model.tables import FUTURE_COLUMNS, TRANSACTIONS
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.ledger.reconcile import RECONCILED
from rmqtx.verdicts.model.transaction import Transaction, newest_first
from rmqtx.verdicts.model.verdict_words import State
from tests.brokers import corpus
from tests.forge.stores import copy_of, settings_of
from tests.repairs.forge import mark, place, transaction
from tests.representatives import one_of_each_design

DEFAULTS = {one.name for one in fields(Transaction) if one.name not in RECONCILED.names}


@pytest.mark.parametrize("name", one_of_each_design(corpus.all_names()))
def test_its_row_is_the_row_that_it_was_made_of(name: str, tmp_path: Path) -> None:
    table = audit([open_store(copy_of(name, tmp_path))], settings_of(name)).table()
    rows = table.to_pylist()
    values = [Transaction.of(row) for row in rows]
    assert pa.Table.from_pylist([value.row() for value in values], schema=TRANSACTIONS).to_pylist() == rows
    assert all(value.state is State(row["state"]) for value, row in zip(values, rows, strict=True))


def test_its_fields_are_the_columns() -> None:
    assert {one.name for one in fields(Transaction)} == set(TRANSACTIONS.names)
    assert set(FUTURE_COLUMNS) <= DEFAULTS


@pytest.mark.parametrize("lacking", sorted({*TRANSACTIONS.names} - DEFAULTS))
def test_a_table_must_have_the_columns_that_every_table_has(lacking: str) -> None:
    row = transaction().row()
    del row[lacking]
    with pytest.raises((KeyError, TypeError), match=lacking):
        Transaction.of(row)


def test_the_newest_copy_is_the_last_in_the_log_and_of_several_stores_by_their_clocks() -> None:
    began_again = transaction(half_copies=[place(7, 700), place(0, 900)])
    assert began_again.newest_half == began_again.half_copies[1]
    other = place(9, 100, store="other", store_time_ms=place(0, 0)["store_time_ms"] + 1)
    both = transaction(half_copies=[place(7, 700), other])
    assert newest_first(both.half_copies)[0].store == "other"
    assert transaction(half_copies=[]).newest_half is None


def test_a_copy_is_open_until_an_op_message_that_the_check_reads_names_it() -> None:
    other = place(9, 900, store="other")
    found = transaction(half_copies=[place(7, 700), place(8, 800), other], op_marks=[mark(7, 3)])
    assert found.copies_without_op() == [8, 9]
    assert found.copies_without_op(4) == [7, 8, 9]
    assert found.copies_without_op(store="other") == [9]
    assert found.in_store("other").copies_without_op() == [9]


@pytest.mark.parametrize(
    ("state", "flags", "is_open", "is_decided"),
    [
        ("PENDING", [], True, False), ("COMMITTED", [], False, True), ("ROLLED_BACK", [], False, True),
        ("DISCARDED", ["open_after_decision"], True, False), ("COMMITTED", ["open_after_decision"], True, True),
        ("LOST", [], False, False), ("UNDECIDABLE", [], False, False),
    ],
)
def test_what_is_open_and_what_is_decided(state: str, flags: list[str], is_open: bool, is_decided: bool) -> None:
    found = transaction(state, flags=flags)
    assert (found.is_open, found.is_decided) == (is_open, is_decided)
