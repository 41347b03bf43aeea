"""Slots of the op queue of a live broker without a record: what its check does not read, and what no request finds.

Histories 1353124 on 4.3.0 to 4.9.7: a commit over the wire was `proved` in the first interval after a start, and the
check asked about it again (docs/histories.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.model import clock
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import OP_TOPIC, open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups as live_lookups
from rmqtx.remoting.live.store_facts import live_store
from rmqtx.remoting.live.witnesses import LiveWitnesses
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.repairs.acts.check_ahead import check_of_broker
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.verdicts.check.check_rules import check_rules
from rmqtx.verdicts.model.transaction import OpMark
from rmqtx.verdicts.model.verdict_words import NextEvent
from tests.forge.logs import Forge
from tests.histories.damages import DAMAGES
from tests.remoting.fake import FakeServer, response
from tests.remoting.store_broker import StoreBroker
from tests.remoting.test_live_questions import Row, Served

_BEHIND_A_FILLER = -(1 << 31)


class FromTheBegin(Served):
    """A broker whose check reads both queues from their begin, and has not run since the start."""

    def __init__(self, name: str, place: Path, client: Client, *damages: str) -> None:
        super().__init__(name, place, client, booted_ms=clock.now_ms())
        for kind in ("op cursor set", "half cursor set", *damages):
            DAMAGES[kind](place / "store", 0.0)
        self.store = self.answers.store = open_store(place / "store")
        ends = self.answers._ends
        # A filler leads to place 0, which the log has: the queue begins with it.
        self.answers._answers[RequestCode.GET_MIN_OFFSET] = lambda request: response(request, offset="0")
        self.answers._answers[RequestCode.GET_MAX_OFFSET] = lambda request: ends(request, 1)
        self.pulled = self.answers._answers[RequestCode.PULL_MESSAGE]
        self.answers._answers[RequestCode.PULL_MESSAGE] = self._passing

    def _passing(self, request: Frame) -> Frame:
        """A slot without a record is passed, as by a broker."""
        found, place = self.pulled(request), int(request.fields["queueOffset"])
        end = int(found.fields.get("maxOffset", "0"))
        if found.code != ResponseCode.PULL_NOT_FOUND or place >= end:
            return found
        return response(
            request, ResponseCode.PULL_RETRY_IMMEDIATELY, nextBeginOffset=str(place + 1), minOffset="0",
            maxOffset=str(end),
        )

    def audited(self) -> tuple[dict[str, Row], list[str]]:
        reading = live_lookups.audit([self.broker])
        rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
        return rows, [finding.code for finding in reading.findings]


@pytest.mark.parametrize("name", ["busystop-4.9.7", "busystop-5.3.3"])
def test_the_check_passes_op_messages_behind_a_slot_without_a_record(
    name: str, tmp_path: Path, client: Client
) -> None:
    """Decided transactions had no next event; of 4.9.7 the record at place 0 was read as if it were the op message."""
    one = FromTheBegin(name, tmp_path / "filler", client, "fillers in the op queue")
    with one.server:
        rows, codes = one.audited()
        facts = live_store(one.broker)
        source = LiveWitnesses(facts)
        source.window(is_whole=True)
        window = source.check_window(check_rules(one.settings.known_version or (0, 0, 0)))
        source.note_unread()
        ahead = check_of_broker(facts)
    assert "entries-unread" in codes
    assert [read.returned for read in window.state.op_reads.values()] == [None]
    assert window.state.op_reads[0].end == window.state.op_end
    assert ahead is not None
    assert ahead.hides_new == {OP_TOPIC}
    sound = FromTheBegin(name, tmp_path / "sound", client)
    with sound.server:
        others, codes = sound.audited()
        assert check_of_broker(live_store(sound.broker)) is None
    assert "entries-unread" not in codes
    settled = {
        name for name, row in others.items()
        if row["state"] in ("COMMITTED", "ROLLED_BACK") and row["next_event"] == NextEvent.NONE
    }
    assert len(settled) > 1
    assert {rows[name]["next_event"] for name in settled} != {NextEvent.NONE}


def _not_in_queue(one: Served, number: int) -> str | None:
    """What `prove` asks after an act whose op message has a number."""
    medium = LiveMedium([one.broker], [BrokerAddresses("c", "broker-a", {0: one.broker.address})])
    medium.look([])
    return medium.not_in_queue(OpMark(one.broker.root, 0, number, 0, 0, 0))


def test_an_op_message_behind_slots_that_no_request_shows_is_not_proved_before_the_first_round(
    tmp_path: Path, client: Client
) -> None:
    """Before 4.7 a broker shows no slot: the op message in the log proved the act, also behind a filler."""
    one = FromTheBegin("common-4.3.0", tmp_path, client)

    def hidden(request: Frame) -> Frame:
        return response(request, 0)

    shown = one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE]
    one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = hidden
    with one.server:
        found = _not_in_queue(one, 3)
        assert found is not None
        assert "has not run its check since its start" in found
        assert _not_in_queue(one, 0) is None, "the first op message that the check reads"
        one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = shown
        assert _not_in_queue(one, 3) is None, "its slots are read"
        one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = hidden
        one.answers.booted_ms -= one.settings.transaction_check_interval_ms + 2_000
        assert _not_in_queue(one, 3) is None, "the first round has passed what has no record"


@pytest.mark.parametrize("name", ["common-4.3.0", "busystop-4.4.0"])
def test_before_the_first_round_the_next_event_of_what_is_decided_is_unknown_where_no_slot_is_shown(
    name: str, tmp_path: Path, client: Client
) -> None:
    """It was `none`, and the check of 4.3.0, 4.4.0 and 4.6.1 asked about a committed transaction behind a filler."""
    one = FromTheBegin(name, tmp_path, client)
    one.answers._answers[RequestCode.QUERY_CONSUME_QUEUE] = lambda request: response(request, 0)
    with one.server:
        before, states = _events(one)
        one.answers.booted_ms -= one.settings.transaction_check_interval_ms + 2_000
        later, _ = _events(one)
    settled = {name for name, event in later.items() if event == NextEvent.NONE} & {
        name for name, state in states.items() if state in ("COMMITTED", "ROLLED_BACK")
    }
    assert len(settled) > 1
    assert {before[name] for name in settled} == {NextEvent.UNKNOWN}
    assert {name for name in before if before[name] != later[name]} == settled


def _events(one: FromTheBegin) -> tuple[dict[str, str], dict[str, str]]:
    """The next event and the state of each transaction."""
    rows, _ = one.audited()
    return {name: row["next_event"] for name, row in rows.items()}, {name: row["state"] for name, row in rows.items()}


def test_records_that_get_no_slot_are_missing_evidence(tmp_path: Path, client: Client) -> None:
    """4.5.0 to 4.9.8 with a filler at the end of a queue: a commit after the start was PENDING, or ROLLED_BACK."""
    one = FromTheBegin("common-4.9.7", tmp_path / "old", client)
    with one.server:
        sound, _ = one.audited()
        one.answers.behind_bytes = _BEHIND_A_FILLER
        rows, codes = one.audited()
    assert "dispatch-ahead" in codes
    assert {row["state"] for row in sound.values()} >= {"PENDING", "ROLLED_BACK", "COMMITTED"}
    kept = ("COMMITTED", "UNDECIDABLE")
    assert all(
        rows[name]["state"] == (row["state"] if row["state"] in kept else "UNDECIDABLE") for name, row in sound.items()
    )

    later = FromTheBegin("common-5.3.3", tmp_path / "new", client)
    later.answers.behind_bytes = _BEHIND_A_FILLER
    with later.server:
        _, codes = later.audited()
    assert "dispatch-ahead" not in codes, "a broker in controller mode may not know its confirm offset"


def test_a_dispatch_that_is_ahead_for_a_moment_is_not_reported(tmp_path: Path, client: Client) -> None:
    """A broker reads the end of its log before it computes how far the dispatch is behind."""
    one = FromTheBegin("common-4.9.7", tmp_path, client)
    one.answers.behind_bytes = -100
    runtime = one.answers._answers[RequestCode.GET_BROKER_RUNTIME_INFO]

    def growing(request: Frame) -> Frame:
        found = runtime(request)
        end = one.store.commit_log[-1].end_offset
        count = one.answers.counts[RequestCode.GET_BROKER_RUNTIME_INFO]
        return response(request, body=found.body.replace(f'"{end}"'.encode(), f'"{end + 100 * count}"'.encode()))

    one.answers._answers[RequestCode.GET_BROKER_RUNTIME_INFO] = growing
    with one.server:
        assert "dispatch-ahead" not in one.audited()[1]


@pytest.mark.parametrize("slots_count", [0, 1, 3])
def test_op_messages_that_got_no_slot_settle_nothing_where_the_log_is_read_for_them(
    slots_count: int, tmp_path: Path, client: Client
) -> None:
    """Histories 1353262 on 4.3.0: a start cut the op queue, and the next event of a committed transaction was `none`.

    The check read its half message again, and asked.
    """
    forge = Forge(tmp_path / "store")
    halves = [forge.half(name) for name in "ABC"]
    for half in halves:
        forge.commit(half)
        forge.op(half)
    del forge._slots[OP_TOPIC, 0][slots_count:]
    store = open_store(forge.write())
    settings = broker_settings(store, conf={"fileReservedTime": "1000000"}, version="4.3.0")
    answers = StoreBroker(store, settings, "4.3.0", clock.now_ms() - settings.transaction_check_interval_ms - 2_000)
    with FakeServer(answers) as server:
        rows = live_lookups.audit([Broker(client, server.address, "b", "c")]).table().to_pylist()
    assert {row["state"] for row in rows} == {"COMMITTED"}
    assert [row["transaction_id"] for row in rows if row["next_event"] == NextEvent.NONE] == list("ABC")[:slots_count]
