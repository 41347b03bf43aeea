"""What harms most comes first, in one order: soon discarded, not delivered, delivered again, then the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.verdicts.model.predicted import Prediction
from rmqtx_cli.pages.order_of_harm import HARM_COLUMNS, KINDS, Harms, harm_ranks
from tests.cli.conftest import Run

Stores = Callable[[str], Path]
NOW_MS = 1_800_000_000_000
SCHEMA = pa.schema([TRANSACTIONS.field(name) for name in HARM_COLUMNS])
#: One transaction of each kind, worst first: state, flags, milliseconds until it is discarded.
ONE_OF_EACH: tuple[tuple[str, list[str], int | None], ...] = (
    ("PENDING", ["cut"], None),
    ("PENDING", ["unread"], None),
    ("PENDING", ["expired"], 30_000),
    ("PENDING", ["never_asked", "expires_soon"], None),
    ("LOST", [], None),
    ("DISCARDED", ["open_after_decision"], None),
    ("UNDECIDABLE", [], None),
    ("COMMITTED", ["duplicate_commit", "commit_without_op"], None),
    ("COMMITTED", ["open_after_decision"], 60_000),
    ("ROLLED_BACK", ["open_after_decision"], 60_000),
    ("COMMITTED", ["conflict"], None),
    ("PENDING", ["expires_soon"], 5 * 3_600_000),
    ("ROLLED_BACK", ["open_after_decision"], None),
    ("PENDING", [], 5 * 3_600_000),
    ("COMMITTED", [], None),
)


def batch(rows: Sequence[tuple[str, list[str], int | None]], store: str = "s") -> pa.RecordBatch:
    found: list[dict[str, Any]] = [
        {
            "store": store, "transaction_id": f"T{number}", "state": state, "flags": flags,
            "half_store_time_ms": NOW_MS - 1_000 * number,
            "discard_at_ms": None if left is None else NOW_MS + left,
            **_future(state, flags, left),
        }
        for number, (state, flags, left) in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(found, SCHEMA)


def _future(state: str, flags: list[str], left: int | None) -> dict[str, str | None]:
    """What the broker does next: the first round, in 30 s, discards without asking."""
    if "cut" in flags:
        return {"next_event": "cut", "answer_effect": None}
    if "unread" in flags:
        return {"next_event": "skipped", "answer_effect": None}
    if left == 30_000:
        return {"next_event": "expired", "answer_effect": None}
    is_checked = bool({"open_after_decision", "commit_without_op"} & set(flags))
    if state != "PENDING" and not (is_checked and (state == "COMMITTED" or left is not None)):
        return {"next_event": "none", "answer_effect": None}
    return {"next_event": "asked", "answer_effect": "deliver" if state != "COMMITTED" else "deliver_again"}


def harms(*batches: pa.RecordBatch) -> Harms:
    found = Harms(NOW_MS)
    for one in batches:
        found.add(one)
    return found


def test_each_kind_has_its_place() -> None:
    ranks = harm_ranks(batch(ONE_OF_EACH), NOW_MS)
    assert ranks.tolist() == list(range(len(KINDS) + 1))
    assert harm_ranks(batch(ONE_OF_EACH[::-1]), NOW_MS).tolist() == ranks.tolist()[::-1]


@pytest.mark.parametrize("first", range(len(ONE_OF_EACH)))
def test_the_worst_one_is_named_wherever_it_stands(first: int) -> None:
    rows: tuple[tuple[str, list[str], int | None], ...] = ONE_OF_EACH[first:]
    expected = None if first == len(KINDS) else "T0"
    for order in (rows, rows[::-1]):
        found = harms(batch(order[:1]), batch(order[1:])) if order[1:] else harms(batch(order))
        one = harms(batch(order))
        assert one.counts == found.counts
    worst = harms(batch(rows)).worst()
    assert (None if worst is None else worst[0]) == expected
    word = None if worst is None else worst[1].partition(",")[0]
    assert word is None or word in {rows[0][0], *rows[0][1]}


def test_the_first_that_is_discarded_is_named_then_the_oldest() -> None:
    rows: list[tuple[str, list[str], int | None]] = [
        ("PENDING", [], 90_000), ("PENDING", [], 60_000), ("PENDING", [], 60_000)
    ]
    assert harms(batch(rows)).worst() == ("T2", "PENDING, discarded first")


def sentences(rows: Sequence[tuple[str, list[str], int | None]], **named: Any) -> list[str]:
    known = Prediction(begin_ms=NOW_MS + 30_000, offsets=np.empty(0, np.int64), **named)
    return list(harms(batch(rows)).sentences({"s": known}))


def test_numbers_and_times_of_a_stopped_broker() -> None:
    all_at_once: list[tuple[str, list[str], int | None]] = [("PENDING", [], 30_000)] * 7
    assert sentences(all_at_once) == [
        "7 PENDING: the broker discards all 7 unasked in its first round, 30s after it starts"
    ]
    mixed = [*all_at_once, ("PENDING", [], 90_000), ("PENDING", [], None), ("DISCARDED", [], None)]
    assert sentences(mixed) == [
        "9 PENDING: the broker discards 7 unasked in its first round, 30s after it starts, and 1 within 1m30s of "
        "its start unless a producer answers",
        "1 DISCARDED (not delivered)",
    ]


def test_numbers_and_times_of_a_running_broker() -> None:
    [one] = sentences([("PENDING", [], 30_000), ("PENDING", [], 90_000)], is_running=True)
    assert one == (
        "2 PENDING: the broker discards 1 unasked in its next round, in 30s, at 2027-01-15T08:00:30.000Z, and 1 within "
        "1m30s unless a producer answers, the first in 1m30s, at 2027-01-15T08:01:30.000Z"
    )


def test_what_the_next_round_discards_is_not_delivered_again() -> None:
    assert sentences([("COMMITTED", ["open_after_decision"], 30_000)]) == []
    assert sentences([("COMMITTED", ["open_after_decision"], 60_000), ("COMMITTED", ["commit_without_op"], None)]) == [
        "2 COMMITTED that the broker may deliver again"
    ]


def test_several_stores_are_named_soonest_first() -> None:
    found = Harms(NOW_MS)
    for name, left in (("a", 90_000), ("b", 60_000), ("c", 70_000), ("d", 80_000), ("e", None)):
        found.add(batch([("PENDING", [], left)], name))
    assert [one.partition(":")[0] for one in found.soon_sentences({})] == [
        "b", "c", "d", "the brokers of 1 more stores discard pending transactions soon"
    ]
    assert found.stores_with_soon == {"a", "b", "c", "d"}


@pytest.fixture
def expiring(tmp_path: Path) -> Path:
    file = tmp_path / "expiring.conf"
    file.write_text("fileReservedTime=1\n")
    return file


def test_audit_report_pending_and_check_lead_with_the_same(
    rmqtx: Run, corpus_store: Stores, expiring: Path, tmp_path: Path
) -> None:
    """One order: the same sentence first, and the same transaction to look at."""
    store, page = corpus_store("common-5.3.3"), tmp_path / "page.md"
    words = [store, "--broker-conf", expiring]
    sentence = "the broker discards all 16 unasked in its first round, "
    audit = rmqtx("audit", *words).err.splitlines()
    assert audit[1].startswith(f"rmqtx: 16 PENDING: {sentence}")
    pending = rmqtx("pending", *words).err.splitlines()
    assert pending[2].startswith(f"rmqtx: {sentence}")
    assert rmqtx("report", *words, "-o", page).status == 0
    first = page.read_text().partition("## What is the matter\n\n")[2]
    assert first.startswith(f"16 PENDING: {sentence}")
    assert f"16 PENDING: {sentence}" in rmqtx("check", *words, "--state-dir", tmp_path).out
    shown = {line.split()[4] for line in [*audit, *pending] if "next: rmqtx show" in line}
    assert len(shown) == 1
    assert f"rmqtx show {shown.pop()} " in first


def test_undecidable_ones_are_counted_and_named(rmqtx: Run, corpus_store: Stores, tmp_path: Path) -> None:
    store = Path(shutil.copytree(corpus_store("common-5.3.3"), tmp_path / "store"))
    for file in (store / "config").glob("consumerOffset.json*"):
        file.unlink()
    result = rmqtx("pending", store)
    assert "rmqtx: 16 UNDECIDABLE transactions: evidence is missing or damaged" in result.err
    assert f"next: rmqtx audit --store {store} --where 'state = UNDECIDABLE'" in result.err
    assert result.status == 3
