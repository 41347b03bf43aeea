"""The files of a stopped broker as the medium of actions: records are appended as that broker would have written them.

All acts of a run are planned first, each after the records planned before it, and written together by `finish`: in
place, after the undo file is on disk, or into a copy that is renamed when it is complete. Questions that only a live
broker can answer have fixed answers, because the store's lock is held for the whole change: no producer is connected,
no decision waits in the broker, no check runs, and no other rmqtx process has the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.log.record_values import block_of
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import PREPARED_NOT_CHECKED
from rmqtx.readers.store.store import HALF_TOPIC, OWN_ABORT, Store
from rmqtx.remoting.producer.unique_keys import UniqueKeys
from rmqtx.remoting.protocol.answers import Answer
from rmqtx.remoting.protocol.codes import COMMIT, ROLLBACK, ResponseCode
from rmqtx.repairs.acts.check_ahead import CheckAhead, check_of_files
from rmqtx.repairs.acts.file_preconditions import require_changeable, topic_table, unwritable
from rmqtx.repairs.acts.file_situations import file_situations
from rmqtx.repairs.acts.log_tail import LogTail, Placed, log_end
from rmqtx.repairs.acts.medium import Tail
from rmqtx.repairs.acts.named_copies import is_in_rocksdb
from rmqtx.repairs.acts.old_table_entries import dispatch_steps, slot_states, why_not_dispatched
from rmqtx.repairs.acts.situation import NamedRecord, Situation, named_record
from rmqtx.repairs.changes.change_sets import Barrier, ChangeSet
from rmqtx.repairs.changes.execution import Destination, carried_out
from rmqtx.repairs.changes.store_lock import store_locked, store_shared
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.receipts import APPEND, Receipt, Request
from rmqtx.repairs.records.record_writer import (
    RecordDraft,
    WritingRules,
    commit_record_of,
    discard_copy_of,
    draft_of,
    final_of,
    half_copy_of,
    has_readable_body,
    op_of,
    rollback_record_of,
    writing_rules,
)
from rmqtx.repairs.records.rocksdb_records import checks_in_table, rocksdb_final_of, rocksdb_half_of, rocksdb_op_of
from rmqtx.verdicts.audit.lookups import lookup
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.marked_copies import with_delivered_copies
from rmqtx.verdicts.model.transaction import Copy, OpMark, Transaction

_PROPERTY_CRC = "enabledAppendPropCRC"
#: Records as people read them, by their names in receipts.
_IN_WORDS = {"final": "COMMIT record", "op": "op message"}


class FileMedium:
    """The store of one stopped broker; see `Medium`."""

    is_exclusive = True

    def __init__(
        self, store: Store, settings_of: SettingsOf, conf: Mapping[str, str], destination: Destination,
        opened: Callable[[str, tuple[str, ...]], Store],
    ) -> None:
        """`conf`: the broker's configuration as far as it is known.

        `opened`: returns a fresh snapshot of a store, by its root and the directories of its log.

        Raises: StoreInUse, UnsafeStore where nothing may be appended to the store; SourceError.
        """
        self._settings_of = settings_of
        self._conf = conf
        self._destination = destination
        self._opened = opened
        self._root = store.root
        self._directories = store.commit_log_directories
        self._unique_keys = UniqueKeys()
        #: Lines for people about the planned acts, for the undo file.
        self._about: list[str] = []
        self._receipts: list[str] = []
        self._entries: list[Request] = []
        #: Half copies that a resume of this run makes: the copy as transactions have it, and the record.
        self._new_halves: dict[str, list[tuple[Copy, NamedRecord]]] = {}
        self.is_untouched = True
        self._findings: list[Finding] = []
        self._ahead: tuple[Store, CheckAhead] | None = None
        #: Half queue offsets that op messages of this run name.
        self._settled: list[int] = []
        self._plan_on(store)

    def _plan_on(self, store: Store) -> None:
        """Start the plan on a store as it is now."""
        settings = self._settings_of(store)
        version = require_changeable(store, settings, self._conf)
        end = log_end(store)
        given = self._conf.get(_PROPERTY_CRC)
        has_crc = end.has_property_crc if given is None else given == "true"
        self._rules: WritingRules = writing_rules(settings, has_property_crc=has_crc)
        self._broker_host = end.store_host
        self._topics = topic_table(store)
        self._version = version
        # A 5.x broker writes its process id into the file, an earlier one nothing; all read only that it exists.
        abort: bytes | None = OWN_ABORT
        #: Whether rmqtx writes the queue and table entries of the records, and not the broker at its start.
        self._dispatches_itself = not PREPARED_NOT_CHECKED.holds(version) and not store.aborted
        if self._dispatches_itself:
            abort = None
        self._tail = LogTail(
            store, end, self._rules, now_ms=clock.now_ms(), abort=abort, is_copied=self._destination.copy is not None
        )
        self._store = store

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self, transaction_ids: Sequence[str]) -> list[Transaction]:
        """See `Medium`."""
        self._store = self._opened(self._root, self._directories)
        # Queues and index lead only to the records that they list; only the whole log shows what contradicts them.
        reading = lookup([self._store], self._settings_of, transaction_ids, scan=True)
        found = [with_delivered_copies(Transaction.of(row), [self._store]) for row in reading.table().to_pylist()]
        self._findings = reading.findings
        return [
            replace(one, half_copies=(*one.half_copies, *(copy for copy, _ in self._planned(one)))) for one in found
        ]

    def _planned(self, transaction: Transaction) -> list[tuple[Copy, NamedRecord]]:
        """Half copies of a transaction that are planned and not written yet."""
        return [] if not self.is_untouched else self._new_halves.get(transaction.transaction_id, [])

    def situations(self, rows: Sequence[Transaction], *, settled_ms: int) -> list[Situation]:  # noqa: ARG002
        """See `Medium`. There is nothing to wait for."""
        found = file_situations([self._store], self._settings_of, rows, self._findings)
        completed = [self._completed(one) for one in found]
        return self._check_ahead().after_acts(completed, self._op_numbers, self._settled)

    def _completed(self, situation: Situation) -> Situation:
        """A situation, completed with the facts that follow from the broker being stopped."""
        for _, record in self._planned(situation.transaction):
            situation = replace(situation, half_copy=record, named=record)
        refused = dict(unwritable(situation, self._rules, self._topics, self._conf))
        named = situation.named
        if named is not None and self._readable_copy(named, situation) is None:
            refused.setdefault(ActKind.COMMIT, "no half copy of it has a body that consumers can decompress")
        if named is not None and self._dispatches_itself:
            why = why_not_dispatched(self._store, named.topic, named.queue_id, self._conf)
            if why is not None:
                refused.setdefault(ActKind.COMMIT, why)
        has_ops = named is None or named.topic == HALF_TOPIC
        around = replace(
            situation.conditions, now_ms=clock.now_ms(), is_stopped=True, unwritable=refused,
            hides_new=self._check_ahead().hides_new if has_ops else frozenset(),
            takes_halves=self._tail.next_offset(HALF_TOPIC) is not None,
        )
        return replace(situation, conditions=around)

    def _check_ahead(self) -> CheckAhead:
        """Return what the check of the store does after the acts."""
        if self._ahead is None or self._ahead[0] is not self._store:
            settings = self._settings_of(self._store)
            ahead = check_of_files(
                self._store, self._version, settings, self._conf, clock.now_ms(), self._tail.next_offset
            )
            self._ahead = self._store, ahead
        return self._ahead[1]

    def record(self, situation: Situation, queue_offset: int) -> NamedRecord | None:
        """See `Medium`."""
        copies = tuple(copy for copy in situation.transaction.half_copies if copy.queue_offset == queue_offset)
        asked = replace(situation.transaction, half_copies=copies)
        return file_situations([self._store], self._settings_of, [asked])[0].half_copy

    def wait(self, wait_ms: int) -> None:
        """See `Medium`. Nothing to wait for: no other process may change the store."""

    def tail(self, transaction_ids: Collection[str]) -> Tail:  # noqa: ARG002
        """See `Medium`. Nothing is put back while the broker is stopped."""
        return Tail([])

    def check_cursors(self) -> dict[str, int]:
        """See `Medium`."""
        return {self._store.root: self._first_read(0)}

    def _first_read(self, queue_id: int) -> int:
        """The first half queue offset that the check may read, after the next start."""
        return self._check_ahead().first_read((check_cursors(self._store).half or {}).get(queue_id))

    # -- acting -------------------------------------------------------------------------------------------------

    @contextmanager
    def claimed(
        self, situations: Iterable[Situation]  # noqa: ARG002
    ) -> Iterator[Mapping[str, tuple[str, ...]]]:
        """See `Medium`. The store's lock is held for the whole edit, so no other process acts on any group of it.

        Raises: StoreInUse, UnsafeStore.
        """
        locked = store_shared if self._destination.copy is not None else store_locked
        with locked(self._root):
            self._plan_on(self._opened(self._root, self._directories))
            yield {}

    def decide(self, named: NamedRecord, situation: Situation, decision: int, receipt: Receipt) -> Answer:
        """See `Medium`. Plans the COMMIT record and the op message, or only the op message.

        For a prepared record, plans the COMMIT or ROLLBACK record.
        """
        if named.is_prepared:
            return self._end_prepared(named, decision, receipt)
        if decision == COMMIT:
            source = self._readable_copy(named, situation, receipt) or named
            final = (
                rocksdb_final_of(
                    source.raw, self._rules, checks_in_table(situation.transaction, named.commit_log_offset)
                )
                if is_in_rocksdb(named)
                else final_of(source.raw, self._rules)
            )
            self._append("final", final, receipt)
        return self._append_ops(named, situation, receipt)

    def discard(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """See `Medium`. The discard copy is appended before the op: a broker does not discard a decided transaction."""
        if named.is_prepared:
            receipt.notes.append(
                "a prepared record has no discard: its message is saved with the receipt, and it is rolled back"
            )
            return self._end_prepared(named, ROLLBACK, receipt)
        if is_in_rocksdb(named):
            receipt.notes.append(
                "a broker with transactions in RocksDB writes no discard copy: the message is saved only with the "
                "receipt"
            )
        elif self._rules.writes_discard_copy:
            source = self._readable_copy(named, situation, receipt) or named
            self._append("discard copy", discard_copy_of(source.raw), receipt)
        else:
            receipt.notes.append(
                "a broker of this version writes no discard copy: the message is saved only with the receipt"
            )
        return self._append_ops(named, situation, receipt)

    def _end_prepared(self, named: NamedRecord, decision: int, receipt: Receipt) -> Answer:
        """Plan the COMMIT or ROLLBACK record of a prepared record."""
        if decision == COMMIT:
            self._append("COMMIT record", commit_record_of(named.raw), receipt)
        else:
            self._append("ROLLBACK record", rollback_record_of(named.raw, self._version), receipt)
        return Answer(ResponseCode.SUCCESS, None)

    def resume(self, named: NamedRecord, receipt: Receipt) -> Answer:
        """See `Medium`."""
        make = rocksdb_half_of if is_in_rocksdb(named) else half_copy_of
        placed = self._append("half copy", make(named.raw), receipt)
        record = named_record(block_of(placed.record), named.store)
        copy = Copy(record.store, record.queue_id, record.queue_offset, record.commit_log_offset, clock.now_ms(), 0)
        self._new_halves.setdefault(receipt.acted_on, []).append((copy, record))
        return Answer(ResponseCode.SUCCESS, None)

    def _readable_copy(
        self, named: NamedRecord, situation: Situation, receipt: Receipt | None = None
    ) -> NamedRecord | None:
        """The named copy if its body can be decompressed, else the newest older copy whose body can, else None.

        Brokers before 4.6.0 put back compressed halves decompressed and leave the flag for compression set: no consumer
        can read a message made from such a copy. The receipt records which copy was used.
        """
        if has_readable_body(named.raw):
            return named
        older = {copy.queue_offset for copy in situation.transaction.half_copies} - {named.queue_offset}
        for queue_offset in sorted((one for one in older if one < named.queue_offset), reverse=True):
            record = self.record(situation, queue_offset)
            if record is not None and has_readable_body(record.raw):
                if receipt is not None:
                    receipt.notes.append(
                        f"the body of half copy {named.queue_offset} cannot be decompressed: half copy {queue_offset} "
                        "is used instead"
                    )
                return record
        return None

    def _append_ops(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """Plan the op messages of the named copy and of each older copy that the check will still reach.

        A broker that was killed has cursors that are some seconds old (flushConsumerOffsetInterval): the check reads
        copies again that it has already put back, and would check them.
        """
        host = self._broker_host or draft_of(named.raw).store_host
        if is_in_rocksdb(named):  # the check puts back no copies of it: it is the only copy to settle
            key = self._unique_keys.new()
            op = rocksdb_op_of(named.raw, unique_key=key, broker_host=host, now_ms=clock.now_ms())
            self._append("op", op, receipt)
            return Answer(ResponseCode.SUCCESS, None)
        numbers = self._op_numbers(named, situation)
        self._settled += numbers
        for part in [numbers] if self._rules.ops_are_lists else [[number] for number in numbers]:
            op = op_of(part, self._rules, queue_id=named.queue_id, broker_host=host, now_ms=clock.now_ms())
            self._append("op", op, receipt)
        return Answer(ResponseCode.SUCCESS, None)

    def _op_numbers(self, named: NamedRecord, situation: Situation) -> list[int]:
        """The half queue offsets that the op messages of a decision name."""
        return [*(one for one in self.open_copies(situation) if one < named.queue_offset), named.queue_offset]

    def open_copies(self, situation: Situation) -> list[int]:
        """See `Medium`: the copies that the check will still reach, by its cursors."""
        transaction, op_cursors = situation.transaction, check_cursors(self._store).op
        queue_id = 0 if transaction.newest_half is None else transaction.newest_half.queue_id
        begin, op_begin = self._first_read(queue_id), (op_cursors or {}).get(queue_id, 0)
        return [number for number in transaction.copies_without_op(op_begin, queue_id=queue_id) if number >= begin]

    def _append(self, what: str, draft: RecordDraft, receipt: Receipt) -> Placed:
        """Plan a record, and record its place in the receipt."""
        placed = self._tail.append(draft)
        entry = receipt.asked(
            APPEND,
            {
                "record": what, "topic": draft.topic, "queueId": draft.queue_id, "queueOffset": placed.queue_offset,
                "commitLogOffset": placed.commit_log_offset, "lengthBytes": len(placed.record),
            },
        )
        self._entries.append(entry)
        self._about.append(
            f"{receipt.action} {receipt.transaction_id}: {_IN_WORDS.get(what, what)} at log offset "
            f"{placed.commit_log_offset} "
            f"(receipt {receipt.receipt_id})"
        )
        self._receipts.append(receipt.receipt_id)
        return placed

    def change_set(self) -> ChangeSet:
        """The changes to the files for all that is planned."""
        steps = self._tail.change_set().steps
        if self._dispatches_itself:
            steps += (Barrier(), *dispatch_steps(self._store, self._tail.placed, self._conf))
        elif not PREPARED_NOT_CHECKED.holds(self._version):
            steps += (Barrier(), *slot_states(self._store, self._tail.placed))
        return ChangeSet(steps)

    def redeliver(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """See `Medium`. A guard refuses it before: it is a request to a running broker."""
        raise NotImplementedError

    def not_in_queue(self, record: FinalRecord | OpMark) -> str | None:  # noqa: ARG002
        """See `Medium`. The queues are read back with the log."""
        return None

    def finish(self) -> Mapping[str, str]:
        """See `Medium`."""
        source = self._root
        try:
            self._root, self._directories = carried_out(
                self.change_set(), self._store, self._destination, self._about, list(dict.fromkeys(self._receipts))
            )
        except RmqtxError:
            self.is_untouched = self._destination.is_untouched
            raise
        self.is_untouched = False
        for entry in self._entries:
            entry.answered(ResponseCode.SUCCESS, "written")
        return {source: self._root}
