"""What rmqtx reads from a running machine over the wire, compared with its files at that moment."""

from __future__ import annotations

import json
import queue
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store, open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups as live_lookups
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import NoAnswer
from rmqtx.remoting.protocol.frames import FrameReader, encoded
from rmqtx.repairs.acts import wait_for_effect
from rmqtx.repairs.acts.carry_out import carry_out, checked_acts
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.acts.orders import ActOrder, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.verdicts.audit import lookups
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.model.verdict_words import NextEvent, State
from tests.conftest import MOMENT
from tests.forge import damage
from tests.histories.damages import slots_end
from tests.histories.machine import ADDRESS, Machine
from tests.histories.truth import Truth

Row = dict[str, Any]
#: What only one of the two ways knows: who is asked, what the files of a running broker do not promise, when it began.
_LEFT_OUT = ("producer_alive", "asked_through", "causes", "next_event_at_ms", "discard_at_ms")
#: Modules that read the time or wait.
_TIMED = (
    "rmqtx.remoting.connections.batched_reads", "rmqtx.repairs.acts.carry_out", "rmqtx.repairs.acts.claims",
    "rmqtx.repairs.acts.live_medium", "rmqtx.repairs.acts.wait_for_effect", "rmqtx.repairs.receipts.receipts",
)
#: Between two looks for the effect of an act nothing happens here, so they are rare.
_PAUSE_SECONDS = 2.0
#: Acts are in the first interval of the check: no round is played meanwhile.
_PROVE_MS_MIN = 10_000
_DECIDED = (State.COMMITTED, State.ROLLED_BACK)
#: What rmqtx reports where the broker did not return a record; `record-damaged`: the bytes to which a slot leads that a
#: power loss left.
_LACKING = frozenset({"entries-unread", "dispatch-ahead", "record-damaged"})
_SINCE_THE_START = frozenset({"stalled", "never_checked"})
#: What may have happened to the files, so that both ways read the same records. A broker sends no others.
_HARMLESS = frozenset({
    "no cursors", "no checkpoint", "abort", "no abort", "half cursor set", "op cursor set", "lost pages",
    "number taken by no record", "older checkpoint",
})


class _Wire:
    """A stream of rmqtx to a machine: each request is carried out by the broker's processor when it is sent."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._frames = FrameReader()
        self._received: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def recv(self) -> bytes:
        """See `Stream`."""
        return self._received.get()

    def sendall(self, data: bytes) -> None:
        """See `Stream`."""
        for frame in self._frames.feed(data):
            for answer in self._machine.carried_out("rmqtx", frame):
                self._received.put(encoded(answer))

    def close(self) -> None:
        """See `Stream`."""
        self._received.put(b"")


class _Time:
    """The module `time` for what waits for a machine: a pause takes no time, and passes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._seconds = 0.0
        self.strftime, self.gmtime = time.strftime, time.gmtime

    def sleep(self, seconds: float) -> None:
        """Let the broker's time pass too: it writes its batch of op messages meanwhile."""
        self._seconds += seconds
        self._machine.clock(self._machine.now_ms + max(1, round(seconds * 1_000)))
        self._machine.step("batch")

    def monotonic(self) -> float:
        """See `time`."""
        return self._seconds

    def time_ns(self) -> int:
        """The broker's time."""
        return self._machine.now_ms * 1_000_000


@contextmanager
def connected(machine: Machine) -> Iterator[Broker]:
    """The broker of a machine, as rmqtx reads it over the wire."""

    def opened(_address: str, _settings: RemotingSettings) -> _Wire:
        return _Wire(machine)

    clock = _Time(machine)
    # The machine answers when a request is sent, or never.
    with pytest.MonkeyPatch.context() as patch, Client(RemotingSettings(timeout_ms=2_000)) as client:
        patch.setattr("rmqtx.remoting.connections.connection.open_stream", opened)
        for module in _TIMED:
            patch.setattr(f"{module}.time", clock)
        patch.setattr("rmqtx.readers.model.clock.now_ms", lambda: machine.now_ms)
        patch.setattr(wait_for_effect, "_PAUSES_SECONDS", (_PAUSE_SECONDS,))
        patch.setattr(wait_for_effect, "_TAIL_SECONDS", _PAUSE_SECONDS)
        yield Broker(client, ADDRESS, "broker-a", "DefaultCluster")


