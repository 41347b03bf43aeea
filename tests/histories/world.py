"""A history while it is played: the machine, the clock, and what happened to each transaction."""

from __future__ import annotations

import base64
import contextlib
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, SCHEDULE_TOPIC
from rmqtx.remoting.connections.connection import Request, Value
from rmqtx.remoting.producer.producer import heartbeat_body, properties_text
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.frames import Frame
from tests.brokers.rocks_recipes import QUEUES_IN_ROCKSDB
from tests.brokers.rocks_stage import TRANSACTIONS_IN_ROCKSDB
from tests.forge import damage
from tests.histories.damages import DAMAGES, NEWER_DAMAGES, NEWEST_DAMAGES, OTHER_DAMAGES
from tests.histories.machine import RELEASES, Effects, Machine
from tests.histories.steps import GROUPS, TOPICS, Step
from tests.histories.truth import Transaction, Truth

BEGIN_MS = 1_790_000_000_000
#: Settings that a restart with others keeps.
_IN_ROCKSDB = {**TRANSACTIONS_IN_ROCKSDB, **QUEUES_IN_ROCKSDB}
_SEND_BATCH = 320
_COMPRESSED = 1
DECISION_CODES = {"commit": 8, "rollback": 12, "unknown": 0}
_CREATE_TOPIC = 17
#: The broker writes its cursors and the log, and flushes them, at least so often.
_PERSISTED_MS, _FLUSHED_MS = 5_000, 61_000
_BATCH_MS = 3_000
PAGE_BYTES = 4_096
_HALF_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC)
_TRANSACTION_MASK, _COMMITTED = 0xC, 0x8


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the log, as the broker reads it. `decided_offset`: of an op message of transactions in RocksDB."""

    commit_log_offset: int
    size_bytes: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    prepared_offset: int
    store_time_ms: int
    born_time_ms: int
    checks: int | None
    body: bytes
    decided_offset: int | None = None

    @property
    def number(self) -> int | None:
        """The transaction whose message it carries."""
        body = self.body
        if body and body[0] & 0xF == zlib.DEFLATED:
            with contextlib.suppress(zlib.error):
                body = zlib.decompress(body)
        word = body.split(b" ", 1)[0]
        return int(word[3:]) if word.startswith(b"tx-") else None

    @property
    def is_delivered(self) -> bool:
        """Whether it is a message for consumers. A committed one with a delay waits; no step delivers it from there."""
        is_waiting = self.topic == SCHEDULE_TOPIC and self.sys_flag & _TRANSACTION_MASK == _COMMITTED
        return self.topic in TOPICS or is_waiting


def parsed_records(effects: Effects) -> list[Record]:
    """The records that a machine printed."""
    found = []
    for line in effects.lines:
        word, *rest = line.split("\t")
        if word != "record":
            continue
        numbers = [int(value) for value in (rest[0], rest[1], *rest[3:9])]
        offset, size, queue_id, queue_offset, flag, prepared, stored, born = numbers
        checks = None if rest[9] == "null" else int(rest[9])
        found.append(
            Record(
                offset,
                size,
                rest[2],
                queue_id,
                queue_offset,
                flag,
                prepared,
                stored,
                born,
                checks,
                base64.b64decode(rest[10]),
                int(rest[11]) if rest[11].isdecimal() else None,
            )
        )
    return found


class World:
    """One history being played by one machine."""

    def __init__(self, machine_of: Callable[[str], Machine], version: str, root: Path, conf: Mapping[str, str]) -> None:
        """`machine_of`: the machine of a release."""
        self._machine_of = machine_of
        self.machine = machine_of(version)
        self.root = root
        self.conf = dict(conf)
        self.now_ms = BEGIN_MS
        self.transactions: dict[int, Transaction] = {}
        self.records: dict[int, Record] = {}
        self.asked: list[tuple[int, int]] = []
        self.refusal: str | None = None
        self.is_running = False
        self.damages: list[str] = []
        #: Kinds of events that causes need.
        self.happened: set[str] = set()

    # -- the broker ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker on the store, with producers of all groups."""
        self.machine.clock(self.now_ms)
        self.refusal = self.machine.start(self.root, self.conf).refusal
        self.is_running = self.refusal is None
        if self.is_running:
            greet(self.machine)
            self._learn(0)

    def stop(self) -> None:
        """Stop the broker in order."""
        self.happened.add("stop")
        self.machine.step("stop")
        self.is_running = False

    def kill(self, lost: float) -> None:
        """Kill the broker: its files stay as in the page cache. `lost`: the share of its dirty pages that is lost."""
        self.happened.add("kill")
        where = self.machine.step("where").lines[0].split()
        flushed, end = int(where[1]), int(where[2])
        left = self.root.with_name(self.root.name + ".killed")
        copied(self.root, left)
        self.machine.step("abandon")
        shutil.rmtree(self.root)
        left.rename(self.root)
        self.is_running = False
        if lost:
            place = lost_from(flushed, end, lost)
            self.damages += ["lost pages"] if place < end else []
            zero_from(self.root, place)

    # -- steps --------------------------------------------------------------------------------------------------

    def play(self, step: Step) -> None:
        """Carry out one step; one that names what does not exist does nothing."""
        if step["do"] == "damage":
            self._damage(step)
        elif self.is_running:
            getattr(self, "_" + step["do"].replace(" ", "_"))(step)

    def _damage(self, step: Step) -> None:
        was_running = self.is_running
        if was_running:
            self.stop()
        (DAMAGES | NEWER_DAMAGES | NEWEST_DAMAGES | OTHER_DAMAGES)[step["kind"]](self.root, step["place"])
        self.damages.append(step["kind"])
        if was_running:
            self.start()

    def _wait(self, step: Step) -> None:
        self.now_ms += step["ms"]
        self.machine.clock(self.now_ms)
        if step["ms"] >= _PERSISTED_MS:  # the broker's timers would have done both meanwhile
            self.machine.step("persist")
        if step["ms"] >= _FLUSHED_MS:
            self.machine.step("flush")

    def _half(self, step: Step) -> None:
        number = step["number"]
        key = f"{number:032X}" if step["has_id"] else None
        properties = {"WAIT": "true", "TRAN_MSG": "true", "PGROUP": step["group"], **step["properties"]}
        if key is not None:
            properties["UNIQ_KEY"] = key
        body = f"tx-{number} ".encode().ljust(step["body_bytes"], b".")
        flag = 4
        if step.get("is_compressed"):
            body, flag = zlib.compress(body), flag | _COMPRESSED
            self.happened.add("compressed")
        self.happened.update(step["properties"])
        answer = self._send(step["group"], step["topic"], body, properties, flag)
        if answer is not None and answer.code and self.machine.version in ("5.0.0", "5.1.0"):
            self.damages.append("number taken by no record")  # they assign a number before they refuse long properties
        if answer is not None and answer.code == 0:
            self._transaction(number, step["group"], step["topic"], key)
        self._learn()

    def _message(self, step: Step) -> None:
        self._send(
            GROUPS[0],
            step["topic"],
            b"an ordinary message",
            {"WAIT": "true", "UNIQ_KEY": f"{len(self.records):032X}"},
            0,
        )
        self._learn()

    def _messages(self, step: Step) -> None:
        """A batch of messages; a broker refuses one that has the flag of half messages."""
        topic = step["topic"]
        texts = [
            properties_text({"WAIT": "true", "UNIQ_KEY": f"{len(self.records):030X}{turn:02X}", **step["properties"]})
            for turn in range(step["count"])
        ]
        body = b"".join(_in_batch(b"one of a batch", text.encode()) for text in texts)
        fields: dict[str, Value] = {
            "a": GROUPS[0], "b": topic, "c": topic, "d": 0, "e": 0, "f": 4 if step["is_half"] else 0, "g": self.now_ms,
            "h": 0, "i": properties_text({"WAIT": "true"}), "j": 0, "k": False, "l": 0, "m": True,
        }
        count = len(self.records)
        self.machine.request("producer", Request(_SEND_BATCH, fields, body))
        self._learn()
        assert not step["is_half"] or len(self.records) == count, "the broker accepted a batch of half messages"

    def _send(self, group: str, topic: str, body: bytes, properties: Mapping[str, str], flag: int) -> Frame | None:
        fields: dict[str, Value] = {
            "a": group, "b": topic, "c": topic, "d": 0, "e": 0, "f": flag, "g": self.now_ms, "h": 0,
            "i": properties_text(properties), "j": 0, "k": False, "l": 0, "m": False,
        }
        return self.machine.request("producer", Request(RequestCode.SEND_MESSAGE_V2, fields, body))

    def _end(self, step: Step) -> None:
        one = self.transactions.get(step["number"])
        if one is None or not one.copies:
            return
        queue_offset, offset = one.copies[-1]
        if step["named"] == "first":
            queue_offset, offset = one.copies[0]
        elif step["named"] == "previous":
            queue_offset, offset = one.copies[-2:][0]
        elif step["named"] == "wrong number":
            queue_offset += 1
        elif step["named"] == "other half":
            other = next((t for t in self.transactions.values() if t.number > one.number and t.copies), one)
            queue_offset, offset = other.copies[-1]
        elif step["named"] == "wrong place":
            offset += 1
        elif step["named"] in ("discard copy", "delivered"):
            places = one.discarded if step["named"] == "discard copy" else one.delivered
            if not places:
                return
            queue_offset, offset = self.records[places[-1]].queue_offset, places[-1]
        self._decide(one, step["decision"], queue_offset, offset, is_check=step["is_check"])

    def _decide(self, one: Transaction, decision: str, queue_offset: int, offset: int, *, is_check: bool) -> None:
        name = one.unique_key or "none"
        fields: dict[str, Value] = {
            "producerGroup": one.group, "tranStateTableOffset": queue_offset, "commitLogOffset": offset,
            "commitOrRollback": DECISION_CODES[decision], "fromTransactionCheck": is_check, "msgId": name,
            "transactionId": name,
        }
        answer = self.machine.request("producer", Request(RequestCode.END_TRANSACTION, fields))
        if answer is not None and answer.code == 0 and decision != "unknown":
            owner = next((t for t in self.transactions.values() if (queue_offset, offset) in t.copies), one)
            self._note_decision(owner, queue_offset, offset)
            owner.accepted.append((decision, queue_offset))
        self._learn()

    def _transaction(self, number: int, group: str = "", topic: str = "", key: str | None = None) -> Transaction:
        return self.transactions.setdefault(number, Transaction(number, group, topic, key, happened=[]))

    @staticmethod
    def _note_decision(one: Transaction, queue_offset: int, offset: int) -> None:
        """Note what is unusual about a decision that the broker accepted."""
        assert one.happened is not None
        if any(number == queue_offset for _, number in one.accepted):
            one.happened.append("decided twice")
        if (queue_offset, offset) in one.copies[:-1]:
            one.happened.append("old copy decided")
        if offset in one.discarded:
            one.happened.append("discard copy decided")
        elif one.discarded:
            one.happened.append("decided after discard")

    def _check(self, step: Step) -> None:
        # Decided ones whose op message is in the broker's memory, with the number of their copies.
        written = {number for record in self.records.values() for number in self._op_numbers(record)}
        held = {
            one.number: len(one.copies) for one in self.transactions.values()
            if one.copies and one.copies[-1][0] in {number for _, number in one.accepted} - written
        }
        effects = self.machine.step("check")
        self._learn()
        for number, count in held.items():
            decided = self.transactions[number]
            if len(decided.copies) > count and decided.happened is not None:
                decided.happened.append("asked with its op message in memory")
        self.now_ms = clock_of(effects)
        places = {offset: number for number, one in self.transactions.items() for _, offset in one.copies}
        for words in (line.split("\t") for line in effects.lines):
            if words[0] == "discard" and int(words[2]) in places:
                self.transactions[places[int(words[2])]].dropped.append(int(words[2]))
        for turn, (_, frame) in enumerate(effects.asked):
            if frame.code != RequestCode.CHECK_TRANSACTION_STATE:
                continue
            offset, queue_offset = int(frame.fields["commitLogOffset"]), int(frame.fields["tranStateTableOffset"])
            self.asked.append((queue_offset, offset))
            answer = step["answers"][turn % len(step["answers"])]
            one = self.transactions.get(places.get(offset, -1))
            if one is not None and answer != "none":
                self._decide(one, answer, queue_offset, offset, is_check=True)

    def _batch(self, _: Step) -> None:
        self.now_ms += _BATCH_MS
        self.machine.clock(self.now_ms)
        self.machine.step("batch")
        self._learn()

    def _persist(self, _: Step) -> None:
        self.machine.step("persist")

    def _flush(self, _: Step) -> None:
        self.machine.step("flush")

    def _restart(self, step: Step) -> None:
        self.stop()
        kept = {name: value for name, value in self.conf.items() if name in _IN_ROCKSDB}
        self.conf = kept | dict(step["conf"] or self.conf)
        self.start()

    def _upgrade(self, _: Step) -> None:
        later = [one for one in RELEASES if one > self.machine.version]  # no part of them has two digits
        if later:
            self.stop()
            self.machine = self._machine_of(later[0])
            self.start()

    def _kill(self, step: Step) -> None:
        self.kill(step["lost"])
        self.start()

    def _stop(self, _: Step) -> None:
        self.stop()

    def _end_by_kill(self, _: Step) -> None:
        self.kill(0.0)

    def truth(self, now_ms: int) -> Truth:
        """What happened, for a store that is read at a time."""
        begin = min((int(file.name) for file in damage.log_files(self.root)), default=0)
        if "storeType" not in self.conf and not (self.root / "config" / "consumerOffset.json").exists():
            self.damages.append("no cursors")  # killed before the broker wrote them for the first time
        numbers = sorted({number for record in self.records.values() for number in self._op_numbers(record)})
        return Truth(
            self.machine.version, self.conf, now_ms, self.damages, begin, [*self.transactions.values()], numbers,
            sorted(self.happened),
        )

    def _op_numbers(self, record: Record) -> list[int]:
        """The queue offsets that an op message names; one of transactions in RocksDB names a place."""
        half = self.records.get(-1 if record.decided_offset is None else record.decided_offset)
        return op_numbers(record) if half is None else [half.queue_offset]

    # -- what happened ------------------------------------------------------------------------------------------

    def _learn(self, begin: int | None = None) -> None:
        """Read the records since the last step; all of them after a start, which may have cut some off."""
        if begin is None:
            begin = max((r.commit_log_offset + r.size_bytes for r in self.records.values()), default=0)
        else:
            self.records.clear()
            for one in self.transactions.values():
                one.copies, one.delivered, one.discarded = [], [], []
        for record in parsed_records(self.machine.step("records", begin)):
            self.records[record.commit_log_offset] = record
            number, place = record.number, record.commit_log_offset
            if number is None or (number not in self.transactions and record.topic not in _HALF_TOPICS):
                continue
            one = self._transaction(number)
            if record.topic in _HALF_TOPICS:
                one.copies.append((record.queue_offset, place))
            elif record.topic == DISCARD_TOPIC:
                one.discarded.append(place)
            elif record.is_delivered:
                one.delivered.append(place)


