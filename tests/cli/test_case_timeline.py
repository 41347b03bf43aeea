"""`rmqtx case timeline`: records, lines of logs and receipts of some transactions in one order, for timeline tools."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path

import pytest

from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.case_events import CASE_EVENTS
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt
from tests.cli.conftest import Run
from tests.forge.stores import unpacked

STORE = unpacked("common-5.3.3")
REQUIRED = ("datetime", "timestamp_desc", "message")


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_it_has_what_timeline_tools_require_in_one_order(rmqtx: Run, tmp_path: Path) -> None:
    file = tmp_path / "case.csv"
    assert rmqtx("case", "timeline", STORE, "--where", "state = DISCARDED", "-o", file).status == 0
    rows = _rows(file)
    assert tuple(rows[0])[:3] == REQUIRED == tuple(CASE_EVENTS.names)[:3]
    assert all(row[name] for row in rows for name in REQUIRED)
    moments = [datetime.datetime.fromisoformat(row["datetime"]) for row in rows]
    assert moments == sorted(moments)
    assert all(moment.utcoffset() == datetime.timedelta() for moment in moments)
    ids = {row["transaction_id"] for row in rows}
    discards = [row for row in rows if row["event"] == "discard"]
    assert {row["transaction_id"] for row in discards} == ids
    assert len(ids) > 1
    lines = rmqtx("case", "timeline", STORE, "--where", "state = DISCARDED", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["message"] for line in lines] == [row["message"] for row in rows]
    named_as_printed = "state = DISCARDED and age > 1s and half_copies.queue_offset >= 0"
    assert rmqtx("case", "timeline", STORE, "--where", named_as_printed, "--format", "jsonl").out.splitlines() == lines


def test_receipts_of_the_case_stand_among_its_records(rmqtx: Run, tmp_path: Path) -> None:
    found = json.loads(rmqtx("audit", STORE, "--where", "state = COMMITTED", "--limit", 1, "--format", "jsonl").out)
    journal = Journal(tmp_path / "journal" / "receipts.jsonl")
    for name, reason in ((found["transaction_id"], "paid\x1b[2J"), ("another", "not of the case")):
        receipt = Receipt(ActKind.CLOSE, name, "broker-a@10.0.0.1:10911", reason=reason)
        receipt.begun_time_ms = found["half_store_time_ms"] + 1
        journal.prepare()
        journal.begin(receipt)
    page = rmqtx("case", "timeline", STORE, "--transaction", found["transaction_id"], "--journal", journal.path,
                 "--format", "jsonl")
    rows = page.rows
    acts = [row for row in rows if row["receipt_id"] is not None]
    assert [row["timestamp_desc"] for row in acts] == ["receipt begun"]
    assert acts[0]["message"].startswith("close by ")
    assert "not of the case" not in page.out
    assert rows.index(acts[0]) == 1 + max(
        number for number, row in enumerate(rows)
        if row["receipt_id"] is None and row["event_time_ms"] <= acts[0]["event_time_ms"]
    )
    shown = rmqtx("case", "timeline", STORE, "--transaction", found["transaction_id"], "--journal", journal.path)
    assert "\x1b" not in shown.out + page.out


@pytest.mark.parametrize("more", [[], ["--transaction", "X", "--where", "state = LOST"]])
def test_a_case_is_named_or_selected(more: list[str], rmqtx: Run) -> None:
    assert rmqtx("case", "timeline", STORE, *more).status == 2
