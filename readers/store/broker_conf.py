"""Read a broker's configuration from a broker.conf or from the output of `mqadmin getBrokerConfig`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.store.broker_keys import KEYS

_CONF_BYTES_MAX = 4 << 20
#: Another file has more keys that no broker has, and none that one has.
_UNKNOWN_KEYS_MAX = 2
_LOWER_KEYS = frozenset(key.lower() for key in KEYS)
_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_broker_conf(path: str | Path) -> dict[str, str]:
    """Return the keys and values of a broker.conf, or of the output of `mqadmin getBrokerConfig`.

    Raises: UnreadableFile, BadText.
    Source: java.util.Properties.load.
    """
    file = as_text(Path(path))
    try:
        if not Path(path).is_file():
            raise UnreadableFile(f"{file} is not a file", file=file, advice="give the path of the broker's broker.conf")
        with open(path, "rb") as opened:
            data = opened.read(_CONF_BYTES_MAX + 1)
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=file) from error
    if len(data) > _CONF_BYTES_MAX or b"\0" in data:
        position = data.find(b"\0") if b"\0" in data else _CONF_BYTES_MAX
        raise BadText(f"{file} is not a broker configuration", file=file, position_bytes=position)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    pairs = (_pair(line) for line in _logical_lines(text))
    found = {key: value for key, value in pairs if key}  # mqadmin's lines of ==== have no key
    if len(found) > _UNKNOWN_KEYS_MAX and _LOWER_KEYS.isdisjoint(key.lower() for key in found):
        raise BadText(
            f"{file} is not a broker configuration: brokers have none of its {len(found)} settings", file=file,
            advice="give the path of the broker's broker.conf",
        )
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments; a line that ends in a backslash is joined with the next."""
    pending = ""
    for part in re.split(r"\r\n|\n|\r", text):
        line = part.lstrip(_SPACE)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _pair(line: str) -> tuple[str, str]:
    match = re.match(r"((?:[^\\ \t\f=:]|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+", line, re.DOTALL)
    assert match is not None  # every part of the pattern can be empty
    return _unescaped(match[1]), _unescaped(line[match.end() :])


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", plain, text, flags=re.DOTALL)
