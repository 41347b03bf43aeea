"""A lost op queue: the check reads no op message, so what these decided is asked about again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import OP_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from rmqtx.verdicts.model.predicted import open_rows
from tests.conftest import MOMENT
from tests.field import field_stores
from tests.forge.damage import queue_files
from tests.forge.stores import copy_of, opened, settings_of


@pytest.fixture(autouse=True)
def _a_minute_after_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOMENT, lambda store: known_until_ms(store) + 60_000)


def settings(store: Store) -> BrokerSettings:
    return broker_settings(store, version="5.3.3")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten half messages, of which an op message ended 0, 1 and 2; stopped cleanly; the check has read nothing."""
    return field_stores("foreign-message-id", tmp_path) / "store"


def read(root: Path) -> tuple[dict[int, dict[str, Any]], set[str]]:
    """The rows of audit by queue offset, and the codes of its findings; those of pending are the same."""
    reading = audit([open_store(root)], settings)
    table = reading.table()
    listed = pending([open_store(root)], settings)
    assert listed.table().to_pylist() == open_rows(table).to_pylist()
    codes = {finding.code for finding in reading.findings}
    assert {finding.code for finding in listed.findings} == codes
    return {row["half_copies"][-1]["queue_offset"]: row for row in table.to_pylist()}, codes


def test_with_its_op_queue_nothing_that_was_decided_is_asked_about(root: Path) -> None:
    rows, codes = read(root)
    assert codes == set()
    assert {rows[number]["next_event"] for number in range(3)} == {"none"}


@pytest.mark.parametrize("is_zeroed", [False, True])
def test_decisions_without_an_op_queue_are_asked_about_again(is_zeroed: bool, root: Path) -> None:
    """The start of 5.3.3 after a clean stop dispatches nothing: other queues reach the end of the log."""
    if is_zeroed:
        (file,) = queue_files(root, OP_TOPIC)
        file.write_bytes(bytes(file.stat().st_size))
    else:
        shutil.rmtree(root / "consumequeue" / OP_TOPIC)
    rows, codes = read(root)
    assert codes == ({"slot-missing", "start-skips"} if is_zeroed else {"queue-missing", "start-skips"})
    for number in range(3):
        row = rows[number]
        assert (row["state"], row["flags"], row["next_event"]) == ("COMMITTED", ["open_after_decision"], "asked")
        assert row["answer_effect"] == "deliver_again"
    assert {rows[number]["state"] for number in range(3, 10)} == {"PENDING"}


def test_an_op_cursor_after_the_end_of_the_op_queue_is_a_finding(root: Path) -> None:
    file = root / "config" / "consumerOffset.json"
    table = '"offsetTable":{"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:7}}'
    file.write_text(file.read_text(encoding="utf-8").replace('"offsetTable":{}', table), encoding="utf-8")
    reading = audit([open_store(root)], settings)
    assert reading.table().num_rows == 10
    (found,) = (one for one in reading.findings if one.code == "cursor-beyond-end")
    assert (found.expected, found.actual) == ("at most 1", "7")
    assert found.file == str(root / "consumequeue" / OP_TOPIC / "0")
    listed = pending([open_store(root)], settings)
    assert listed.table().num_rows == 10  # the check does not read the op message before its cursor
    assert "cursor-beyond-end" in {one.code for one in listed.findings}


def test_a_running_broker_whose_op_queue_lost_its_slots_is_missing_evidence(tmp_path: Path) -> None:
    """A real 5.0.0 that was started on these files: `pending` of them ended with 0, over the wire with 3."""
    root = copy_of(name := "busystop-4.9.7", tmp_path)
    for file in queue_files(root, OP_TOPIC):
        file.write_bytes(bytes(file.stat().st_size))
    for store, is_lost in ((open_store(root), True), (opened(name), False)):
        reading = pending([replace(store, used_by_process=1)], settings_of(name))
        assert reading.table().num_rows == 8
        assert ("cursor-beyond-end" in {finding.code for finding in reading.findings}) is is_lost
