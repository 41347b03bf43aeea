"""Small commit logs and stores made of forged records, with the consume queues that belong to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqtx.readers.log.record_layout import COMMIT
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import CHECK_GROUP, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from tests.forge.records import FIRST_MS, Message, blank

SLOTS_IN_A_FILE = 1000


def java_hash(text: str) -> int:
    """String.hashCode of ASCII text."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def in_one_file(messages: Iterable[Message], base_offset: int = 0) -> tuple[bytes, list[tuple[int, int]]]:
    """Messages one after another, with the position and length of each."""
    data, places = b"", []
    for message in messages:
        record = message.record(base_offset + len(data))
        places.append((len(data), len(record)))
        data += record
    return data, places


@dataclass
class Forge:
    """Writes a store: files of one size, a blank record where a message does not fit, a slot for every message.

    Shape: `half`, `op`, `commit`, `discard` give commit-log offsets; queue offsets count by themselves.
    """

    root: Path
    segment_bytes: int = 4096
    begin_offset: int = 0
    version: int = 1
    is_closed: bool = True
    now_ms: int = FIRST_MS
    _data: bytearray = field(default_factory=bytearray)
    _slots: dict[tuple[str, int], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _halves: dict[int, Message] = field(default_factory=dict)

    def append(self, message: Message) -> int:
        """A message at the end of the log and of its queue; gives its commit-log offset."""
        self.now_ms += 10
        slots = self._slots[message.topic, message.queue_id]
        message = replace(
            message, queue_offset=len(slots), store_time_ms=self.now_ms, version=self.version, is_closed=self.is_closed
        )
        length = len(message.record(0))
        assert length + 8 <= self.segment_bytes, f"{length} bytes do not fit into a file of {self.segment_bytes}"
        left = self.segment_bytes - len(self._data) % self.segment_bytes
        if length + 8 > left:
            self._data += blank(left)
        offset = self.begin_offset + len(self._data)
        self._data += message.record(offset)
        tags = dict(message.properties).get("TAGS", "")
        slots.append(SLOT.pack(commit_log_offset=offset, record_length_bytes=length, tags_code=java_hash(tags)))
        self._halves[offset] = message
        return offset

    def half(
        self, name: str, *, checks: int | None = None, group: str = "shop", topic: str = "orders",
        immunity: int | None = None, real_queue: int = 1,
    ) -> int:
        """A half copy of a transaction."""
        properties = [("REAL_TOPIC", topic), ("TRAN_MSG", "true"), ("UNIQ_KEY", name), ("PGROUP", group),
                      ("REAL_QID", str(real_queue))]
        if checks is not None:
            properties.append(("TRANSACTION_CHECK_TIMES", str(checks)))
        if immunity is not None:
            properties.append(("CHECK_IMMUNITY_TIME_IN_SECONDS", str(immunity)))
        return self.append(Message(topic=HALF_TOPIC, body=name.encode(), properties=tuple(properties)))

    def queue_offset(self, offset: int) -> int:
        """The queue offset of the record at a commit-log offset."""
        return self._halves[offset].queue_offset

    def next_queue_offset(self, topic: str) -> int:
        """The queue offset that the next record of a topic has in its queue 0."""
        return len(self._slots[topic, 0])

    def op(self, *halves: int) -> int:
        """An op message that names half copies by their commit-log offsets."""
        numbers = [str(self.queue_offset(half)) for half in halves]
        text = numbers[0] if len(numbers) == 1 else "".join(f"{number}," for number in numbers)
        return self.append(Message(topic=OP_TOPIC, body=text.encode(), properties=(("TAGS", "d"),)))

    def commit(self, half: int) -> int:
        """The final of a half copy."""
        copy = self._halves[half]
        words = dict(copy.properties)
        message = Message(
            topic=words["REAL_TOPIC"], queue_id=int(words["REAL_QID"]), body=copy.body, properties=copy.properties,
            sys_flag=COMMIT, prepared_transaction_offset=half, born_time_ms=copy.born_time_ms,
        )
        return self.append(message)

    def discard(self, half: int) -> int:
        """The copy of a half copy in the discard topic."""
        copy = self._halves[half]
        return self.append(replace(copy, topic=DISCARD_TOPIC))

    def write(self, *, half_cursor: int | None = 0, op_cursor: int | None = 0) -> Path:
        """Write all files; cursors that are None are left out of the configuration."""
        self._write_log()
        for (topic, queue_id), slots in self._slots.items():
            directory = self.root / "consumequeue" / topic / str(queue_id)
            directory.mkdir(parents=True, exist_ok=True)
            for first in range(0, len(slots), SLOTS_IN_A_FILE):
                data = b"".join(slots[first : first + SLOTS_IN_A_FILE]).ljust(SLOTS_IN_A_FILE * SLOT.size_bytes, b"\0")
                (directory / f"{first * SLOT.size_bytes:020d}").write_bytes(data)
        self._write_cursors(half_cursor, op_cursor)
        times = self.now_ms.to_bytes(8, "big")
        (self.root / "checkpoint").write_bytes((times * 3).ljust(4096, b"\0"))
        return self.root

    def _write_log(self) -> None:
        directory = self.root / "commitlog"
        directory.mkdir(parents=True, exist_ok=True)
        for begin in range(0, max(1, len(self._data)), self.segment_bytes):
            piece = self._data[begin : begin + self.segment_bytes].ljust(self.segment_bytes, b"\0")
            (directory / f"{self.begin_offset + begin:020d}").write_bytes(piece)

    def _write_cursors(self, half_cursor: int | None, op_cursor: int | None) -> None:
        cursors = ((HALF_TOPIC, half_cursor), (OP_TOPIC, op_cursor))
        entries = [f'"{topic}@{CHECK_GROUP}":{{0:{cursor}}}' for topic, cursor in cursors if cursor is not None]
        (self.root / "config").mkdir(exist_ok=True)
        text = f'{{"offsetTable":{{{",".join(entries)}}}}}'
        (self.root / "config" / "consumerOffset.json").write_text(text, encoding="utf-8")
