"""The proof file: one JSON object with each entry on a line of its own, so that it is written and read as a stream.

Its Merkle trees are those of RFC 6962: a leaf is hashed after a zero byte, a pair of nodes after a one.
Source: docs/proofs.md; RFC 6962, 2.1.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypedDict, cast

import pyarrow as pa

from rmqtx.readers.model.declared_json import ANYTHING, JsonForm, list_of, needed
from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.storage.places import unreadable

PROOF_VERSION = 1
#: The columns of TRANSACTIONS that a verdict of a proof has beside its witnesses.
VALUES = (
    "state", "flags", "reason_code", "producer_group", "topic", "keys", "half_store_time_ms", "decided_time_ms",
    "checks_count", "deliveries_count",
)
#: Longer lines are not of a proof: a verdict has some hundred bytes for each record.
_LINE_BYTES_MAX = 64 << 20
_INT, _TEXT = pa.int64(), pa.string()
_NULLABLE_TEXTS = ("reason_code", "producer_group", "topic", "keys")
_WITNESS = pa.struct([
    needed("kind", _TEXT), needed("store", _INT), needed("segment", _INT), needed("position_bytes", _INT),
    needed("length_bytes", _INT), needed("sha256", _TEXT), pa.field("half_queue_offset", _INT),
])
_BUCKET = pa.struct([
    needed("kind", _TEXT), needed("file", _TEXT), needed("bucket", _INT), pa.field("entries", _INT),
    pa.field("sha256", _TEXT),
])
_NOT_FOUND = pa.struct([
    needed("store", _INT), needed("kinds", list_of(_TEXT)), needed("from_offset", _INT),
    needed("buckets", list_of(_BUCKET)),
])
_SETTING = pa.struct([pa.field("value", ANYTHING), pa.field("origin", _TEXT)])
_STORE = pa.struct([
    needed("store", _TEXT), needed("taken_time_ms", _INT), needed("begin_offset", _INT), needed("end_offset", _INT),
    needed("settings", pa.map_(_TEXT, pa.field("value", _SETTING, nullable=False))),
    pa.field("half_cursors", pa.map_(_TEXT, pa.field("value", _INT, nullable=False))),
    pa.field("op_cursors", pa.map_(_TEXT, pa.field("value", _INT, nullable=False))),
    needed("missing", list_of(list_of(_INT))),
    needed("files", list_of(pa.struct([needed("file", _TEXT), needed("size_bytes", _INT), needed("sha256", _TEXT)]))),
    needed("index", list_of(pa.struct([needed("file", _TEXT), needed("slots_count", _INT)]))),
    needed("segments", list_of(pa.struct([
        needed("file", _TEXT), needed("base_offset", _INT), needed("size_bytes", _INT),
    ]))),
])
HEAD = JsonForm("proof", pa.struct([
    needed("proof_version", _INT), needed("made_by", _TEXT), needed("made_time_ms", _INT), needed("command", _TEXT),
    pa.field("at_ms", _INT), needed("stores", list_of(_STORE)),
]))
VERDICT = JsonForm("verdict of a proof", pa.struct([
    needed("transaction_id", _TEXT), pa.field("store", _INT), needed("state", _TEXT), needed("flags", list_of(_TEXT)),
    *(pa.field(name, _TEXT) for name in _NULLABLE_TEXTS), *(pa.field(name, _INT) for name in VALUES[6:]),
    needed("witnesses", list_of(_WITNESS)), needed("not_found", list_of(_NOT_FOUND)),
]))
LEAVES = JsonForm("segment of a proof", pa.struct([
    needed("store", _INT), needed("segment", _INT), needed("chunk_bytes", _INT), pa.field("chunks", list_of(_INT)),
    needed("leaves", list_of(_TEXT)),
]))
_END = JsonForm("end of a proof", pa.struct([needed("merkle_root", _TEXT), needed("verdicts_count", _INT)]))


class ShownSetting(TypedDict):
    """A setting of a broker, with its origin."""

    value: object
    origin: str | None


class DigestedFile(TypedDict):
    """A small file that verdicts depend on."""

    file: str
    size_bytes: int | None
    sha256: str


class IndexFacts(TypedDict):
    """An index file."""

    file: str
    slots_count: int


class SegmentFacts(TypedDict):
    """A segment of a commit log."""

    file: str
    base_offset: int
    size_bytes: int


class StoreFacts(TypedDict):
    """A store of a proof: _STORE."""

    store: str
    taken_time_ms: int
    begin_offset: int
    end_offset: int
    settings: dict[str, ShownSetting]
    half_cursors: dict[str, int] | None
    op_cursors: dict[str, int] | None
    missing: list[list[int]]
    files: list[DigestedFile]
    index: list[IndexFacts]
    segments: list[SegmentFacts]


class ProofHead(TypedDict):
    """The head of a proof: HEAD."""

    proof_version: int
    made_by: str
    made_time_ms: int
    command: str
    at_ms: int | None
    stores: list[StoreFacts]


class ProofWitness(TypedDict):
    """A witness of a verdict: _WITNESS."""

    kind: str
    store: int
    segment: int
    position_bytes: int
    length_bytes: int
    sha256: str
    half_queue_offset: int | None


class ProofVerdict(TypedDict):
    """What the comparison needs of a verdict by name; the other fields are those of VALUES."""

    transaction_id: str
    store: int | None
    state: str
    witnesses: list[ProofWitness]


class Bucket(TypedDict):
    """A bucket of an index file: _BUCKET."""

    kind: str
    file: str
    bucket: int
    entries: int | None
    sha256: str | None


class NotFound(TypedDict):
    """What was looked for in a store and not found: _NOT_FOUND."""

    store: int
    kinds: list[str]
    from_offset: int
    buckets: list[Bucket]


class SegmentLeaves(TypedDict):
    """The leaves of a segment: LEAVES."""

    store: int
    segment: int
    chunk_bytes: int
    chunks: list[int] | None
    leaves: list[str]


class ProofEnd(TypedDict):
    """The end of a proof: _END."""

    merkle_root: str
    verdicts_count: int


def as_line(value: Any) -> bytes:
    """Return a value as JSON on one line of ASCII."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


