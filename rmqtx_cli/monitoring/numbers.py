"""What one run of `rmqtx check` measures, and which part of it the next run compares with.

A run stores its numbers for the next in a file, which is replaced whole, under a lock file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pyarrow as pa

from rmqtx.readers.model.declared_json import JsonForm, list_of, needed, struct_of
from rmqtx.readers.model.errors import BadText
from rmqtx.readers.storage.places import identity_of
from rmqtx.verdicts.check.state import half_lag
from rmqtx.verdicts.model.verdict_words import LOST_ON_THE_WAY, Strength
from rmqtx_cli.output.streams import written_whole


class Place(TypedDict):
    """Where the newest half copy of a transaction stood."""

    store: str
    commit_log_offset: int


class Memory(TypedDict):
    """What a run leaves for the next. `stores`: the numbers of `StoreNumbers` by store, as far as the run had them."""

    form: NotRequired[int]
    taken_time_ms: int
    hanging: list[str]
    stores: dict[str, Mapping[str, Any]]
    places: NotRequired[dict[str, Place]]


#: What an alert counts: pending transactions, committed ones without an op message, and those that ended since the
#: last run.
PENDING, WITHOUT_OP, ENDED = "pending", "without_op", "ended"
#: The number of transactions by store, cause and strength.
Causes = Counter[tuple[str, str, Strength]]
#: The numbers of a store that must not become smaller.
ENDS = ("half_max_offset", "half_last_commit_log_offset", "log_end_offset")


@dataclass(slots=True)
class StoreNumbers:
    """One store. Units: queue offsets; offsets of the log in bytes; None where unknown.

    `first_discard_ms`: when the broker discards the first pending transaction; None where it discards none.
    `unforetold_count`: pending transactions whose discard time cannot be predicted.
    `log_end_offset`: the end of the last file that is not empty, not the end of what is written in that file.
    `check_stopped`: where the check is stopped and what to type next, in a sentence.
    `held`: that its settings are as a hold or a drain sets them, and until when, in a sentence; `is_hold_over`: that
    time has passed.
    `op_hold_ms`: how long a running broker may hold op messages in memory; 0 for a stopped one.
    `is_traced`: whether it has message traces of producers.
    `cluster`, `broker_name`: as the broker's configuration or the name server has them.
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
    op_next_offset: int | None = None
    op_max_offset: int | None = None
    cluster: str | None = None
    broker_name: str | None = None
    op_hold_ms: int = 0
    held: str | None = None
    is_hold_over: bool = False
    is_traced: bool = False

    @property
    def labels(self) -> dict[str, str]:
        """Its labels as metrics.OF_STORE names them; empty where unknown."""
        return {"store": self.store, "cluster": self.cluster or "", "node_id": self.broker_name or ""}

    @property
    def half_lag(self) -> int | None:
        """Half copies between the check's cursor and the end of the half queue."""
        return None if self.half_max_offset is None else half_lag(self.half_next_offset, self.half_max_offset)


