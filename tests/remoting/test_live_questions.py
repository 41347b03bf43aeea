"""A live broker's rows are those of its files, whatever is wrong in them; what it cannot tell is said."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import NoSuchTransaction
from rmqtx.readers.model.tables import FUTURE_COLUMNS
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Store, open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import half_and_op_tables
from rmqtx.remoting.live import lookups as live_lookups
from rmqtx.remoting.live.store_facts import live_store
from rmqtx.remoting.live.witnesses import LiveWitnesses
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.repairs.acts.check_ahead import check_of_broker
from rmqtx.verdicts.audit import lookups
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.check.check_rules import check_rules
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.verdict_words import NextEvent
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.stores import copy_of
from tests.histories.damages import DAMAGES
from tests.histories.recording import recorded
from tests.remoting.fake import FakeServer, response
from tests.remoting.store_broker import StoreBroker
from tests.representatives import rest_is_slow

NAMES = (
    "common-5.3.3", "common-4.9.7", "common-5.5.0", "killed-5.1.4", "masked-4.9.7", "masked-5.3.3", "masked-5.5.0",
    "delayed-4.4.0", "delayed-5.3.3", "cursorback-5.1.4", "cursoredited-4.9.7", "cursoredited-5.3.3", "poison-4.4.0",
    "poison-4.3.0", "poison-4.5.0",
    "ipv6-5.3.3",
)
Row = dict[str, Any]


class Served:
    """A store of the corpus and a broker that serves it."""

    def __init__(self, name: str, place: Path, client: Client, booted_ms: int = 0) -> None:
        recipe = corpus.recipe(name)
        self.store = open_store(copy_of(name, place))
        # A live broker is read now, when all stores of the corpus are older than their fileReservedTime.
        conf = {**recipe["broker_conf"], "fileReservedTime": "1000000"}
        self.settings = broker_settings(self.store, conf=conf, version=recipe["version"])
        self.answers = StoreBroker(self.store, self.settings, recipe["version"], booted_ms)
        self.server = FakeServer(self.answers)
        self.broker = Broker(client, self.server.address, "broker-a", "c")

    def settings_of(self, _store: Store) -> BrokerSettings:
        return self.settings

    def in_files(self) -> list[Row]:
        return comparable(audit([self.store], self.settings_of).table().to_pylist(), self.store.root)

    def live(self, rows: list[Row]) -> list[Row]:
        return comparable(rows, self.broker.root)


#: Causes that depend on what only a live broker shows: its producers, its start, how it runs.
OF_RUNNING_BROKERS = {"producer-not-connected", "check-thread-ended?"}
NOT_COMPARED = ("producer_alive", "asked_through", *FUTURE_COLUMNS, "causes")


def comparable(rows: list[Row], root: str) -> list[Row]:
    plain = []
    for row in rows:
        kept = {name: value for name, value in row.items() if name not in NOT_COMPARED}
        kept["reason"] = re.sub(r"; a rollback of the last [^;]* in the broker's memory", "", row["reason"])
        # What depends on the moment: files end with their last record, a live broker is read now.
        kept["flags"] = [f for f in row["flags"] if f not in ("stalled", "never_checked", "immune", "expires_soon")]
        # A broker that runs says nothing of how it ended before.
        kept["flags"] = [flag for flag in kept["flags"] if flag != "may_be_decided"]
        kept["reason"] = re.sub(r"; it may have been rolled back: ops of the last [^;]*", "", kept["reason"])
        kept["reason"] = kept["reason"].replace("; it is close to fileReservedTime", "")
        plain.append(json.loads(json.dumps(kept).replace(json.dumps(root)[1:-1], "ROOT")))
    return plain


def of_records(row: Row) -> list[str]:
    """The causes of a row that depend on records only."""
    return [cause for cause in row["causes"] if cause not in OF_RUNNING_BROKERS]


@pytest.mark.parametrize("name", rest_is_slow(NAMES, quick=6))
def test_the_rows_are_those_of_the_files(name: str, tmp_path: Path, client: Client) -> None:
    one = Served(name, tmp_path, client)
    with one.server:
        files = one.in_files()
        by_id = {row["transaction_id"]: row for row in files}
        reading = live_lookups.audit([one.broker])
        found = one.live(reading.table().to_pylist())
        assert {row["transaction_id"]: row for row in found} == {row["transaction_id"]: by_id[row["transaction_id"]]
                                                               for row in found}
        assert {name for name, row in by_id.items() if row["half_copies"]} <= {row["transaction_id"] for row in found}
        assert [f.line() for f in reading.findings if f.kind.severity == "error"] == []
        listed = live_lookups.pending([one.broker]).table().to_pylist()
        if not name.startswith("killed"):  # files show how the broker ended
            whole = audit([one.store], one.settings_of).table().to_pylist()
            causes = {row["transaction_id"]: of_records(row) for row in whole}
            for row in (*reading.table().to_pylist(), *listed):
                assert of_records(row) == causes[row["transaction_id"]]
        pending = one.live(listed)
        assert pending == [row for row in files if row["state"] == "PENDING" or row["advice"] in ("close", "wait")]


def test_a_lookup_finds_each_one_by_its_id_and_nothing_else(tmp_path: Path, client: Client) -> None:
    one = Served("common-5.3.3", tmp_path, client)
    with one.server:
        files = one.in_files()
        ids = [row["transaction_id"] for row in files]
        found = one.live(live_lookups.lookup([one.broker], [*ids[::3], "UNKNOWN"]).table().to_pylist())
        assert sorted(found, key=str) == sorted(files[::3], key=str)
        assert live_lookups.lookup([one.broker], []).table().num_rows == 0
        with pytest.raises(NoSuchTransaction):
            live_lookups.show([one.broker], "UNKNOWN")


def test_one_is_shown_by_message_id_and_by_key(tmp_path: Path, client: Client) -> None:
    one = Served("common-5.3.3", tmp_path, client)
    with one.server:
        rows = lookups.pending([one.store], one.settings_of).table().to_pylist()
        row = next(row for row in rows if row["keys"] and " " not in row["keys"])
        copies = half_and_op_tables.read_halves(one.broker).table().to_pylist()
        ids = [copy["message_id"] for copy in copies if copy["transaction_id"] == row["transaction_id"]]
        assert ids
        for name in (row["transaction_id"], row["transaction_id"].lower(), row["keys"], *ids):
            shown = live_lookups.show([one.broker], name).table()["transaction_id"].to_pylist()
            assert row["transaction_id"] in shown, name


def test_ids_alone_are_found_without_checks_producers_and_causes(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Served("common-5.3.3", tmp_path, client)
    with one.server:
        rows = lookups.pending([one.store], one.settings_of).table().to_pylist()
        row = next(row for row in rows if row["keys"] and " " not in row["keys"])
        names = (row["transaction_id"], row["keys"])
        shown = [live_lookups.show([one.broker], name).table()["transaction_id"].to_pylist() for name in names]
        for unused in ("live_stops", "predict_from_live", "with_producers"):
            monkeypatch.delattr(live_lookups, unused)
        monkeypatch.delattr("rmqtx.verdicts.causes.judging.habits_of")
        found = [live_lookups.show([one.broker], name, columns=("transaction_id",)).table() for name in names]
        assert [table.column_names for table in found] == [["transaction_id"]] * len(names)
        assert [table["transaction_id"].to_pylist() for table in found] == shown
        with pytest.raises(NoSuchTransaction):
            live_lookups.show([one.broker], "UNKNOWN", columns=("transaction_id",))


def test_what_the_index_lost_is_read_from_the_queues_if_it_is_older_than_the_start(
    tmp_path: Path, client: Client
) -> None:
    """A broker that was killed drops its youngest index file (IndexService.load) and fills it from a later place on."""
    now_ms = clock.now_ms()
    one = Served("common-5.3.3", tmp_path, client, booted_ms=now_ms)
    for file in (tmp_path / "store" / "index").iterdir():
        file.unlink()
    one.answers.store = open_store(tmp_path / "store")
    with one.server:
        files = one.in_files()
        ids = [row["transaction_id"] for row in files if row["half_copies"]]
        found = one.live(live_lookups.lookup([one.broker], ids).table().to_pylist())
        assert {row["transaction_id"]: row["state"] for row in found} == {
            row["transaction_id"]: row["state"] for row in files if row["half_copies"]
        }
        assert sorted(found, key=str) == sorted((row for row in files if row["half_copies"]), key=str)


def test_what_the_index_has_is_not_read_from_the_queue_of_half_messages(tmp_path: Path, client: Client) -> None:
    one = Served("common-5.3.3", tmp_path, client)
    with one.server:
        found = next(row for row in one.in_files() if row["state"] == "COMMITTED" and not row["discard_copies"])
        assert one.live(live_lookups.lookup([one.broker], [found["transaction_id"]]).table().to_pylist()) == [found]
    pulled = [request for request in one.server.requests if request.code == RequestCode.PULL_MESSAGE]
    assert not [request for request in pulled if request.fields["topic"] == HALF_TOPIC]


def test_of_what_the_index_has_only_a_discard_copy_the_half_copies_are_read_from_the_queue(
    tmp_path: Path, client: Client
) -> None:
    """The index lost what is older than the start of the broker, which then discarded the transaction."""
    now_ms = clock.now_ms()
    one = Served("common-5.3.3", tmp_path, client, booted_ms=now_ms)
    query = one.answers._query
    one.answers._answers[RequestCode.QUERY_MESSAGE] = lambda request: (
        response(request, ResponseCode.QUERY_NOT_FOUND) if request.fields["topic"] != DISCARD_TOPIC else query(request)
    )
    with one.server:
        discarded = [row for row in one.in_files() if row["discard_copies"]]
        assert discarded
        for row in discarded:
            found = one.live(live_lookups.lookup([one.broker], [row["transaction_id"]]).table().to_pylist())
            assert found == [row]


@pytest.mark.parametrize("version", ["4.9.7", "4.3.0"])
def test_a_half_queue_that_cannot_be_pulled_yet_is_read_by_its_entries_or_by_the_log(
    version: str, tmp_path: Path, client: Client
) -> None:
    """Brokers 4.x make the configuration of the half topic in the first round of the check."""
    one = Served(f"common-{version}", tmp_path, client)
    with one.server:
        pulled = one.live(live_lookups.audit([one.broker]).table().to_pylist())
        one.answers.lacks_topics.add(HALF_TOPIC)
        if version == "4.3.0":  # it serves no entries of this queue either
            one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = lambda request: response(request, 0)
        assert one.live(live_lookups.audit([one.broker]).table().to_pylist()) == pulled
        assert pulled


def test_a_copy_that_its_broker_cannot_decode_has_the_event_that_files_give_it(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 4.6.0 a check that puts a compressed half message back spoils its body, and each round ends there."""
    one = Served("poison-4.4.0", tmp_path, client)
    for kind in ("half cursor set", "op cursor set"):  # such a round keeps no cursor
        DAMAGES[kind](tmp_path / "store", 0.0)
    one.answers.store = store = open_store(tmp_path / "store")
    monkeypatch.setattr(Store, "in_use", True)
    with one.server:
        live = live_lookups.audit([one.broker]).table().to_pylist()
        files = {row["transaction_id"]: row for row in audit([store], one.settings_of).table().to_pylist()}
        assert any("poison" in row["flags"] and row["next_event"] == NextEvent.STOPPED for row in live)
        for row in live:
            for name in ("next_event", "advice"):
                assert row[name] == files[row["transaction_id"]][name]


