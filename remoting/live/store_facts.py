"""Facts about a live broker besides its records: settings, version, role, cursors of its check, ends of its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.model.releases import (
    ANY_QUERY_SPAN,
    DISPATCHES_BEHIND_QUEUES,
    HALF_TOPIC_DESIGN,
    PROXIES,
    ROCKSDB_TRANSACTIONS,
    Version,
)
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.broker_conf import PROXY_TOPIC
from rmqtx.readers.store.broker_settings import BrokerSettings, settings_of_broker
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, TRACE_TOPIC
from rmqtx.remoting.connections.batched_reads import Pace
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live.live_traces import LiveTraces
from rmqtx.remoting.live.queues import first_kept
from rmqtx.remoting.protocol.errors import BadFrame, Refused
from rmqtx.verdicts.missing.check_queue_findings import OP_CURSOR_BEYOND_END
from rmqtx.verdicts.model.marked_copies import SeenCopies
from rmqtx.verdicts.model.predicted import Prediction
from rmqtx.verdicts.model.store_evidence import FILES, TRACE, WIRE, StoreEvidence
from rmqtx.verdicts.model.verdict_inputs import (
    CheckStop,
    HalfNumbers,
    HiddenRecords,
    HiddenTopic,
    MisdirectedDecision,
    MissingRange,
    StoreView,
    idle_ops,
)
from rmqtx.verdicts.startup.rules import DEFAULT_QUEUE_FILE_BYTES, configured_queue_file_bytes

_LEVEL = re.compile(r"scheduleMessageOffset_([0-9]{1,4})")
#: How long after its start a broker may still be recovering.
_START_MS = 60_000
#: How long the first round of a check may take.
_ROUND_MS = 1_000
#: All places of a log.
EVERYWHERE = (0, (1 << 63) - 1)
_QUERY_SPAN_HOURS = 73


@dataclass(slots=True)
class LiveStore:
    """The facts about one live broker that verdicts need; `findings`, `missing` and others grow while it is read.

    The cursors are read when this is made, that is before any record: a decision or put-back after that can be missed
    only for a half that was still open at that moment.

    Shape: `scheduled`: the range of each delay queue that is not due yet. `half_end`: the next queue offset of the half
           topic when this was made; `rocksdb_begin` and `rocksdb_end`: bounds of the queue of transactions in RocksDB,
           which has no cursor. `booted_time_ms`: start of the broker. `query_span_ms`: longest time span of a query for
           a key; None: any. `index_whole_since_ms`: the index has all records stored since then; a killed broker drops
           its newest index file, and fills it again only from the recovered offset on. `has_proxy`: see StoreEvidence.
    """

    broker: Broker
    settings: BrokerSettings
    role: str
    rocksdb_begin: int
    rocksdb_end: int
    has_index: bool
    log_begin_offset: int
    log_end_offset: int
    log_file_bytes: int
    query_span_ms: int | None
    dispatch_behind_bytes: int
    half_cursor: int
    op_cursor: int
    half_begin: int
    half_end: int
    op_begin: int
    op_end: int
    taken_time_ms: int
    index_whole_since_ms: int
    booted_time_ms: int
    queue_file_slots: int = DEFAULT_QUEUE_FILE_BYTES // SLOT.size_bytes
    scheduled: dict[int, tuple[int, int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    missing: list[MissingRange] = field(default_factory=list)
    misdirected_decisions: list[MisdirectedDecision] = field(default_factory=list)
    check_stops: list[CheckStop] = field(default_factory=list)
    future: Prediction | None = None
    half_numbers: HalfNumbers = field(default_factory=HalfNumbers)
    has_proxy: bool = False
    traces: LiveTraces = field(init=False)
    copies: SeenCopies = field(default_factory=SeenCopies)

    def __post_init__(self) -> None:
        self.traces = LiveTraces(self.broker, TRACE_TOPIC)

    @property
    def root(self) -> str:
        """Its value in the column `store`."""
        return self.broker.root

    @property
    def has_half_topic(self) -> bool:
        """Whether its version has half messages in a queue; earlier versions have prepared records, in no queue."""
        return self.settings.version_low is None or HALF_TOPIC_DESIGN.holds(self.settings.version_low)

    @property
    def checked_from(self) -> int:
        """The first half queue offset that the check may read: a cursor outside its queue is corrected."""
        return self.half_begin if self.half_cursor > self.half_end else max(self.half_cursor, self.half_begin)

    @property
    def has_not_checked(self) -> bool:
        """Whether no round of the check can have ended since the start of the broker: it moves the cursors."""
        first_round_ms = self.booted_time_ms + self.settings.transaction_check_interval_ms
        return self.taken_time_ms < first_round_ms + _ROUND_MS

    @property
    def is_slave(self) -> bool:
        """Whether it is a slave: it has replicated records, and refuses decisions."""
        return self.role == "SLAVE"

    def add_missing(self, what: str, hidden: HiddenTopic | None = None) -> None:
        """Add unreadable witnesses that may exist: verdicts that rely on their absence are UNDECIDABLE.

        `hidden`: the only records that they can be; None: any.
        """
        records = None if hidden is None else HiddenRecords((hidden,), ())
        self.missing.append(MissingRange(self.root, *EVERYWHERE, what, hidden=records))

    def view(self) -> StoreView:
        """The facts in the form that verdicts take."""
        return StoreView(
            store=self.root,
            settings=self.settings,
            half_cursors={0: self.half_cursor},
            op_cursors={0: self.op_cursor},
            log_begin_offset=self.log_begin_offset,
            reference_time_ms=self.taken_time_ms,
            missing=tuple(self.missing),
            misdirected_decisions=tuple(self.misdirected_decisions),
            booted_time_ms=self.booted_time_ms,
            check_stops=tuple(self.check_stops),
            future=self.future,
            half_numbers=self.half_numbers,
            idle_ops=idle_ops(self.findings),
        )

    def evidence(self) -> StoreEvidence:
        """The facts in the form that the rules of causes read; no request returns the place of the last op message."""
        settings = self.settings
        stop = self.check_stops[-1] if self.check_stops else None
        return StoreEvidence(
            settings.version_low, settings.version_high, stop=stop, conf=settings.given, has_proxy=self.has_proxy,
            read=frozenset({FILES, WIRE, TRACE}), traces=self.traces,
            op_interval_ms=settings.transaction_op_batch_interval_ms, shifted_halves=self.half_numbers.shifted,
        )

    def describe(self, *, verbose: bool = False) -> str:
        """Return one line: the broker's role and version; `verbose`: and its settings as it reports them."""
        role = f"{self.role.lower().replace('_', ' ')}, " if self.role != "ASYNC_MASTER" else ""
        if self.is_slave:
            role = "slave without checks of its own (its master checks while it runs), "
        known = self.settings.describe() if verbose else self.settings.describe_briefly()
        return f"a live broker, {role}read over the network; {known}"


