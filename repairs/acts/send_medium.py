"""Redeliveries from the files of a store: a copy of the message is sent to live brokers, of this or another cluster.

A copy is an ordinary message with the id of the transaction, so the index of the broker finds it; it counts as a
delivery (`final_records`), like a COMMIT record with that id. All brokers that are asked are searched before and after,
and claimed, so that two processes that send to different brokers see each other.

A half message that is sent as it is becomes a half message again, of which nothing is delivered, and the broker
answers with success: so the properties of halves are left out. What consumers need is kept, and compressed bodies stay
compressed. A mark shows where the copy comes from.
Source: seen on 3.2.6, 4.2.0 and 4.4.0 to 5.5.0; docs/safety.md#redeliveries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from rmqtx.readers.log.compression import KIND_MASK
from rmqtx.readers.log.properties import (
    CHECK_TIMES,
    IMMUNITY,
    ORIGIN,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from rmqtx.readers.log.record_layout import COMPRESSED, PREPARED
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest, FormatError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN
from rmqtx.readers.store.store import HALF_TOPICS, Store, opened_logs
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.connection import Value
from rmqtx.remoting.producer.producer import HALF_MARK, STORED, properties_text
from rmqtx.remoting.protocol.answers import Answer, BrokerAddresses
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.repairs.acts.claims import Others, claimed
from rmqtx.repairs.acts.file_situations import file_situations
from rmqtx.repairs.acts.live_medium import LiveMedium, with_traces
from rmqtx.repairs.acts.named_copies import ReadRecord, reader_of
from rmqtx.repairs.acts.situation import NamedRecord, SentTo, Situation
from rmqtx.repairs.receipts.receipts import SEND, Receipt
from rmqtx.repairs.records.record_writer import draft_of, has_readable_body, property_values
from rmqtx.verdicts.audit.lookups import lookup
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.model.marked_copies import with_delivered_copies
from rmqtx.verdicts.model.trace_evidence import trace_evidence
from rmqtx.verdicts.model.transaction import Transaction, newest_first

_DIGEST_DIGITS = 16
_MULTI_TAGS = 0x2
_KEPT_FLAGS = COMPRESSED | _MULTI_TAGS | KIND_MASK
#: What makes a half message of a record, and what the broker wrote for its checks.
_OF_HALVES = frozenset({
    HALF_MARK, PRODUCER_GROUP, REAL_TOPIC, REAL_QUEUE_ID, CHECK_TIMES, IMMUNITY, PREPARED_QUEUE_OFFSET, TRANSACTION_ID,
    "TRAN_PREPARED_QUEUE_OFFSET", "TRANS_OFFSET",
})
#: What would put the message off again: its time began when the half message was sent.
_DELAYS = frozenset({
    "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY",
})


@dataclass(frozen=True, slots=True)
class CopyToSend:
    """A message to send. Shape: `left_out`: delays and timers of the record that it does not have."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    sys_flag: int
    flag: int
    born_time_ms: int
    left_out: tuple[str, ...]


def copy_to_send(record: NamedRecord, topic: str, group: str | None = None) -> CopyToSend:
    """Return the copy of a record, for its real topic.

    `group`: as a new half message of this producer group, which the broker checks; else as an ordinary message.
    Raises: FormatError where consumers could not read it, or a second copy could not be recognised.
    """
    where = f"the record at commit-log offset {record.commit_log_offset}"
    if not has_readable_body(record.raw):
        raise FormatError(f"consumers cannot read the body of {where}")
    draft = draft_of(record.raw)
    try:
        values = {name.decode(): value.decode() for name, value in property_values(draft.properties).items()}
    except UnicodeDecodeError as error:
        raise FormatError(f"the properties of {where} are not UTF-8") from error
    if UNIQ_KEY not in values:
        raise FormatError(f"{where} has no UNIQ_KEY, by which a second copy would be found")
    queue = values.get(REAL_QUEUE_ID, "")
    kept = {name: value for name, value in values.items() if name not in _OF_HALVES and name not in _DELAYS}
    if group is not None:
        kept |= {HALF_MARK: "true", PRODUCER_GROUP: group}
        kept |= {IMMUNITY: values[IMMUNITY]} if IMMUNITY in values else {}
    digest = hashlib.sha256(record.raw).hexdigest()[:_DIGEST_DIGITS]
    return CopyToSend(
        topic, int(queue) if queue.isdecimal() else draft.queue_id, draft.body,
        kept | {ORIGIN: f"{record.message_id}:{digest}"},
        draft.sys_flag & _KEPT_FLAGS | (0 if group is None else PREPARED), draft.flag, draft.born_time_ms,
        tuple(sorted(_DELAYS & set(values))),
    )


