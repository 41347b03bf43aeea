"""Places: local paths, or URIs of file systems that pyarrow opens (`s3://bucket/store`).

A place is text, as in rows, so that it can be joined, compared and pickled. The path in a URI is not decoded, as in
`aws s3` and Spark: `%25` is three characters of a key's name. The code that opens a URI is in `remote_files.py`,
which is loaded at the first URI. What the operating system refuses to read is never reported as missing.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from rmqtx.readers.model.errors import BadRequest, UnreadableFile
from rmqtx.readers.model.findings import as_text

_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<authority>[^/?]*)(?P<path>/.*?)?(?P<query>\?\w+=.*)?", re.DOTALL
)
#: A user's name may precede the host (abfs://container@account…, hdfs://user@host), and a port follow it; no password.
_AUTHORITY = re.compile(r"([\w.~-]+@)?[\w.-]*(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?")
_JOINED_KEPT = 4_096
_SECRET = re.compile(r"key|secret|token|passw|credential|sas|sig", re.IGNORECASE)
READ_ADVICE = "run as the broker's user"
_UNLOOP_ADVICE = "the link leads back to itself: remove it, or put back what it should lead to"
_READ_AND_SEARCH = os.R_OK | os.X_OK


class Uri(NamedTuple):
    """The parts of a URI: `base` names the file system and the bucket or container, `path` the place in it."""

    scheme: str
    authority: str
    path: str
    query: str

    @property
    def base(self) -> str:
        """The URI without its path."""
        return f"{self.scheme}://{self.authority}{'/' if self.query else ''}{self.query}"

    def at(self, path: str) -> str:
        """The URI of another path in the same file system."""
        return f"{self.scheme}://{self.authority}{path}{self.query}"


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """An entry of a directory; for a link, the target of the link.

    Shape: `modified_ns` distinguishes versions of a remote file; None if unknown.
    """

    name: str
    path: str
    is_directory: bool
    is_file: bool
    size_bytes: int = 0
    modified_ns: int | None = None
    is_link: bool = False


class FileSystem(Protocol):
    """A file system that a store is read from; errors are OSErrors with `strerror`."""

    def entries(self, directory: str) -> list[DirectoryEntry]:
        """Return the entries of a directory. Order: name. Raises: OSError."""

    def list_whole(self, directory: str) -> None:
        """Announce that all below the directory will be listed; a remote file system makes one request for it."""

    def entry(self, place: str) -> DirectoryEntry | None:
        """Return the entry at a place, with links followed; None if there is none. Raises: OSError."""

    def content(self, place: str, bytes_max: int) -> bytes | None:
        """Return the bytes of a small file, at most `bytes_max` + 1; None if the file does not exist.

        Raises: OSError; UnreadableFile if the place is not a file.
        """


def is_uri(place: str) -> bool:
    """Whether a place is a URI and not a local path."""
    return "://" in place and _URI.match(place) is not None


def uri_of(place: str) -> Uri:
    """The parts of a place that is a URI."""
    match = _URI.fullmatch(place)
    assert match is not None, "not a URI"
    return Uri(match["scheme"], match["authority"], match["path"] or "", match["query"] or "")


def normalised(path: str | os.PathLike[str]) -> str:
    """Return the place of a path that an operator gives; `file://` URIs become local paths.

    Raises: BadRequest for a malformed URI or one with credentials, which the error does not repeat; UnreadableFile.
    """
    text = os.fspath(path)
    if not is_uri(text):
        return _as_utf8(Path(text))
    if _URI.fullmatch(text) is None:
        scheme = text.partition("://")[0]
        raise BadRequest(
            f"a {scheme}:// argument is not a valid URI",
            advice=f"write {scheme}://BUCKET/PATH or {scheme}://HOST/PATH",
        )
    uri = uri_of(text)
    if uri.scheme.lower() == "file":
        if uri.authority not in ("", "localhost") or not uri.path:
            raise BadRequest("a file:// URI is not a local path", advice="write file:///PATH, or give the path")
        return _as_utf8(Path(_decoded(uri.path + uri.query)))
    _refuse_credentials(uri)
    path_text = re.sub(r"/{2,}", "/", uri.path).rstrip("/")
    return uri._replace(scheme=uri.scheme.lower()).at(path_text)


def _as_utf8(path: Path) -> str:
    """Return a local path as text: rows contain it, and they are UTF-8. Raises: UnreadableFile for other bytes."""
    text = as_text(path)
    if text != str(path):
        raise UnreadableFile(
            f"cannot read {text}: its name is not UTF-8",
            advice=f"read it through a link: ln -s $'{as_text(path.absolute())}' /tmp/store, then give /tmp/store",
        )
    return text


def _decoded(path: str) -> str:
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), os.fsencode(path))
    return os.fsdecode(raw)


def _refuse_credentials(uri: Uri) -> None:
    advice = (
        "remove it, and set credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) "
        "or use the cloud's default"
    )
    is_named = not _AUTHORITY.fullmatch(uri.authority)
    is_named |= uri.scheme.lower().startswith("s3") and bool(re.search(r"[@:]", uri.authority))
    if is_named:
        raise BadRequest(f"a {uri.scheme}:// argument contains a user or a password before its host", advice=advice)
    for option in uri.query[1:].split("&"):
        if _SECRET.search(option.partition("=")[0]) or "@" in option:
            raise BadRequest(
                f"a {uri.scheme}:// argument contains the option {option.partition('=')[0]}", advice=advice
            )


@functools.lru_cache(maxsize=_JOINED_KEPT)  # the same files of a store are asked for again and again
def joined(place: str, *names: str) -> str:
    """Return the place with names appended to its path."""
    if not is_uri(place):
        return str(Path(place, *names))
    uri = uri_of(place)
    return uri.at("/".join([uri.path.rstrip("/"), *names]))


def parent_of(place: str) -> str:
    """Return the directory of a place."""
    if not is_uri(place):
        return str(Path(place).parent)
    uri = uri_of(place)
    return uri.at(uri.path.rpartition("/")[0])


def name_of(place: str) -> str:
    """Return the last part of a place's path."""
    return Path(uri_of(place).path if is_uri(place) else place).name


