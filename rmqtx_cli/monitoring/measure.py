"""The numbers of one check: what hangs, how old it is, where the cursors stand, how far log and half queue go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from readers.cursors.cursors import check_cursors
from readers.log.commit_log import last_with_data
from readers.model.errors import SourceError
from readers.queues.consume_queue import open_queue
from readers.store.store import DISCARD_TOPIC, HALF_TOPIC
from rmqtx_cli.monitoring.remembered import Place, ends_kept
from rmqtx_cli.pages.check_alive import check_sentence, next_command
from verdicts.audit.lookups import pending
from verdicts.deadlines.discard_times import deadline_of

if TYPE_CHECKING:
    from readers.store.broker_settings import BrokerSettings
    from readers.store.store import Store
    from verdicts.model.foretold import Foretold
    from verdicts.model.reading import VerdictReading

#: Only what hung this long is remembered until the next run; younger ones are on their ordinary way.
REMEMBERED_AGE_MS = 60_000
REMEMBERED_MAX = 1_000


@dataclass(slots=True)
class StoreNumbers:
    """One store. Units: queue offsets; offsets of the log in bytes; None where it is not known.

    `first_discard_ms`: when the broker gives up on the first of what is pending; None where it gives up on nothing.
    `unforetold_count`: what is pending of which that is not known.
    `log_end_offset`: the end of the last file that holds anything; how far a file is written is not asked for.
    `check_stopped`: where the check comes no further and what to type next, in a sentence.
    """

    store: str
    is_in_use: bool
    pending_count: int = 0
    oldest_pending_ms: int | None = None
    commit_without_op_count: int = 0
    undecidable_count: int = 0
    half_next_offset: int | None = None
    half_max_offset: int | None = None
    discard_max_offset: int | None = None
    check_interval_ms: int = 0
    log_end_offset: int | None = None
    log_begin_offset: int = 0
    half_last_commit_log_offset: int | None = None
    never_asked_count: int = 0
    check_stopped: str | None = None
    first_discard_ms: int | None = None
    unforetold_count: int = 0

    @property
    def half_lag(self) -> int | None:
        """Half copies that the check has still before it."""
        if self.half_next_offset is None or self.half_max_offset is None:
            return None
        return max(0, self.half_max_offset - self.half_next_offset)


@dataclass(slots=True)
class Numbers:
    """All stores at one moment.

    `hanging`: ids of what hung at least REMEMBERED_AGE_MS, oldest first; `places`: where their newest half copies
    stand. `pending_ids`: all that hangs, however young. `oldest_of`: group and topic of the oldest, its
    store too where there are several. `first_discard_id`: what the brokers give up on first.
    `unforetold_why`: why that is not known of some.
    """

    taken_time_ms: int
    stores: list[StoreNumbers]
    hanging: list[str] = field(default_factory=list)
    oldest_id: str | None = None
    oldest_of: str = ""
    evidence_missing: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    pending_ids: set[str] = field(default_factory=set)
    first_discard_id: str | None = None
    unforetold_why: str | None = None

    @property
    def pending_count(self) -> int:
        """Pending transactions of all stores."""
        return sum(store.pending_count for store in self.stores)

    @property
    def oldest_pending_ms(self) -> int | None:
        """Age of the oldest pending transaction."""
        return max((s.oldest_pending_ms for s in self.stores if s.oldest_pending_ms is not None), default=None)

    @property
    def first_discard(self) -> StoreNumbers | None:
        """The store whose broker gives up on something first."""
        known = [store for store in self.stores if store.first_discard_ms is not None]
        return min(known, key=lambda store: store.first_discard_ms or 0, default=None)

    @property
    def unforetold_count(self) -> int:
        """Pending transactions of which it is not known when their brokers give up on them."""
        return sum(store.unforetold_count for store in self.stores)

    @property
    def commit_without_op_count(self) -> int:
        """Transactions that were committed and will nevertheless be asked again."""
        return sum(store.commit_without_op_count for store in self.stores)

    def as_memory(self, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the next run needs to know. `before`: what the last run left."""
        return {
            "taken_time_ms": self.taken_time_ms,
            "hanging": self.hanging,
            "places": self.places,
            "stores": {store.store: asdict(store) | ends_kept(store, before) for store in self.stores},
        }