def live_store(broker: Broker, trace_topic: str | None = None, pace: Pace | None = None) -> LiveStore:
    """Return the facts of a broker, before its records are read.

    `trace_topic`: of the message traces, if another than usual. `pace`: of the requests for them.
    Damage: a cursor outside its queue, records that queues and index do not have yet, and transactions in RocksDB,
            whose table no request reads, are findings.
    Raises: Unreachable, NoAnswer, Refused, BadFrame.
    Source: TransactionalMessageBridge.fetchConsumeOffset; docs/formats/half_and_op.md#check-start.
    """
    queues = _check_queues(broker)
    conf, runtime = broker.config(), broker.runtime()
    reported = _reported(broker, conf, runtime)
    settings = reported.settings
    is_in_use = conf.get("transRocksDBEnable") == "true"
    rocksdb_begin, rocksdb_end = rocksdb_range(
        broker, settings.version_low, ROCKSDB_HALF_TOPIC, is_needed=is_in_use
    )
    half_begin = max(0, queues.half_begin)
    facts = LiveStore(
        broker=broker,
        settings=settings,
        role=settings.broker_role,
        rocksdb_begin=rocksdb_begin,
        rocksdb_end=rocksdb_end,
        has_index=conf.get("messageIndexEnable", "true") == "true",
        log_begin_offset=max(0, reported.log_begin_offset),
        log_end_offset=reported.log_end_offset,
        log_file_bytes=_log_file_bytes(conf),
        query_span_ms=_query_span_ms(conf, settings),
        dispatch_behind_bytes=reported.dispatch_behind_bytes,
        half_cursor=_cursor(queues.half_cursor, queues.half_begin),
        op_cursor=_cursor(queues.op_cursor, queues.op_begin),
        half_begin=first_kept(broker, HALF_TOPIC, 0, half_begin, queues.half_end, reported.log_begin_offset),
        half_end=max(0, queues.half_end),
        op_begin=max(0, queues.op_begin),
        op_end=max(0, queues.op_end),
        taken_time_ms=queues.taken_time_ms,
        index_whole_since_ms=reported.booted_time_ms + _START_MS,
        booted_time_ms=reported.booted_time_ms,
        queue_file_slots=(configured_queue_file_bytes(conf) or DEFAULT_QUEUE_FILE_BYTES) // SLOT.size_bytes,
        scheduled=_scheduled(runtime),
        has_proxy=_has_proxy(broker, settings),
    )
    facts.traces = LiveTraces(broker, trace_topic or TRACE_TOPIC, pace or Pace())
    facts.findings.extend(_findings(facts, half_begin))
    if (ahead := _dispatch_ahead(facts)) is not None:
        facts.findings.append(ahead)
        facts.add_missing("its queues and index have no record that was written since its start")
    return facts


