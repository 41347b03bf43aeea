"""Where a path points: a local path, or a URI of a file system that pyarrow opens (`s3://bucket/store`).

A place is text, as rows carry it, so that it can be joined, compared and pickled. In a URI the path is taken as it
stands, as `aws s3` and Spark do: `%25` are three characters of a key's name. What opens a URI is in `remote_files.py`,
which is loaded when the first one is met.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from readers.model.errors import BadRequest
from readers.model.findings import as_text

_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<authority>[^/?]*)(?P<path>/.*?)?(?P<query>\?\w+=.*)?", re.DOTALL
)
#: A user's name may stand before the host (abfs://container@account…, hdfs://user@host), a number behind it: no more.
_AUTHORITY = re.compile(r"([\w.~-]+@)?[\w.-]*(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?")
_SECRET = re.compile(r"key|secret|token|passw|credential|sas|sig", re.IGNORECASE)


class Uri(NamedTuple):
    """The parts of a URI: `base` names the file system and the bucket or container, `path` what lies in it."""

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
    """Something in a directory, or what a link in it leads to.

    Shape: `modified_ns` tells versions of a remote file apart; None where not known.
    """

    name: str
    path: str
    is_directory: bool
    is_file: bool
    size_bytes: int = 0
    modified_ns: int | None = None
    is_link: bool = False


class FileSystem(Protocol):
    """A file system as a store is read from it; errors are OSErrors with `strerror`."""

    def entries(self, directory: str) -> list[DirectoryEntry]:
        """What a directory holds. Order: name. Raises: OSError."""

    def list_whole(self, directory: str) -> None:
        """All that lies below the directory will be asked for: where a listing is a request, make one for it all."""

    def entry(self, place: str) -> DirectoryEntry | None:
        """What stands at a place, links followed; None if nothing does. Raises: OSError."""

    def content(self, place: str, bytes_max: int) -> bytes | None:
        """A small file's bytes, at most one more than asked for; None if there is none.

        Raises: OSError; UnreadableFile if it is no file.
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
    """A path as an operator gives it, as the text of a place; `file://` URIs become local paths.

    Raises: BadRequest for a URI that is none or carries credentials; its text does not repeat them.
    """
    text = os.fspath(path)
    if not is_uri(text):
        return as_text(Path(text))
    if _URI.fullmatch(text) is None:
        scheme = text.partition("://")[0]
        raise BadRequest(f"a {scheme}:// argument is no URI", advice=f"{scheme}://BUCKET/PATH, or {scheme}://HOST/PATH")
    uri = uri_of(text)
    if uri.scheme.lower() == "file":
        if uri.authority not in ("", "localhost") or not uri.path:
            raise BadRequest("a file:// URI names no local file", advice="file:///PATH, or the path itself")
        return as_text(Path(_decoded(uri.path + uri.query)))
    _refuse_credentials(uri)
    path_text = re.sub(r"/{2,}", "/", uri.path).rstrip("/")
    return uri._replace(scheme=uri.scheme.lower()).at(path_text)


def _decoded(path: str) -> str:
    raw = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), os.fsencode(path))
    return os.fsdecode(raw)


def _refuse_credentials(uri: Uri) -> None:
    advice = "give credentials by the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or the cloud's own default"
    is_named = not _AUTHORITY.fullmatch(uri.authority)
    is_named |= uri.scheme.lower().startswith("s3") and bool(re.search(r"[@:]", uri.authority))
    if is_named:
        raise BadRequest(f"a path of {uri.scheme}:// names a user or a password before its host", advice=advice)
    for option in uri.query[1:].split("&"):
        if _SECRET.search(option.partition("=")[0]) or "@" in option:
            raise BadRequest(f"a path of {uri.scheme}:// carries {option.partition('=')[0]}", advice=advice)


def joined(place: str, *names: str) -> str:
    """The place of something below another one."""
    if not is_uri(place):
        return str(Path(place, *names))
    uri = uri_of(place)
    return uri.at("/".join([uri.path.rstrip("/"), *names]))


def parent_of(place: str) -> str:
    """The directory that something lies in."""
    if not is_uri(place):
        return str(Path(place).parent)
    uri = uri_of(place)
    return uri.at(uri.path.rpartition("/")[0])


def name_of(place: str) -> str:
    """The last part of a place's path."""
    return Path(uri_of(place).path if is_uri(place) else place).name


def identity_of(place: str) -> str:
    """The same text for the same place, however a local one is reached."""
    return place if is_uri(place) else os.path.realpath(place)


