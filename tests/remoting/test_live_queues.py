"""Queues are read whole whatever the broker gives at once, refuses for a moment, lacks or breaks off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.remoting.connections.batched_reads import Pace, UnreadEntries, queries
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import half_numbers
from rmqtx.remoting.live.queues import OpsUnreadable, left_slots, ops, records
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import NoAnswer, Refused
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.remoting.protocol.record_bytes import blocks_of, cut
from rmqtx.verdicts.model.verdict_inputs import NOWHERE
from tests.forge.damage import log_files, records_in
from tests.forge.logs import Forge
from tests.forge.stores import copy_of
from tests.remoting.fake import Answer, FakeServer, response

NAME = "common-5.3.3"


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The records of a real half queue."""
    store = open_store(copy_of(NAME, tmp_path_factory.mktemp("store")))
    log = store.log()
    with open_queue(store, HALF_TOPIC, 0) as queue:
        _, offsets, lengths, _ = queue.read(queue.first_offset, queue.max_offset)
        found = [log.read(offset, length) for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True)]
    log.close()
    assert len(found) > 200
    return found


class Queue:
    """A broker with one queue: gives so many records at once, and none of those that are gone."""

    def __init__(self, bodies: list[bytes], at_once: int = 32, gone: range = range(0)) -> None:
        self.bodies, self.at_once, self.gone = bodies, at_once, gone

    def pulled(self, request: Frame) -> Frame:
        """The response to a pull."""
        place, count = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
        if place in self.gone:
            return self._response(request, ResponseCode.PULL_RETRY_IMMEDIATELY, self.gone.stop)
        stop = min(place + count, place + self.at_once, len(self.bodies))
        stop = min([stop, *(number for number in self.gone if number > place)])
        if place >= stop:
            return self._response(request, ResponseCode.PULL_NOT_FOUND, place)
        return self._response(request, ResponseCode.SUCCESS, stop, b"".join(self.bodies[place:stop]))

    def _response(self, request: Frame, code: int, following: int, body: bytes = b"") -> Frame:
        return response(
            request, code, body=body, nextBeginOffset=str(following), minOffset="0", maxOffset=str(len(self.bodies))
        )


def read(answer: Callable[[Frame], Answer], count: int, begin: int = 0) -> tuple[list[int], list[UnreadEntries], int]:
    """Commit-log offsets of the records in the order they came, the gaps, and how many requests it took."""
    gaps: list[UnreadEntries] = []
    with FakeServer(answer) as server, Client() as client:
        broker = Broker(client, server.address, "broker-a", "c")
        parts = list(records(broker, HALF_TOPIC, 0, begin, count, Pace(), gaps))
        return [offset for part in parts for offset in cut(part)[1]], gaps, len(server.requests)


def offsets_of(bodies: list[bytes]) -> list[int]:
    return [cut(body)[1][0] for body in bodies]


@pytest.mark.parametrize("at_once", [1, 7, 8, 31, 32])
def test_every_record_comes_once_and_in_order(bodies: list[bytes], at_once: int) -> None:
    found, gaps, _ = read(Queue(bodies, at_once).pulled, len(bodies))
    assert found == offsets_of(bodies)
    assert gaps == []


def test_a_range_ends_where_it_was_to_end(bodies: list[bytes]) -> None:
    found, _, requests = read(Queue(bodies).pulled, 101, begin=3)
    assert found == offsets_of(bodies[3:101])
    assert requests == 4


def test_records_that_are_gone_are_a_gap_and_the_others_come(bodies: list[bytes]) -> None:
    found, gaps, _ = read(Queue(bodies, gone=range(40, 75)).pulled, len(bodies))
    assert found == offsets_of(bodies[:40] + bodies[75:])
    missing = {number for gap in gaps for number in range(gap.begin, gap.end)}
    assert missing == set(range(40, 75))


@pytest.mark.parametrize("trouble", ["busy", "cut"])
def test_a_busy_broker_and_a_broken_connection_cost_nothing_but_time(bodies: list[bytes], trouble: str) -> None:
    queue, asked = Queue(bodies), []

    def answer(request: Frame) -> Answer:
        asked.append(request)
        if len(asked) == 5:
            return response(request, ResponseCode.SYSTEM_BUSY, "broker busy") if trouble == "busy" else None
        return queue.pulled(request)

    found, gaps, _ = read(answer, len(bodies))
    assert found == offsets_of(bodies)
    assert gaps == []


