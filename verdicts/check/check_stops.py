"""Where the broker's check is stopped, and which commands let it continue. No other module decides this.

A message that a broker cannot read stays unreadable in every round, and messages after it are never checked. A round is
played in which no half message is too young. A message that cannot be put back stops the check only until it is
discarded: when its checks are used up, or it is older than fileReservedTime. A running broker's check may also stand
still, or never start, although no message stops it: then nothing is checked either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from rmqtx.readers.cursors import CheckCursors, check_cursors
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import PROPERTIES_BYTES_MAX
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, LAST_TO_STOP_ALIKE, NEWEST_READ, Version, dotted
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.database_slots import slots_after_start
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.fastjson import read_config
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store, is_bundle
from rmqtx.verdicts.check.check_rules import Action, CheckRules, CheckSettings, Stop, check_rules, check_settings
from rmqtx.verdicts.check.half_queue_check import ROUND_LIMIT_MS, play_round
from rmqtx.verdicts.check.stored_records import StoredOps
from rmqtx.verdicts.check.window import CheckWindow, CheckWindows
from rmqtx.verdicts.model.verdict_inputs import CheckStop

#: What the check may add to the properties of a copy.
_GROWTH_BYTES = 128


#: The file of a bundle with the stops of its store's check, which the records in the bundle do not show.
BUNDLED_STOPS_FILE = "rmqtxCheckStops.json"


def check_stops(
    store: Store, settings: BrokerSettings, cursors: CheckCursors | None = None, windows: CheckWindows | None = None,
    now_ms: int | None = None,
) -> list[CheckStop]:
    """Return where the check of each half queue of a store is stopped; nothing for a queue whose check continues.

    `cursors`: those of the check, if not the store's own. `windows`: the parts of the store's half and op queues that
    were read already. `now_ms`: when a stopped broker is assumed to start; the time of reading, if not given.
    Damage: no result where cursors or queues cannot be read; the code that reads them reports it.
    """
    if store.size_bytes("config", BUNDLED_STOPS_FILE):
        return _of_bundle(store)
    cursors = cursors or check_cursors(store)
    if cursors.half is None or cursors.op is None:
        return []
    windows, found = windows or CheckWindows(store, settings.given or {}), []
    now_ms = store.taken_time_ms if now_ms is None else now_ms
    for queue_id in [0] if store.has_rocksdb_queues else store.queue_numbers(HALF_TOPIC):
        try:
            half, op = cursors.half.get(queue_id), cursors.op.get(queue_id)
            stop = _stop_of_queue(store, settings, windows, (queue_id, half, op), now_ms)
        except SourceError:
            continue
        found += [] if stop is None else [stop]
    return found


def stops_as_json(stops: Sequence[CheckStop]) -> dict[str, object]:
    """Return the stops as a bundle stores them, without any name from the store."""
    kept = ("queue_id", "queue_offset", "is_op", "reach_end", "why", "since_ms", "is_readable", "lacks_room")
    return {"checkStops": [{name: getattr(stop, name) for name in kept} for stop in stops]}


def _of_bundle(store: Store) -> list[CheckStop]:
    value = read_config(store, BUNDLED_STOPS_FILE).value
    entries = value.get("checkStops") if isinstance(value, dict) else None
    try:
        return [_stop_of_json(store.root, entry) for entry in entries or ()]
    except (KeyError, TypeError, ValueError):  # not written by rmqtx
        return []


def _stop_of_json(root: str, words: Mapping[str, Any]) -> CheckStop:
    numbers = [int(words[name]) for name in ("queue_id", "queue_offset", "reach_end")]
    since_ms = None if words["since_ms"] is None else int(words["since_ms"])
    if not all(0 <= number < 1 << 62 for number in (*numbers, since_ms or 0)):
        raise ValueError("not a queue offset")
    return CheckStop(
        root, numbers[0], numbers[1], bool(words["is_op"]), numbers[2], str(words["why"]), since_ms,
        is_readable=bool(words["is_readable"]), lacks_room=bool(words.get("lacks_room")),
    )


def stop_findings(store: Store, stops: Sequence[CheckStop]) -> Iterator[Finding]:
    """Yield the stops of a store's check as findings."""
    for stop in stops:
        whose = "" if stop.is_op or stop.is_readable else ", of an unknown transaction"
        whose = f" of transaction {stop.transaction_id}" if stop.transaction_id else whose
        offset = stop.commit_log_offset
        file, position = (None, None) if offset is None else store.log().place_of(offset)
        yield Finding(
            store.root, "check-stopped", file, position, commit_log_offset=offset,
            actual=f"{'op' if stop.is_op else 'half'} queue offset {stop.queue_offset}{whose}: {stop.why}",
            advice=remedy(stop, f"--store {quote(store.root)}", f" --store {quote(store.root)} --to DIR"),
        )