def acted(machine: Machine, action: ActKind, transaction_id: str, journal: Path) -> tuple[ActOutcome, tuple[str, ...]]:
    """Act on a transaction over the wire, as the commands do: the outcome, and the guards that refused."""
    journal.unlink(missing_ok=True)
    with connected(machine) as broker:
        medium = LiveMedium([broker], [BrokerAddresses(broker.cluster, broker.name, {0: broker.address})])
        conduct = Conduct(prove_ms=max(_PROVE_MS_MIN, int(broker.config()["transactionCheckInterval"]) // 2))
        acts = checked_acts([ActOrder(transaction_id, ActRequest(action), "history")], medium, conduct)
        carry_out(acts, medium, Journal(journal), conduct, lambda _: None)
    if not acts:
        return ActOutcome.NOT_SENT, ("not found",)
    return acts[0].begun().outcome, tuple(sorted(one.guard for one in acts[0].refusals))


def is_comparable(truth: Truth) -> bool:
    """Whether both ways read the same records; tables in RocksDB are not read over the wire."""
    return _HARMLESS.issuperset(truth.damages) and truth.conf.get("transRocksDBEnable") != "true"


def may_stay_silent(truth: Truth) -> bool:
    """Whether its broker may answer no pull: a slot of zeros leads to a record without bytes (5.1.4 to 5.5.0)."""
    return any(damage.startswith("zeroed") for damage in truth.damages)


def quiet(machine: Machine, truth: Truth) -> set[int]:
    """The places of the half copies of those transactions with which nothing happens next, as read over the wire.

    Read after a start, before the first round. Not where a byte of the log was flipped: it may be one of an id.
    """
    if truth.conf.get("transRocksDBEnable") == "true" or "flipped byte of the log" in truth.damages:
        return set()
    try:
        with connected(machine) as broker:
            rows = live_lookups.audit([broker]).table().to_pylist()
    except NoAnswer:
        if not may_stay_silent(truth):
            raise
        return set()
    found = [row for row in rows if row["next_event"] == NextEvent.NONE and row["state"] in _DECIDED]
    return {copy["commit_log_offset"] for row in found for copy in row["half_copies"]}


def answers(machine: Machine, root: Path, conf: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Read a running machine over the wire and from its files.

    Yield for each answer what it is about, and both answers; nothing where the start cut off a part of the log or of
    the half or op queue, whose bytes are in the files until others are written there, and where only the files show
    that records are lost: a queue of another topic leads over the end of the log.
    """
    now_ms = machine.now_ms
    machine.step("persist")
    if has_bytes_behind(root, int(machine.step("where").lines[0].split()[2])) or _has_slots_behind(machine, root):
        return
    store = open_store(str(root))
    settings = broker_settings(store, conf=conf, version=machine.version)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOMENT, lambda _: now_ms)
        of_files = audit([store], lambda _: settings)
        files = of_files.table().to_pylist()
        listed = lookups.pending([store], lambda _: settings).table().to_pylist()
    with connected(machine) as broker:
        audited = live_lookups.audit([broker])
        live = audited.table().to_pylist()
        live_listed = live_lookups.pending([broker]).table().to_pylist()
        shown = [live_lookups.show([broker], row["transaction_id"]).table().to_pylist() for row in live[:1]]
    lacks = any(one.code in _LACKING for one in audited.findings)
    if not lacks and any(one.code == "log-missing" for one in of_files.findings):
        yield "live audit not compared", "", ""
        return
    for what, said, wanted in (("live audit", live, files), ("live pending", live_listed, listed)):
        of_half_queue = [row for row in wanted if _is_in_half_queue(row)]
        left_out: frozenset[str] = behind_the_queue(store, wanted) if lacks else frozenset()
        first, second = (
            [row for row in rows if row["transaction_id"] not in left_out] for rows in (said, of_half_queue)
        )
        yield what, *_both(first, second, broker.root, str(root), is_incomplete=lacks)
        # How often: the wire has less, and rmqtx says so.
        names = {row["transaction_id"] for row in of_half_queue if row["state"] != "UNDECIDABLE"}
        for _ in names.intersection(row["transaction_id"] for row in said if row["state"] == "UNDECIDABLE"):
            yield f"{what} undecidable", "", ""
    for row, found in zip(live, shown, strict=False):
        mine = [one for one in found if one["transaction_id"] == row["transaction_id"]]
        yield "live show", *_both(mine, [row], broker.root, broker.root)


def has_bytes_behind(root: Path, end_offset: int) -> bool:
    """Whether the files of a log have data behind the end that its broker counts."""
    return any(file.read_bytes()[max(0, end_offset - int(file.name)) :].strip(b"\0") for file in damage.log_files(root))


def _has_slots_behind(machine: Machine, root: Path) -> bool:
    """Whether the files of the half or op queue have slots behind the end that the broker counts."""
    words = next(line for line in machine.step("cursors").lines if line.startswith("cursors")).split("\t")
    return any(
        slots_end(root, topic) > int(end) for topic, end in zip((HALF_TOPIC, OP_TOPIC), words[3:5], strict=True)
    )


def behind_the_queue(store: Store, rows: list[Row]) -> frozenset[str]:
    """The transactions whose newest half copy is behind the last slot of the half queue.

    Where a slot that a power loss left keeps it from a slot, a running broker has lost it; its files do not show that
    the dispatch has passed it.
    """
    with open_queue(store, HALF_TOPIC, 0) as half_queue:
        if not half_queue.exists:  # it is in RocksDB
            return frozenset()
        _, places, _, _ = half_queue.read(half_queue.first_offset, half_queue.max_offset)
    last = max(places.tolist(), default=-1)
    are_behind = (
        (row["transaction_id"], any(copy["commit_log_offset"] > last for copy in row["half_copies"])) for row in rows
    )
    return frozenset(name for name, is_behind in are_behind if is_behind)


def _is_in_half_queue(row: Row) -> bool:
    """Whether the half queue has a copy; not of one that a delay diverts, or whose copies are gone."""
    return bool(row["half_copies"])


def _both(
    live: list[Row], files: list[Row], broker_root: str, root: str, *, is_incomplete: bool = False
) -> tuple[str, str]:
    """Both answers.

    `is_incomplete`: the broker did not return some records, and rmqtx says so: only certain states count.
    """
    said, wanted = _comparable(live, broker_root), _comparable(files, root)
    if is_incomplete:
        by_name = {row["transaction_id"]: row["state"] for row in wanted}
        certain = {row["transaction_id"]: row["state"] for row in said if row["state"] != "UNDECIDABLE"}
        return json.dumps(certain), json.dumps({name: by_name.get(name, state) for name, state in certain.items()})
    for one, other in zip(said, wanted, strict=False):
        if one["state"] == other["state"] == "UNDECIDABLE":
            continue  # each way lacks other records, and says which
        if one != other:
            names = [name for name in one if one[name] != other.get(name)]
            first, second = ({name: row.get(name) for name in names} for row in (one, other))
            return json.dumps(first), json.dumps(second)
    return f"{len(said)} rows", f"{len(wanted)} rows"


def _comparable(rows: list[Row], root: str) -> list[Row]:
    """Rows without what only one of the two ways can say."""
    plain = []
    for row in rows:
        kept = {name: value for name, value in row.items() if name not in _LEFT_OUT}
        kept["flags"] = sorted(set(row["flags"]) - _SINCE_THE_START)
        kept["reason"] = re.sub(r"; a rollback of the last [^;]* in the broker's memory", "", row["reason"] or "")
        kept["reason"] = kept["reason"].replace(", by default)", ")")  # a broker reports each of its settings
        plain.append(json.loads(json.dumps(kept, default=str).replace(json.dumps(root)[1:-1], "ROOT")))
    return plain
