"""Receipts: names that sort, rows that fit their schema, and nothing secret in them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.errors import BadText
from rmqtx.repairs.receipts import receipts
from rmqtx.repairs.receipts.act_words import OUTCOMES, ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_file import RecordPlace, StepWitness
from rmqtx.repairs.receipts.receipts import (
    RECEIPTS,
    Receipt,
    SettingChange,
    is_receipt_id,
    new_receipt_id,
    receipt_of,
    table,
)

PLACE: dict[str, Any] = {"store": "broker-a@h:1", "queue_id": 0, "queue_offset": 17, "commit_log_offset": 4711}


def whole() -> Receipt:
    """A receipt in which every column holds something."""
    receipt = Receipt(
        ActKind.COMMIT, "7F000001", "broker-a@h:1", producer_group="shop", topic="orders", keys="k", reason="why",
        overrides=["immunity"], plan={"file": "p.json", "digest": "sha256:0"}, state_before="PENDING",
        named_copy=RecordPlace("broker-a@h:1", 0, 17, 4711, 300, 5),
        witnesses_before=[StepWitness("half_copy", **PLACE)],
    )
    entry = receipt.asked("END_TRANSACTION", {"commitOrRollback": 8, "fromTransactionCheck": True, "topic": None})
    entry.answered(0, None)
    receipt.state_after, receipt.flags_after = "COMMITTED", ["resumed"]
    receipt.witnesses_after = [StepWitness("final_record", **PLACE)]
    receipt.outcome, receipt.notes, receipt.saved_message = ActOutcome.PROVED, ["a note"], "/x.json"
    receipt.settings, receipt.until_time_ms = [SettingChange("transactionCheckMax", "15", "1000000")], 1
    return receipt


def test_names_are_unlike_each_other_and_sort_as_they_were_made() -> None:
    names = [new_receipt_id() for _ in range(2000)]
    assert names == sorted(names)
    assert all(is_receipt_id(name) for name in names)
    with ThreadPoolExecutor(8) as pool:
        more = list(pool.map(lambda _: new_receipt_id(), range(2000)))
    assert len({*names, *more}) == 4000


@pytest.mark.parametrize("name", ["", "../x", "20261121T112900.123456Z-4f3a9c/..", "20261121T112900.123456Z-4F3A9C\n"])
def test_what_is_no_name_never_becomes_a_file(name: str) -> None:
    assert not is_receipt_id(name)


def test_a_row_has_every_column_of_the_schema() -> None:
    rows = table([whole(), Receipt(ActKind.RESUME, "A", "b")])
    assert rows.schema == RECEIPTS
    first, second = rows.to_pylist()
    assert [name for name in RECEIPTS.names if first[name] in (None, [])] == ["ended_time_ms", "rechecks"]
    assert first["requests"][0]["fields"] == [("commitOrRollback", "8"), ("fromTransactionCheck", "true")]
    assert second["outcome"] == "unknown"
    assert receipts.whoever() == first["who"]
    assert all(meaning for meaning in OUTCOMES.values())


def test_fields_that_say_who_may_ask_are_not_kept(tmp_path: Path) -> None:
    receipt = Receipt(ActKind.COMMIT, "A", "b")
    receipt.asked("END_TRANSACTION", dict.fromkeys(receipts.SECRET_FIELDS, "hunter2") | {"producerGroup": "shop"})
    journal = Journal(tmp_path / "r.jsonl")
    journal.begin(receipt)
    journal.end(receipt)
    assert receipt.requests[0].fields == {"producerGroup": "shop"}
    assert b"hunter2" not in journal.path.read_bytes()
    assert "hunter2" not in repr(receipt)


def test_a_line_of_the_journal_gives_the_same_receipt(tmp_path: Path) -> None:
    journal, receipt = Journal(tmp_path / "r.jsonl"), whole()
    journal.begin(receipt)
    journal.end(receipt)
    (found,) = journal.read().receipts
    assert found == receipt
    line = json.loads(journal.path.read_text().splitlines()[-1])
    assert line["begun_time"].endswith("Z")
    assert line["requests"][0]["sent_time"].endswith("Z")


@pytest.mark.parametrize(
    "change",
    [
        {"action": 3}, {"action": "comit"}, {"outcome": "prooved"},
        {"receipt_id": "../../etc/passwd"}, {"receipt_id": None}, {"witnesses_after": "many"},
        {"requests": [{"fields": 1}]}, {"begun_time_ms": "yesterday"}, {"flags_after": [{}]},
    ],
)
def test_what_is_no_receipt_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadText):
        receipt_of({**whole().row(), **change})


def test_a_word_of_a_later_version_is_left_out() -> None:
    assert receipt_of({**whole().row(), "colour": "green"}) is not None


def test_what_a_line_may_lack_or_hold_as_null_is_no_reason_to_lose_its_receipt() -> None:
    values = whole().row()
    values["requests"] = [{"request": "END_TRANSACTION", "fields": None}, None]
    (request,) = receipt_of(values).requests
    assert (request.request, request.fields, request.response_code) == ("END_TRANSACTION", {}, None)
    place = {name: value for name, value in values["named_copy"].items() if name != "body_crc"}
    named = receipt_of({**values, "named_copy": place, "rechecks": 7}).named_copy
    assert named is not None
    assert (named.length_bytes, named.body_crc) == (300, None)


def test_settings_come_back_from_the_journal_and_forged_ones_are_no_receipts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "r.jsonl")
    held = Receipt(ActKind.HOLD, None, "a@h:1", settings=[SettingChange("transactionCheckMax", "15", "1000000")])
    held.until_time_ms = 1_795_388_400_000
    journal.end(held)
    text = journal.path.read_text()
    for forged in ('"before": null', '"before": 15', '"other": "15"'):
        journal.path.write_text(journal.path.read_text() + text.replace('"before": "15"', forged))
    found = journal.read()
    assert found.receipts == [held]
    assert [finding.code for finding in found.findings] == ["receipt-unreadable"] * 3


def test_a_request_may_be_under_way_until_its_response_is_there() -> None:
    receipt = Receipt(ActKind.COMMIT, "T", "b@h:1", begun_time_ms=1_000)
    seen = [receipt.unanswered_time_ms]  # killed: it may have sent the request
    entry = receipt.asked("END_TRANSACTION", {})
    entry.sent_time_ms, receipt.ended_time_ms = 2_000, 9_000
    seen.append(receipt.unanswered_time_ms)
    receipt.outcome = ActOutcome.NOT_SENT
    seen.append(receipt.unanswered_time_ms)
    receipt.outcome = ActOutcome.PROVED
    entry.answered(0, None)
    seen.append(receipt.unanswered_time_ms)
    assert seen == [1_000, 2_000, None, None]