def test_a_check_that_passes_the_end_of_its_queue_is_foreseen_from_its_first_half_message_on(
    tmp_path: Path, client: Client
) -> None:
    """The half queue lost its end, and op messages have the next numbers: behind them the check begins at 0 again."""
    ((root, truth),) = recorded(tmp_path, {"ops-behind-the-end-4.4.0"})
    store = open_store(root)
    settings = broker_settings(store, conf={**truth.conf, "fileReservedTime": "1000000"}, version=truth.version)
    with FakeServer(StoreBroker(store, settings, truth.version)) as server:
        broker = Broker(client, server.address, "broker-a", "c")
        facts = live_store(broker)
        rows = live_lookups.audit([broker], facts=[facts]).table().to_pylist()
        assert {row["next_event"] for row in rows} == {NextEvent.ASKED}
    one = Served("poison-4.4.0", tmp_path / "other", client)
    with one.server:
        facts = live_store(one.broker)
        ahead = check_of_broker(facts)
        assert ahead is not None
        assert 0 < facts.half_cursor <= facts.half_end
        assert set(ahead.read_again({"behind the end": [facts.half_end]}, [])) == {"behind the end"}


def test_an_op_cursor_after_the_end_of_the_op_queue_is_a_finding(tmp_path: Path, client: Client) -> None:
    one = Served("common-5.3.3", tmp_path, client)
    with one.server:
        assert not live_store(one.broker).findings
        end = one.broker.max_offset(OP_TOPIC)
        one.answers._answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: response(request, offset=str(end + 1))
        findings = live_store(one.broker).findings
        found = [each for each in findings if each.file == f"{one.broker.root} {OP_TOPIC}"]
        assert [(each.code, each.expected, each.actual) for each in found] == [
            ("cursor-beyond-end", f"at most {end}", str(end + 1))
        ]