class SendMedium(LiveMedium):
    """Live brokers that get copies, and the stores with the messages; see `Medium`."""

    def __init__(
        self, brokers: Sequence[Broker], members: Sequence[BrokerAddresses], target: Broker,
        stores: Sequence[Store], settings_of: SettingsOf, *, as_half: bool = False,
    ) -> None:
        super().__init__(brokers, members)
        self._target = target
        self._all = list(brokers)
        self._as_half = as_half
        self._stores = list(stores)
        self._settings_of = settings_of
        self._copies: dict[str, CopyToSend] = {}
        self._asked: frozenset[str] = frozenset()
        self._findings: list[Finding] = []
        self._of_files: dict[str, Transaction] = {}
        self._there: dict[str, Transaction] = {}

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self, transaction_ids: Sequence[str]) -> list[Transaction]:
        """See `Medium`. A transaction that a broker has too is as it is there, with the deliveries of both."""
        of_all = self._in_files(transaction_ids)
        self._there = {row.transaction_id: row for row in super().look(list(of_all))}
        unread: dict[str, list[str]] = {root: [] for root in self._unread}
        rows = []
        for name, of_files in of_all.items():
            row = self._there.get(name, of_files)
            known = {(one.store, one.commit_log_offset) for one in row.final_records}
            sent = [one for one in self._messages(of_files, unread) if (one.store, one.commit_log_offset) not in known]
            others = () if row is of_files else of_files.final_records
            row = replace(row, final_records=(*others, *row.final_records, *sent))
            if self._as_half and name in self._there:
                row = replace(row, half_copies=(*of_files.half_copies, *row.half_copies))
            rows.append(row)
        self._unread = {root: (*lines, *unread[root]) for root, lines in self._unread.items()}
        return rows

    def _in_files(self, transaction_ids: Sequence[str]) -> dict[str, Transaction]:
        """Some transactions as they are in the files, which are read once: what changes is at the brokers."""
        if not self._asked.issuperset(transaction_ids):
            reading = lookup(self._stores, self._settings_of, transaction_ids, scan=True)
            self._asked, self._findings = frozenset(transaction_ids), reading.findings
            found = [with_delivered_copies(Transaction.of(row), self._stores) for row in reading.table().to_pylist()]
            self._of_files = {row.transaction_id: row for row in found}
            if len(self._of_files) < len(found):
                raise BadRequest("several transactions of the stores have one id", advice="give one store")
        return {name: self._of_files[name] for name in transaction_ids if name in self._of_files}

    def situations(self, rows: Sequence[Transaction], *, settled_ms: int) -> list[Situation]:
        """See `Medium`."""
        of_files = [self._of_files[row.transaction_id] for row in rows]
        found = file_situations(self._stores, self._settings_of, of_files, self._findings)
        with opened_logs(self._stores) as logs:
            return [
                self._sendable(row, situation, settled_ms, reader_of(logs))
                for row, situation in zip(rows, found, strict=True)
            ]

    def _sendable(self, row: Transaction, found: Situation, settled_ms: int, read: ReadRecord) -> Situation:
        of_files, there = found.transaction, self._there.get(row.transaction_id)
        copy: CopyToSend | None = None
        record: NamedRecord | None = None
        why = "no copy of it can be read"
        # The first copy is as its producer sent it; the check may have spoilt a later one.
        for one in (*reversed(newest_first(of_files.half_copies)), *newest_first(of_files.discard_copies)):
            candidate = read(one.store, one.commit_log_offset)
            if candidate is None:
                continue
            try:
                group = of_files.producer_group if self._as_half else None
                copy, record = copy_to_send(candidate, str(of_files.topic), group), candidate
                break
            except FormatError as error:
                why = error.message
        # A producer decides at the broker that has the half message: with none here, its decisions do not come here.
        others = Others() if there is None else self._others(str(row.producer_group))
        facts = {broker.root: self._facts_of(broker.root) for broker in self._all}
        is_settled = all(one.has_queue_limit or root in self._drained for root, one in facts.items())
        root, claims = self._target.root, list(self._claims.values())
        unread = [line for broker in self._all for line in self._unread_at(broker)]
        in_use = [store.root for store in self._stores if store.in_use]
        if in_use and there is None:
            unread.append(f"a broker that is not asked uses {', '.join(in_use)}")
        sent_to = SentTo(root, str(of_files.topic), 0, as_half=self._as_half)
        if copy is not None:
            self._copies[row.transaction_id] = copy
            sent_to = SentTo(root, copy.topic, copy.queue_id, copy.left_out, as_half=self._as_half)
        conditions = replace(
            found.conditions, version=self._facts_of(root).version, is_slave=False, is_of_files=False,
            settle_ms=max(one.settle_ms for one in facts.values()),
            settled_ms=settled_ms if is_settled else 0,
            now_ms=clock.now_ms(),
            producers=None if others.unknown else others.members, producers_unknown=others.unknown,
            rivals=tuple(sorted({name for one in claims for name in one.rivals.get(str(row.producer_group), ())})),
            rivals_unknown=next((one.why_unknown for one in claims if one.why_unknown is not None), None),
            unread=tuple(unread), sent_to=sent_to, unsendable=None if copy is not None else why,
            is_there=there is not None,
            is_decidable_there=there is not None and self._can_decide(there),
            stopped_time_ms=None,
        )
        in_files = [one for one in map(trace_evidence, self._stores) if one is not None]
        conditions = with_traces(conditions, row.transaction_id, [*in_files, *self._traces])
        return Situation(row, record, None, record, conditions)

    def _unread_at(self, broker: Broker) -> Iterator[str]:
        yield from self._unread.get(broker.root, ())
        if (behind := self._behind(broker)) is not None:
            yield behind

    def _can_decide(self, there: Transaction) -> bool:
        """Whether a broker has a half copy that it can commit."""
        for one in there.half_copies:
            record = self._read(one.store, one.commit_log_offset)
            if record is None or "delayed_half" in there.flags:
                continue
            topics = HALF_TOPICS
            if record.topic in topics or not HALF_TOPIC_DESIGN.holds(self._facts_of(one.store).version):
                return True
        return False

    def record(self, situation: Situation, queue_offset: int) -> NamedRecord | None:  # noqa: ARG002
        """See `Medium`. A copy is sent of the record in the situation."""
        return None

    # -- acting -------------------------------------------------------------------------------------------------

    @contextmanager
    def claimed(self, situations: Iterable[Situation]) -> Iterator[Mapping[str, tuple[str, ...]]]:
        """See `Medium`. At every broker that is asked."""
        groups = {str(situation.group) for situation in situations}
        with ExitStack() as stack:
            for broker in self._all:
                self._claims[broker.root] = stack.enter_context(claimed(broker, groups, self._client_id))
            self.remember_log_ends()
            yield {group: names for claims in self._claims.values() for group, names in claims.rivals.items()}
        self._claims = {}

    def redeliver(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """See `Medium`."""
        del named
        copy, sent_to = self._copies[situation.transaction_id], situation.conditions.sent_to
        assert sent_to is not None
        # By its own birth time the check could discard a half at once, because of its age (fileReservedTime).
        born_time_ms = clock.now_ms() if sent_to.as_half else copy.born_time_ms
        fields: dict[str, Value] = {
            "producerGroup": situation.group, "topic": copy.topic, "queueId": sent_to.queue_id,
            "sysFlag": copy.sys_flag, "bornTimestamp": born_time_ms, "flag": copy.flag,
            "properties": properties_text(copy.properties),
        }
        entry = receipt.asked(SEND, fields)
        # defaultTopic (c) names the topic itself, so that no broker creates the topic from TBW102.
        short = {
            "a": situation.group, "b": copy.topic, "c": copy.topic, "d": 0, "e": sent_to.queue_id, "f": copy.sys_flag,
            "g": born_time_ms, "h": copy.flag, "i": fields["properties"], "j": 0, "k": False, "l": 0, "m": False,
        }
        answer, where = self._target.send(short, copy.body)
        entry.answered(answer.code, answer.remark)
        if answer.code not in STORED:
            return answer
        receipt.notes.append(f"sent to {copy.topic} queue {where.get('queueId')} at offset {where.get('queueOffset')}")
        if not answer.is_success:
            receipt.notes.append(f"stored, but {ResponseCode(answer.code).name}")
        return Answer(ResponseCode.SUCCESS, answer.remark)