class ProofStream:
    """Writes the entries of a proof, and the digest of all bytes before its last line."""

    def __init__(self, stream: IO[bytes], head: ProofHead) -> None:
        self._stream, self._digest = stream, hashlib.sha256()
        self._is_first = True
        self._write(as_line(head)[:-1] + b',"verdicts":[')

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._stream.write(data)

    def entries(self, lines: list[bytes]) -> None:
        """Write entries of the list that stands open."""
        if lines:
            self._write((b"\n" if self._is_first else b",\n") + b",\n".join(lines))
            self._is_first = False

    def segments(self) -> None:
        """End the verdicts; entries of segments follow."""
        self._write(b'\n],"segments":[')
        self._is_first = True

    def end(self, merkle_root: str, verdicts_count: int) -> None:
        """End the proof."""
        self._write(b"\n],\n" + as_line({"merkle_root": merkle_root, "verdicts_count": verdicts_count})[1:-1] + b",\n")
        self._stream.write(b'"digest":"' + self._digest.hexdigest().encode() + b'"}\n')


class ProofReader:
    """The entries of a proof file, in the order of the file; each list can be read once.

    Shape: `head` without the lists; `end`, and whether the `digest` is that of the bytes, after all entries.
    Raises: BadText; UnreadableFile.
    """

    def __init__(self, stream: IO[bytes], file: str) -> None:
        self.file, self._stream, self._digest = file, stream, hashlib.sha256()
        self._number = 0
        first = self._line()
        if not first.endswith(b',"verdicts":[\n'):
            raise BadText(f"{file} is not a proof: its first line does not end in \"verdicts\":[", file=file)
        self.head: ProofHead = HEAD.read(first[: -len(b',"verdicts":[\n')] + b"}", file)
        if self.head["proof_version"] != PROOF_VERSION:
            raise BadText(
                f"{file}: a proof of version {self.head['proof_version']}, expected {PROOF_VERSION}", file=file
            )
        self.end = ProofEnd(merkle_root="", verdicts_count=0)
        self.has_own_digest = False

    def _line(self) -> bytes:
        line = self._stream.readline(_LINE_BYTES_MAX)
        self._number += 1
        if not line.endswith(b"\n"):
            raise BadText(f"{self.file} is not a proof: line {self._number} is cut off", file=self.file)
        if not line.startswith(b'"digest"'):
            self._digest.update(line)
        return line

    def verdict_lines(self) -> Iterator[bytes]:
        """Yield the verdicts as JSON texts."""
        yield from self._lines(b'],"segments":[\n')

    def segment_lines(self) -> Iterator[bytes]:
        """Yield the entries of segments as JSON texts; then `end` is known."""
        yield from self._lines(b"],\n")
        self.end = _END.read(b"{" + self._line().rstrip(b",\n") + b"}", self.file)
        self.has_own_digest = self._line() == b'"digest":"' + self._digest.hexdigest().encode() + b'"}\n'
        if self._stream.read(1):
            raise BadText(f"{self.file} is not a proof: bytes follow its end", file=self.file)

    def _lines(self, last: bytes) -> Iterator[bytes]:
        while (line := self._line()) != last:
            yield line.rstrip(b",\n")

    def verdict(self, line: bytes) -> ProofVerdict:
        """Return a verdict. Raises: BadText."""
        return cast("ProofVerdict", VERDICT.read(line, f"{self.file}, a verdict"))

    def leaves(self, line: bytes) -> SegmentLeaves:
        """Return the entry of a segment. Raises: BadText."""
        return cast("SegmentLeaves", LEAVES.read(line, f"{self.file}, a segment"))


@contextmanager
def opened_proof(file: Path) -> Iterator[ProofReader]:
    """Open a proof file, also a compressed one (.gz). Raises: UnreadableFile, BadText."""
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as stream:
            yield ProofReader(cast("IO[bytes]", stream), str(file))
    except FileNotFoundError as error:
        raise UnreadableFile(f"{file} does not exist", file=file) from error
    except (EOFError, gzip.BadGzipFile) as error:
        raise UnreadableFile(f"cannot read {file}: not a whole gzip file", file=file) from error
    except OSError as error:
        raise unreadable(file, error) from error


_LEAF, _NODE = b"\0", b"\1"


def leaf(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    digest = hashlib.sha256(_LEAF)
    digest.update(data)
    return digest.digest()


def root(leaves: Iterable[bytes]) -> bytes:
    """Return the root of a tree from the hashes of its leaves; that of no leaves is the hash of no bytes.

    Memory grows with the depth of the tree, not with its leaves.
    """
    #: Roots of whole subtrees from left to right, each with the number of its levels; numbers descend.
    left: list[tuple[int, bytes]] = []
    for one in leaves:
        level, node = 0, one
        while left and left[-1][0] == level:
            node = _joined(left.pop()[1], node)
            level += 1
        left.append((level, node))
    if not left:
        return hashlib.sha256().digest()
    _, node = left.pop()
    while left:
        node = _joined(left.pop()[1], node)
    return node


def _joined(one: bytes, other: bytes) -> bytes:
    return hashlib.sha256(_NODE + one + other).digest()