def greet(machine: Machine) -> None:
    """Create the topics, and register producers of all groups."""
    make_topics(machine)
    machine.request("producer", Request(RequestCode.HEART_BEAT, body=heartbeat_body("producer@1", GROUPS)))


def make_topics(machine: Machine) -> None:
    """Create the topics."""
    for topic in TOPICS:
        fields: dict[str, Value] = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }
        machine.request("producer", Request(_CREATE_TOPIC, fields))


def _in_batch(body: bytes, properties: bytes) -> bytes:
    """One message of a batch, as clients encode it: length, magic code, CRC, flag, body, properties."""
    rest = struct.pack(">iiii", 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", 4 + len(rest)) + rest


def clock_of(effects: Effects) -> int:
    """The time at the end of a round."""
    return next(int(line.split("\t")[1]) for line in effects.lines if line.startswith("clock"))


def op_numbers(record: Record) -> list[int]:
    """The queue offsets that an op message names."""
    return [int(word) for word in record.body.decode().split(",") if word] if record.topic == OP_TOPIC else []


def copied(root: Path, to: Path) -> Path:
    """Copy a store; holes stay holes."""
    shutil.rmtree(to, ignore_errors=True)
    # Timers of the broker may rename a file meanwhile, and cp then says that one is missing.
    done = subprocess.run(
        ["cp", "-a", "--sparse=always", str(root), str(to)], check=False, capture_output=True, text=True
    )
    assert all("cannot stat" in line for line in done.stderr.splitlines()), done.stderr
    return to


def lost_from(flushed: int, end: int, share: float) -> int:
    """Where the pages begin that a power loss takes: whole ones, and in the first what was written since the flush."""
    places: list[int] = [flushed, *range((flushed // PAGE_BYTES + 1) * PAGE_BYTES, end, PAGE_BYTES), end]
    return places[min(int((1 - share) * len(places)), len(places) - 1)]


def zero_from(root: Path, place: int) -> None:
    """Zero the log from a place on."""
    for file in sorted((root / "commitlog").iterdir()):
        begin = max(place - int(file.name), 0)
        size = file.stat().st_size
        if begin < size:
            with file.open("r+b") as stream:
                stream.seek(begin)
                stream.write(bytes(size - begin))
