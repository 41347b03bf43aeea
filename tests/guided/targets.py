"""What is fuzzed: each target decodes some bytes, and fails if a promise of the decoder does not hold.

A decoder may refuse bytes with an error of rmqtx; any other exception is a failure, and so is an answer that differs
from that of a second way.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from rmqtx.readers.broker_logs.log_lines import reading_of
from rmqtx.readers.log.kernels import use_accelerator
from rmqtx.readers.log.op_messages import parse_op_bodies
from rmqtx.readers.log.properties import KNOWN, PropertyAreas, PropertyViews
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.rocksdb.rocksdb_transactions import TRANSACTION_KEY, TRANSACTION_VALUE, entry_of
from rmqtx.readers.store.fastjson import parse
from rmqtx.readers.store.store import open_store
from rmqtx.readers.traces import FIELD_END, LINE_END, trace_lines
from rmqtx.remoting.connections.credentials import from_file
from rmqtx.remoting.protocol.frames import FrameReader, decoded, encoded, parsed_json
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.repairs.changes.undo_frames import edit_of, head_of, print_of
from rmqtx.repairs.receipts.plan_file import parse_plan
from tests.fuzz.both_paths import same_by_both_paths

_FILE = Path("input")
_REFUSED = (RmqtxError,)


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="rmqtx-guided-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))


def record(data: bytes) -> None:
    """Records of a log file: the reference path and the accelerator return the same rows, witnesses and findings."""
    log = _folder() / "store" / "commitlog"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{0:020d}").write_bytes(data + bytes(max(0, 1024 - len(data))))
    same_by_both_paths(open_store(log.parent))


def wire_records(data: bytes) -> None:
    """Records from a broker: each byte is of a record, a finding or a repeated record; singly they are the same."""
    findings: list[Finding] = []
    blocks = list(blocks_of([data], "broker", findings))
    counted = sum(int(block.lengths.sum()) for block in blocks) + sum(one.length_bytes or 0 for one in findings)
    is_repeated = any(data.count(one) > 1 for block in blocks for one in _records(block))
    assert counted == len(data) or (is_repeated and counted < len(data)), f"{counted} of {len(data)} bytes"
    again = [row for block in blocks for part in blocks_of([_bytes_of(block)], "broker", []) for row in _rows(part)]
    assert sorted(again) == sorted(row for block in blocks for row in _rows(block))


def _records(block: Block) -> list[bytes]:
    parts = zip(block.starts.tolist(), block.lengths.tolist(), strict=True)
    return [bytes(block.data[start : start + length]) for start, length in parts]


def _bytes_of(block: Block) -> bytes:
    return b"".join(_records(block))


def _rows(block: Block) -> list[str]:
    texts = [block.properties.text(name).to_pylist() for name in sorted(KNOWN)]
    return [str(row) for row in zip(block.commit_log_offsets.tolist(), block.lengths.tolist(), *texts, strict=True)]


def properties(data: bytes) -> None:
    """Areas of properties, separated by zero bytes: copied, in place, and split by Python they are the same."""
    areas = data.split(b"\0")
    lengths = np.array([len(area) for area in areas], np.int64)
    starts = np.cumsum(lengths + 1) - (lengths + 1)
    buffer = pa.py_buffer(data + bytes(64))
    words = np.frombuffer(buffer, np.uint8)
    copied = PropertyAreas(words, buffer, starts, lengths)
    plain = [dict(_pieces(area)) for area in areas]
    for name in sorted(KNOWN):
        expected = [found.get(name.encode()) or None for found in plain]
        assert copied.value(name).to_pylist() == expected, name
    copied.maps(), copied.malformed()
    if use_accelerator(True):
        try:
            in_place = PropertyViews(words, buffer, starts, lengths)
            for name in sorted(KNOWN):
                assert in_place.value(name).to_pylist() == copied.value(name).to_pylist(), name
                assert in_place.text(name).to_pylist() == copied.text(name).to_pylist(), name
            assert in_place.malformed().tolist() == copied.malformed().tolist()
        finally:
            use_accelerator(False)


def _pieces(area: bytes) -> list[tuple[bytes, bytes]]:
    parts = (piece.split(b"\1", 1) for piece in area.split(b"\2"))
    return [(part[0], part[1]) for part in parts if len(part) == 2 and part[1]]


def op_bodies(data: bytes) -> None:
    """Bodies of op messages, separated by line ends: as Python's own split and int read them."""
    bodies = data.split(b"\n")
    numbers, forms = parse_op_bodies(pa.array(bodies, pa.binary()), np.ones(len(bodies), np.bool_))
    assert list(zip(numbers.to_pylist(), forms.to_pylist(), strict=True)) == [_plain_body(body) for body in bodies]


