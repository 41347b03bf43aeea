"""Access key and secret key, from the environment or from a file like mqadmin's tools.yml.

Never from an argument, which every user of the machine can read. No message repeats the content of a file or variable.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqtx.readers.model.errors import BadRequest, BadText, UnreadableFile
from rmqtx.remoting.protocol.connection_settings import Credentials

ACCESS_KEY, SECRET_KEY, SECURITY_TOKEN = "RMQTX_ACCESS_KEY", "RMQTX_SECRET_KEY", "RMQTX_SECURITY_TOKEN"

_WANTED = ("accessKey", "secretKey", "securityToken")
_ADVICE = "write flat lines NAME: VALUE, with the value plain or in quotes"
_FILE_BYTES_MAX = 1 << 16


def from_environment(environment: Mapping[str, str]) -> Credentials | None:
    """Return the credentials in the environment; None if there are none.

    Raises: BadRequest if only one of the two keys is set.
    """
    access_key, secret_key = environment.get(ACCESS_KEY), environment.get(SECRET_KEY)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        given, lacking = (ACCESS_KEY, SECRET_KEY) if access_key else (SECRET_KEY, ACCESS_KEY)
        raise BadRequest(f"{given} is set and {lacking} is not", advice="set both, or neither")
    return Credentials(access_key, secret_key, environment.get(SECURITY_TOKEN) or None)


def from_file(path: Path) -> Credentials:
    """Return the credentials in a file: lines `accessKey: ...` and `secretKey: ...`, as in mqadmin's tools.yml.

    Raises: UnreadableFile, BadText (only a YAML mapping of names to values of one line is accepted).
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
        raise BadText("the credentials are not UTF-8 text", file=path) from None
    found = _values(text, path)
    lacking = [name for name in _WANTED[:2] if not found.get(name)]
    if lacking:
        raise BadText(
            f"the credentials lack {' and '.join(lacking)}", file=path, advice="write lines of the form accessKey: NAME"
        )
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken") or None)


def is_readable_by_others(path: Path) -> bool:
    """Whether users other than the owner may read a file, by its permissions."""
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def _values(text: str, path: Path) -> dict[str, str]:
    """Name → value; unknown names are skipped."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:  # its own text contains a part of the file
        raise _not_understood(error.context_mark or error.problem_mark, path) from None
    except (yaml.YAMLError, RecursionError):
        raise BadText("the credentials are not valid YAML", file=path, advice=_ADVICE) from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise _not_understood(root.start_mark, path)
    found: dict[str, str] = {}
    for name, value in root.value:
        if not isinstance(name, yaml.ScalarNode):
            raise _not_understood(name.start_mark, path)
        if name.value in found:
            raise BadText(f"line {_line(name.start_mark)} of the credentials repeats {name.value}", file=path)
        if not isinstance(value, yaml.ScalarNode) or "\n" in value.value:
            raise _not_understood(value.start_mark, path)
        if name.value in _WANTED:
            found[name.value] = value.value
    return found


def _line(mark: Any) -> int:
    return int(mark.line) + 1


def _not_understood(mark: Any, path: Path) -> BadText:
    return BadText(f"cannot parse line {_line(mark)} of the credentials", file=path, advice=_ADVICE)
