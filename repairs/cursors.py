"""Setting the cursors of the transaction check in the files of a stopped broker.

What the broker would then do differently is computed first, from the verdicts on the same files with the new cursors:
transactions that are no longer checked, and decided transactions that are checked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.errors import BadRequest, RmqtxError, UnsafeStore
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import column
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.fastjson import chosen_cursor_file, parse
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.repairs.changes.change_sets import ChangeSet, ReplaceFile
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import SET_CURSOR, Receipt
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.model.predicted import READ_EVENTS, UNASKED_ENDS, WORDS
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_inputs import CheckStop
from rmqtx.verdicts.model.verdict_words import Advice, NextEvent, State
from rmqtx.verdicts.simulation.next_start import not_read

_TABLE = "offsetTable"
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class Move:
    """A cursor's change: `before` is None where there was no cursor, so the check began at the queue's minimum."""

    topic: str
    before: int | None
    after: int


#: What the broker does differently with a transaction once the cursors are set.
KINDS: dict[str, str] = {
    "abandoned": "undecided, and not reached by the check with the new cursors",
    "asked-again": "decided, and checked again with the new cursors: a second delivery is possible",
    "discarded-unasked": "reached by the check with the new cursors, discarded without asking: nothing is delivered",
    "never-asked": "read by the check with the present cursors, and not with the new ones",
    "taken-up": "undecided or discarded, and checked again with the new cursors",
}
#: Effects that are refused unless the operator accepts them.
UNWANTED = ("abandoned", "asked-again")
#: The values of `next_event` with which no producer is asked.
_UNASKED = frozenset(WORDS[event] for event in UNASKED_ENDS)
#: Those with which the check reads a copy, and those with which it reads none.
_READ = frozenset(WORDS[event] for event in READ_EVENTS)
_UNREAD = frozenset({NextEvent.STOPPED, NextEvent.SKIPPED, NextEvent.NONE})
#: Errors about the broker, not about what was read: a check that is stopped is what the cursors are set for.
_NOT_EVIDENCE = frozenset({"check-stopped", "start-differs"})
#: One transaction that the broker treats differently.
CURSOR_EFFECTS = pa.schema(
    [
        column("kind", pa.string(), f"one of {', '.join(KINDS)}"),
        column("transaction_id", pa.string(), "the transaction"),
        column("topic", pa.string(), "the real topic"),
        column("keys", pa.string(), "business keys"),
        column("state_before", pa.string(), "its state with the present cursors"),
        column("state_after", pa.string(), "its state with the new cursors"),
        column("reason_after", pa.string(), "why"),
    ]
)


@dataclass(frozen=True, slots=True)
class Effects:
    """What the broker does differently with the new cursors.

    Shape: `rows`: rows of CURSOR_EFFECTS. `stops`: where its check is then stopped, one for each half queue.
           `unread_count`: the half slots that the cursor passes and of which no file of the log has the record: what
           was in them is unknown. `lacks`: the codes of what is missing or damaged as evidence, so that more
           transactions may be affected.
    Order: `rows`: that of the first half copies.
    """

    rows: list[dict[str, Any]]
    stops: list[CheckStop]
    unread_count: int = 0
    lacks: tuple[str, ...] = ()


def moves(
    store: Store, settings: BrokerSettings, conf: Mapping[str, str], *, half: int | None, op: int | None
) -> list[Move]:
    """Return the changes of the cursors to set. `conf`: the broker's configuration as far as it is known.

    Raises: BadRequest for an offset that the queue does not have, or if no cursor is given; UnsafeStore where the
            present cursors are unknown, or the broker does not read them at its start.
    """
    known = check_cursors(store)
    if known.half is None or known.op is None or known.file is None:
        name = chosen_cursor_file(store).file.name
        raise UnsafeStore(
            f"cannot read config/{name} of {store.root}",
            advice="add the file, from a backup or a slave; what the check does from supposed cursors: rmqtx simulate "
            f"{quoted(store.root)} --half-cursor N --op-cursor M",
        )
    other = not_read(store, known, settings, conf)
    if other is not None:
        raise UnsafeStore(
            f"cursors set in {known.file} would have no effect: {other[0].why}", file=known.file,
            advice="give the broker that will run: --broker-version, --broker-conf",
        )
    wanted = [(HALF_TOPIC, known.half.get(0), half), (OP_TOPIC, known.op.get(0), op)]
    found = []
    for topic, before, after in wanted:
        if after is None:
            continue
        with open_queue(store, topic, 0) as queue:
            low, high = queue.min_offset, queue.max_offset
        if not low <= after <= high:
            raise BadRequest(f"{topic} has queue offsets {low} to {high}: {after} is out of range")
        found.append(Move(topic, before, after))
    if not found:
        raise BadRequest("no cursor is given", advice="add --half N, --op M, or both")
    return found


def change_set(store: Store, wanted: list[Move]) -> ChangeSet:
    """Return the steps that set the cursors in the cursor file and in its backup, which a broker reads as a fallback.

    All other bytes stay. Raises: UnsafeStore where a file does not have the form that brokers write.
    """
    steps = []
    file_name = chosen_cursor_file(store).file.name
    for name in (file_name, f"{file_name}.bak"):
        place = Path(store.place("config", name))
        if not place.exists():
            continue
        text = place.read_bytes().decode("utf-8", "surrogateescape")
        if not text.strip("\0 \t\r\n"):
            continue  # a crash can leave an empty file; brokers skip it
        for move in wanted:
            text = _with_cursor(text, str(place), move)
        steps.append(ReplaceFile(f"config/{name}", text.encode("utf-8", "surrogateescape")))
    return ChangeSet(tuple(steps))


def _with_cursor(text: str, file: str, move: Move) -> str:
    """Return the text with one cursor changed; the result is parsed as a broker does, and compared."""
    begin, end = _table_in(text, file)
    key = f"{move.topic}@{CHECK_GROUP}"
    entry = re.compile(r'"' + re.escape(key) + r'"\s*:\s*\{[^{}]*\}').search(text, begin, end)
    if entry is None:
        inside = text[begin + 1 : end].strip()
        changed = f'{text[: begin + 1]}\n\t\t"{key}":{{0:{move.after}}}{"," if inside else ""}{text[begin + 1 :]}'
    else:
        queue = re.compile(r'(\{|,)(\s*"?0"?\s*:\s*)-?\d+').search(text, entry.start(), entry.end())
        if queue is None:
            at = text.index("{", entry.start()) + 1
            rest = "," if text[at : entry.end() - 1].strip() else ""
            changed = f"{text[:at]}0:{move.after}{rest}{text[at:]}"
        else:
            changed = f"{text[: queue.end(2)]}{move.after}{text[queue.end() :]}"
    _require_only(parse(text, file), parse(changed, file), key, move.after, file)
    return changed


def _table_in(text: str, file: str) -> tuple[int, int]:
    """Positions of the braces of the table of cursors, at the top level of the text."""
    position = depth = 0
    while position < len(text):
        if text[position] == '"':
            found = _STRING.match(text, position)
            if found is None:
                break
            position = found.end()
            after = re.compile(r"\s*:\s*\{").match(text, position)
            if depth == 1 and found[0] == f'"{_TABLE}"' and after is not None:
                return after.end() - 1, _closing(text, after.end() - 1, file)
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        position += 1
    raise UnsafeStore(
        f"{file} has no {_TABLE} where brokers write it", file=file, advice="to see its content: rmqtx decode cursors"
    )


def _closing(text: str, position: int, file: str) -> int:
    depth = 0
    while position < len(text):
        found = _STRING.match(text, position)
        if found is not None:
            position = found.end()
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
        position += 1
    raise UnsafeStore(f"{file} ends within {_TABLE}", file=file, advice="its backup (.bak) may be intact")


def _require_only(before: Any, after: Any, key: str, value: int, file: str) -> None:
    """Refuse a change of anything but the one cursor."""
    table = dict(before[_TABLE])
    table[key] = {**table.get(key, {}), "0": value}
    if {**before, _TABLE: table} != after:
        raise UnsafeStore(
            f"cannot change {file}: it does not have the form that brokers write", file=file,
            advice="change it by hand",
        )


# -- its effect -------------------------------------------------------------------------------------------------------


def effects(
    store: Store, wanted: list[Move], changes: ChangeSet, settings_of: SettingsOf,
    opened: Callable[[str, tuple[str, ...]], Store],
) -> Effects:
    """Return the transactions that the broker would treat differently, and where its check is then stopped."""
    settings = settings_of(store)
    with _as_changed(store, changes) as place:
        before, _, lacks = _judged(store, settings)
        after, stops, _ = _judged(opened(str(place), store.commit_log_directories), settings)
    found = []
    for name, row in before.items():
        kind = _kind(row, after[name])
        if kind is not None:
            found.append(
                {
                    "kind": kind, "transaction_id": name, "topic": row.topic, "keys": row.keys,
                    "state_before": row.state, "state_after": after[name].state,
                    "reason_after": after[name].reason,
                }
            )
    return Effects(found, stops, sum(_unread_count(store, move) for move in wanted), lacks)


def _unread_count(store: Store, move: Move) -> int:
    """Return how many half slots a cursor passes whose records would be in the log, and are in none of its files."""
    if move.topic != HALF_TOPIC:
        return 0
    with store.log() as log:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            before = queue.min_offset if move.before is None else move.before
            offsets: list[int] = queue.read(before, move.after)[1].tolist()
        begin = store.commit_log[0].base_offset if store.commit_log else 0
        return sum(offset >= begin and log.segment_at(offset) is None for offset in offsets)


def _judged(
    store: Store, settings: BrokerSettings
) -> tuple[dict[str, Transaction], list[CheckStop], tuple[str, ...]]:
    """Return the transactions by id, where the check is stopped, and the codes of errors of the evidence."""
    reading = audit([store], lambda _: settings)
    found = [Transaction.of(row) for row in reading.table().to_pylist()]
    lacks = sorted({one.code for one in reading.findings if one.is_error} - _NOT_EVIDENCE)
    return {one.transaction_id: one for one in found}, reading.check_stops, tuple(lacks)


def _kind(before: Transaction, after: Transaction) -> str | None:
    if before.state == State.PENDING and after.state != State.PENDING:
        return "abandoned"
    is_unasked = after.next_event in _UNASKED
    if after.advice == Advice.CLOSE and before.advice != Advice.CLOSE:
        return "discarded-unasked" if is_unasked else "asked-again"
    is_discarded = before.state == after.state == State.DISCARDED
    if (after.state == State.PENDING and before.state != State.PENDING) or (
        is_discarded and after.advice == Advice.WAIT and before.advice != Advice.WAIT
    ):
        return "discarded-unasked" if is_unasked else "taken-up"
    if before.next_event in _READ and after.next_event in _UNREAD:
        return "never-asked"
    is_pending = before.state == after.state == State.PENDING
    if is_pending and before.next_event in _UNREAD and after.next_event in _READ:
        return "discarded-unasked" if is_unasked else "taken-up"
    return None


@contextmanager
def _as_changed(store: Store, changes: ChangeSet) -> Iterator[Path]:
    """A directory like the store with the changed configuration; everything else is a link into the store."""
    with RunFolder() as directory:
        place = Path(directory)
        root = Path(store.root).resolve()
        for entry in root.iterdir():
            if entry.name != "config":
                (place / entry.name).symlink_to(entry)
        (place / "config").mkdir()
        for entry in (root / "config").iterdir():
            (place / "config" / entry.name).symlink_to(entry)
        for step in changes.changes():
            assert isinstance(step, ReplaceFile)
            (place / step.path).unlink(missing_ok=True)
            (place / step.path).write_bytes(step.data)
        yield place


@contextmanager
def receipt_of_moves(
    journal: Journal, store: Store, moves: Sequence[Move], destination: Destination, *, reason: str | None,
    overrides: Sequence[str] = (),
) -> Iterator[Receipt]:
    """A receipt that is recorded before the block, and completed after it: proved if the block raises no error.

    Raises: UnwritableFile before the block: then the change must not be made.
    """
    receipt = Receipt(
        ActKind.CURSOR_SET, None, store.root, producer_group=CHECK_GROUP, reason=reason, overrides=list(overrides)
    )
    entries = [
        receipt.asked(SET_CURSOR, {"topic": move.topic, "queueId": 0, "before": move.before, "after": move.after})
        for move in moves
    ]
    journal.begin(receipt)
    try:
        yield receipt
    except RmqtxError as error:
        receipt.outcome = ActOutcome.NOT_SENT if destination.is_untouched else ActOutcome.UNKNOWN
        receipt.notes.append(f"{'nothing was written' if destination.is_untouched else 'interrupted'}: {error}")
        journal.end(receipt)
        raise
    for entry in entries:
        entry.answered(ResponseCode.SUCCESS, "written")
    receipt.outcome = ActOutcome.PROVED
    journal.end(receipt)