def _stop_of_queue(
    store: Store, settings: BrokerSettings, windows: CheckWindows, place: tuple[int, int | None, int | None],
    now_ms: int,
) -> CheckStop | None:
    rules, window, how = None, None, check_settings(settings)
    for version in stopping_versions(settings):
        rules = check_rules(version)
        window = windows.read(rules, *place)
        stop = stop_of_window(store.root, window, rules, how, now_ms)
        if stop is not None:
            return _of_record(store, with_broker_named(stop, settings, version))
    running_since_ms = _running_since_ms(store)
    if window is None or running_since_ms is None:
        return None
    stop = standstill_of_window(store.root, window, settings, running_since_ms, store.taken_time_ms)
    return None if stop is None else _of_record(store, stop)


def stopping_versions(settings: BrokerSettings) -> list[Version]:
    """Return versions that the broker may have: one for each way to stop, ascending."""
    low, high = settings.version_low or HALF_TOPIC_DESIGN.since, settings.version_high or NEWEST_READ
    if low == high:
        return [low]
    kinds = [version for version in LAST_TO_STOP_ALIKE if low <= version <= high]
    return kinds if high in kinds else [*kinds, high]


def with_broker_named(stop: CheckStop, settings: BrokerSettings, version: Version) -> CheckStop:
    """Return the stop with the broker named: the version whose rules were applied."""
    why = f"a broker of {dotted(version)} {stop.why}; the version is uncertain: add --broker-version"
    if settings.known_version is not None:
        why = f"broker {dotted(version)} {stop.why}"
    return replace(stop, why=why, version=version)


def stop_of_window(
    root: str, window: CheckWindow, rules: CheckRules, settings: CheckSettings, now_ms: int
) -> CheckStop | None:
    """Return the message at which every round of a check ends, or None. `why` does not name the broker yet.

    `now_ms`: when the check goes on; its next round begins one interval later.
    """
    state = window.state
    if not may_stop(window):
        return None
    newest = max((int(times.max()) for times in _times(window) if len(times)), default=0)
    begin_ms = max(now_ms + settings.interval_ms, newest + 1)
    played = play_round(state, rules, settings._replace(time_out_ms=0), begin_ms)
    last = played.steps[-1] if played.steps else None
    if played.stop is Stop.ABORTED and last is not None and last.action is Action.UNREADABLE:
        if last.queue_offset < state.half_end:  # else a copy that is not written yet
            place = last.queue_offset
            return CheckStop(root, state.queue_id, place, False, place, "cannot read it")
        return None
    behind = state.half_cursor if last is None else last.queue_offset + 1
    if played.stop is Stop.ABORTED:
        why = "cannot read an op there or after"
        return CheckStop(root, state.queue_id, state.op_cursor, True, min(behind, state.half_end), why)
    if played.stop is Stop.REFUSED:
        why = "cannot put it back: its properties leave no room"
        return CheckStop(root, state.queue_id, behind, False, behind, why, lacks_room=True)
    return None


def standstill_of_window(
    root: str, window: CheckWindow, settings: BrokerSettings, running_since_ms: int, now_ms: int
) -> CheckStop | None:
    """Return the stop of a running broker's check that should have reached the next half by now; None otherwise.

    Two intervals and a whole round have passed since the check was due, all of them while the broker ran.
    """
    state = window.state
    half = state.copy_at(state.half_cursor) if state.half_begin <= state.half_cursor < state.half_end else None
    if half is None:
        return None
    due_ms = max(half.immunity_seconds or 0, 0) * 1_000 or settings.transaction_time_out_ms
    due_ms += max(half.store_time_ms, half.born_time_ms)
    patience_ms = 2 * settings.transaction_check_interval_ms + ROUND_LIMIT_MS
    if now_ms - max(due_ms, running_since_ms) <= patience_ms:
        return None
    words = window.words.slice(half.row, 1).to_pylist()[0]
    return CheckStop(
        root, state.queue_id, state.half_cursor, False, state.half_cursor,
        "the check does not move on, although the message can be read", due_ms,
        words["transaction_id"], words["commit_log_offset"], is_readable=True,
    )


