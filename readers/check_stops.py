"""The poison half: the message at which every round of the broker's check ends, and what brings the check past it.

What no broker can read stays so however often it looks, and what stands behind it is never asked for. How old
everything is makes no difference to that: the round is played long after all times are over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

import numpy as np

from readers.broker_settings import BrokerSettings, Version
from readers.check_loop import play_round
from readers.check_rules import NEWEST, CheckRules, check_rules
from readers.check_state import PROPERTIES_BYTES_MAX, CheckSettings
from readers.check_steps import Action, Stop
from readers.check_window import CheckWindow, StoredHalves, StoredOps, check_window
from readers.consume_queue import open_queue
from readers.cursors import CheckCursors, check_cursors
from readers.errors import SourceError
from readers.findings import Finding
from readers.properties import UNIQ_KEY
from readers.record_at import block_at
from readers.store import HALF_TOPIC, OP_TOPIC, Store

#: Of each way in which versions stop, the last one that does; what a store does not say of its broker leaves several.
_LAST_OF_THEIR_KIND: tuple[Version, ...] = ((4, 5, 2), (4, 9, 4), (5, 0, 0), NEWEST)
#: Nothing is too young, immune, spent or expired: a century later, with limits that nothing reaches.
_LATE_MS = 100 * 365 * 86_400_000
_ENDLESS = CheckSettings(0, 1 << 40, 1, 1 << 60)
#: What the check may add to the properties of a copy.
_GROWTH_BYTES = 128


@dataclass(frozen=True, slots=True)
class Stopped:
    """Where rounds end: a queue offset of the half topic, or of the op topic (`is_op`); why, in a few words."""

    queue_id: int
    queue_offset: int
    is_op: bool
    why: str


def stop_findings(
    store: Store, settings: BrokerSettings, cursors: CheckCursors | None = None
) -> Iterator[Finding]:
    """A finding for each half queue whose check ends at the same message in every round.

    `cursors`: where the check stands, if not where the store says.
    Damage: what cannot be read at all is told by others.
    """
    if store.has_rocksdb_queues:
        return
    cursors = cursors or check_cursors(store)
    if cursors.half is None or cursors.op is None:
        return
    queues = [number for topic, number in store.queues() if topic == HALF_TOPIC]
    for queue_id in queues:
        for version in _candidates(settings):
            try:
                half, op = cursors.half.get(queue_id), cursors.op.get(queue_id)
                window = check_window(store, check_rules(version), queue_id, half, op)
                stopped = where_it_stops(window, check_rules(version))
                found = None if stopped is None else _finding(store, stopped, _whom(settings, version))
            except SourceError:
                return
            if found is not None:
                yield found
                break


def _candidates(settings: BrokerSettings) -> list[Version]:
    """Versions that the broker can be of, one of each way to stop."""
    low, high = settings.version_low or (4, 3, 0), settings.version_high or NEWEST
    if low == high:
        return [low]
    kinds = [version for version in _LAST_OF_THEIR_KIND if low <= version <= high]
    return kinds if high in kinds else [*kinds, high]


def _whom(settings: BrokerSettings, version: Version) -> str:
    if settings.version_low == settings.version_high is not None:
        return f"broker {_dotted(version)}"
    return f"a broker of {_dotted(version)}, which this one may be (--broker-version)"


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


def where_it_stops(window: CheckWindow, rules: CheckRules) -> Stopped | None:
    """The message that every round of a check ends at; None where none does."""
    state = window.state
    if not _may_stop(window):
        return None
    newest = max((int(times.max()) for times in _times(window) if len(times)), default=0)
    played = play_round(state, rules, _ENDLESS, newest + _LATE_MS)
    last = played.steps[-1] if played.steps else None
    if played.stop is Stop.ABORTED and last is not None and last.action is Action.UNREADABLE:
        if last.queue_offset < state.half_end:  # else a copy that is not there yet
            return Stopped(state.queue_id, last.queue_offset, False, "cannot read it")
        return None
    if played.stop is Stop.ABORTED:
        return Stopped(state.queue_id, state.op_cursor, True, "cannot read an op there or behind")
    if played.stop is Stop.REFUSED:
        place = state.half_cursor if last is None else last.queue_offset + 1
        return Stopped(state.queue_id, place, False, "cannot put it back: its properties leave no room")
    return None


def _may_stop(window: CheckWindow) -> bool:
    """Whether anything is there that a check can stop at; to play a round takes longer."""
    halves, ops = window.state.halves, window.state.ops
    assert isinstance(halves, StoredHalves)
    assert isinstance(ops, StoredOps)
    lengths = halves.numbers["fixed_properties_bytes"]
    return (
        bool((halves.rows < 0).any())
        or bool((lengths > PROPERTIES_BYTES_MAX - _GROWTH_BYTES).any())
        or any(op is None or not op.has_body for op in ops.ops)
    )


def _times(window: CheckWindow) -> Iterator[np.ndarray]:
    halves = window.state.halves
    assert isinstance(halves, StoredHalves)
    yield halves.numbers["born_time_ms"]
    yield halves.numbers["store_time_ms"]


def _finding(store: Store, stopped: Stopped, who: str) -> Finding:
    topic = OP_TOPIC if stopped.is_op else HALF_TOPIC
    log = store.log()
    try:
        with open_queue(store, topic, stopped.queue_id) as queue:
            offsets = queue.read(stopped.queue_offset, stopped.queue_offset + 1)[1].tolist()
        offset = offsets[0] if offsets else None
        segment = None if offset is None else log.segment_at(offset)
        block = None if offset is None else block_at(log, offset)
    finally:
        log.close()
    name = None
    if block is not None and not stopped.is_op:
        name = block.properties.text(UNIQ_KEY)[0].as_py() or block.message_ids()[0].as_py()
    what = "op" if stopped.is_op else "half"
    whose = f" of transaction {name}" if name else "" if stopped.is_op else ", of nobody knows which transaction"
    return Finding(
        store.root, "check-stopped", None if segment is None else segment.file,
        None if segment is None or offset is None else offset - segment.base_offset, commit_log_offset=offset,
        actual=f"{what} queue offset {stopped.queue_offset}{whose}: {who} {stopped.why}",
        advice=_advice(store.root, stopped, name),
    )


def _advice(root: str, stopped: Stopped, name: str | None) -> str:
    """The next commands: settling the transaction is the better one, for nothing is abandoned."""
    store, option = f"--store {quote(root)}", "--op" if stopped.is_op else "--half"
    over = f"rmqtx cursor set {option} {stopped.queue_offset + 1} {store} --to DIR"
    if name is None:
        return f"{over} steps over it; say --dry-run first"
    return (
        f"rmqtx show {name} {store}; commit, rollback or discard of it, with {store} --to DIR, lets the check pass; "
        f"{over} steps over it"
    )
