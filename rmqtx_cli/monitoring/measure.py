"""The numbers of one check: what hangs, how old it is, where the cursors stand, what became of what hung last time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from readers.consume_queue import open_queue
from readers.cursors import check_cursors
from readers.errors import NoSuchTransaction, SourceError
from readers.local_engine import audit
from readers.questions import pending, show
from readers.store import DISCARD_TOPIC, HALF_TOPIC

if TYPE_CHECKING:
    from readers.broker_settings import BrokerSettings
    from readers.reading import Reading
    from readers.store import Store

#: Only what hung this long is remembered until the next run; younger ones are on their ordinary way.
REMEMBERED_AGE_MS = 60_000
REMEMBERED_MAX = 1_000
#: Up to so many are looked up one by one; for more, one audit is cheaper.
_LOOKED_UP_MAX = 64


@dataclass(slots=True)
class StoreNumbers:
    """One store. Units: queue offsets; None where it is not known."""

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
    log_end_offset: int = 0

    @property
    def half_lag(self) -> int | None:
        """Half copies that the check has still before it."""
        if self.half_next_offset is None or self.half_max_offset is None:
            return None
        return max(0, self.half_max_offset - self.half_next_offset)


@dataclass(slots=True)
class Numbers:
    """All stores at one moment. `hanging`: ids of what hung at least REMEMBERED_AGE_MS, oldest first."""

    taken_time_ms: int
    stores: list[StoreNumbers]
    hanging: list[str] = field(default_factory=list)
    oldest_id: str | None = None
    evidence_missing: list[str] = field(default_factory=list)

    @property
    def pending_count(self) -> int:
        """Pending transactions of all stores."""
        return sum(store.pending_count for store in self.stores)

    @property
    def oldest_pending_ms(self) -> int | None:
        """Age of the oldest pending transaction."""
        return max((s.oldest_pending_ms for s in self.stores if s.oldest_pending_ms is not None), default=None)

    @property
    def commit_without_op_count(self) -> int:
        """Transactions that were committed and will nevertheless be asked again."""
        return sum(store.commit_without_op_count for store in self.stores)

    def as_memory(self) -> dict[str, Any]:
        """What the next run needs to know."""
        return {
            "taken_time_ms": self.taken_time_ms,
            "hanging": self.hanging,
            "stores": {store.store: asdict(store) for store in self.stores},
        }


def measure(stores: list[Store], settings_of: Callable[[Store], BrokerSettings], now_ms: int) -> Numbers:
    """The numbers of the stores, by the fast path.

    Raises: SourceError if a store cannot be read at all.
    """
    return measured([_queue_numbers(store, settings_of) for store in stores], pending(stores, settings_of), now_ms)


def measured(stores: list[StoreNumbers], reading: Reading, now_ms: int) -> Numbers:
    """The numbers, where cursors and queues are known: counts what is pending into them."""
    numbers = Numbers(now_ms, stores)
    by_root = {one.store: one for one in stores}
    rows = reading.table().sort_by([("half_store_time_ms", "ascending")])
    for row in rows.select(["store", "transaction_id", "state", "flags", "half_store_time_ms"]).to_pylist():
        one = by_root[row["store"]]
        if "commit_without_op" in row["flags"]:
            one.commit_without_op_count += 1
        if row["state"] == "UNDECIDABLE":
            one.undecidable_count += 1
        if row["state"] != "PENDING":
            continue
        one.pending_count += 1
        age = now_ms - row["half_store_time_ms"]
        one.oldest_pending_ms = max(one.oldest_pending_ms or age, age)
        numbers.oldest_id = numbers.oldest_id or row["transaction_id"]
        if age >= REMEMBERED_AGE_MS and len(numbers.hanging) < REMEMBERED_MAX:
            numbers.hanging.append(row["transaction_id"])
    numbers.evidence_missing = sorted({f.code for f in reading.findings if f.kind.severity == "error"})
    return numbers


def _queue_numbers(store: Store, settings_of: Callable[[Store], BrokerSettings]) -> StoreNumbers:
    one = StoreNumbers(store.root, store.in_use, check_interval_ms=settings_of(store).transaction_check_interval_ms)
    cursors = check_cursors(store)
    one.half_next_offset = None if cursors.half is None else cursors.half.get(0)
    for topic, name in ((HALF_TOPIC, "half_max_offset"), (DISCARD_TOPIC, "discard_max_offset")):
        try:
            with open_queue(store, topic, 0) as queue:
                setattr(one, name, queue.max_offset if queue.exists else 0)
        except SourceError:
            continue  # the reading of pending transactions names what cannot be read
    return one


def what_became_of(
    identities: list[str], stores: list[Store], settings_of: Callable[[Store], BrokerSettings]
) -> dict[str, str]:
    """Transaction id → state now, of transactions that are pending no more; those that expired are left out."""
    if len(identities) > _LOOKED_UP_MAX:
        wanted = set(identities)
        return {
            row["transaction_id"]: row["state"]
            for batch in audit(stores, settings_of)
            for row in batch.select(["transaction_id", "state"]).to_pylist()
            if row["transaction_id"] in wanted
        }
    states = {}
    for identity in identities:
        try:
            for row in show(stores, settings_of, identity).table().select(["transaction_id", "state"]).to_pylist():
                if row["transaction_id"] == identity:
                    states[identity] = row["state"]
        except NoSuchTransaction:
            continue
    return states