def test_a_broker_that_stays_busy_or_refuses_is_not_asked_for_ever(bodies: list[bytes]) -> None:
    with pytest.raises(Refused) as busy:
        read(lambda request: response(request, ResponseCode.SYSTEM_BUSY, "broker busy"), len(bodies))
    assert busy.value.code == ResponseCode.SYSTEM_BUSY
    with pytest.raises(Refused) as refused:
        read(lambda request: response(request, ResponseCode.NO_PERMISSION, "no"), len(bodies))
    assert refused.value.code == ResponseCode.NO_PERMISSION
    with pytest.raises(NoAnswer, match=f"about {HALF_TOPIC}/0 from queue offset 0 on - .*rmqtx verify STORE"):
        read(lambda _request: None, len(bodies))


def test_bytes_that_are_no_record_are_found_and_the_others_come(bodies: list[bytes]) -> None:
    torn = bytearray(bodies[1])
    torn[84:88] = (1 << 30).to_bytes(4, "big")  # the body's length: the parts add up no more
    findings: list[Finding] = []
    blocks = list(blocks_of([bodies[0] + bytes(torn), bodies[2] + b"\0" * 50], "root", findings))
    assert [block.commit_log_offsets.tolist() for block in blocks] == [[offsets_of(bodies)[0], offsets_of(bodies)[2]]]
    assert [(f.code, f.commit_log_offset) for f in findings] == [
        ("record-damaged", None), ("record-damaged", offsets_of(bodies)[1])
    ]


def test_ops_that_cannot_be_pulled_are_read_one_by_one_or_said_to_be_unreadable(bodies: list[bytes]) -> None:
    places = offsets_of(bodies)

    def answer(request: Frame) -> Answer:
        if request.code == RequestCode.PULL_MESSAGE:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, "no topic")
        if request.code == RequestCode.VIEW_MESSAGE_BY_ID:
            return response(request, body=bodies[places.index(int(request.fields["offset"]))])
        begin, count = int(request.fields["index"]), int(request.fields["count"])
        slots = ",".join(
            f'{{"physicOffset":{place},"physicSize":1,"tagsCode":0}}' for place in places[begin : begin + count]
        )
        return response(
            request, body=f'{{"queueData":[{slots}],"minQueueIndex":0,"maxQueueIndex":{len(places)}}}'.encode()
        )

    gaps: list[UnreadEntries] = []
    with FakeServer(answer) as server, Client() as client:
        broker = Broker(client, server.address, "broker-a", "c")
        assert list(ops(broker, 5, 60, Pace(), gaps)) == bodies[5:60]
        places.clear()
        with pytest.raises(OpsUnreadable):
            list(ops(broker, 5, 60, Pace(), gaps))


def test_a_key_with_more_records_than_a_broker_gives_is_asked_for_again(bodies: list[bytes]) -> None:
    times = [int.from_bytes(body[56:64], "big") for body in bodies]

    def answer(request: Frame) -> Answer:
        end_ms = int(request.fields["endTimestamp"])
        newest = [body for body, time_ms in zip(bodies, times, strict=True) if time_ms <= end_ms][-32:]
        return response(request, body=b"".join(newest))

    with FakeServer(answer) as server, Client() as client:
        broker = Broker(client, server.address, "broker-a", "c")
        parts = list(queries(broker, [("topic", "key")], Pace()))
        assert {offset for part in parts for offset in cut(part)[1]} == set(offsets_of(bodies))
        assert len(server.requests) < len(bodies)


def test_a_key_with_more_records_in_a_moment_than_a_broker_gives_is_said_to_be_incomplete(bodies: list[bytes]) -> None:
    incomplete: list[str] = []
    with FakeServer(lambda request: response(request, body=bodies[0] * 32)) as server, Client() as client:
        broker = Broker(client, server.address, "broker-a", "c")
        assert len(list(queries(broker, [("topic", "key")], Pace(), incomplete))) == 2
    assert incomplete == ["topic#key"]


def test_the_pace_is_kept(bodies: list[bytes]) -> None:
    pace = Pace(50)
    waited: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        clock = [100.0]

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            clock[0] += seconds

        patch.setattr("rmqtx.remoting.connections.batched_reads.time.sleep", sleep)
        patch.setattr("rmqtx.remoting.connections.batched_reads.time.monotonic", lambda: clock[0])
        for _ in range(26):
            pace.wait()
    assert sum(waited) == pytest.approx(0.5)


