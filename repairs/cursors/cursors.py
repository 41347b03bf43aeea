"""The cursors of the transaction check set to another place, in the files of a stopped broker.

What the broker would then do differently is worked out first, by the same verdicts on the same files with the other
cursors: what nothing asks for any more, and what is asked for again although it is decided.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from readers.cursors.cursors import check_cursors
from readers.model.errors import BadRequest, UnsafeStore
from readers.model.tables import column
from readers.queues.consume_queue import open_queue
from readers.store.broker_settings import BrokerSettings
from readers.store.cursor_files import chosen_cursor_file
from readers.store.fastjson import parse
from readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store
from repairs.changes.change_sets import ChangeSet, ReplaceFile
from verdicts.audit.local_audit import audit
from verdicts.evidence.store_facts import SettingsOf
from verdicts.simulation.starting_cursors import not_read

_TABLE = "offsetTable"
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class Move:
    """A cursor's way: `before` is None where there was none, and the check began at the queue's minimum."""

    topic: str
    before: int | None
    after: int


#: What the broker does otherwise with a transaction once the cursors are set.
KINDS: dict[str, str] = {
    "abandoned": "it was before the check, and nothing asks for it any more",
    "asked-again": "it is decided, and the check has a copy of it before it again: it may be delivered again",
    "taken-up": "it is undecided, and asked for again",
}
#: Effects that nobody wants unless he says so.
UNWANTED = ("abandoned", "asked-again")
#: One transaction that the broker treats otherwise.
CURSOR_EFFECTS = pa.schema(
    [
        column("kind", pa.string(), f"one of {', '.join(KINDS)}"),
        column("transaction_id", pa.string(), "the transaction"),
        column("topic", pa.string(), "the real topic"),
        column("keys", pa.string(), "business keys"),
        column("state_before", pa.string(), "its state with the cursors as they are"),
        column("state_after", pa.string(), "its state with the cursors as they are to be"),
        column("reason_after", pa.string(), "why"),
    ]
)


def moves(
    store: Store, settings: BrokerSettings, conf: Mapping[str, str], *, half: int | None, op: int | None
) -> list[Move]:
    """The ways of the cursors that are to be set. `conf`: the broker's configuration as far as it is known.

    Raises: BadRequest where a queue has no such place, or no cursor is to be set; UnsafeStore where they are unknown,
            or the broker does not read them when it starts.
    """
    known = check_cursors(store)
    if known.half is None or known.op is None or known.file is None:
        name = chosen_cursor_file(store).file.name
        raise UnsafeStore(
            f"{store.root} has no config/{name} that can be read", advice="rmqtx decode cursors says what is wrong"
        )
    other = not_read(store, known, settings, conf)
    if other is not None:
        raise UnsafeStore(
            f"cursors that are set in {known.file} change nothing: {other[0].why}", file=known.file,
            advice="say which broker will run: --broker-version, --broker-conf",
        )
    wanted = [(HALF_TOPIC, known.half.get(0), half), (OP_TOPIC, known.op.get(0), op)]
    found = []
    for topic, before, after in wanted:
        if after is None:
            continue
        with open_queue(store, topic, 0) as queue:
            low, high = queue.min_offset, queue.max_offset
        if not low <= after <= high:
            raise BadRequest(f"{topic} has queue offsets {low} to {high}, and {after} is none of them")
        found.append(Move(topic, before, after))
    if not found:
        raise BadRequest("no cursor is given", advice="--half N, --op M, or both")
    return found


def change_set(store: Store, wanted: list[Move]) -> ChangeSet:
    """The configuration with other cursors, and its backup with the same, which a broker reads if it must.

    Every other byte stays. Raises: UnsafeStore where a file has another form than brokers write.
    """
    steps = []
    file_name = chosen_cursor_file(store).file.name
    for name in (file_name, f"{file_name}.bak"):
        place = Path(store.place("config", name))
        if not place.exists():
            continue
        text = place.read_bytes().decode("utf-8", "surrogateescape")
        if not text.strip("\0 \t\r\n"):
            continue  # a crash can leave one empty; brokers pass over it
        for move in wanted:
            text = _with_cursor(text, str(place), move)
        steps.append(ReplaceFile(f"config/{name}", text.encode("utf-8", "surrogateescape")))
    return ChangeSet(tuple(steps))


def _with_cursor(text: str, file: str, move: Move) -> str:
    """The text with one cursor another; tested by reading it as a broker does."""
    begin, end = _object_of(text, 0, _TABLE, file)
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


def _object_of(text: str, position: int, key: str, file: str) -> tuple[int, int]:
    """Where the braces of the object with a key are, which is not within another one of that name."""
    depth = 0
    while position < len(text):
        if text[position] == '"':
            found = _STRING.match(text, position)
            if found is None:
                break
            position = found.end()
            after = re.compile(r"\s*:\s*\{").match(text, position)
            if depth == 1 and found[0] == f'"{key}"' and after is not None:
                return after.end() - 1, _closing(text, after.end() - 1, file)
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        position += 1
    raise UnsafeStore(f"{file} has no {key} where brokers write it", file=file, advice="rmqtx decode cursors shows it")


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
    raise UnsafeStore(f"{file} ends within {_TABLE}", file=file, advice="its .bak may be good")


def _require_only(before: Any, after: Any, key: str, value: int, file: str) -> None:
    """That nothing but the one cursor is another."""
    table = dict(before[_TABLE])
    table[key] = {**table.get(key, {}), "0": value}
    if {**before, _TABLE: table} != after:
        raise UnsafeStore(f"{file} is not as brokers write it, and not changed", file=file, advice="change it by hand")


# -- what it does -----------------------------------------------------------------------------------------------------


def effects(
    store: Store, changes: ChangeSet, settings_of: SettingsOf, opened: Callable[[str, tuple[str, ...]], Store]
) -> list[dict[str, Any]]:
    """Which transactions the broker would treat otherwise.

    Shape: rows of CURSOR_EFFECTS.
    Order: that of the first half copies.
    """
    settings = settings_of(store)
    with _as_changed(store, changes) as place:
        before = _judged(store, settings)
        after = _judged(opened(str(place), store.commit_log_directories), settings)
    found = []
    for name, row in before.items():
        kind = _kind(row, after[name])
        if kind is not None:
            found.append(
                {
                    "kind": kind, "transaction_id": name, "topic": row["topic"], "keys": row["keys"],
                    "state_before": row["state"], "state_after": after[name]["state"],
                    "reason_after": after[name]["reason"],
                }
            )
    return found


def _judged(store: Store, settings: BrokerSettings) -> dict[str, dict[str, Any]]:
    return {row["transaction_id"]: row for row in audit([store], lambda _: settings).table().to_pylist()}


def _kind(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    if before["state"] == "PENDING" and after["state"] != "PENDING":
        return "abandoned"
    if after["advice"] == "close" and before["advice"] != "close":
        return "asked-again"
    if after["state"] == "PENDING" and before["state"] != "PENDING":
        return "taken-up"
    is_discarded = before["state"] == after["state"] == "DISCARDED"
    return "taken-up" if is_discarded and after["advice"] == "wait" and before["advice"] != "wait" else None


@contextmanager
def _as_changed(store: Store, changes: ChangeSet) -> Iterator[Path]:
    """A directory that looks like the store with the changed configuration; everything else are links into it."""
    with tempfile.TemporaryDirectory(prefix="rmqtx-") as directory:
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