def test_whether_a_producer_is_connected(tmp_path: Path, client: Client) -> None:
    one = Served("common-5.3.3", tmp_path, client)
    with one.server:
        rows = live_lookups.pending([one.broker]).table()
        groups = sorted(set(rows["producer_group"].to_pylist()))
        assert set(rows["producer_alive"].to_pylist()) == {False}
        one.answers.producers.add(groups[0])
        rows = live_lookups.pending([one.broker]).table()
        alive = dict(zip(rows["producer_group"].to_pylist(), rows["producer_alive"].to_pylist(), strict=True))
        assert alive[groups[0]] is True
        asked = one.answers.counts[RequestCode.GET_PRODUCER_CONNECTION_LIST]
        assert asked == 2 * len(groups)


@pytest.mark.parametrize(
    ("has_producer", "has_proxy", "alive", "through"),
    [
        (False, False, False, "nobody"),
        (True, False, True, "producer"),
        (False, True, None, "proxy"),
        (True, True, True, "producer"),
    ],
)
def test_a_proxy_is_not_the_application(
    has_producer: bool, has_proxy: bool, alive: bool | None, through: str, tmp_path: Path, client: Client
) -> None:
    one = Served("common-5.3.3", tmp_path, client)
    with one.server:
        groups = set(live_lookups.pending([one.broker]).table()["producer_group"].to_pylist())
        one.answers.producers |= groups if has_producer else set()
        one.answers.proxied |= groups if has_proxy else set()
        rows = live_lookups.pending([one.broker]).table()
        assert set(rows["producer_alive"].to_pylist()) == {alive}
        assert set(rows["asked_through"].to_pylist()) == {through}