def _has_proxy(broker: Broker, settings: BrokerSettings) -> bool:
    """Whether the broker has the topic of the proxies; without the topic it refuses the pull.

    The topic is empty as long as no consumer uses a proxy.
    """
    if PROXIES.between(settings.version_low, settings.version_high) is False:
        return False
    try:
        broker.pull(PROXY_TOPIC, 0, 0, 1)
    except Refused:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _CheckQueues:
    """The cursors and bounds of the half and op queues, as the broker reports them.

    Shape: `taken_time_ms`: after the cursors and before the bounds were requested.
    """

    half_cursor: int | None
    op_cursor: int | None
    taken_time_ms: int
    half_begin: int
    half_end: int
    op_begin: int
    op_end: int


def _check_queues(broker: Broker) -> _CheckQueues:
    # a request for half and op topics would create queues in the memory of earlier brokers
    if not HALF_TOPIC_DESIGN.holds(broker.version()):
        return _CheckQueues(None, None, clock.now_ms(), 0, 0, 0, 0)
    return _CheckQueues(  # the requests are sent in this order
        half_cursor=broker.consumer_offset(CHECK_GROUP, HALF_TOPIC),
        op_cursor=broker.consumer_offset(CHECK_GROUP, OP_TOPIC),
        taken_time_ms=clock.now_ms(),
        half_begin=broker.min_offset(HALF_TOPIC),
        half_end=broker.max_offset(HALF_TOPIC),
        op_begin=broker.min_offset(OP_TOPIC),
        op_end=broker.max_offset(OP_TOPIC),
    )


@dataclass(frozen=True, slots=True)
class _Reported:
    """Values of a broker's runtime information, with its settings."""

    settings: BrokerSettings
    log_begin_offset: int
    log_end_offset: int
    booted_time_ms: int
    dispatch_behind_bytes: int


def _reported(broker: Broker, conf: Mapping[str, str], runtime: Mapping[str, str]) -> _Reported:
    try:
        return _Reported(
            settings=settings_of_broker(conf, runtime["brokerVersionDesc"]),
            log_begin_offset=int(runtime["commitLogMinOffset"]),
            log_end_offset=int(runtime["commitLogMaxOffset"]),
            booted_time_ms=int(runtime["bootTimestamp"]),
            dispatch_behind_bytes=int(runtime.get("dispatchBehindBytes", "0")),
        )
    except (KeyError, ValueError, BadRequest) as error:
        raise BadFrame(f"the runtime information of {broker.address} lacks a needed value: {error}") from error


