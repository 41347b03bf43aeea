"""Live brokers as the medium of actions: fresh look-ups, decisions by END_TRANSACTION, resumes by request 323."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmqtx.readers.log.properties import CHECK_TIMES, UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model import clock
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, QUEUE_LIMIT, Version, dotted, newest_default
from rmqtx.readers.model.units import time_text
from rmqtx.readers.store.broker_settings import BrokerSettings, conf_integer, settings_of_broker
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, TRACE_TOPIC
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live.live_traces import LiveTraces
from rmqtx.remoting.live.lookups import lookup
from rmqtx.remoting.live.queues import OpsUnreadable
from rmqtx.remoting.live.record_reads import messages_with_id
from rmqtx.remoting.live.store_facts import LiveStore, live_store
from rmqtx.remoting.producer.producer import our_client_id
from rmqtx.remoting.protocol.answers import Answer, BrokerAddresses
from rmqtx.remoting.protocol.codes import COMMIT, ROLLBACK
from rmqtx.remoting.protocol.errors import Unreachable
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.repairs.acts.check_ahead import CheckAhead, check_of_broker
from rmqtx.repairs.acts.claims import Claims, GroupWatch, Others, claimed
from rmqtx.repairs.acts.medium import Tail
from rmqtx.repairs.acts.named_copies import newest_of, newest_records
from rmqtx.repairs.acts.situation import ActConditions, NamedRecord, Situation, named_record
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.verdicts.check.state import first_read
from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.marked_copies import OVER, copies_in
from rmqtx.verdicts.model.trace_evidence import Traces
from rmqtx.verdicts.model.transaction import OpMark, Transaction

#: The broker's threads are not exact: added to the wait that follows from its configuration.
_MARGIN_MS = 1_000
#: From 5.1.0 the broker examines the op batch once an interval and writes it if the last write is an interval ago: an
#: op can miss one turn and be written at the next. A delay of 3.6 s was seen on 5.1.4, on a machine with a load of 100.
_OP_BATCH_LOOKS = 2
_WATCH_SECONDS = 0.5
_QUEUE_WAIT = "waitTimeMillsInTransactionQueue"  # as RocketMQ spells it


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts about a broker that do not change while a command runs."""

    version: Version
    is_slave: bool
    settle_ms: int
    has_queue_limit: bool
    queue_size_name: str
    file_reserved_time_hours: int