@pytest.mark.parametrize(("name", "has_proxy"), [("proxy-5.3.3", True), ("common-5.3.3", False)])
def test_a_live_broker_shows_that_a_proxy_uses_it(name: str, has_proxy: bool, tmp_path: Path, client: Client) -> None:
    """A proxy may have forgotten the group of a living producer: then a missing producer is only possible."""
    one = Served(name, tmp_path, client)
    with one.server:
        assert live_store(one.broker).evidence().has_proxy == has_proxy


def test_ops_in_the_brokers_memory_are_said_of_what_is_pending(tmp_path: Path, client: Client) -> None:
    one = Served("common-5.3.3", tmp_path, client)
    with one.server:
        for row in live_lookups.audit([one.broker]).table().to_pylist():
            assert ("may still be in the broker's memory" in row["reason"]) == (row["state"] == "PENDING")


def undecidable_in_both(one: Served, root: Path) -> tuple[list[str], VerdictReading]:
    """What is UNDECIDABLE on the running broker, which must be the same in its files, after these were changed; and the
    live reading. The server must run.
    """
    one.answers.store = store = open_store(root)
    files = {row["transaction_id"]: row["state"] for row in audit([store], one.settings_of).table().to_pylist()}
    reading = live_lookups.audit([one.broker])
    live = {row["transaction_id"]: row["state"] for row in reading.table().to_pylist()}
    undecidable = [name for name, state in live.items() if state == "UNDECIDABLE"]
    assert undecidable == [name for name in live if files[name] == "UNDECIDABLE"]
    return undecidable, reading