def rocksdb_range(broker: Broker, version: Version | None, topic: str, *, is_needed: bool) -> tuple[int, int]:
    """Return the range of a queue of transactions in RocksDB, independent of the configuration; empty before 5.4.0.

    `is_needed`: raise the refusal of an account without the right to read it; else the range is empty then.
    Units:  queue offsets, the second excluded.
    Raises: Refused, Unreachable, NoAnswer.
    """
    if version is not None and not ROCKSDB_TRANSACTIONS.holds(version):
        return 0, 0
    try:
        begin, end = broker.min_offset(topic), broker.max_offset(topic)
    except Refused:
        if is_needed:
            raise
        return 0, 0
    return max(0, begin), max(0, end)


def _log_file_bytes(conf: dict[str, str]) -> int:
    """Length of a file of the commit log; brokers before 4.9 spell it with one p."""
    text = conf.get("mappedFileSizeCommitLog") or conf.get("mapedFileSizeCommitLog") or ""
    return int(text) if text.isdecimal() and int(text) > 0 else 1 << 30


def _query_span_ms(conf: dict[str, str], settings: BrokerSettings) -> int | None:
    """Longest span of a query: 3.1.4 refuses more than queryMessageMaxTimeSpan hours; 3.2.6 and later accept any."""
    if settings.version_low is None or ANY_QUERY_SPAN.holds(settings.version_low):
        return None
    hours = conf.get("queryMessageMaxTimeSpan", "")
    return (int(hours) if hours.isdecimal() and int(hours) else _QUERY_SPAN_HOURS) * HOUR_MS


def _cursor(cursor: int | None, begin: int) -> int:
    return max(0, begin) if cursor is None or cursor < 0 else cursor


def _scheduled(runtime: dict[str, str]) -> dict[int, tuple[int, int]]:
    """Queue numbers of the delay topic with the range that is not due yet; queues never used are not listed."""
    found = {}
    for name, value in runtime.items():
        level = _LEVEL.fullmatch(name)
        numbers = value.split(",")
        if level and len(numbers) == 2 and all(number.strip().isdecimal() for number in numbers):
            found[int(level[1]) - 1] = (int(numbers[0]), int(numbers[1]))
    return found


def _dispatch_ahead(facts: LiveStore) -> Finding | None:
    """Return that the broker dispatches no record before a place behind the end of its log; None if it does.

    A broker reads the end of the log before it computes how far the dispatch is behind, which may be negative for a
    moment while records are written; so the end is read again.
    Source: store/DefaultMessageStore.java start, ReputMessageService.behind.
    """
    settings = facts.settings
    is_old = DISPATCHES_BEHIND_QUEUES.between(settings.version_low, settings.version_high)
    if facts.dispatch_behind_bytes >= 0 or is_old is False:
        return None
    place = facts.log_end_offset - facts.dispatch_behind_bytes
    end = int(facts.broker.runtime()["commitLogMaxOffset"])
    if end >= place:
        return None
    return Finding(
        facts.root, "dispatch-ahead", expected=f"at most {end}, the end of its log", actual=f"from {place} on"
    )


def _findings(facts: LiveStore, half_begin: int) -> list[Finding]:
    found = []
    queue = f"{facts.root} {HALF_TOPIC}"
    if facts.half_cursor > facts.half_end:
        expected = f"at most {facts.half_end}"
        found.append(
            Finding(facts.root, "cursor-beyond-end", queue, expected=expected, actual=str(facts.half_cursor))
        )
    elif facts.half_cursor < half_begin:
        expected = f"at least {half_begin}"
        found.append(
            Finding(facts.root, "cursor-before-begin", queue, expected=expected, actual=str(facts.half_cursor))
        )
    if facts.op_cursor > facts.op_end:
        found.append(Finding(
            facts.root, "cursor-beyond-end", f"{facts.root} {OP_TOPIC}", expected=f"at most {facts.op_end}",
            actual=str(facts.op_cursor), meaning=OP_CURSOR_BEYOND_END,
        ))
    if facts.dispatch_behind_bytes > 0:
        found.append(Finding(facts.root, "dispatch-behind", actual=f"{facts.dispatch_behind_bytes} bytes"))
    if facts.rocksdb_end > facts.rocksdb_begin:
        found.append(Finding(facts.root, "rocksdb-transactions"))
    if not facts.has_index:
        found.append(Finding(facts.root, "index-off"))
    return found
