"""The configuration file: stores by name, the name server, formats; no secrets.

Options take precedence over the environment, and the environment over this file. The file is read when a command needs
it, so that a mistake in it does not stop `rmqtx explain`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.options.nearby_store import nearby_store
from rmqtx_cli.words.command_names import SECTIONS
from rmqtx_cli.words.near import did_you_mean, near
from rmqtx_cli.words.text import escaped

#: Names the file; the places below are then ignored.
CONFIG_VARIABLE = "RMQTX_CONFIG"
_HOME_VARIABLE = "XDG_CONFIG_HOME"
_BELOW = Path("rmqtx") / "config.toml"

#: Names the store that commands read if none is given; commands that act require one on the command line.
STORE_VARIABLE = "RMQTX_STORE"
NAME_SERVERS_VARIABLE = "NAMESRV_ADDR"

#: The keys with their meanings.
KEYS: dict[str, str] = {
    "store": "store to read if none is given: a path, a URI or a name of [stores]; RMQTX_STORE takes precedence",
    "namesrv": "name servers, HOST:PORT, several separated by ;, if no store is given; NAMESRV_ADDR takes precedence",
    "format": "format of rows without --format and without a suffix of --output: table, json, jsonl, csv",
    "stores": "a table of names: NAME = \"PATH or URI\", accepted wherever a store is; an existing path has precedence",
    "formats": "a table by command: pending = \"json\"; it takes precedence over format",
}
_FORMATS = ("table", "json", "jsonl", "csv")
_SECRET = re.compile(r"secret|passw|token|credential|private|access_?key|api_?key", re.I)
_LOGIN = re.compile(r"://[^/\s]*@")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Contents of the file; `file` is None if there is none."""

    file: Path | None = None
    store: str | None = None
    namesrv: str | None = None
    format: str | None = None
    stores: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)

    def format_of(self, command: str) -> str | None:
        """Default format of a command's rows; None if the file has none."""
        return self.formats.get(command, self.format)

    def place_of(self, name: str) -> str:
        """Return the place of a named store; the same text if it is not a name, or if it is a path that exists.

        Raises: BadRequest if it is neither and similar to a name.
        """
        if os.path.lexists(name):
            return name
        if name not in self.stores and re.fullmatch(r"[\w.-]+", name) and (close := near(name, self.stores)):
            raise BadRequest(
                f"{escaped(name)} is not a path, and not the name of a store in {self.file}",
                advice=f"did you mean {' or '.join(close)}?",
            )
        return self.stores.get(name, name)


def config_file() -> Path | None:
    """Return the file to read; None if there is none.

    A home directory that this process cannot search, or that it does not have, has no file: so it is for a service
    (ProtectHome of systemd) and for a user id of a container.
    Raises: BadRequest if RMQTX_CONFIG names a file that does not exist.
    """
    named = os.environ.get(CONFIG_VARIABLE, "").strip()
    if named:
        file = Path(named)
        if not file.exists():
            raise BadRequest(f"{CONFIG_VARIABLE} names {named}, which does not exist")
        return file
    home = os.environ.get(_HOME_VARIABLE, "").strip()
    try:
        file = (Path(home) if home else Path("~/.config").expanduser()) / _BELOW
        return file if file.is_file() else None
    except (PermissionError, RuntimeError):  # RuntimeError: expanduser finds no home directory
        return None