def identity_of(place: str) -> str:
    """Return a text that is equal for equal places; links in a local path are resolved."""
    return place if is_uri(place) else os.path.realpath(place)


def unreadable(place: str | os.PathLike[str], error: OSError, verb: str = "read") -> UnreadableFile:
    """Return the error for a file or directory that could not be read."""
    name = as_text(place)
    if isinstance(error, PermissionError):
        return _denied(name)
    advice = _UNLOOP_ADVICE if error.errno == errno.ELOOP else None
    return UnreadableFile(f"cannot {verb} {name}: {error.strerror}", file=name, advice=advice)


def not_a_file(place: str | os.PathLike[str]) -> UnreadableFile:
    """Return the error for a directory, a pipe or a link to itself in place of a file."""
    name = as_text(place)
    return UnreadableFile(f"{name} is not a file", file=name)


@contextmanager
def naming_unreadable(file: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError of the block into the error that names the file. Raises: UnreadableFile."""
    try:
        yield
    except OSError as error:
        raise unreadable(error.filename or file, error) from error


def _denied(name: str) -> UnreadableFile:
    advice = None if is_uri(name) else READ_ADVICE
    return UnreadableFile(f"cannot read {name}: permission denied", file=name, advice=advice)


def require_readable(place: str, depth: int = 0, leaves_out: Collection[str] = ()) -> None:
    """Require that this user may read a local file, or a directory and what is below it, down to `depth` levels.

    `leaves_out`: names directly in the directory that are not tested.
    A place that does not exist is skipped. Links are followed, and a special file is not tested.
    Raises: UnreadableFile.
    """
    try:
        mode = os.stat(place).st_mode  # noqa: PTH116  # a command asks for dozens of files
    except PermissionError as error:
        raise _denied(as_text(place)) from error
    except (OSError, ValueError):  # ValueError: a name with a zero byte
        return
    is_directory = stat.S_ISDIR(mode)
    if not is_directory and not stat.S_ISREG(mode):
        return
    if not os.access(place, _READ_AND_SEARCH if is_directory else os.R_OK, effective_ids=True):
        raise _denied(as_text(place))
    if is_directory and depth:
        for name in _listed(place):
            if name not in leaves_out:
                require_readable(f"{place}/{name}", depth - 1)


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  # as above
    except OSError:  # a running broker deletes expired queues
        return []
