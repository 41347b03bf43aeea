"""The entries that a broker 3.0 or 3.1 writes outside its log for a COMMIT or ROLLBACK record, as steps of a change.

Later brokers find `abort` at their start and dispatch the appended records. A broker before 3.2 that finds `abort` does
so too, but it also deletes its state table and numbers it from scratch, and from then on refuses the answers to all
transactions that are still open (docs/formats/state_table.md#recovery; seen with 3.1.4). Without `abort` it does not
dispatch records that it finds in the log. So if it stopped cleanly, its entries are written here: the slot of the
consume queue (COMMIT only), the entry of the redo log, and the state in the slot of the state table that has the
prepared record's offset, whatever the slot's number.

If `abort` already exists, the broker dispatches the records itself and then makes its table from what is left open; the
state of the slot is still written here, so that the present table is correct.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rmqtx.readers.log.properties import TAGS
from rmqtx.readers.log.record_layout import COMMIT, TRANSACTION_MASK
from rmqtx.readers.model.errors import UnsafeStore
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.java_hashes import java_hash
from rmqtx.readers.model.layout import Layout
from rmqtx.readers.old_tables.redo_log import DIRECTORY as REDO_DIRECTORY
from rmqtx.readers.old_tables.redo_log import REDO_ENTRY, redo_entries
from rmqtx.readers.old_tables.state_table import DIRECTORY as TABLE_DIRECTORY
from rmqtx.readers.old_tables.state_table import STATE_SLOT, StateSlots, state_slots
from rmqtx.readers.queues.consume_queue import SLOT, open_queue
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store
from rmqtx.repairs.acts.log_tail import Placed
from rmqtx.repairs.changes.change_sets import CreateFile, Step, WriteAt
from rmqtx.repairs.rebuild.state_table import table_sizes
from rmqtx.repairs.records.record_writer import property_values
from rmqtx.repairs.records.store_sizes import QUEUE_LENGTH_KEYS, store_sizes

__all__ = ["dispatch_steps", "slot_states", "why_not_dispatched"]


@dataclass(slots=True)
class _Files:
    """Files of units of one length in a directory of the store, and the bytes to write after their last unit."""

    directory: str
    layout: Layout
    sizes_bytes: Mapping[int, int]
    new_file_bytes: int
    place: int
    pieces: dict[int, tuple[int, bytearray]] = field(default_factory=dict)

    def append(self, unit: bytes) -> None:
        """Append a unit."""
        base = next(
            (base for base, size in self.sizes_bytes.items() if base <= self.place < base + size), None
        )
        if base is None:
            base = max((base + size for base, size in self.sizes_bytes.items()), default=0)
            base += (self.place - base) // self.new_file_bytes * self.new_file_bytes
        _, data = self.pieces.setdefault(base, (self.place - base, bytearray()))
        data += unit
        self.place += len(unit)

    def steps(self) -> Iterable[Step]:
        """The pending writes as steps."""
        for base, (begin, data) in self.pieces.items():
            path = f"{self.directory}/{base:020}"
            if base in self.sizes_bytes:
                yield WriteAt(path, begin, bytes(data))
            else:
                yield CreateFile(path, self.new_file_bytes, bytes(data))


def dispatch_steps(store: Store, placed: Sequence[Placed], conf: Mapping[str, str]) -> list[Step]:
    """Return the steps that dispatch COMMIT and ROLLBACK records, in the order of the log, as the broker would.

    `conf`: its configuration as far as it is known.
    Raises: UnsafeStore where the redo log or the state table is damaged, BadRequest for a configuration that no broker
            can have; SourceError.
    Source: store/DefaultMessageStore.java DispatchMessageService doDispatch (3.1.4);
            docs/formats/state_table.md#recovery.
    """
    queue_file_bytes = store_sizes(store, conf).queue_file_bytes["consumequeue"]
    queues: dict[tuple[str, int], _Files] = {}
    redo_log = _redo_log(store, conf)
    for one in placed:
        draft = one.draft
        length, prepared = len(one.record), draft.prepared_transaction_offset
        if draft.sys_flag & TRANSACTION_MASK == COMMIT:
            name = draft.topic, draft.queue_id
            if name not in queues:
                queues[name] = _queue(store, *name, one.queue_offset, queue_file_bytes)
            tags = property_values(draft.properties).get(TAGS.encode())
            code = 0 if tags is None else java_hash(tags)
            queues[name].append(
                SLOT.pack(commit_log_offset=one.commit_log_offset, record_length_bytes=length, tags_code=code)
            )
        redo_log.append(
            REDO_ENTRY.pack(commit_log_offset=one.commit_log_offset, record_length_bytes=length, tags_code=prepared)
        )
    files = [*queues.values(), redo_log]
    return [step for each in files for step in each.steps()] + slot_states(store, placed)


def why_not_dispatched(store: Store, topic: str, queue_id: int, conf: Mapping[str, str]) -> str | None:
    """Why the COMMIT record of a queue cannot be dispatched to it; None where it can.

    A first file needs an existing directory, because changes of a store create only files. A broker skips a file whose
    length is not the configured one and starts the queue from scratch (seen with 3.1.4: consumers lost the record): so
    the length must be known, from the configuration or another queue's files.
    """
    if store.queue_segments(topic, queue_id)[0]:
        return None
    queues = list(store.queues())
    name = f"queue {queue_id} of {topic}"
    if (topic, queue_id) not in queues:
        return f"{name} has no directory yet: create consumequeue/{topic}/{queue_id} as the broker's user"
    is_known = any(key in conf for key in QUEUE_LENGTH_KEYS) or any(store.queue_segments(*queue)[0] for queue in queues)
    return None if is_known else f"{name} has no file yet, and the length of a file is unknown: add --broker-conf FILE"


def _queue(store: Store, topic: str, queue_id: int, queue_offset: int, new_file_bytes: int) -> _Files:
    segments, _ = store.queue_segments(topic, queue_id)
    with open_queue(store, topic, queue_id) as queue:
        if queue.max_offset != queue_offset:
            raise UnsafeStore(
                f"cannot append: queue {queue_id} of {topic} ends at queue offset {queue.max_offset}, and the record "
                f"has queue offset {queue_offset}",
                advice="rebuild the queues: rmqtx rebuild queues",
            )
    directory = f"consumequeue/{topic}/{queue_id}"
    return _files(directory, SLOT, segments, new_file_bytes, queue_offset * SLOT.size_bytes)


def _redo_log(store: Store, conf: Mapping[str, str]) -> _Files:
    findings: list[Finding] = []
    entries = redo_entries(store, findings)
    _require_sound("redo log", findings)
    segments: Sequence[Segment] = () if entries is None else entries.files
    last = -1 if entries is None or not len(entries) else int(entries.numbers[-1])
    base = segments[0].base_offset if segments else 0
    place = max(base, (last + 1) * REDO_ENTRY.size_bytes)
    return _files("/".join(REDO_DIRECTORY), REDO_ENTRY, segments, table_sizes(store, conf).redo_file_bytes, place)


def _files(directory: str, layout: Layout, segments: Iterable[Segment], new_file_bytes: int, place: int) -> _Files:
    sizes = {segment.base_offset: segment.size_bytes for segment in segments}
    return _Files(directory, layout, sizes, new_file_bytes, place)


def slot_states(store: Store, placed: Sequence[Placed]) -> list[Step]:
    """Return the steps that write the first decision on each prepared record into its slots; a slave has no slots.

    Raises: UnsafeStore where the state table is damaged; SourceError.
    """
    findings: list[Finding] = []
    table = state_slots(store, findings)
    _require_sound("state table", findings)
    if table is None:
        return []
    states: dict[int, int] = {}
    for one in placed:
        states.setdefault(one.draft.prepared_transaction_offset, one.draft.sys_flag & TRANSACTION_MASK)
    return [
        _state_step(table, row, states[offset])
        for row, offset in enumerate(table.offsets.tolist())
        if offset in states
    ]


def _state_step(table: StateSlots, row: int, state: int) -> Step:
    segment = table.files[int(table.file_numbers[row])]
    path = f"{'/'.join(TABLE_DIRECTORY)}/{segment.base_offset:020}"
    return WriteAt(path, int(table.positions[row]) + STATE_SLOT.size_bytes - 4, state.to_bytes(4, "big"))


def _require_sound(name: str, findings: Sequence[Finding]) -> None:
    if findings:
        line = findings[0].line()
        raise UnsafeStore(
            f"cannot append: the store's {name} is damaged: {line}", advice="rebuild it: rmqtx rebuild statetable"
        )