def configuration() -> Configuration:
    """Return the contents of the configuration file, read again each time.

    Raises: BadRequest with file and line, for a file that is not TOML, an unknown key, a value of a wrong type, or
            anything that looks like a secret.
    """
    file = config_file()
    if file is None:
        return Configuration()
    try:
        text = file.read_text("utf-8")
        words = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        what = re.sub(r"\s*\(at .*\)", "", str(error))
        raise BadRequest(f"{file}:{line[1] if line else len(text.splitlines())}: not TOML: {what}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"cannot read {file}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    return _File(file, text).understood(words)


def environment_store() -> str | None:
    """Return the value of RMQTX_STORE; None if it is not set."""
    return os.environ.get(STORE_VARIABLE, "").strip() or None


class OwnStore(NamedTuple):
    """A store that was not typed. `origin`: what names it; None if it was found. `where`: then, words for the place.

    `commit_logs`: the directories of its commit log, if its configuration names others than the usual one.
    """

    place: str
    origin: str | None
    where: str = ""
    commit_logs: tuple[str, ...] = ()


def own_store() -> OwnStore | None:
    """Return the store that commands read if none is given: from the environment, else from the file, else nearby.

    If NAMESRV_ADDR is set, commands read live brokers, and only a store of the environment takes precedence.
    Raises: BadRequest.
    """
    if (named := environment_store()) is not None:
        return OwnStore(named, f"${STORE_VARIABLE}")
    if os.environ.get(NAME_SERVERS_VARIABLE):
        return None
    known = configuration()
    if known.store is not None:
        return OwnStore(known.store, str(known.file))
    found = None if known.namesrv else nearby_store()
    return None if found is None else OwnStore(found.place, None, found.where, found.commit_logs)


def own_name_servers() -> str | None:
    """Return the name servers to use if none are given: from the environment, else from the file.

    Raises: BadRequest.
    """
    return os.environ.get(NAME_SERVERS_VARIABLE) or configuration().namesrv


@dataclass(frozen=True, slots=True)
class _File:
    file: Path
    text: str

    def understood(self, words: dict[str, object]) -> Configuration:
        self._refuse_secrets(words)
        for key in words:
            if key not in KEYS:
                self._refuse(key, f"unknown key {key!r}", did_you_mean(key, KEYS))
        found = {key: self._text(words, key) for key in ("store", "namesrv", "format") if key in words}
        stores = {name: self._place(value) for name, value in self._table(words, "stores").items()}
        formats = self._table(words, "formats")
        for name, value in [*formats.items(), *([("format", found["format"])] if "format" in found else [])]:
            if value not in _FORMATS:
                self._refuse(name, f"{name} = {value!r} is not a format of rows", did_you_mean(value, _FORMATS))
        for name in formats:
            if name not in (known := [name for names in SECTIONS.values() for name in names]):
                self._refuse(name, f"unknown command {name!r}", did_you_mean(name, known))
        if "store" in found:
            found["store"] = stores.get(found["store"]) or self._place(found["store"])
        return Configuration(self.file, stores=stores, formats=formats, **found)

    def _refuse_secrets(self, words: dict[str, object]) -> None:
        for key, value in _pairs(words):
            if _SECRET.search(key) or (isinstance(value, str) and _LOGIN.search(value)):
                self._refuse(
                    key, f"{key} looks like a secret, and secrets are not allowed here",
                    "--credentials FILE, or RMQTX_ACCESS_KEY and RMQTX_SECRET_KEY in the environment",
                )

    def _text(self, words: Mapping[str, Any], key: str) -> str:
        value = words[key]
        if not isinstance(value, str) or not value.strip():
            self._refuse(key, f"{key} is {_type_of(value)}, expected a text", f'{key} = "..."')
        return value

    def _table(self, words: Mapping[str, Any], key: str) -> dict[str, str]:
        table = words.get(key, {})
        if not isinstance(table, dict):
            what = f"{key} is {_type_of(table)}, expected a table"
            self._refuse(key, what, f'[{key}], and NAME = "..." below it')
        return {name: self._text(table, name) for name in table}

    def _place(self, text: str) -> str:
        """Return a path with ~ expanded, and relative to the directory of this file."""
        if "://" in text:
            return text
        return os.path.normpath(self.file.absolute().parent / Path(text).expanduser())

    def _refuse(self, key: str, what: str, advice: str) -> NoReturn:
        name = re.escape(key)
        place = re.compile(rf"""^\s*(\[+\s*)?(.*\.\s*)?["']?{name}["']?\s*([=.\]])""")
        inline = re.compile(rf"""[{{,]\s*["']?{name}["']?\s*=""")
        lines = self.text.splitlines()
        number = next((at for at, line in enumerate(lines, 1) if place.match(line) or inline.search(line)), 1)
        raise BadRequest(f"{self.file}:{number}: {what}", advice=advice)


def _pairs(words: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in words.items():
        yield key, value
        if isinstance(value, Mapping):
            yield from _pairs(value)


def _type_of(value: object) -> str:
    if isinstance(value, str):
        return "a text" if value.strip() else "empty"
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return names.get(type(value), "a date")