def test_a_half_copy_whose_id_a_power_loss_took_makes_others_undecidable_as_in_files(
    tmp_path: Path, client: Client
) -> None:
    """It may be a copy of another transaction that was born in the same moment; the broker sends what is left of it."""
    one = Served("common-5.3.3", tmp_path, client)
    with open_queue(one.store, HALF_TOPIC, 0) as queue:
        _, offsets, lengths, _ = queue.read(queue.max_offset - 1, queue.max_offset)
    file, place = tmp_path / "store" / "commitlog" / f"{0:020d}", int(offsets[0])
    record = file.read_bytes()[place : place + int(lengths[0])]
    kept = record.index(b"UNIQ_KEY") + 20
    damage.write_bytes(file, place + kept, bytes(len(record) - kept))
    with one.server:
        undecidable, reading = undecidable_in_both(one, tmp_path / "store")
        assert len(undecidable) > 1
        assert place in [one.commit_log_offset for one in reading.findings if one.code == "half-unreadable"]
        for name in (name for name in undecidable if name.isprintable()):
            assert live_lookups.show([one.broker], name).table()["state"].to_pylist() == ["UNDECIDABLE"]


@pytest.mark.parametrize("kept_bytes", [-1, 20])
def test_a_discard_copy_whose_id_a_power_loss_took_makes_others_undecidable_as_in_files(
    kept_bytes: int, tmp_path: Path, client: Client
) -> None:
    """Its transaction would be LOST. `kept_bytes`: what is left from the name of the id on; -1: no id."""
    one = Served("common-5.3.3", tmp_path, client)
    before = audit([one.store], one.settings_of).table().to_pylist()
    row = next(row for row in before if row["state"] == "DISCARDED" and len(row["discard_copies"]) == 1)
    place = int(row["discard_copies"][0]["commit_log_offset"])
    file = tmp_path / "store" / "commitlog" / f"{0:020d}"
    length = int.from_bytes(file.read_bytes()[place : place + 4], "big")
    record = file.read_bytes()[place : place + length]
    first = record.index(b"UNIQ_KEY") + kept_bytes
    damage.write_bytes(file, place + first, bytes(len(record) - first))
    with one.server:
        undecidable, reading = undecidable_in_both(one, tmp_path / "store")
    assert row["transaction_id"] in undecidable
    assert place in [one.commit_log_offset for one in reading.findings if one.code == "record-properties"]


