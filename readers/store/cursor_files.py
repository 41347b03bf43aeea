"""Choose the file with the broker's cursors: config/consumerOffset.json, or with enableLmq lmqConsumerOffset.json.

A broker writes its file every 5 s (flushConsumerOffsetInterval) and leaves the other file unchanged. If both exist,
the setting was changed once: the broker uses the file written last, in which the check's cursors are further on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.fastjson import Config, read_config
from rmqtx.readers.store.paths import CURSOR_FILES, CursorFile
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store

#: If the times of two files differ by less, the files were copied, or two brokers wrote them one after the other: then
#: the times do not show which file is newer.
_APART_NS = 60 * 10**9


@dataclass(frozen=True, slots=True)
class ChosenCursorFile:
    """The broker's cursor file and its contents; `finding`: the other file contradicts the choice."""

    file: CursorFile
    config: Config
    finding: Finding | None = None


def chosen_cursor_file(store: Store) -> ChosenCursorFile:
    """Return the file in which the store's broker keeps its cursors; the default file if neither exists.

    Damage: cursors-contradict if the check's cursors are further on in the older file than in the newer one, or if one
            of two files cannot be read and their times do not show which one is newer.
    """
    there = [file for file in CURSOR_FILES if _is_there(store, file)]
    if len(there) < 2:
        file = there[0] if there else CURSOR_FILES[0]
        return ChosenCursorFile(file, read_config(store, file.name))
    usual, light = (ChosenCursorFile(file, read_config(store, file.name)) for file in CURSOR_FILES)
    written_ns = [store.modified_ns("config", file.name) or 0 for file in CURSOR_FILES]
    apart_ns = written_ns[1] - written_ns[0]
    further = _further(light.config.value, usual.config.value)
    if abs(apart_ns) < _APART_NS:
        chosen, other = (light, usual) if further is True else (usual, light)
        return chosen if other.config.value is not None else _contradicted(store, chosen, other, "cannot be read")
    younger, older = (light, usual) if apart_ns > 0 else (usual, light)
    if further is None or further == (younger is light):
        return younger
    return _contradicted(store, younger, older, "is older and has later cursors of the check")


def _contradicted(store: Store, chosen: ChosenCursorFile, other: ChosenCursorFile, words: str) -> ChosenCursorFile:
    finding = Finding(
        store.root, "cursors-contradict", store.place("config", chosen.file.name),
        expected="later cursors of the check in the newer file",
        actual=f"{store.place('config', other.file.name)} {words}",
    )  # fmt: skip
    return ChosenCursorFile(chosen.file, chosen.config, finding)


def _is_there(store: Store, file: CursorFile) -> bool:
    return any(store.has("config", name) for name in (file.name, f"{file.name}.bak"))


def _further(light: Any, usual: Any) -> bool | None:
    """Whether the check's cursors are further on in the light file; None if they are equal or contradict each other."""
    signs = {(a > b) - (a < b) for a, b in zip(_check(light), _check(usual), strict=True)} - {0}
    return signs == {1} if len(signs) == 1 else None


def _check(value: Any) -> list[int]:
    table = value.get("offsetTable") if isinstance(value, dict) else None
    found = []
    for topic in (HALF_TOPIC, OP_TOPIC):
        queues = table.get(f"{topic}@{CHECK_GROUP}") if isinstance(table, dict) else None
        cursor = queues.get("0") if isinstance(queues, dict) else None
        found.append(cursor if isinstance(cursor, int) else -1)
    return found