@dataclass(slots=True)
class GroupNumbers:
    """The pending transactions of one topic and producer group in one store. Units: `oldest_ms` is an age."""

    store: str
    topic: str
    group: str
    pending_count: int = 0
    oldest_ms: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is the numbers of."""
        return self.store, self.topic, self.group


@dataclass(slots=True)
class Numbers:
    """All stores at one moment.

    `hanging`: ids of transactions pending for at least REMEMBERED_AGE_MS, oldest first; `places`: the places of their
    newest half copies. `pending_ids`: all pending transactions. `oldest_of`: group and topic of the oldest, and its
    store where there are several. `first_discard_id`: the transaction that a broker discards first.
    `unforetold_why`: why the discard time of some cannot be predicted. `causes_of`: by what an alert counts, how many
    of these transactions each cause explains, or could explain. `groups`: by store, topic and producer group. `soon`:
    when brokers discard pending transactions, in sentences; none if that is not soon. `unreached`: what the next start
    cuts off and what the check passes, in sentences. `copies_lacking`: how many pending transactions a copy of a
    broker's log lacks, in words, by its store. `undecidable`: how many transactions are UNDECIDABLE, and why.
    """

    taken_time_ms: int
    stores: list[StoreNumbers]
    hanging: list[str] = field(default_factory=list)
    oldest_id: str | None = None
    oldest_of: str = ""
    evidence_missing: list[str] = field(default_factory=list)
    undecidable: str = ""
    copies_lacking: dict[str, str] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    pending_ids: set[str] = field(default_factory=set)
    first_discard_id: str | None = None
    unforetold_why: str | None = None
    causes_of: dict[str, Causes] = field(default_factory=dict)
    soon: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    groups: dict[tuple[str, str, str], GroupNumbers] = field(default_factory=dict)

    def counted(self, count: int) -> int | None:
        """A number of transactions; None if none was found and missing evidence may hide some."""
        return None if count == 0 and self.evidence_missing else count

    def causes_in_order(
        self, counted: Collection[str] = (PENDING, WITHOUT_OP, ENDED)
    ) -> list[tuple[str, str, Strength, int]]:
        """Store, cause, strength and number of transactions; most transactions first, explaining causes before.

        `counted`: what an alert counts; only the causes of these transactions.
        """
        causes: Causes = Counter()
        for kind, of in self.causes_of.items():
            causes.update(of if kind in counted else {})
        found = [(*key, count) for key, count in causes.items() if count]
        return sorted(found, key=lambda one: (-one[3], one[2] != Strength.EXPLAINS, one))

    def decisions_lost_count(self, store: str) -> int:
        """Transactions of a store with a decision in a trace that the broker has no record of."""
        return sum(
            number for root, word, strength, number in self.causes_in_order()
            if (root, word, strength) == (store, LOST_ON_THE_WAY, Strength.EXPLAINS)
        )

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
        """The store whose broker discards a pending transaction first."""
        known = [store for store in self.stores if store.first_discard_ms is not None]
        return min(known, key=lambda store: store.first_discard_ms or 0, default=None)

    @property
    def unforetold_count(self) -> int:
        """Pending transactions whose discard time cannot be predicted."""
        return sum(store.unforetold_count for store in self.stores)

    @property
    def never_asked_count(self) -> int:
        """Pending transactions that the check never reaches."""
        return sum(store.never_asked_count for store in self.stores)

    @property
    def half_lag(self) -> int | None:
        """Half copies between cursor and end of the half queues of all stores; None if unknown for one of them."""
        lags = [store.half_lag for store in self.stores]
        return None if None in lags else sum(lag or 0 for lag in lags)

    @property
    def commit_without_op_count(self) -> int:
        """Committed transactions that the check will still reach."""
        return sum(store.commit_without_op_count for store in self.stores)

    def as_memory(self, before: Memory | None = None) -> Memory:
        """What the next run compares with. `before`: the same from the last run."""
        return {
            "taken_time_ms": self.taken_time_ms,
            "hanging": self.hanging,
            "places": self.places,
            "stores": {store.store: asdict(store) | ends_kept(store, before) for store in self.stores},
        }


def ends_kept(store: StoreNumbers, before: Memory | None) -> dict[str, object]:
    """The larger numbers of an earlier run, while the store is shorter: so that each run reports the loss."""
    if not ends_gone(store, before):
        return {}
    old = _numbers_of(store.store, before)
    return {name: old[name] for name in ENDS if name in old}


def ends_gone(store: StoreNumbers, before: Memory | None) -> list[str]:
    """What a store has lost at its end since an earlier run, as sentences; files that expired are no loss."""
    old = _numbers_of(store.store, before)
    sentences = []
    half_end, last_half = old.get("half_max_offset"), old.get("half_last_commit_log_offset")
    now = store.half_max_offset
    is_here = last_half is not None and last_half >= store.log_begin_offset  # else it has expired, and its queue may
    if half_end is not None and now is not None and now < half_end and is_here:
        sentences.append(f"the half queue ended at {half_end} and ends at {now} now")
    log_end = old.get("log_end_offset")
    if log_end is not None and store.log_end_offset is not None and store.log_end_offset < log_end:
        sentences.append(f"the log files ended at byte {log_end} and end at {store.log_end_offset} now")
    return sentences


def _numbers_of(name: str, before: Memory | None) -> Mapping[str, Any]:
    """The numbers of a store at an earlier run."""
    return {} if before is None else before["stores"].get(name, {})


_FORM = 1
_STORE = pa.struct([one.with_nullable(True) for one in struct_of(StoreNumbers)])
_PLACE = pa.struct([needed("store", pa.string()), needed("commit_log_offset", pa.int64())])
_MEMORY = JsonForm(
    "memory of rmqtx check",
    pa.struct(
        [
            needed("form", pa.int64()), needed("taken_time_ms", pa.int64()), needed("hanging", list_of(pa.string())),
            needed("stores", pa.map_(pa.string(), pa.field("store", _STORE, nullable=False))),
            pa.field("places", pa.map_(pa.string(), pa.field("place", _PLACE, nullable=False))),
        ]
    ),
    is_open=True,
)


def memory_file(directory: Path, stores: list[str]) -> Path:
    """The file for a set of stores, independent of their order."""
    names = "\0".join(sorted(identity_of(store) for store in stores))
    return directory / f"check-{hashlib.sha256(names.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}.json"


def recall(file: Path) -> Memory | None:
    """The numbers of the last run; None on the first run, or if the file has another format.

    Raises: OSError if it exists and cannot be read.
    """
    try:
        found: Memory = _MEMORY.read(file.read_bytes(), str(file))
    except (FileNotFoundError, BadText):
        return None
    return found if found["form"] == _FORM else None


def remember(file: Path, numbers: Memory) -> None:
    """Store the numbers for the next run, unless a run that began later already did.

    Raises: OSError, UnwritableFile if the directory cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file.with_suffix(".lock")):
        before = recall(file)
        if before is not None and before.get("taken_time_ms", 0) > numbers["taken_time_ms"]:
            return
        with written_whole(file) as stream:
            stream.write(json.dumps({"form": _FORM} | numbers).encode())


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
