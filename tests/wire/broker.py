"""A broker of a world, as 5.3.3 or 4.9.7: log, queues, index, END_TRANSACTION, op batch, check, resumes.

Its records are those of `record_writer`, which are compared with real ones; its rules are written here once more, and
are few, so that the product is not judged by its own.
Source: TransactionalMessageServiceImpl, EndTransactionProcessor, TransactionalOpBatchService of both releases;
docs/formats/half_and_op.md, docs/formats/end_transaction.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from rmqtx.readers.store.broker_conf import PROXY_TOPIC
from rmqtx.readers.store.store import CHECK_GROUP, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqtx.remoting.protocol.codes import COMMIT, IS_ONEWAY, IS_RESPONSE, RequestCode, ResponseCode
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.repairs.records.record_writer import (
    RecordDraft,
    WritingRules,
    discard_copy_of,
    draft_of,
    final_of,
    half_copy_of,
    op_of,
    property_values,
)
from tests.wire.network import Wire
from tests.wire.world import World

_AT_ONCE = 32
_QUEUE_LIMIT_SECONDS = 3.0
_CURSORS_KEPT_SECONDS = 5.0
_SLEEP_WITHOUT_OPS_SECONDS = 1.0


@dataclass(frozen=True)
class Decision:
    """A decision that a broker carried out.

    Shape: `sent_ns`: when the broker received it; `named`: the half copy's queue offset; `request`: the connection and
           the number of the request on it.
    """

    time_ns: int
    sent_ns: int
    transaction_id: str
    by: str
    is_ours: bool
    is_commit: bool
    named: int
    request: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Stored:
    """A record in the log."""

    data: bytes
    topic: str
    queue_id: int
    queue_offset: int
    offset: int
    store_time_ms: int
    transaction_id: str


@dataclass
class Rules:
    """Settings of a broker, and its release. Units: milliseconds, hours."""

    version: str = "5.3.3"
    time_out_ms: int = 6_000
    check_max: int = 15
    interval_ms: int = 30_000
    op_interval_ms: int = 3_000
    reserved_hours: int = 72
    dispatch_seconds: float = 0.0
    more: dict[str, str] = field(default_factory=dict)

    @property
    def has_lists(self) -> bool:
        """Whether op messages are batched (5.1.0+)."""
        return self.version.startswith("5")

    def conf(self, name: str) -> dict[str, str]:
        """As GET_BROKER_CONFIG reports them."""
        found = {
            "transactionTimeOut": self.time_out_ms, "transactionCheckMax": self.check_max,
            "transactionCheckInterval": self.interval_ms, "fileReservedTime": self.reserved_hours,
            "brokerRole": "ASYNC_MASTER", "brokerName": name, "brokerClusterName": "c", "brokerId": 0,
            "brokerFastFailureEnable": "true", "waitTimeMillsInTransactionQueue": 3000,
            "rejectTransactionMessage": "false", "mappedFileSizeCommitLog": 1 << 30, "messageIndexEnable": "true",
        }
        if self.has_lists:
            found |= {"transactionOpBatchInterval": self.op_interval_ms, "transRocksDBEnable": "false"}
        return {name: str(value) for name, value in found.items()} | self.more

    def take(self, values: dict[str, str]) -> None:
        """Set some of them, as UPDATE_BROKER_CONFIG does."""
        for name, value in values.items():
            if name == "transactionCheckMax":
                self.check_max = int(value)
            elif name == "fileReservedTime":
                self.reserved_hours = int(value)
            elif name == "transactionOpBatchInterval":
                self.op_interval_ms = int(value)
            else:
                self.more[name] = value


def response(request: Frame, code: int = 0, remark: str | None = None, body: bytes = b"", **fields: object) -> Frame:
    """The response to a request."""
    texts = {name: str(value) for name, value in fields.items()}
    return Frame(code, request.opaque, texts, body, IS_RESPONSE, remark, 479, "JAVA")


class Broker:
    """A broker.

    Shape: `decisions`, `discards`, `put_backs`: what really happened; `reopened`: resumes of transactions with a copy
           that the check reaches, by process.
    """

    def __init__(self, world: World, name: str, host: str, rules: Rules) -> None:
        self.world, self.name, self.address, self.rules = world, name, f"{host}:10911", rules
        self.is_up = True
        self.host_bytes = bytes(int(part) for part in host.split(".")) + (10911).to_bytes(4, "big")
        self.writing = WritingRules(
            ops_are_lists=rules.has_lists, finals_name_destination=True, properties_are_closed=True,
            has_property_crc=False, writes_discard_copy=True,
        )
        self.log: dict[int, Stored] = {}
        self.log_end = 0
        self.queue_ends: dict[tuple[str, int], int] = {}
        self.queues: dict[tuple[str, int], list[Stored]] = {}
        self.index: dict[str, list[Stored]] = {}
        self.undispatched: list[Stored] = []
        self.cursors = {HALF_TOPIC: 0, OP_TOPIC: 0}
        self.kept_cursors = dict(self.cursors)
        self.op_batch: list[int] = []
        self.written_marks: set[int] = set()
        self.booted_ms = world.now_ms - 3_600_000
        self.producers: dict[str, dict[Wire, str]] = {}
        self.refuses: dict[int, ResponseCode] = {}
        self.slow: Callable[[], float] = lambda: 0.0
        self.decisions: list[Decision] = []
        self.put_backs: list[tuple[int, str]] = []
        self.reopened: list[tuple[str, str]] = []
        self.killed_count = 0
        self.lost_ops: set[int] = set()
        self.discards: list[tuple[int, str]] = []
        self._resumes: set[tuple[int, int]] = set()
        self._life = 0
        self._answers: dict[int, Callable[[Frame], Frame]] = {
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.QUERY_CONSUMER_OFFSET: self._cursor,
            RequestCode.GET_MIN_OFFSET: lambda request: response(request, offset=0),
            RequestCode.GET_MAX_OFFSET: lambda request: response(request, offset=len(self._queue(request))),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._offset_at,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_CONSUME_QUEUE: self._slots,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
        }
        self._start()

    @property
    def root(self) -> str:
        """As in the column `store`."""
        return f"{self.name}@{self.address}"

    def state(self) -> tuple[object, ...]:
        """All that a look-up depends on."""
        return (
            self.log_end, len(self.undispatched), *self.cursors.values(), self.booted_ms, self.is_up,
            tuple(self.refuses), self.rules.check_max, self.rules.reserved_hours,
        )

    # -- life ---------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._life += 1
        life = self._life
        self._every(life, lambda: self.rules.interval_ms / 1000, self._check)
        self._every(life, lambda: self.rules.op_interval_ms / 1000, self.write_ops)
        self._every(life, lambda: _CURSORS_KEPT_SECONDS, self.keep_cursors)

    def _every(self, life: int, seconds: Callable[[], float], function: Callable[[], Iterator[float] | None]) -> None:
        def step(going: Iterator[float] | None) -> None:
            if life != self._life or not self.is_up:
                return
            pause = None if going is None else next(going, None)
            if pause is not None:
                self.world.at(pause, lambda: step(going))
            else:
                self.world.at(max(0.01, seconds()), lambda: step(function()))

        self.world.at(self.world.random.uniform(0.01, max(0.02, seconds())), lambda: step(function()))

    def stop(self, *, is_killed: bool) -> None:
        """Stop; a kill loses the op batch and some of the cursors, not the log."""
        self.world.note(f"{self.name} is {'killed' if is_killed else 'stopped'}")
        if is_killed:
            self.killed_count += 1
            self.lost_ops |= self.marks_in_memory()
            self.op_batch.clear()
            self.cursors = dict(self.kept_cursors)
        else:
            self.write_ops()
        self.is_up = False
        self._life += 1
        self.producers.clear()

    def start(self) -> None:
        """Start again on the same log."""
        self.world.note(f"{self.name} starts")
        self.is_up = True
        self.booted_ms = self.world.now_ms
        self._dispatch()
        self._start()

    def keep_cursors(self) -> None:
        """Write the cursors to the disk."""
        self.kept_cursors = dict(self.cursors)

    # -- log ----------------------------------------------------------------------------------------------------------

    def append(self, draft: RecordDraft, transaction_id: str) -> Stored:
        """Append a record to the log; queues and index have it when it is dispatched."""
        place = (draft.topic, draft.queue_id)
        number = self.queue_ends.get(place, 0)
        self.queue_ends[place] = number + 1
        data = draft.record(
            self.writing, queue_offset=number, commit_log_offset=self.log_end, store_time_ms=self.world.now_ms
        )
        stored = Stored(data, *place, number, self.log_end, self.world.now_ms, transaction_id)
        self.log[stored.offset] = stored
        self.log_end += len(data)
        self.undispatched.append(stored)
        if self.rules.dispatch_seconds:
            self.world.at(self.rules.dispatch_seconds, self._dispatch)
        else:
            self._dispatch()
        return stored

    def _dispatch(self) -> None:
        for stored in self.undispatched:
            self.queues.setdefault((stored.topic, stored.queue_id), []).append(stored)
            if stored.transaction_id:
                self.index.setdefault(f"{stored.topic}#{stored.transaction_id}", []).append(stored)
                key = property_values(draft_of(stored.data).properties).get(b"KEYS")
                if key is not None:
                    self.index.setdefault(f"{stored.topic}#{key.decode()}", []).append(stored)
        self.undispatched.clear()

    def send_half(self, transaction_id: str, group: str, topic: str, age_ms: int) -> Stored:
        """Store a half message of a producer, as if it was sent some time ago."""
        pairs = {
            "KEYS": f"key-{transaction_id[-6:]}", "UNIQ_KEY": transaction_id, "TRAN_MSG": "true", "PGROUP": group,
            "WAIT": "true", "REAL_TOPIC": topic, "REAL_QID": "0",
        }
        area = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
        draft = RecordDraft(
            topic=HALF_TOPIC, queue_id=0, body=transaction_id.encode(), properties=area,
            born_time_ms=self.world.now_ms - age_ms, born_host=self.host_bytes, store_host=self.host_bytes,
        )
        return self.append(draft, transaction_id)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def end_transaction(
        self, fields: dict[str, str], by: str, *, is_ours: bool, sent_ns: int, request: tuple[int, int] = (0, 0)
    ) -> tuple[int, str | None]:
        """Carry out END_TRANSACTION; response code and remark."""
        half = self.log.get(int(fields["commitLogOffset"]))
        if half is None:
            return ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"
        group = property_values(draft_of(half.data).properties).get(b"PGROUP", b"").decode()
        if group != fields["producerGroup"]:
            return ResponseCode.SYSTEM_ERROR, "The producer group wrong"
        if half.queue_offset != int(fields["tranStateTableOffset"]):
            return ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
        is_commit = int(fields["commitOrRollback"]) == COMMIT
        place = (half.transaction_id, by, is_ours, is_commit, half.queue_offset)
        self.decisions.append(Decision(self.world.now_ns, sent_ns, *place, request))
        self.world.note(
            f"{self.name}: {'commit' if is_commit else 'rollback'} of {half.transaction_id} copy {half.queue_offset} "
            f"by {by}"
        )
        if is_commit:
            self.append(final_of(half.data, self.writing), half.transaction_id)
        self.op_batch.append(half.queue_offset)
        if not self.rules.has_lists:
            self.write_ops()
        return 0, None

    def write_ops(self) -> None:
        """Write the op messages that are in memory."""
        if not self.op_batch:
            return
        parts = [self.op_batch] if self.rules.has_lists else [[number] for number in self.op_batch]
        for numbers in parts:
            self.append(
                op_of(numbers, self.writing, queue_id=0, broker_host=self.host_bytes, now_ms=self.world.now_ms), ""
            )
        self.written_marks.update(self.op_batch)
        self.op_batch = []

    def marks_in_memory(self) -> set[int]:
        """Half queue offsets that only an op message in memory names: not those of a copy that is decided twice."""
        return set(self.op_batch) - self.written_marks

    def discard(self, half: Stored) -> None:
        """Copy a half message to the discard topic."""
        self.discards.append((self.world.now_ns, half.transaction_id))
        self.append(discard_copy_of(half.data), half.transaction_id)

    def put_back(self, half: Stored) -> Stored:
        """Append a copy of a half message that the check counts."""
        draft = draft_of(half.data)
        checks = int(property_values(draft.properties).get(b"TRANSACTION_CHECK_TIMES", b"0"))
        copy = replace(half_copy_of(half.data), properties=_counted(draft.properties, checks + 1))
        self.put_backs.append((self.world.now_ns, half.transaction_id))
        return self.append(copy, half.transaction_id)

    def pass_half(self) -> None:
        """Move the check's cursor over a half message."""
        self.cursors[HALF_TOPIC] += 1
        self.keep_cursors()

    def is_open(self, transaction_id: str) -> bool:
        """Whether the check reaches a copy that no decision settles."""
        settled = {one.named for one in self.decisions if one.named not in self.lost_ops}
        return any(
            one.transaction_id == transaction_id and one.queue_offset not in settled
            for one in [*self.queues.get((HALF_TOPIC, 0), []), *self.undispatched]
            if one.topic == HALF_TOPIC and one.queue_offset >= self.cursors[HALF_TOPIC]
        )

    def finals(self, transaction_id: str) -> list[Stored]:
        """The COMMIT records of a transaction: what consumers get."""
        return [
            one for one in self.log.values()
            if one.transaction_id == transaction_id and one.topic not in (HALF_TOPIC, DISCARD_TOPIC)
        ]

    # -- the check ----------------------------------------------------------------------------------------------------

    def _check(self) -> Iterator[float]:
        """One round; a pause lets requests in between."""
        rules, begin_ms = self.rules, self.world.now_ms
        queue, ops = self.queues.get((HALF_TOPIC, 0), []), self.queues.get((OP_TOPIC, 0), [])
        removed: dict[int, int] = {}
        left: dict[int, set[int]] = {}
        done: list[int] = []
        place, next_op = self.cursors[HALF_TOPIC], self.cursors[OP_TOPIC]

        def read_ops() -> list[Stored]:
            nonlocal next_op
            found = ops[next_op : next_op + _AT_ONCE]
            for op in found:
                body = draft_of(op.data).body.decode()
                numbers = {int(one) for one in body.split(",") if one}
                left[op.queue_offset] = {one for one in numbers if one >= self.cursors[HALF_TOPIC]}
                removed.update(dict.fromkeys(left[op.queue_offset], op.queue_offset))
                if not left[op.queue_offset]:
                    done.append(op.queue_offset)
            next_op += len(found)
            return found

        found = read_ops()
        while place < len(queue):
            yield self.slow()
            if place in removed:
                op = removed.pop(place)
                left[op].discard(place)
                if not left[op]:
                    done.append(op)
                place += 1
                continue
            half = queue[place]
            draft = draft_of(half.data)
            checks = int(property_values(draft.properties).get(b"TRANSACTION_CHECK_TIMES", b"0"))
            age_ms = self.world.now_ms - draft.born_time_ms
            if checks >= rules.check_max or age_ms > rules.reserved_hours * 3_600_000:
                self.world.note(f"{self.name} discards {half.transaction_id} copy {place}")
                self.discard(half)
                place += 1
                continue
            if half.store_time_ms >= begin_ms or 0 <= age_ms < rules.time_out_ms:
                break
            newest_ms = draft_of(found[-1].data).born_time_ms if found else None
            is_asked = age_ms > rules.time_out_ms if newest_ms is None else newest_ms - begin_ms > rules.time_out_ms
            if is_asked or age_ms <= -1:
                self._ask(self.put_back(half))
                place += 1
                continue
            found = read_ops()
            if not found and rules.has_lists:
                yield _SLEEP_WITHOUT_OPS_SECONDS
        self.cursors[HALF_TOPIC] = place
        cursor = self.cursors[OP_TOPIC]
        while cursor in done:
            cursor += 1
        self.cursors[OP_TOPIC] = cursor

    def _ask(self, copy: Stored) -> None:
        draft = draft_of(copy.data)
        properties = property_values(draft.properties)
        group = properties[b"PGROUP"].decode()
        members = list(self.producers.get(group, {}))
        if not members:
            return
        fields = {
            "tranStateTableOffset": str(copy.queue_offset), "commitLogOffset": str(copy.offset),
            "msgId": copy.transaction_id, "transactionId": copy.transaction_id, "offsetMsgId": "",
        }
        self.world.random.choice(members).push(Frame(RequestCode.CHECK_TRANSACTION_STATE, 0, fields, copy.data))

    # -- requests -----------------------------------------------------------------------------------------------------

    def handle(self, wire: Wire, frame: Frame, answer: Callable[[Frame], None]) -> None:
        """See `Host`."""
        if frame.code in self.refuses:
            answer(response(frame, self.refuses[frame.code], "refused by the course"))
        elif frame.code == RequestCode.END_TRANSACTION:
            self._queue_decision(wire, frame, answer)
        elif frame.code == RequestCode.RESUME_CHECK_HALF_MESSAGE:
            answer(self._resume(wire, frame))
        elif frame.code == RequestCode.UPDATE_BROKER_CONFIG:
            values = dict(line.split("=", 1) for line in frame.body.decode().splitlines())
            self.rules.take(values)
            answer(response(frame))
        elif frame.code == RequestCode.HEART_BEAT:
            value = json.loads(frame.body)
            for one in value["producerDataSet"] if wire.is_open else ():
                self.producers.setdefault(one["groupName"], {})[wire] = value["clientID"]
            answer(response(frame))
        elif frame.code == RequestCode.UNREGISTER_CLIENT:
            self.producers.get(frame.fields["producerGroup"], {}).pop(wire, None)
            answer(response(frame))
        else:
            answer(self._answers[frame.code](frame))

    def disconnected(self, wire: Wire) -> None:
        """See `Host`."""
        for members in self.producers.values():
            members.pop(wire, None)

    def _queue_decision(self, wire: Wire, frame: Frame, answer: Callable[[Frame], None]) -> None:
        """Let a decision wait in the queue of requests; it is dropped after three seconds."""
        sent_ns, life = self.world.now_ns, self._life
        waits = self.slow() * self.world.random.choice((0, 0, 1, 40))

        def carry_out() -> None:
            if life != self._life:
                return
            if waits > _QUEUE_LIMIT_SECONDS:
                result: tuple[int, str | None] = (ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy")
            else:
                result = self.end_transaction(
                    dict(frame.fields), wire.process.name, is_ours=wire.process.is_ours, sent_ns=sent_ns,
                    request=(id(wire), frame.opaque),
                )
            if not frame.flag & IS_ONEWAY:
                answer(response(frame, *result))

        self.world.at(min(waits, _QUEUE_LIMIT_SECONDS + 0.01), carry_out)

    def _resume(self, wire: Wire, request: Frame) -> Frame:
        found = self.log.get(int(request.fields["msgId"][-16:], 16))
        if found is None:
            return response(request, ResponseCode.SYSTEM_ERROR, "The message does not exist")
        self.world.note(f"{self.name}: resume of {found.transaction_id} by {wire.process.name}")
        key = (id(wire), request.opaque)
        if wire.process.is_ours and key not in self._resumes and self.is_open(found.transaction_id):
            self.reopened.append((found.transaction_id, wire.process.name))
        self._resumes.add(key)
        self.append(half_copy_of(found.data), found.transaction_id)
        return response(request)

    def _config(self, request: Frame) -> Frame:
        conf = self.rules.conf(self.name)
        return response(request, body="".join(f"{name}={value}\n" for name, value in conf.items()).encode())

    def _runtime(self, request: Frame) -> Frame:
        behind = self.log_end - (self.undispatched[0].offset if self.undispatched else self.log_end)
        table = {
            "brokerVersionDesc": "V" + self.rules.version.replace(".", "_"), "bootTimestamp": str(self.booted_ms),
            "commitLogMinOffset": "0", "commitLogMaxOffset": str(self.log_end), "dispatchBehindBytes": str(behind),
            "EndTransactionQueueSize": "0",
        }
        return response(request, body=json.dumps({"table": table}).encode())

    def _cursor(self, request: Frame) -> Frame:
        assert request.fields["consumerGroup"] == CHECK_GROUP
        return response(request, offset=self.cursors[request.fields["topic"]])

    def _queue(self, request: Frame) -> list[Stored]:
        return self.queues.get((request.fields["topic"], int(request.fields["queueId"])), [])

    def _offset_at(self, request: Frame) -> Frame:
        wanted = int(request.fields["timestamp"])
        return response(request, offset=sum(one.store_time_ms < wanted for one in self._queue(request)))

    def _pull(self, request: Frame) -> Frame:
        topic = request.fields["topic"]
        if topic == PROXY_TOPIC or (topic == OP_TOPIC and not self.rules.has_lists):
            return response(request, ResponseCode.TOPIC_NOT_EXIST)
        queue, begin = self._queue(request), int(request.fields["queueOffset"])
        found = queue[begin : begin + min(int(request.fields["maxMsgNums"]), _AT_ONCE)]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        return response(
            request, code, body=b"".join(one.data for one in found), nextBeginOffset=begin + len(found), minOffset=0,
            maxOffset=len(queue),
        )

    def _slots(self, request: Frame) -> Frame:
        queue, begin = self._queue(request), int(request.fields["index"])
        data = [
            {"physicOffset": one.offset, "physicSize": len(one.data), "tagsCode": 0}
            for one in queue[begin : begin + int(request.fields["count"])]
        ]
        return response(
            request, body=json.dumps({"queueData": data, "minQueueIndex": 0, "maxQueueIndex": len(queue)}).encode()
        )

    def _view(self, request: Frame) -> Frame:
        found = self.log.get(int(request.fields["offset"]))
        if found is None:
            remark = f"can not find message by the offset, {request.fields['offset']}"
            return response(request, ResponseCode.SYSTEM_ERROR, remark)
        return response(request, body=found.data)

    def _query(self, request: Frame) -> Frame:
        end_ms = int(request.fields["endTimestamp"])
        found = self.index.get(f"{request.fields['topic']}#{request.fields['key']}", [])
        body = b"".join(one.data for one in [one for one in found if one.store_time_ms <= end_ms][-_AT_ONCE:])
        return response(request, 0 if body else ResponseCode.QUERY_NOT_FOUND, body=body)

    def _topics(self, request: Frame) -> Frame:
        table: dict[str, dict[str, str]] = {topic: {} for topic, _ in self.queues}
        return response(request, body=json.dumps({"topicConfigTable": table}).encode())

    def _producers(self, request: Frame) -> Frame:
        group = request.fields["producerGroup"]
        ids = list(self.producers.get(group, {}).values())
        if not ids:
            return response(request, ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        found = [{"clientId": one, "clientAddr": "10.0.0.9:1", "language": "JAVA", "version": 479} for one in ids]
        return response(request, body=json.dumps({"connectionSet": found}).encode())


def _counted(area: bytes, checks: int) -> bytes:
    name = b"TRANSACTION_CHECK_TIMES\x01"
    parts = [part for part in area.split(b"\x02") if part and not part.startswith(name)]
    return b"".join(part + b"\x02" for part in [*parts, name + str(checks).encode()])
