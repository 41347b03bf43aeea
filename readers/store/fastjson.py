"""Read the JSON of the broker's configuration files: fastjson's dialect, and the choice between a file and its backup.

fastjson writes integer keys of maps without quotes and control characters inside strings as they are; otherwise it is
JSON. Brokers copy the old `NAME` to `NAME.bak` before they write `NAME`, and read the backup if the file is missing,
empty or broken. This module does the same.

The cursors are in config/consumerOffset.json, or with enableLmq in lmqConsumerOffset.json. A broker writes its file
every 5 s (flushConsumerOffsetInterval) and leaves the other file unchanged. If both exist, the setting was changed
once: the broker uses the file written last, in which the check's cursors are further on.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.storage.file_systems import files_of
from rmqtx.readers.storage.places import FileSystem, unreadable
from rmqtx.readers.store.paths import CURSOR_FILES, CursorFile
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store

#: Larger than the offsets of a million queues; a larger file is not a configuration file.
SIZE_BYTES_MAX = 256 << 20

#: Strings are matched whole, so that nothing inside them is mistaken for a key; an unterminated string runs to the end.
_STRING_OR_KEY = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|(?P<before>[{,]\s*+)(?P<key>-?\d++)(?=\s*+:)', re.DOTALL)


class Config(NamedTuple):
    """A configuration file: its value, None if it is unknown; the file that it was read from."""

    value: Any
    findings: list[Finding]
    file: str | None


def parse(text: str, file: str | None = None) -> Any:
    """Return the value of a JSON text in fastjson's dialect; keys of objects are text, unquoted ones too.

    Raises: BadText, with the position in the text as UTF-8.
    Source: config/*.json as brokers 4.3.0 to 5.5.0 write them; docs/formats/cursors.md#json.
    """
    inserted: list[int] = []

    def quoted(match: re.Match[str]) -> str:
        key = match["key"]
        if key is None:
            return match[0]
        inserted.append(match.start("key") + 2 * len(inserted))
        return f'{match["before"]}"{key}"'

    strict = _STRING_OR_KEY.sub(quoted, text)
    try:
        return json.loads(strict, strict=False)
    except json.JSONDecodeError as error:
        before = sum(1 for place in inserted if place < error.pos)
        position = len(text[: max(0, error.pos - 2 * before)].encode("utf-8", "surrogatepass"))
        raise BadText(f"not JSON: {error.msg}", file=file, position_bytes=position) from error
    except RecursionError as error:
        raise BadText("not a configuration file: nested too deeply", file=file) from error
    except ValueError as error:  # a number of more digits than Python converts
        raise BadText(f"not a configuration file: {error}", file=file) from error


def read_text(path: str | os.PathLike[str], files: FileSystem | None = None) -> str | None:
    """Return the content of a text file; None if it does not exist. `files`: its file system, if not the local one.

    Raises: BadText if the file is not UTF-8 or too large; UnreadableFile.
    """
    name = as_text(path)
    try:
        data = (files or files_of("", 0)).content(os.fspath(path), SIZE_BYTES_MAX)
    except OSError as error:
        raise unreadable(name, error) from error
    if data is None:
        return None
    if len(data) > SIZE_BYTES_MAX:
        raise BadText(
            f"{name} is not a configuration file: longer than {SIZE_BYTES_MAX >> 20} MiB", file=name,
            position_bytes=SIZE_BYTES_MAX
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadText(f"{name} is not UTF-8", file=name, position_bytes=error.start) from error


def read_config(store: Store, name: str) -> Config:
    """Return the value of `config/NAME`, else of its backup.

    Damage: config-backup if the backup was used, config-damaged if neither can be parsed, config-missing if
            neither exists.
    Source: common/ConfigManager.java load; docs/formats/cursors.md#json.
    """
    file, backup = store.place("config", name), store.place("config", f"{name}.bak")
    value, trouble = _attempt(file, store.files)
    if trouble is None:
        return Config(value, [], file)
    value, backup_trouble = _attempt(backup, store.files)
    if backup_trouble is None:
        return Config(value, [Finding(store.root, "config-backup", file, actual=trouble)], backup)
    if trouble == backup_trouble == _MISSING:
        return Config(None, [Finding(store.root, "config-missing", file, actual=_MISSING)], None)
    actual = f"{trouble}; backup: {backup_trouble}"
    return Config(None, [Finding(store.root, "config-damaged", file, actual=actual)], None)


_MISSING = "no file"
#: A command reads each of these files several times, and few of them are longer.
_KEPT_CHARACTERS = 1 << 16


@functools.lru_cache(64)
def _parsed(text: str) -> Any:
    """Return the value of a text, which no caller changes."""
    return parse(text)


def _attempt(file: str, files: FileSystem) -> tuple[Any, str | None]:
    """Return the file's value and None, or None and the reason."""
    try:
        text = read_text(file, files)
        if text is None:
            return None, _MISSING
        if not text.strip("\0 \t\r\n"):  # a crash can leave a file empty or all zeros
            return None, "an empty file"
        return (_parsed(text) if len(text) <= _KEPT_CHARACTERS else parse(text)), None
    except BadText as error:
        return None, error.message if error.position_bytes is None else f"{error.message} at {error.position_bytes}"
    except UnreadableFile as error:
        return None, error.message


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
    )
    return ChosenCursorFile(chosen.file, chosen.config, finding)


def config_table(store: Store, file: str, name: str) -> Mapping[str, Any] | None:
    """Return the object with a name in a file of config/; None if the file has none, or cannot be read."""
    value = read_config(store, file).value
    table = value.get(name) if isinstance(value, dict) else None
    return table if isinstance(table, dict) else None


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
