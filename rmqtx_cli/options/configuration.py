"""The configuration file: stores by name, the name server, formats. Never a secret.

What a command line says wins over the environment, and that over this file. It is read where a command needs it, so
that a mistake in it keeps nobody from `rmqtx explain`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from readers.model.errors import BadRequest
from rmqtx_cli.words.command_names import SECTIONS
from rmqtx_cli.words.near import did_you_mean, near
from rmqtx_cli.words.text import escaped

#: Names the file; the places below are not looked at then.
CONFIG_VARIABLE = "RMQTX_CONFIG"
_HOME_VARIABLE = "XDG_CONFIG_HOME"
_BELOW = Path("rmqtx") / "config.toml"

#: Names the store that commands read where none is given; commands that act want it said each time.
STORE_VARIABLE = "RMQTX_STORE"
NAME_SERVERS_VARIABLE = "NAMESRV_ADDR"

#: How rows are written in this run where neither an option nor a suffix says it.
OWN_FORMAT: ContextVar[str | None] = ContextVar("own_format", default=None)

#: The keys, and what each means.
KEYS: dict[str, str] = {
    "store": "the store that commands read where none is named: a path, a URI or a name of [stores]; RMQTX_STORE wins",
    "namesrv": "name servers, HOST:PORT, several with ; between, for commands that name no store; NAMESRV_ADDR wins",
    "format": "how rows are written where neither --format nor the suffix of --output says it: table, json, jsonl, csv",
    "stores": "a table of names: NAME = \"PATH or URI\"; a name works wherever a store does; a path that exists wins",
    "formats": "a table by command: pending = \"json\"; it wins over format",
}
_FORMATS = ("table", "json", "jsonl", "csv")
_SECRET = re.compile(r"secret|passw|token|credential|private|access_?key|api_?key", re.I)
_LOGIN = re.compile(r"://[^/\s]*@")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the file says; `file` is None where there is none."""

    file: Path | None = None
    store: str | None = None
    namesrv: str | None = None
    format: str | None = None
    stores: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)

    def format_of(self, command: str) -> str | None:
        """How rows of a command are written by default; None where the file does not say."""
        return self.formats.get(command, self.format)

    def place_of(self, name: str) -> str:
        """The place of a store that is named; the same text where it is no name, or a path that exists.

        Raises: BadRequest for what is neither, where a name is near.
        """
        if os.path.lexists(name):
            return name
        if name not in self.stores and re.fullmatch(r"[\w.-]+", name) and (close := near(name, self.stores)):
            raise BadRequest(
                f"{escaped(name)} is no path, and no name of a store in {self.file}",
                advice=f"did you mean {' or '.join(close)}?",
            )
        return self.stores.get(name, name)


def config_file() -> Path | None:
    """The file that is read; None where there is none.

    Raises: BadRequest where RMQTX_CONFIG names none.
    """
    named = os.environ.get(CONFIG_VARIABLE, "").strip()
    if named:
        file = Path(named)
        if not file.exists():
            raise BadRequest(f"{CONFIG_VARIABLE} names {named}, which does not exist")
        return file
    home = os.environ.get(_HOME_VARIABLE, "").strip()
    file = (Path(home) if home else Path("~/.config").expanduser()) / _BELOW
    return file if file.is_file() else None


def configuration() -> Configuration:
    """What the configuration file says, read again each time.

    Raises: BadRequest with file and line, for a file that is no TOML, an unknown key, a value of another type, or
            anything that looks like a secret.
    """
    file = config_file()
    if file is None:
        return Configuration()
    import tomllib

    try:
        text = file.read_text("utf-8")
        words = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        what = re.sub(r"\s*\(at .*\)", "", str(error))
        raise BadRequest(f"{file}:{line[1] if line else len(text.splitlines())}: this is no TOML: {what}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is no UTF-8'}") from error
    return _File(file, text).understood(words)


def environment_store() -> str | None:
    """The store that RMQTX_STORE names."""
    return os.environ.get(STORE_VARIABLE, "").strip() or None


def own_store() -> str | None:
    """The store that commands read where none is named: by the environment, else by the file.

    Raises: BadRequest. One that NAMESRV_ADDR is set for means live brokers, whatever the file says.
    """
    named = environment_store()
    return named if named or os.environ.get(NAME_SERVERS_VARIABLE) else configuration().store


def own_name_servers() -> str | None:
    """The name servers that are asked where none is named: by the environment, else by the file.

    Raises: BadRequest.
    """
    return os.environ.get(NAME_SERVERS_VARIABLE) or configuration().namesrv


@dataclass(frozen=True, slots=True)
class _File:
    file: Path
    text: str

    def understood(self, words: dict[str, Any]) -> Configuration:
        self._refuse_secrets(words)
        for key in words:
            if key not in KEYS:
                self._refuse(key, f"no key {key!r}", did_you_mean(key, KEYS))
        found = {key: self._text(words, key) for key in ("store", "namesrv", "format") if key in words}
        stores = {name: self._place(value) for name, value in self._table(words, "stores").items()}
        formats = self._table(words, "formats")
        for name, value in [*formats.items(), *([("format", found["format"])] if "format" in found else [])]:
            if value not in _FORMATS:
                self._refuse(name, f"{name} = {value!r} is no format of rows", did_you_mean(value, _FORMATS))
        for name in formats:
            if name not in (known := [name for names in SECTIONS.values() for name in names]):
                self._refuse(name, f"no command {name!r}", did_you_mean(name, known))
        if "store" in found:
            found["store"] = stores.get(found["store"]) or self._place(found["store"])
        return Configuration(self.file, stores=stores, formats=formats, **found)

    def _refuse_secrets(self, words: dict[str, Any]) -> None:
        for key, value in _pairs(words):
            if _SECRET.search(key) or (isinstance(value, str) and _LOGIN.search(value)):
                self._refuse(
                    key, f"{key} looks like a secret, and this file holds none",
                    "--credentials FILE, or RMQTX_ACCESS_KEY and RMQTX_SECRET_KEY in the environment",
                )

    def _text(self, words: Mapping[str, Any], key: str) -> str:
        value = words[key]
        if not isinstance(value, str) or not value.strip():
            self._refuse(key, f"{key} is {_type_of(value)}, and a text is wanted", f'{key} = "..."')
        return value

    def _table(self, words: Mapping[str, Any], key: str) -> dict[str, str]:
        table = words.get(key, {})
        if not isinstance(table, dict):
            what = f"{key} is {_type_of(table)}, and a table is wanted"
            self._refuse(key, what, f'[{key}], and NAME = "..." below it')
        return {name: self._text(table, name) for name in table}

    def _place(self, text: str) -> str:
        """A path as it is meant: below the home directory, or beside this file."""
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