def test_op_messages_that_a_power_loss_took_are_missed_where_the_op_queue_is_not_served(
    tmp_path: Path, client: Client
) -> None:
    """4.3.0 keeps their slots, so the queue is longer than the log shows: a COMMIT record may be lost too."""
    one = Served("common-4.3.0", tmp_path, client)
    one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = lambda request: response(request, 0)
    with one.server:
        before = live_lookups.audit([one.broker])
        assert not [found for found in before.findings if found.code == "entries-unread"]
        assert "ROLLED_BACK" in before.table()["state"].to_pylist()
    file = damage.queue_files(tmp_path / "store", OP_TOPIC)[-1]
    end = -(-len(file.read_bytes().rstrip(b"\0")) // 20) * 20
    damage.write_bytes(file, end, struct.pack(">qiq", 1 << 20, 200, 100))
    one.answers.store = store = open_store(tmp_path / "store")
    with FakeServer(one.answers) as server:
        reading = live_lookups.audit([Broker(client, server.address, "broker-a", "c")])
    assert [found.code for found in reading.findings if found.code == "entries-unread"] == ["entries-unread"]
    live = reading.table()["state"].to_pylist()
    assert "ROLLED_BACK" not in live
    assert "ROLLED_BACK" not in audit([store], one.settings_of).table()["state"].to_pylist()


@pytest.mark.parametrize("lost", ["one between two others", "each"])
def test_op_messages_that_a_power_loss_took_are_missed_also_before_others_and_without_any(
    lost: str, tmp_path: Path, client: Client
) -> None:
    """4.3.0 gives the next op message a number behind theirs; without any, the log shows no number at all."""
    one = Served("common-4.3.0", tmp_path, client)
    with open_queue(one.store, OP_TOPIC, 0) as queue:
        _, offsets, _, _ = queue.read(queue.min_offset, queue.max_offset)
    assert len(offsets) > 2
    rows = range(len(offsets)) if lost == "each" else [len(offsets) // 2]
    for row in rows:
        file = tmp_path / "store" / "commitlog" / f"{0:020d}"
        topic_at = file.read_bytes().index(OP_TOPIC.encode(), int(offsets[row]))
        damage.write_bytes(file, topic_at, b"X" * len(OP_TOPIC))
    one.answers.store = store = open_store(tmp_path / "store")
    one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = lambda request: response(request, 0)
    with FakeServer(one.answers) as server:
        reading = live_lookups.audit([Broker(client, server.address, "broker-a", "c")])
    assert [found.code for found in reading.findings if found.code == "entries-unread"]
    live = {row["transaction_id"]: row["state"] for row in reading.table().to_pylist()}
    files = {row["transaction_id"]: row["state"] for row in audit([store], one.settings_of).table().to_pylist()}
    certain = {name for name, state in live.items() if state != "UNDECIDABLE"}
    assert {name: live[name] for name in certain} == {name: files[name] for name in certain}
    assert "UNDECIDABLE" in live.values()


@pytest.mark.parametrize("has_ops", [True, False])
def test_a_half_message_that_a_power_loss_took_is_missed_where_one_transaction_is_looked_up(
    has_ops: bool, tmp_path: Path, client: Client
) -> None:
    """4.3.0 keeps its slot, which the look-up does not pull; what was lost with it may have decided."""
    one = Served("common-4.3.0", tmp_path, client)
    root = tmp_path / "store"
    log, slots = root / "commitlog" / f"{0:020d}", damage.queue_files(root, HALF_TOPIC)[0]
    rows = audit([one.store], one.settings_of).table().to_pylist()
    shown = next(row for row in rows if row["state"] == "ROLLED_BACK" and len(row["half_copies"]) == 1)
    lost = next(row for row in reversed(rows) if row["state"] == "COMMITTED" and len(row["half_copies"]) == 1)
    [copy] = lost["half_copies"]
    damage.write_bytes(log, log.read_bytes().index(HALF_TOPIC.encode(), copy["commit_log_offset"]), b"X")
    behind_the_log = struct.pack(">qiq", log.stat().st_size, 200, 0)
    damage.write_bytes(slots, copy["queue_offset"] * len(behind_the_log), behind_the_log)
    if not has_ops:
        damage.drop(root / "consumequeue" / OP_TOPIC)
        log.write_bytes(log.read_bytes().replace(OP_TOPIC.encode(), b"X" * len(OP_TOPIC)))
    one.answers.store = open_store(root)
    one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = lambda request: response(request, 0)
    with FakeServer(one.answers) as server:
        brokers = [Broker(client, server.address, "broker-a", "c")]
        reading = live_lookups.show(brokers, shown["transaction_id"])
        audited = live_lookups.audit(brokers).table().to_pylist()
    assert any(HALF_TOPIC in one.line() for one in reading.findings if one.code == "entries-unread")
    states = [row["state"] for row in audited if row["transaction_id"] == shown["transaction_id"]]
    assert reading.table()["state"].to_pylist() == states == ["UNDECIDABLE"]


def test_a_copy_that_got_no_slot_is_read_where_the_op_queue_is_not_served(tmp_path: Path, client: Client) -> None:
    """4.3.0 writes copies to the log that get no slot, while the last slot leads behind the end of the log."""
    one = Served("common-4.3.0", tmp_path, client)
    rows = audit([one.store], one.settings_of).table().to_pylist()
    mine = next(row for row in rows if len(row["half_copies"]) == 3)
    copy = mine["half_copies"][1]
    slots = damage.queue_files(tmp_path / "store", HALF_TOPIC)[0]
    behind_the_log = struct.pack(">qiq", (tmp_path / "store" / "commitlog" / f"{0:020d}").stat().st_size, 200, 0)
    damage.write_bytes(slots, copy["queue_offset"] * len(behind_the_log), behind_the_log)
    one.answers.store = open_store(tmp_path / "store")
    one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = lambda request: response(request, 0)
    with FakeServer(one.answers) as server:
        live = live_lookups.audit([Broker(client, server.address, "broker-a", "c")]).table().to_pylist()
    found = next(row for row in live if row["transaction_id"] == mine["transaction_id"])
    assert [one["queue_offset"] for one in found["half_copies"]] == [
        one["queue_offset"] for one in mine["half_copies"]
    ]


def test_a_slot_that_only_the_check_reads_is_missing_evidence_as_where_all_are_read(
    tmp_path: Path, client: Client
) -> None:
    """Before, one transaction was ROLLED_BACK in `show`, and UNDECIDABLE in `audit`."""
    one = Served("common-5.3.3", tmp_path, client)
    rows = audit([one.store], one.settings_of).table().to_pylist()
    shown = next(row for row in rows if row["state"] == "ROLLED_BACK" and len(row["half_copies"]) == 1)
    cursor = (check_cursors(one.store).half or {})[0]
    assert shown["half_copies"][0]["queue_offset"] < cursor
    slots = damage.queue_files(tmp_path / "store", HALF_TOPIC)[0]
    damage.write_bytes(slots, cursor * 20, struct.pack(">qiq", 1 << 40, 200, 0))
    one.answers.store = open_store(tmp_path / "store")
    pulled = one.answers._answers[RequestCode.PULL_MESSAGE]

    def passing(request: Frame) -> Frame:
        found = pulled(request)
        place = int(request.fields["queueOffset"])
        if found.code != ResponseCode.PULL_NOT_FOUND or place >= int(found.fields["maxOffset"]):
            return found
        return response(
            request, ResponseCode.PULL_RETRY_IMMEDIATELY, nextBeginOffset=str(place + 1),
            minOffset=str(found.fields["minOffset"]), maxOffset=str(found.fields["maxOffset"]),
        )

    one.answers._answers[RequestCode.PULL_MESSAGE] = passing
    with one.server:
        reading = live_lookups.show([one.broker], shown["transaction_id"])
        audited = live_lookups.audit([one.broker]).table().to_pylist()
    states = [row["state"] for row in audited if row["transaction_id"] == shown["transaction_id"]]
    assert reading.table()["state"].to_pylist() == states == ["UNDECIDABLE"]
    assert any(str(cursor) in found.line() for found in reading.findings if found.code == "entries-unread")


class WithExpiredRecords(StoreBroker):
    """As 4.9.7 after it has deleted the first file of its log: the half queue still counts from 0, and the record at
    commit-log offset 0 is given as the first bytes of the file that is left (tests/brokers/forcing, test_guards_slow).
    """

    def _range(self, request: Frame) -> tuple[int, int]:
        return 0, super()._range(request)[1]

    def _records(self, offsets: list[int]) -> list[tuple[int, bytes]]:
        found = super()._records(offsets)
        if offsets and offsets[0] == 0 < self.store.log_begin_offset:
            return [(0, Path(self.store.commit_log[0].file).read_bytes()[:390]), *found]
        return found


def test_what_a_broker_gives_for_an_expired_record_hides_no_other(tmp_path: Path, client: Client) -> None:
    name = "killed-4.9.7"
    one = Served(name, tmp_path, client)
    first = Path(one.store.commit_log[0].file)
    with open_queue(one.store, HALF_TOPIC, 0) as queue:
        assert int(queue.read(0, 1)[1][0]) == 0, "the first half is the first record of the log"
    first.unlink()
    store = open_store(tmp_path / "store")
    answers = WithExpiredRecords(store, one.settings, "4.9.7")
    with FakeServer(answers) as server:
        reading = live_lookups.audit([Broker(client, server.address, "broker-a", "c")])
    found = {row["transaction_id"] for row in reading.table().to_pylist()}
    begin = store.log_begin_offset
    kept = [row for row in corpus.expected(name) if row["half_copies"][0]["commit_log_offset"] >= begin]
    assert {row["transaction_id"] for row in kept} <= found
    assert len(kept) > 20
    assert [finding for finding in reading.findings if finding.code == "record-damaged"] == []


class WithExpiredQueues(WithExpiredRecords):
    """As a broker whose queues of real topics still begin with entries of deleted files: what it no longer has it says
    to be on the move, and where all of a queue has expired the queue goes on to count from its old begin.
    """

    def _pull(self, request: Frame) -> Frame:
        begin, (low, high) = int(request.fields["queueOffset"]), self._range(request)
        places = self._places(request, begin, high)
        kept = [number for number, offset in enumerate(places) if offset >= self.store.log_begin_offset]
        if kept and not kept[0]:
            return super()._pull(request)
        following = begin + kept[0] if kept else high
        return response(
            request, ResponseCode.PULL_RETRY_IMMEDIATELY, nextBeginOffset=str(following), minOffset=str(low),
            maxOffset=str(high),
        )


def test_what_has_expired_from_a_queue_is_no_missing_evidence(tmp_path: Path, client: Client) -> None:
    """4.9.7 and 5.x after the first files of the log were deleted: plans and acts were refused for entries that nothing
    can rest on any more (tests/brokers/forcing, test_plans behind test_guards_slow).
    """
    one = Served("killed-4.9.7", tmp_path, client)
    for segment in one.store.commit_log[:3]:
        Path(segment.file).unlink()
    store = open_store(tmp_path / "store")
    with FakeServer(WithExpiredQueues(store, one.settings, "4.9.7")) as server:
        brokers = [Broker(client, server.address, "broker-a", "c")]
        reading = live_lookups.audit(brokers)
        rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
        assert [finding.line() for finding in reading.findings if finding.code == "entries-unread"] == []
        committed = [name for name, row in rows.items() if row["state"] == "COMMITTED"]
        looked_up = live_lookups.lookup(brokers, committed)
        assert {row["transaction_id"] for row in looked_up.table().to_pylist()} == set(committed)
        assert [finding.line() for finding in looked_up.findings if finding.code == "entries-unread"] == []
    assert len(committed) > 5


@pytest.mark.parametrize("are_slots_served", [True, False])
def test_a_half_message_is_read_in_its_slot_also_if_its_number_is_behind_the_queue(
    are_slots_served: bool, tmp_path: Path, client: Client
) -> None:
    """The last slot of 4.3.0 led behind the log, and the copy of its check that was written there had the next number.

    The audit of the broker ended with an error.
    """
    one = Served("common-4.3.0", tmp_path, client)
    file = damage.queue_files(tmp_path / "store", HALF_TOPIC)[-1]
    used = file.read_bytes().rstrip(b"\0")
    last = -(-len(used) // 20) * 20
    damage.write_bytes(file, last - 60, file.read_bytes()[last - 20 : last] + bytes(40))
    one.answers.store = store = open_store(tmp_path / "store")
    if not are_slots_served:
        one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = lambda request: response(request, 0)
    with open_queue(store, HALF_TOPIC, 0) as queue, one.server:
        behind = queue.max_offset + 1
        facts = live_store(one.broker)
        facts.half_cursor = 0
        source = LiveWitnesses(facts)
        source.window(is_whole=True)
        window = source.check_window(check_rules((4, 3, 0)))
        copy = window.state.halves.copy_at(behind - 2)
        assert copy is not None
        assert copy.queue_offset == behind
        assert live_lookups.audit([one.broker]).table().num_rows