class LiveMedium:
    """Some live brokers; see `Medium`.

    `members`: every broker of their sets, with slaves: all are asked whether a producer is connected.
    """

    is_exclusive = False
    #: A request takes effect as soon as it is sent.
    is_untouched = False

    def __init__(self, brokers: Sequence[Broker], members: Sequence[BrokerAddresses]) -> None:
        self._brokers = {broker.root: broker for broker in brokers}
        self._members = members
        self._facts: dict[str, _Facts] = {}
        self._claims: dict[str, Claims] = {}
        self._live: list[LiveStore] = []
        self._traces = [LiveTraces(broker, TRACE_TOPIC) for broker in brokers]
        self._unread: dict[str, tuple[str, ...]] = {}
        #: The checks that may read a decided half copy again, by broker, as they were at the last look.
        self._ahead: dict[str, CheckAhead | str | None] = {}
        self._client_id = our_client_id()
        self._watches: dict[str, GroupWatch] = {}
        #: Members of a group that were connected at some moment of the wait.
        self._seen: dict[str, set[str]] = {}
        #: Brokers whose queue of decisions was seen empty during the wait.
        self._drained: set[str] = set()
        #: Ends of the logs when the claims were made: decisions before these offsets must be in the index by now.
        self._log_ends: dict[str, int] = {}
        #: Whether a resume was sent: then look-ups show whether the check reaches the new copy.
        self._has_resumed = False
        #: Up to where the half queues were read for copies that the check puts back.
        self._half_ends: dict[str, int] = {}

    # -- looking ------------------------------------------------------------------------------------------------

    def look(self, transaction_ids: Sequence[str]) -> list[Transaction]:
        """See `Medium`."""
        self._live = [live_store(broker) for broker in self._brokers.values()]
        self._ahead = {}
        reading = lookup(
            list(self._brokers.values()), transaction_ids, facts=self._live, with_check=self._has_resumed
        )
        unread: dict[str, list[str]] = {root: [] for root in self._brokers}
        rows = [self._with_copies(Transaction.of(row), unread) for row in reading.table().to_pylist()]
        self._unread = {
            root: (*(one.line() for one in reading.findings if one.store == root and _matters(one)), *unread[root])
            for root in self._brokers
        }
        return rows

    def _with_copies(self, row: Transaction, unread: dict[str, list[str]]) -> Transaction:
        """The row with the copies that a redelivery from files sent, as deliveries; only of what is over."""
        if row.final_records or row.topic is None or row.state not in OVER:
            return row
        return replace(row, final_records=tuple(self._messages(row, unread, only_marked=True)))

    def _messages(
        self, row: Transaction, unread: dict[str, list[str]], *, only_marked: bool = False
    ) -> list[FinalRecord]:
        """The messages with the id of a transaction that consumers get, at all brokers.

        `unread` takes what could not be read, by broker.
        """
        place, since_ms = (str(row.topic), row.queue_id or 0), row.half_store_time_ms or 0
        found: dict[tuple[str, int], FinalRecord] = {}
        for facts in self._live:
            for block in messages_with_id(facts, place, row.transaction_id, since_ms, unread[facts.root]):
                for _, one in copies_in(block, facts.root, {row.transaction_id: place[0]}, only_marked=only_marked):
                    found[one.record.store, one.record.commit_log_offset] = one.record
        return list(found.values())

    def situations(self, rows: Sequence[Transaction], *, settled_ms: int) -> list[Situation]:
        """See `Medium`."""
        groups = {row.producer_group for row in rows if row.producer_group is not None}
        others = {group: self._others(group) for group in sorted(groups)}
        behind = {root: self._behind(broker) for root, broker in self._brokers.items()}
        found = [self._situation(row, others, behind, settled_ms) for row in rows]
        for facts in self._live:
            found = self._after_acts(facts, found)
        return found

    def _after_acts(self, facts: LiveStore, situations: list[Situation]) -> list[Situation]:
        """The situations, those at one broker with what its check does after acts on all of them."""
        places = [
            place for place, one in enumerate(situations) if one.named is not None and one.named.store == facts.root
        ]
        found, mine = list(situations), [situations[place] for place in places]
        if mine and facts.root not in self._ahead:
            self._ahead[facts.root] = self._check_of(facts)
        ahead = self._ahead.get(facts.root) if mine else None
        if isinstance(ahead, CheckAhead):
            mine = [
                replace(one, conditions=replace(one.conditions, hides_new=ahead.hides_new))
                for one in ahead.after_acts(mine, self._op_numbers)
            ]
        elif ahead is not None:
            mine = [
                replace(one, conditions=replace(one.conditions, unread=(*one.conditions.unread, ahead))) for one in mine
            ]
        for place, one in zip(places, mine, strict=True):
            found[place] = one
        return found

    @staticmethod
    def _check_of(facts: LiveStore) -> CheckAhead | str | None:
        """What a broker's check does after acts, or why that is unknown; None if it reads every op message."""
        try:
            return check_of_broker(facts)
        except OpsUnreadable as error:
            return f"whether its check reads the op message of a decision: {error.message}"

    def _op_numbers(self, named: NamedRecord, situation: Situation) -> list[int]:
        """The half queue offsets that op messages of a decision name: of its copy, and of older ones closed after."""
        return sorted({*(one for one in self.open_copies(situation) if one < named.queue_offset), named.queue_offset})

    def _situation(
        self, row: Transaction, others: dict[str, Others], behind: dict[str, str | None], settled_ms: int
    ) -> Situation:
        half, discard = newest_records(row, self._read)
        root = next((record.store for record in (half, discard) if record is not None), str(row.store))
        facts = self._facts_of(root)
        group = str(row.producer_group)
        others_now = others.get(group, Others())
        claims = self._claims.get(root)
        rivals = () if claims is None else claims.rivals.get(group, ())
        conditions = ActConditions(
            version=facts.version, is_slave=facts.is_slave,
            settle_ms=facts.settle_ms, settled_ms=settled_ms if facts.has_queue_limit or root in self._drained else 0,
            file_reserved_time_hours=facts.file_reserved_time_hours, now_ms=clock.now_ms(),
            producers=None if others_now.unknown else tuple(sorted({*others_now.members, *self._seen.get(group, ())})),
            producers_unknown=others_now.unknown, rivals=rivals,
            rivals_unknown=None if claims is None else claims.why_unknown,
            unread=(*self._unread.get(root, ()), *filter(None, [behind.get(root)])),
        )
        if row.state in OVER:
            conditions = with_traces(conditions, row.transaction_id, self._traces)
        return Situation(row, half, discard, half, conditions)

    def _read(self, root: str, commit_log_offset: int) -> NamedRecord | None:
        raw = self._brokers[root].view(commit_log_offset)
        return next((named_record(block, root) for block in blocks_of([raw or b""], root, [])), None)

    def record(self, situation: Situation, queue_offset: int) -> NamedRecord | None:
        """See `Medium`."""
        copies = [copy for copy in situation.transaction.half_copies if copy.queue_offset == queue_offset]
        return newest_of(copies, self._read)

    def open_copies(self, situation: Situation) -> list[int]:
        """See `Medium`."""
        return situation.transaction.copies_without_op()

    def wait(self, wait_ms: int) -> None:
        """See `Medium`. Notes group members that are connected at any moment, and brokers without a waiting decision.

        Reason: a producer that crashes repeatedly may connect, decide and disconnect during the wait.
        """
        end = time.monotonic() + wait_ms / 1000
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _WATCH_SECONDS))
            self._drained.update(root for root in self._claims if not self._waiting_count(root))
            for claims in self._claims.values():
                for group in claims.groups:
                    self._seen.setdefault(group, set()).update(self._others(group).members)

        self._half_ends = {root: self._brokers[root].max_offset(HALF_TOPIC) for root in self._half_ends}

    def tail(self, transaction_ids: Collection[str]) -> Tail:
        """See `Medium`."""
        copies: list[tuple[str, NamedRecord]] = []
        put_backs_count = 0
        for root, begin in self._half_ends.items():
            broker = self._brokers[root]
            pulled = broker.pull(HALF_TOPIC, 0, begin)
            while pulled.status == "found":
                for block in blocks_of([pulled.body], root, []):
                    put_backs_count += int(block.properties.locate(CHECK_TIMES)[2].sum())
                    copies += _copies_in(broker, block, transaction_ids)
                self._half_ends[root] = pulled.next_offset
                pulled = broker.pull(HALF_TOPIC, 0, pulled.next_offset)
        return Tail(copies, put_backs_count)

    def check_cursors(self) -> dict[str, int]:
        """See `Medium`."""
        return {root: _first_read(self._brokers[root]) for root in self._half_ends}

    def _waiting_count(self, root: str) -> int:
        """Decisions in a broker's request queue; 0 where the broker drops old requests (brokerFastFailureEnable)."""
        if self._facts_of(root).has_queue_limit:
            return 0
        return _number(self._brokers[root].runtime().get(self._facts_of(root).queue_size_name))

    def _others(self, group: str) -> Others:
        """The other members of a group now, on every broker of the sets."""
        if group not in self._watches:
            client = next(iter(self._brokers.values())).client
            self._watches[group] = GroupWatch(client, self._members, group, self._client_id)
        return self._watches[group].look()

    def _facts_of(self, root: str) -> _Facts:
        if root not in self._facts:
            broker = self._brokers[root]
            conf, version = broker.config(), broker.version()
            settings = settings_of_broker(conf, dotted(version))
            has_half_topic = HALF_TOPIC_DESIGN.holds(version)
            limits_by_default = "true" if QUEUE_LIMIT.holds(version) else "false"
            self._facts[root] = _Facts(
                version=version,
                is_slave=conf.get("brokerRole") == "SLAVE" or broker.broker_id != 0,
                settle_ms=settle_ms(settings),
                has_queue_limit=conf.get("brokerFastFailureEnable", limits_by_default) == "true",
                queue_size_name="EndTransactionQueueSize" if has_half_topic else "sendThreadPoolQueueSize",
                file_reserved_time_hours=settings.file_reserved_time_hours,
            )
        return self._facts[root]

    def _behind(self, broker: Broker) -> str | None:
        """What queues and index lack of the log as it was when the claim was made, as text; None if nothing."""
        if broker.root not in self._log_ends:
            return None
        runtime = broker.runtime()
        dispatched = _number(runtime.get("commitLogMaxOffset")) - _number(runtime.get("dispatchBehindBytes"))
        lacking = self._log_ends[broker.root] - dispatched
        return f"queues and index do not cover the last {lacking} bytes of the log yet" if lacking > 0 else None

    def remember_log_ends(self) -> None:
        """Keep the present ends of the logs: `unread` then lists what queues and index lack before these."""
        for root, broker in self._brokers.items():
            self._log_ends[root] = _number(broker.runtime().get("commitLogMaxOffset"))

    # -- acting -------------------------------------------------------------------------------------------------

    @contextmanager
    def claimed(self, situations: Iterable[Situation]) -> Iterator[Mapping[str, tuple[str, ...]]]:
        """See `Medium`."""
        groups: dict[str, set[str]] = {}
        for situation in situations:
            if situation.named is not None or situation.discard_copy is not None:
                store = (situation.named or situation.discard_copy).store  # type: ignore[union-attr]
                groups.setdefault(store, set()).add(str(situation.group))
        with ExitStack() as stack:
            for root, names in sorted(groups.items()):
                self._claims[root] = stack.enter_context(claimed(self._brokers[root], names, self._client_id))
                self._log_ends[root] = _number(self._brokers[root].runtime().get("commitLogMaxOffset"))
                if HALF_TOPIC_DESIGN.holds(self._facts_of(root).version):
                    self._half_ends[root] = self._brokers[root].max_offset(HALF_TOPIC)
            yield {group: names for claims in self._claims.values() for group, names in claims.rivals.items()}
        self._claims = {}

    def decide(self, named: NamedRecord, situation: Situation, decision: int, receipt: Receipt) -> Answer:
        """See `Medium`.

        Raises: Unreachable also for a prepared record at a broker that has half topics, and nothing is sent: the broker
                would write an op message that settles another half message, whatever it answers.
        """
        version = self._facts_of(named.store).version
        if named.is_prepared and HALF_TOPIC_DESIGN.holds(version):
            raise Unreachable(f"broker {dotted(version)} cannot decide a prepared record (before 4.3)")
        fields = {
            "producerGroup": situation.group, "tranStateTableOffset": named.queue_offset,
            "commitLogOffset": named.commit_log_offset, "commitOrRollback": decision, "fromTransactionCheck": True,
        }
        entry = receipt.asked("END_TRANSACTION", fields)
        answer = self._brokers[named.store].end_transaction(
            producer_group=str(situation.group), queue_offset=named.queue_offset,
            commit_log_offset=named.commit_log_offset, decision=decision, transaction_id=situation.transaction_id,
        )
        entry.answered(answer.code, answer.remark)
        return answer

    def redeliver(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """See `Medium`. A commit, which no broker refuses while its log has the half message."""
        return self.decide(named, situation, COMMIT, receipt)

    def not_in_queue(self, record: FinalRecord | OpMark) -> str | None:
        """See `Medium`."""
        broker, number = self._brokers[record.store], record.queue_offset
        if isinstance(record, OpMark):
            if number >= broker.max_offset(OP_TOPIC, record.queue_id):
                return f"the op queue ends before its op message with queue offset {number}"
            return self._may_be_passed(record.store, number)
        found = broker.pull(record.topic, record.queue_id, number, 1)
        for block in blocks_of([found.body], record.store, []):
            if int(block.commit_log_offsets[0]) == record.commit_log_offset:
                return None
        return f"slot {number} of {record.topic} queue {record.queue_id} does not lead to the COMMIT record"

    def _may_be_passed(self, root: str, number: int) -> str | None:
        """Why the check may pass the slot of an op message; None if it reads the slot, as far as can be known.

        A slot without a record hides those behind it from the first round after a start. That round moves the op cursor
        over them, so later ones are not hidden; releases before 4.7 show no slot.
        """
        facts = next(one for one in self._live if one.root == root)
        if facts.op_cursor >= number or not facts.has_not_checked:
            return None
        if self._brokers[root].slots(OP_TOPIC, 0, number, 1).slots:
            return None
        return (
            "the broker has not run its check since its start, and does not show its op queue: whether the check reads "
            f"op message {number} is seen after its first round (rmqtx receipts --recheck)"
        )

    def discard(self, named: NamedRecord, situation: Situation, receipt: Receipt) -> Answer:
        """See `Medium`. A rollback, because brokers have no request for a discard."""
        return self.decide(named, situation, ROLLBACK, receipt)

    def finish(self) -> Mapping[str, str]:
        """See `Medium`."""
        return {}

    def resume(self, named: NamedRecord, receipt: Receipt) -> Answer:
        """See `Medium`."""
        self._has_resumed = True
        entry = receipt.asked("RESUME_CHECK_HALF_MESSAGE", {"msgId": named.message_id})
        answer = self._brokers[named.store].resume_check(named.message_id)
        entry.answered(answer.code, answer.remark)
        return answer


def _first_read(broker: Broker) -> int:
    return first_read(broker.consumer_offset(CHECK_GROUP, HALF_TOPIC), broker.max_offset(HALF_TOPIC))


def with_traces(conditions: ActConditions, transaction_id: str, traces: Iterable[Traces]) -> ActConditions:
    """Return the conditions with the decision ROLLBACK in the traces of a transaction, and what could not be read."""
    lines: list[Mapping[str, Any]] = []
    unread: list[str] = []
    for one in traces:
        lines += one.rows([transaction_id]).get(transaction_id, [])
        unread += [f"{finding.store}: {finding.actual}" for finding in one.findings if finding.is_error]
    return replace(
        conditions, traced_rollback=_traced_rollback(lines), traces_unread=tuple(dict.fromkeys(unread))
    )


def _traced_rollback(lines: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the last rollback among rows of TRACES, in words; None without one, which shows nothing."""
    rollbacks = [line for line in lines if line["decision"] == "ROLLBACK"]
    if not rollbacks:
        return None
    last = max(rollbacks, key=lambda line: line["time_ms"])
    how = "its answer to a check" if last["is_check_answer"] else "its first decision"
    return f"message trace, {how} at {time_text(last['time_ms'])}: ROLLBACK"


def settle_ms(settings: BrokerSettings) -> int:
    """How long a decision that a broker has received may take to become visible.

    It may wait in the broker's request queue until the broker drops it (waitTimeMillsInTransactionQueue), and its op
    in the op batch (5.1.0+). Source: BrokerFastFailure, TransactionalOpBatchService; docs/formats/cursors.md#settings.
    """
    queue_ms = conf_integer(settings.given or {}, _QUEUE_WAIT, newest_default(_QUEUE_WAIT), 64)
    return queue_ms + _OP_BATCH_LOOKS * settings.transaction_op_batch_interval_ms + _MARGIN_MS


def _copies_in(
    broker: Broker, block: Block, transaction_ids: Collection[str]
) -> Iterator[tuple[str, NamedRecord]]:
    """The copies of some transactions among half messages that a broker sent."""
    names = block.properties.text(UNIQ_KEY).to_pylist()
    for row in np.flatnonzero([name in transaction_ids for name in names]).tolist():
        yield names[row], named_record(block, broker.root, row)


def _matters(finding: Finding) -> bool:
    """Whether a finding could hide a witness; the lag of queues and index is handled by `_behind`.

    Half queue offsets of other half messages are part of the state and its flags.
    """
    return finding.is_error and finding.code not in ("dispatch-behind", "half-number-taken")


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
