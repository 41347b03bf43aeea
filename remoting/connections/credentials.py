"""Who asks: access key and secret key, from the environment or from a file like mqadmin's tools.yml.

Never from an argument, which every user of the machine can read. No message here repeats what a file or variable holds.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from readers.model.errors import BadRequest, BadText, UnreadableFile
from remoting.protocol.settings import Credentials

ACCESS_KEY, SECRET_KEY, SECURITY_TOKEN = "RMQTX_ACCESS_KEY", "RMQTX_SECRET_KEY", "RMQTX_SECURITY_TOKEN"

_WANTED = ("accessKey", "secretKey", "securityToken")
_LINE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\s*:(?:\s+(.*))?")
_FILE_BYTES_MAX = 1 << 16


def from_environment(environment: Mapping[str, str]) -> Credentials | None:
    """The credentials that the environment holds; None where it holds none.

    Raises: BadRequest if one of the two keys is there without the other.
    """
    access_key, secret_key = environment.get(ACCESS_KEY), environment.get(SECRET_KEY)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        given, lacking = (ACCESS_KEY, SECRET_KEY) if access_key else (SECRET_KEY, ACCESS_KEY)
        raise BadRequest(f"{given} is set and {lacking} is not", advice="set both, or neither")
    return Credentials(access_key, secret_key, environment.get(SECURITY_TOKEN) or None)


def from_file(path: Path) -> Credentials:
    """The credentials in a file: lines `accessKey: ...` and `secretKey: ...`, as mqadmin's tools.yml has them.

    Raises: UnreadableFile, BadText (the flat form of YAML is understood, nothing else of it).
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UnreadableFile(f"cannot read the credentials: {error.strerror or error}", file=path) from error
    if len(data) > _FILE_BYTES_MAX:
        raise BadText("the file is too large for credentials", file=path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadText("the credentials are no UTF-8 text", file=path) from None
    found = _values(text, path)
    lacking = [name for name in _WANTED[:2] if not found.get(name)]
    if lacking:
        raise BadText(
            f"the credentials lack {' and '.join(lacking)}", file=path, advice="write lines like accessKey: NAME"
        )
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken") or None)


def is_readable_by_others(path: Path) -> bool:
    """Whether users beside the owner may read a file, by its permissions."""
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def _values(text: str, path: Path) -> dict[str, str]:
    """Name → value of each line; other names than those wanted are left out."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.rstrip() in ("---", "..."):
            continue
        match = _LINE.fullmatch(line.rstrip())
        value = None if match is None else _scalar(match[2] or "")
        if match is None or value is None:
            raise BadText(
                f"line {number} of the credentials is not understood", file=path,
                advice="only flat lines NAME: VALUE are, the value plain or in quotes",
            )
        if match[1] in found:
            raise BadText(f"line {number} of the credentials says {match[1]} again", file=path)
        if match[1] in _WANTED:
            found[match[1]] = value
    return found


def _scalar(text: str) -> str | None:
    """A value of one line, plain or in quotes; None for anything that YAML would read as something else."""
    text = text.strip()
    if text[:1] in ("'", '"'):
        quote = text[0]
        match = re.fullmatch(rf"{quote}((?:[^{quote}\\]|(?:''))*){quote}(?:\s+#.*)?", text)
        if match is None:  # an escape, or no end
            return None
        return match[1].replace("''", "'") if quote == "'" else match[1]
    text = re.sub(r"(?:^|\s+)#.*", "", text)
    if text[:1] in tuple("[]{}&*!|>%@`,") or re.match(r"[-?:](\s|$)", text) or ": " in text:
        return None
    return text