def test_records_behind_bytes_that_are_none_are_read(bodies: list[bytes]) -> None:
    """A real 4.9.7 gave 390 bytes of a longer record for an expired one, and the two records behind it after these."""
    findings: list[Finding] = []
    wrong = bytes.fromhex("0000c0d1daa320a7") + bodies[0][8:]
    body = bodies[3] + wrong[:390] + bodies[5] + bodies[6] + wrong[:100]
    (block,) = blocks_of([body, bodies[7]], "a@b", findings)
    assert sorted(block.commit_log_offsets.tolist()) == sorted(offsets_of([bodies[n] for n in (3, 5, 6, 7)]))
    assert [(finding.code, finding.length_bytes) for finding in findings] == [("record-damaged", 390),
                                                                            ("record-damaged", 100)]


def test_a_record_that_comes_twice_is_one_unless_one_of_them_is_damaged(bodies: list[bytes]) -> None:
    """For a slot that leads between two records, a broker sends bytes that can contain a record of another slot."""
    findings: list[Finding] = []
    damaged = bodies[3][:84] + b"\1" + bodies[3][85:]  # the length of its body
    (block,) = blocks_of([damaged + bodies[3], bodies[5] + bodies[5], bodies[3]], "a@b", findings)
    assert block.commit_log_offsets.tolist() == sorted(offsets_of([bodies[3], bodies[5]]))
    assert [finding.length_bytes for finding in findings] == [len(bodies[3])]


def test_entries_that_a_pull_passes_are_gaps_and_hide_no_others(bodies: list[bytes]) -> None:
    """Behind a record that it cannot read, a broker passes those in the same file of the log, in that pull only."""
    queue, gone, file = Queue(bodies), 40, range(40, 47)

    def passing(request: Frame) -> Frame:
        place, count = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
        stop = min(place + count, place + 32, len(bodies))
        left = [number for number in range(place, stop) if not place <= gone <= number or number not in file]
        if not left:
            return queue._response(request, ResponseCode.PULL_RETRY_IMMEDIATELY, file.stop)
        return queue._response(request, ResponseCode.SUCCESS, stop, b"".join(bodies[number] for number in left))

    found, gaps, _ = read(passing, 100)
    assert found == offsets_of(bodies[:gone] + bodies[gone + 1:100])
    assert gaps == [UnreadEntries(HALF_TOPIC, 0, gone, gone + 1)]


def test_a_number_behind_the_queue_has_no_slot_whatever_its_last_slot_leads_to(bodies: list[bytes]) -> None:
    """The copy of a check got no slot because the last one leads behind the log: the row was LOST or PENDING."""
    queue = Queue(bodies, gone=range(len(bodies) - 1, len(bodies)))

    def served(request: Frame) -> Frame:
        if request.code == RequestCode.GET_MAX_OFFSET:
            return response(request, offset=str(len(bodies)))
        return queue.pulled(request)

    with FakeServer(served) as server, Client() as client:
        facts = SimpleNamespace(broker=Broker(client, server.address, "broker-a", "c"), root="broker-a")
        assert half_numbers.owner_of(facts, len(bodies)) == (NOWHERE, NOWHERE)  # type: ignore[arg-type]
        assert half_numbers.owner_of(facts, len(bodies) - 1) is None  # type: ignore[arg-type]


def test_bytes_of_a_slot_that_end_within_a_record_are_not_joined_with_those_of_the_next(bodies: list[bytes]) -> None:
    """4.4.0: a slot that a power loss left leads over later records; by chance there was one record for each entry."""
    served = Queue([bodies[0], bodies[1] + bodies[2] + bodies[3][:-8], bodies[2], bodies[3]])
    with FakeServer(served.pulled) as server, Client() as client:
        broker = Broker(client, server.address, "broker-a", "c")
        parts = list(records(broker, HALF_TOPIC, 0, 0, 4, Pace(), []))
    (block,) = blocks_of(parts, "a@b", [])
    assert [bytes(block.data[start : start + length]) for start, length in zip(block.starts, block.lengths, strict=True)
            ] == bodies[:4]


