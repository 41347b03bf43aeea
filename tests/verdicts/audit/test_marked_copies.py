"""Copies that `rmqtx redeliver --store` sent, in the files: listed, and no command delivers a second time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.properties import ORIGIN
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.carry_out import checked_acts
from rmqtx.repairs.acts.log_tail import log_end
from rmqtx.repairs.acts.orders import ActOrder, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.bundles.bundle import BundleSource, make_bundle
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import show
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, timeline
from rmqtx.verdicts.model import marked_copies
from rmqtx.verdicts.model.marked_copies import FileCopies
from tests.brokers import corpus
from tests.forge.records import Message
from tests.forge.stores import copy_of, settings_of
from tests.repairs.acting import medium_of
from tests.spark.growing import Growing
from tests.verdicts.following import Followed

NAME = "common-5.3.3"
SENT_AFTER_MS = 5_000
ORIGIN_ID = "7F00000100002AC70000000000001937"


def with_copy(tmp_path: Path, identity: str, topic: str, *, is_marked: bool = True) -> Path:
    """A store in whose log a message with this id follows, as a broker stores it before it indexes it."""
    root = copy_of(NAME, tmp_path)
    end = log_end(open_store(root)).offset
    now_ms = max(scan_records(open_store(root)).table()["store_time_ms"].to_pylist()) + SENT_AFTER_MS
    properties = (("UNIQ_KEY", identity), *(((ORIGIN, f"{ORIGIN_ID}:0123456789abcdef"),) if is_marked else ()))
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(end)
        message = Message(topic=topic, queue_id=1, queue_offset=77, properties=properties, store_time_ms=now_ms)
        file.write(message.record(end))
    return root


def rows_by_id(root: Path) -> dict[str, dict[str, object]]:
    found: pa.Table = audit([open_store(root)], settings_of(NAME)).table()
    return {row["transaction_id"]: row for row in found.to_pylist()}


def flagged(rows: pa.Table) -> list[str]:
    """The ids of the transactions with the flag."""
    return [row["transaction_id"] for row in rows.to_pylist() if "redelivered" in row["flags"]]


def one_of(plan: str) -> tuple[str, str]:
    """Id and topic of a transaction of the store."""
    row = next(row for row in corpus.expected(NAME) if row["plan"] == plan)
    return row["transaction_id"], row["topic"]


@pytest.mark.parametrize(("plan", "state"), [("never_answered", "DISCARDED"), ("rollback", "ROLLED_BACK")])
def test_a_copy_is_listed_and_no_second_delivery_is_advised(tmp_path: Path, plan: str, state: str) -> None:
    identity, topic = one_of(plan)
    root = with_copy(tmp_path, identity, topic)
    rows = rows_by_id(root)
    assert [name for name, row in rows.items() if "redelivered" in row["flags"]] == [identity]  # type: ignore[operator]
    assert (rows[identity]["state"], rows[identity]["advice"]) == (state, "none")
    store = open_store(root)
    shown = show([store], settings_of(NAME), identity).table().to_pylist()
    assert [row["flags"] for row in shown] == [rows[identity]["flags"]]
    events = timeline(shown[0], [StoreTimelineSource(store, settings_of(NAME)(store))]).to_pylist()
    (copy,) = [event for event in events if event["event"] == "redelivered"]
    assert (copy["topic"], copy["queue_id"], copy["queue_offset"]) == (topic, 1, 77)
    assert ORIGIN_ID in copy["detail"]


def test_a_message_without_the_mark_is_no_copy(tmp_path: Path) -> None:
    """An application that sends it again uses a new id; this one is of another tool, and nothing is known of it."""
    identity, topic = one_of("never_answered")
    row = rows_by_id(with_copy(tmp_path, identity, topic, is_marked=False))[identity]
    assert (row["advice"], "redelivered" in row["flags"]) == ("resume", False)  # type: ignore[operator]


def test_acts_on_the_files_are_refused(tmp_path: Path) -> None:
    identity, topic = one_of("never_answered")
    root = with_copy(tmp_path, identity, topic)
    medium = medium_of(root, "5.3.3", Destination(undo_file=tmp_path / "undo"))
    for action in (ActKind.COMMIT, ActKind.RESUME):
        (found,) = checked_acts([ActOrder(identity, ActRequest(action), "because")], medium, Conduct())
        assert "already-delivered" in [refusal.guard for refusal in found.refusals]


def test_a_past_time_has_only_the_copies_that_were_sent_until_then(tmp_path: Path) -> None:
    identity, topic = one_of("rollback")
    store, settings = open_store(with_copy(tmp_path, identity, topic)), settings_of(NAME)
    (copy,) = FileCopies(store).of({identity: topic})[identity]
    sent_ms = copy.record.store_time_ms
    for at_ms, wanted in ((sent_ms - 1, []), (sent_ms, [identity])):
        assert flagged(audit([store], settings, at_ms=at_ms).table()) == wanted, at_ms


def test_an_audit_that_follows_judges_again_when_only_the_copy_is_new(tmp_path: Path) -> None:
    """And when its file of the log is deleted it is forgotten."""
    identity, topic = one_of("rollback")
    root = with_copy(tmp_path, identity, topic)
    (copy,) = FileCopies(open_store(root)).of({identity: topic})[identity]
    growing = Growing(root, tmp_path / "growing")
    growing.write_to(copy.record.commit_log_offset)
    followed = Followed([growing.root], tmp_path / "checkpoint", settings_of(NAME))
    assert flagged(followed.assert_current()) == []
    growing.write_to(growing.end)
    assert flagged(followed.assert_current()) == [identity]
    followed.restart()
    assert flagged(followed.assert_current()) == [identity]


@pytest.mark.parametrize("key", [None, b"a key that is none of the bundle"])
def test_a_bundle_has_the_copy_and_finds_it_however_long_its_log_is(
    key: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, topic = one_of("rollback")
    source = BundleSource(open_store(with_copy(tmp_path, identity, topic)))
    made = make_bundle(source, [identity], (), tmp_path / "bundle", is_archive=False, key=key)
    assert made.differences == []
    monkeypatch.setattr(marked_copies, "_SCANNED_BYTES_MAX", 0)
    bundle = open_store(tmp_path / "bundle" / "store")
    (row,) = audit([bundle], settings_of(NAME)).table().to_pylist()
    assert ("redelivered" in row["flags"], row["advice"]) == (True, "none")
    assert flagged(show([bundle], settings_of(NAME), row["transaction_id"]).table()) == [row["transaction_id"]]
