"""The language of `--where`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.tables import RECORDS, TRANSACTIONS
from rmqtx_cli.options.filters import Filter, all_of, parse_filter
from rmqtx_cli.options.options import OutputOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import plain_view
from rmqtx_cli.words.say import Voice

ROWS: list[dict[str, Any]] = [
    {"transaction_id": "A", "state": "PENDING", "queue_id": 1, "flags": ["stalled", "immune"], "keys": "K 1",
     "born_time_ms": 1767323045678, "half_copies": [{"queue_offset": 17}, {"queue_offset": 20}]},
    {"transaction_id": "B", "state": "LOST", "queue_id": 2, "flags": [], "keys": None, "half_copies": []},
    {"transaction_id": "C", "state": "COMMITTED", "queue_id": None, "flags": ["stalled"], "keys": "x and y"},
]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("state = PENDING", "A"),
        ("state == 'PENDING'", "A"),
        ("state != PENDING", "BC"),
        ("queue_id >= 2", "B"),
        ("queue_id<2", "A"),
        ("not queue_id = 2", "A"),
        ("queue_id is null", "C"),
        ("queue_id is not null", "AB"),
        ("flags = stalled", "AC"),
        ("flags != stalled", "B"),
        ("flags ~ .", "AC"),
        ("flags = immune or state = LOST", "AB"),
        ("state = LOST or state = PENDING and queue_id = 1", "AB"),
        ("(state = LOST or state = PENDING) and queue_id = 1", "A"),
        ("keys ~ ^K", "A"),
        ("keys !~ ^K", "C"),
        ('keys = "x and y"', "C"),
        ("half_copies.queue_offset = 20", "A"),
        ("half_copies.queue_offset is null", "BC"),
        ("born_time > 2026-01-01T00:00:00Z", "A"),
        ("born_time_ms = 1767323045678", "A"),
        ("NOT (state = LOST)", "AC"),
    ],
)
def test_conditions(condition: str, expected: str) -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=TRANSACTIONS)
    found = parse_filter(condition, TRANSACTIONS).apply(batch)
    assert "".join(found["transaction_id"].to_pylist()) == expected


def test_properties_are_reached_by_key() -> None:
    batch = pa.RecordBatch.from_pylist([{"properties": [("KEYS", "a")]}, {"properties": []}], schema=RECORDS)
    assert parse_filter("properties.KEYS = a", RECORDS).apply(batch).num_rows == 1
    assert parse_filter("properties.KEYS is null", RECORDS).apply(batch).num_rows == 1


@pytest.mark.parametrize(
    "condition",
    ["", "state", "state =", "= x", "state = a b", "(state = a", "state = a)", "stat = a", "queue_id = x",
     "queue_id ~ 1", "keys ~ (", "half_copies = 1", "half_copies.nonsense = 1", "state.x = 1", "properties = 1",
     "state is 5", "state = a and", "not", "born_time > 2026-01-01T00:00:00", "queue_id = 99999999999999999999"],
)
def test_nonsense_is_refused(condition: str) -> None:
    with pytest.raises(BadRequest):
        parse_filter(condition, TRANSACTIONS)


def test_an_unknown_column_names_near_ones() -> None:
    with pytest.raises(BadRequest, match="transaction_id"):
        parse_filter("transactionid = x", TRANSACTIONS)


@given(st.text())
def test_no_text_crashes_the_parser(text: str) -> None:
    holds_or_is_refused(text)


def holds_or_is_refused(text: str) -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=TRANSACTIONS)
    try:
        condition = parse_filter(text, TRANSACTIONS)
    except BadRequest:
        return
    condition.apply(batch)


WORDS = ["state", "queue_id", "flags", "half_copies.queue_offset", "=", "~", "<", "(", ")", "and", "or", "not", "is",
         "null", "1", "'x'"]


@given(st.lists(st.sampled_from(WORDS)))
def test_no_words_crash_the_parser(words: list[str]) -> None:
    holds_or_is_refused(" ".join(words))


@pytest.mark.parametrize(
    ("condition", "missing"),
    [("state", "an operator"), ("state =", "a value"), ("state = PENDING and", "a column"), ("not", "a column")],
)
@pytest.mark.parametrize("more", [None, "flags ~ ."])
def test_a_condition_that_ends_too_early_names_only_brackets_that_were_written(
    condition: str, missing: str, more: str | None
) -> None:
    with pytest.raises(BadRequest, match=f"expected {missing} at the end") as caught:
        parse_filter(all_of((condition, None, more)) or "", TRANSACTIONS)
    assert "')'" not in str(caught.value)


def test_conditions_are_joined_as_wholes() -> None:
    assert all_of((None, "")) is None
    assert all_of((None, "a = 1 or b = 2")) == "a = 1 or b = 2"
    assert all_of(("a = 1 or b = 2", "c = 3")) == "(a = 1 or b = 2) and (c = 3)"


def test_a_proof_and_the_listing_apply_the_condition_once_to_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [pa.RecordBatch.from_pylist([row], schema=TRANSACTIONS) for row in ROWS]
    applied: list[int] = []
    apply = Filter.apply

    def counted(self: Filter, batch: pa.RecordBatch) -> pa.RecordBatch:
        applied.append(batch.num_rows)
        return apply(self, batch)

    monkeypatch.setattr(Filter, "apply", counted)
    asked = OutputOptions(output=tmp_path / "rows.csv")
    listing = Listing(TRANSACTIONS, plain_view(["transaction_id"]), asked, "state = LOST", voice=Voice(quiet=True))

    def proved() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert listing.fulfilling_of(batch).schema == batch.schema
            yield batch

    listing.write(proved())
    assert (applied, listing.rows_count) == ([1, 1, 1], 1)