def _plain_body(body: bytes) -> tuple[list[int] | None, str]:
    parts = [part for part in body.split(b",") if part]
    if not body or not re.fullmatch(rb"[0-9,]+", body) or any(len(part) > 18 for part in parts):
        return None, "unreadable"
    return [int(part) for part in parts], "list" if b"," in body else "single"


def fastjson(data: bytes) -> None:
    """Configuration in fastjson's dialect: strict JSON means the same; names without quotation marks are text."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        strict = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        strict = None
    with contextlib.suppress(*_REFUSED):
        found = parse(text)
        assert strict is None or str(found) == str(strict)
        return
    assert strict is None, "strict JSON is refused"


def frames(data: bytes) -> None:
    """Frames: received byte by byte they are those received at once, and one written again is read as the same."""
    def received(parts: list[bytes]) -> tuple[list[object], str]:
        reader = FrameReader()
        found: list[object] = []
        try:
            for part in parts:
                found += reader.feed(part)
        except RmqtxError as error:
            return found, str(error)
        return found, ""

    at_once = received([data])
    assert str(at_once) == str(received([data[place : place + 1] for place in range(len(data))]))
    with contextlib.suppress(*_REFUSED):
        frame = decoded(data)
        again = encoded(frame)
        assert decoded(again) == frame
    with contextlib.suppress(*_REFUSED):
        parsed_json(data)


def credentials(data: bytes) -> None:
    """Files of credentials: an error shows nothing of the file but names."""
    path = _folder() / "credentials.yml"
    path.write_bytes(data)
    shown = ""
    try:
        from_file(path)
    except RmqtxError as error:
        shown = str(error).replace(str(path), "")
    assert not [word for word in re.findall(r"[0-9]{6,}", shown) if word.encode() in data], "an error shows a secret"


def undo(data: bytes) -> None:
    """Parts of undo files: a head, an edit, a list of files."""
    for read in (head_of, edit_of):
        with contextlib.suppress(*_REFUSED):
            read(data, _FILE)
    with contextlib.suppress(*_REFUSED):
        print_of(zlib.compress(data), _FILE)
    with contextlib.suppress(zlib.error, *_REFUSED):
        print_of(data, _FILE)


def plan(data: bytes) -> None:
    """Plan files: one that is accepted is written as a text that means the same."""
    with contextlib.suppress(*_REFUSED):
        found = parse_plan(data, "plan")
        again = parse_plan(found.text(), "plan")
        assert again == found
        found.table()


def broker_log(data: bytes) -> None:
    """Logs of a broker: the lines of a compressed file are those of a plain one."""
    plain, packed = _folder() / "plain", _folder() / "packed"
    for folder, name, content in ((plain, "", data), (packed, ".gz", gzip.compress(data, 1))):
        folder.mkdir(exist_ok=True)
        for log in ("transaction", "broker"):
            (folder / f"{log}.log{name}").write_bytes(content)
    lines = [[line._replace(file="") for line in reading_of(folder).lines()] for folder in (plain, packed)]
    assert lines[0] == lines[1]


def rocksdb(data: bytes) -> None:
    """A key and a value of transactions in RocksDB."""
    if len(data) >= TRANSACTION_KEY.size_bytes + TRANSACTION_VALUE.size_bytes:
        value, key = data[: TRANSACTION_VALUE.size_bytes], data[TRANSACTION_VALUE.size_bytes :]
        found = entry_of(key, value)
        assert str(found["key"]).startswith(str(found["half_commit_log_offset"]))


def trace(data: bytes) -> None:
    """Trace records: each line is read, of another kind, or reported; a line alone is read as in its record."""
    text = data.decode("utf-8", "replace")
    lines, unreadable = trace_lines(text)
    numbers = [line.number for line in lines]
    assert not set(numbers) & set(unreadable)
    assert numbers == sorted(set(numbers))
    parts = text.split(LINE_END)
    for line in lines[:3]:
        assert FIELD_END in parts[line.number]
        assert trace_lines(parts[line.number])[0] == [replace(line, number=0)]


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        record, wire_records, properties, op_bodies, fastjson, frames, credentials, undo, plan, broker_log, rocksdb,
        trace,
    )
}
"""The targets by name."""