def measure(stores: list[Store], settings_of: Callable[[Store], BrokerSettings], now_ms: int) -> Numbers:
    """The numbers of the stores, by the fast path.

    Raises: SourceError if a store cannot be read at all.
    """
    return measured([_queue_numbers(store, settings_of) for store in stores], pending(stores, settings_of), now_ms)


def measured(stores: list[StoreNumbers], reading: VerdictReading, now_ms: int, live: str | None = None) -> Numbers:
    """The numbers, where cursors and queues are known: counts what is pending into them.

    `live`: the options that lead to the brokers again, None for files.
    """
    numbers = Numbers(now_ms, stores)
    by_root = {one.store: one for one in stores}
    rows = reading.table().sort_by([("half_store_time_ms", "ascending")])
    columns = [
        "store", "transaction_id", "state", "advice", "flags", "half_store_time_ms", "half_copies", "discard_at_ms",
        "producer_group", "topic",
    ]
    for row in rows.select(columns).to_pylist():
        one = by_root[row["store"]]
        if "commit_without_op" in row["flags"]:
            one.commit_without_op_count += 1
        if row["state"] == "UNDECIDABLE":
            one.undecidable_count += 1
        if row["state"] != "PENDING":
            continue
        one.pending_count += 1
        one.never_asked_count += "never_asked" in row["flags"]
        age = now_ms - row["half_store_time_ms"]
        one.oldest_pending_ms = max(one.oldest_pending_ms or age, age)
        identity = row["transaction_id"]
        if numbers.oldest_id is None:
            numbers.oldest_id = identity
            numbers.oldest_of = f"group {row['producer_group']}, topic {row['topic']}"
            numbers.oldest_of += f", store {one.store}" if len(stores) > 1 else ""
        numbers.pending_ids.add(identity)
        _count_deadline(numbers, one, row, reading.foretold)
        if age >= REMEMBERED_AGE_MS and len(numbers.hanging) < REMEMBERED_MAX:
            numbers.hanging.append(identity)
            if row["half_copies"]:
                newest = max(row["half_copies"], key=lambda copy: copy["commit_log_offset"])
                numbers.places[identity] = {name: newest[name] for name in ("store", "commit_log_offset")}
    for stop in reading.check_stops:
        one = by_root[stop.store]
        sentence = check_sentence(stop, (one.never_asked_count, one.pending_count))
        whose = f"{one.store}: " if len(stores) > 1 else ""
        one.check_stopped = f"{whose}{sentence}; next: {next_command(stop, live)}"
    numbers.evidence_missing = sorted({f.code for f in reading.findings if f.kind.severity == "error"})
    return numbers


def _count_deadline(
    numbers: Numbers, one: StoreNumbers, row: dict[str, Any], foretold: Mapping[str, Foretold]
) -> None:
    time_ms = row["discard_at_ms"]
    if time_ms is None:
        deadline = deadline_of(row, foretold)
        if deadline is not None and deadline.why is not None and not deadline.why.is_known:
            one.unforetold_count += 1
            numbers.unforetold_why = numbers.unforetold_why or deadline.why.text
        return
    first = numbers.first_discard
    if first is None or first.first_discard_ms is None or time_ms < first.first_discard_ms:
        numbers.first_discard_id = row["transaction_id"]
    one.first_discard_ms = min(one.first_discard_ms or time_ms, time_ms)


def _queue_numbers(store: Store, settings_of: Callable[[Store], BrokerSettings]) -> StoreNumbers:
    one = StoreNumbers(store.root, store.in_use, check_interval_ms=settings_of(store).transaction_check_interval_ms)
    cursors = check_cursors(store)
    one.half_next_offset = None if cursors.half is None else cursors.half.get(0)
    one.log_begin_offset = store.log_begin_offset
    one.log_end_offset = _log_end_offset(store)
    for topic, name in ((HALF_TOPIC, "half_max_offset"), (DISCARD_TOPIC, "discard_max_offset")):
        try:
            with open_queue(store, topic, 0) as queue:
                if queue.exists or not store.has_rocksdb_queues:
                    setattr(one, name, queue.max_offset if queue.exists else 0)
                if topic == HALF_TOPIC:
                    last = queue.read(queue.max_offset - 1, queue.max_offset)[1].tolist()
                    one.half_last_commit_log_offset = last[0] if last else None
        except SourceError:
            continue  # the reading of pending transactions names what cannot be read
    return one


def _log_end_offset(store: Store) -> int:
    last = last_with_data(store.commit_log)
    return next((segment.end_offset for segment in store.commit_log if segment.base_offset == last), 0)