def _running_since_ms(store: Store) -> int | None:
    """Return when the running broker of a store started, by the time of its lock file; None if none runs.

    Source: DefaultMessageStore.start (4.3.0 to 5.5.0).
    """
    if not store.used_by_process or store.used_by_process < 0:
        return None
    try:
        return Path(store.place("lock")).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def may_stop(window: CheckWindow) -> bool:
    """Whether the window has anything that can stop a check; faster than playing a round."""
    halves, ops = window.stored_halves, window.state.ops
    assert isinstance(ops, StoredOps)
    lengths = halves.numbers["fixed_properties_bytes"]
    return (
        bool((halves.rows < 0).any())
        or bool((lengths > PROPERTIES_BYTES_MAX - _GROWTH_BYTES).any())
        or any(op is None or not op.has_body for op in ops.ops)
    )


def _times(window: CheckWindow) -> Iterator[np.ndarray]:
    halves = window.stored_halves
    yield halves.numbers["born_time_ms"]
    yield halves.numbers["store_time_ms"]


def _of_record(store: Store, stop: CheckStop) -> CheckStop | None:
    """Return the stop with the values of its record. None for a record that a running broker has just written (queues
    are read later than the log), in a bundle, and without any file of the log: what a start does then is another
    matter, and the missing log is reported.
    """
    with store.log() as log:
        offset = _place_of(store, OP_TOPIC if stop.is_op else HALF_TOPIC, stop)
        is_absent = offset is not None and log.segment_at(offset) is None
        if is_absent and (store.in_use or not store.commit_log):
            return None
        block = None if offset is None else block_at(log, offset)
    if offset is None and is_bundle(store):
        return None
    if offset is not None and is_absent:
        is_lost = offset >= store.commit_log[0].base_offset
        return replace(stop, commit_log_offset=offset, is_lost=is_lost)
    return replace(stop, commit_log_offset=offset) if block is None else with_record(stop, block)


def _place_of(store: Store, topic: str, stop: CheckStop) -> int | None:
    """Return the commit-log offset in the slot of a stop."""
    if not store.has_rocksdb_queues:
        with open_queue(store, topic, stop.queue_id) as queue:
            return queue.place_at(stop.queue_offset)
    slots = slots_after_start(store, (topic,), stop.queue_id)[topic]
    return next(iter(slots.offsets[slots.numbers == stop.queue_offset].tolist()), None)


def with_record(stop: CheckStop, block: Block) -> CheckStop:
    """Return the stop with the values of its record, the first one of a block."""
    name = None
    if not stop.is_op:
        name = block.properties.text(UNIQ_KEY)[0].as_py() or block.message_ids()[0].as_py()
    since_ms = int(block.header("store_time_ms")[0]) if stop.since_ms is None else stop.since_ms
    offset = int(block.commit_log_offsets[0])
    return replace(stop, commit_log_offset=offset, transaction_id=name, since_ms=since_ms)


def remedies(
    stop: CheckStop, arguments: str, acting: str | None, shown: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Return the commands to type next, each with a comment: first settle the transaction, because that loses nothing;
    else skip the message.

    `arguments` select the same store or broker; `acting`: arguments that change its files, None for a broker.
    `shown`: transactions that are shown already.
    """
    name = stop.transaction_id
    if stop.is_readable:
        first = "decide first what is older than fileReservedTime, because a restart discards it without asking"
        return [(f"rmqtx show {name} {arguments}", f"restart the broker, then run this command again; {first}")]
    if stop.is_lost and acting is not None:
        why = f"the record of {stop.place} is in a missing file of the log: find that file in a backup or on a slave"
        return [(f"rmqtx verify {arguments}", why)]
    skip = f"rmqtx cursor set --{'op' if stop.is_op else 'half'} {stop.queue_offset + 1}{acting}"
    if name is None:
        if acting is None:
            return [("rmqtx verify STORE", "after stopping the broker: verify its store")]
        return [(f"{skip} --reason TEXT", f"skips {stop.place}; try it with --dry-run first")]
    which = "this transaction, not of the one shown" if shown else "this transaction"
    found = [] if name in shown else [(f"rmqtx show {name} {arguments}", f"{stop.place} is a copy of {which}")]
    files = "" if acting is None else f"{acting} --broker-version X.Y.Z"
    act = f"rmqtx commit {name}{files or f' {arguments}'} --reason TEXT"
    found.append((act, "or rollback, or discard; then the check goes on to the next such message, if there is one"))
    if acting is not None:
        found.append((f"{skip} --override abandoned --reason TEXT", "or skip it: the transaction is then LOST"))
    return found


def remedy(stop: CheckStop, arguments: str, acting: str | None) -> str:
    """Return the commands of `remedies`, one in a line."""
    return "\n".join(f"{command}   # {comment}" for command, comment in remedies(stop, arguments, acting))