def test_a_record_behind_the_range_does_not_stand_for_one_that_the_broker_passes(bodies: list[bytes]) -> None:
    """A pull that passes the last entry of its range gives one record more: as many as entries, but not theirs."""
    gone = 31

    def passing(request: Frame) -> Frame:
        place, count = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
        left = [number for number in range(place, len(bodies)) if number != gone][:count]
        body = b"".join(bodies[number] for number in left)
        return Queue(bodies)._response(request, ResponseCode.SUCCESS, left[-1] + 1, body)

    found, gaps, _ = read(passing, 64)
    assert found == offsets_of(bodies[:gone] + bodies[gone + 1:64])
    assert gaps == [UnreadEntries(HALF_TOPIC, 0, gone, gone + 1)]


@pytest.mark.parametrize("zeros", [range(1), range(40, 41), range(70, 110), range(90, 100)])
def test_slots_of_zeros_are_gaps_although_they_break_each_pull_that_meets_them(
    bodies: list[bytes], zeros: range
) -> None:
    """Histories 1353262 and 1353308 on 4.9.7 and 5.0.0: live commands ended, and nothing was read."""
    queue = Queue(bodies)

    def breaking(request: Frame) -> Frame:
        place, count = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
        if any(place <= number < place + count for number in zeros):
            return response(request, ResponseCode.SYSTEM_ERROR, "java.lang.IndexOutOfBoundsException, java.nio.Buffer")
        return queue.pulled(request)

    found, gaps, requests = read(breaking, 100)
    assert found == offsets_of([body for number, body in enumerate(bodies[:100]) if number not in zeros])
    assert gaps == [UnreadEntries(HALF_TOPIC, 0, zeros.start, min(zeros.stop, 100))]
    assert requests <= len(zeros) + 80


def test_a_broker_that_refuses_for_another_reason_is_not_asked_slot_by_slot(bodies: list[bytes]) -> None:
    with pytest.raises(Refused, match="NullPointerException"):
        read(lambda request: response(request, ResponseCode.SYSTEM_ERROR, "NullPointerException"), len(bodies))


def test_a_broker_that_cannot_search_by_time_for_a_slot_of_zeros_has_no_place_for_it() -> None:
    """4.9.7; of another refusal nothing is known."""
    texts = iter(["java.lang.IndexOutOfBoundsException, java.nio.Buffer", "NullPointerException"])
    with (
        FakeServer(lambda request: response(request, ResponseCode.SYSTEM_ERROR, next(texts))) as server,
        Client() as client,
    ):
        broker = Broker(client, server.address, "broker-a", "c")
        assert broker.offset_at(HALF_TOPIC, 0, 1) is None
        with pytest.raises(Refused):
            broker.offset_at(HALF_TOPIC, 0, 1)


def test_slots_that_lead_over_the_next_one_or_over_the_end_of_the_log_are_left_ones() -> None:
    places = {number: (number * 100, 100) for number in range(2_500)}
    places |= {1_000: (100_000, 101), 1_700: (900_000, 100), 2_499: (249_900, 101)}

    def served(request: Frame) -> Frame:
        begin, count = int(request.fields["index"]), int(request.fields["count"])
        data = [
            {"physicOffset": places[number][0], "physicSize": places[number][1], "tagsCode": 0}
            for number in range(begin, min(begin + count, len(places)))
        ]
        value = {"queueData": data, "minQueueIndex": 0, "maxQueueIndex": len(places)}
        return response(request, body=json.dumps(value).encode())

    with FakeServer(served) as server, Client() as client:
        broker = Broker(client, server.address, "broker-a", "c")
        assert {*left_slots(broker, 0, 2_500, 250_000)} == {1_000, 1_700, 2_499}
        assert not {*left_slots(broker, 1_001, 1_700, 250_000)}


def test_a_record_of_another_topic_in_the_half_queue_has_no_half_number(tmp_path: Path) -> None:
    """A slot that a power loss left leads to a later COMMIT record: its number was taken for that of a half message."""
    forge = Forge(tmp_path / "store")
    half = forge.half("A")
    final = forge.commit(half)
    (file,) = log_files(forge.write())
    ends = dict(records_in(file))
    data = file.read_bytes()
    pulled = half_numbers.PulledHalves()
    for block in blocks_of([data[begin : begin + ends[begin]] for begin in (half, final)], "broker", []):
        pulled.add(block)
    assert pulled.places.tolist() == [half]
