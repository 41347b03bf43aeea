"""A search for records in the whole log: each split is searched alone, without a join.

The records of a block are selected by cheap tests first, without a loop over records that cannot match. A literal is
searched in the whole window at once; only the records that contain it in any part are decoded and tested exactly.
Compressed bodies are decompressed one by one.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.jobs.job_runner import SplitResult
from rmqtx.readers.log import compression
from rmqtx.readers.log.commit_log import record_columns, span_findings
from rmqtx.readers.log.properties import KEYS, REAL_TOPIC, TRANSACTION_ID, UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMPRESSED
from rmqtx.readers.log.splits import Split
from rmqtx.readers.model.columns import Bools, Int64s, nulls
from rmqtx.readers.model.errors import BadRequest, SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import ids_of, offset_of
from rmqtx.readers.model.tables import RECORDS
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, WAITING_TOPICS, Store

_GLOB = re.compile(r"[*?\[]")
#: Topics in which messages wait before they go to another topic.
_ON_THEIR_WAY = (HALF_TOPIC, DISCARD_TOPIC, *WAITING_TOPICS)
_BATCH_RECORDS_MAX = 65_536


@dataclass(frozen=True)
class SearchConditions:
    """The conditions of a search; a record must match all that are given.

    Shape: `key`: a word of KEYS. `identity`: UNIQ_KEY, __transactionId__ or offset message id. `topic`: the record's
           topic, or its real topic while it waits in the half, discard, delay or timer topic. `properties`:
           (name, value), the value with `*`, `?` and `[…]` as in file names. `body`: bytes that the body contains;
           `body_regex`: an expression of Python's `re` for bytes, which may run without limit if written carelessly.
    Units: times in milliseconds of the store time, the upper one excluded.
    Raises: BadRequest for an invalid expression.
    """

    key: str | None = None
    identity: str | None = None
    topic: str | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    properties: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    body_regex: bytes | None = None

    def __post_init__(self) -> None:
        try:
            _ = self._expression
        except re.error as error:
            text = (self.body_regex or b"").decode("utf-8", "backslashreplace")
            raise BadRequest(f"{text!r} is not a regular expression: {error}") from error

    @cached_property
    def _expression(self) -> re.Pattern[bytes] | None:
        return None if self.body_regex is None else re.compile(self.body_regex)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the compiled expression, which is compiled again in the other process."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    @property
    def is_empty(self) -> bool:
        """Whether every record matches."""
        return self == SearchConditions()

    @property
    def looks_at_bodies(self) -> bool:
        """Whether bodies are searched."""
        return self.body is not None or self.body_regex is not None

    def narrowed(self, block: Block) -> Block:
        """Return the records that match all conditions except those on bodies."""
        block = block.within(self.from_time_ms, self.to_time_ms)
        for test in self._tests():
            if not len(block):
                break
            block = block.take(test(block))
        return block

    def _tests(self) -> Iterator[Callable[[Block], Bools]]:
        if self.topic is not None:
            yield self._is_of_topic
        if self.identity is not None:
            yield self._has_identity
        if self.key is not None:
            yield self._has_key
        for name, value in self.properties:
            yield functools.partial(_has_property, name=name, value=value)

    def _is_of_topic(self, block: Block) -> Bools:
        assert self.topic is not None
        found = block.topic_is(self.topic)
        waiting = np.zeros(len(block), np.bool_)
        for topic in _ON_THEIR_WAY:
            waiting |= block.topic_is(topic)
        rows = np.flatnonzero(waiting & ~found)
        if len(rows):
            found[rows] = _is(block.take(rows).properties.value(REAL_TOPIC), self.topic)
        return found

    def _has_identity(self, block: Block) -> Bools:
        identity = self.identity
        assert identity is not None
        found = np.zeros(len(block), np.bool_)
        if (offset := offset_of(identity)) is not None:
            at = np.flatnonzero(block.commit_log_offsets == offset)
            found[at] = np.asarray(pc.equal(block.take(at).message_ids(), identity.upper()).cast(pa.uint8()), np.bool_)
        for word in ids_of(identity):
            rows = rows_with(block, word.encode("utf-8", "surrogateescape"))
            for name in (UNIQ_KEY, TRANSACTION_ID) if len(rows) else ():
                found[rows] |= _is(block.take(rows).properties.value(name), word)
        return found

    def _has_key(self, block: Block) -> Bools:
        assert self.key is not None
        key = self.key.encode("utf-8", "surrogateescape")
        found = np.zeros(len(block), np.bool_)
        rows = rows_with(block, key)
        if len(rows):
            values = block.take(rows).properties.value(KEYS).cast(pa.binary()).to_pylist()
            found[rows] = [value is not None and (value == key or key in value.split(b" ")) for value in values]
        return found

    # -- bodies --------------------------------------------------------------------------------------------------------

    def with_body(self, block: Block) -> tuple[Bools, Int64s]:
        """Return which bodies match, and the rows whose body cannot be decompressed."""
        found = np.ones(len(block), np.bool_)
        compressed = (block.sys_flag & COMPRESSED) != 0
        plain = np.flatnonzero(~compressed)
        if self.body is not None and len(plain):
            found[plain] = _bodies_hold(block.take(plain), self.body)
        if self._expression is not None:
            for row in plain[found[plain]].tolist():
                start = int(block.body_starts[row])
                # A slice, not a range of the window: then ^, $ and \b match at the body's ends.
                body = block.raw[start : start + int(block.body_lengths[row])]
                found[row] = self._expression.search(body) is not None
        unreadable = []
        for row in np.flatnonzero(compressed).tolist():
            start = int(block.body_starts[row])
            stored = block.raw[start : start + int(block.body_lengths[row])]
            inflated = compression.inflate(stored, int(block.sys_flag[row]))
            if inflated is None:
                unreadable.append(row)
            found[row] = inflated is not None and self._is_body(inflated)
        return found, np.array(unreadable, np.int64)

    def _is_body(self, body: bytes) -> bool:
        if self.body is not None and self.body not in body:
            return False
        return self._expression is None or self._expression.search(body) is not None


def _is(values: pa.Array, text: str) -> Bools:
    wanted = pa.scalar(text.encode("utf-8", "surrogateescape"), pa.binary())
    return np.asarray(pc.fill_null(pc.equal(values.cast(pa.binary()), wanted), False).cast(pa.uint8()), np.bool_)


def _has_property(block: Block, name: str, value: str) -> Bools:
    """Return which records have a property with this value, or a value that matches the pattern."""
    found = np.zeros(len(block), np.bool_)
    glob = _GLOB.search(value)
    literal = value if glob is None else value[: glob.start()]
    rows = rows_with(block, name.encode() + b"\x01" + literal.encode("utf-8", "surrogateescape"))
    if not len(rows):
        return found
    values = block.take(rows).properties.value(name)
    if glob is None:
        found[rows] = _is(values, value)
        return found
    matches = re.compile(fnmatch.translate(value)).match
    texts = [None if v is None else v.decode("utf-8", "backslashreplace") for v in values.cast(pa.binary()).to_pylist()]
    found[rows] = [text is not None and matches(text) is not None for text in texts]
    return found


def rows_with(block: Block, literal: bytes) -> Int64s:
    """Return the rows of records that contain some bytes anywhere, with one search over the window."""
    rows: list[int] = []
    if not len(block) or not literal:
        return np.arange(len(block))
    starts, ends = block.starts, block.starts + block.lengths
    place = block.raw.find(literal, int(starts[0]))
    while place >= 0:
        row = int(np.searchsorted(starts, place, "right")) - 1
        if place + len(literal) <= ends[row]:
            rows.append(row)
        if row + 1 == len(starts):
            break
        place = block.raw.find(literal, int(starts[row + 1]))  # one hit in a record is enough
    return np.array(rows, np.int64)


def _bodies_hold(block: Block, literal: bytes) -> Bools:
    """Return which bodies, as stored, contain some bytes."""
    found = np.zeros(len(block), np.bool_)
    if not literal:
        return ~found
    find, size = block.raw.find, len(literal)
    starts = block.body_starts
    begins, ends = starts.tolist(), (starts + block.body_lengths).tolist()
    row, place, count = 0, -1, len(begins)
    while row < count:
        if place < begins[row]:
            place = find(literal, begins[row])
            if place < 0:
                break
        if place + size <= ends[row]:
            found[row] = True
            row += 1
        else:  # after this body: continue at the body that may contain it
            row = max(row + 1, int(np.searchsorted(starts, place, "right")) - 1)
    return found


@dataclass(frozen=True, slots=True)
class Search:
    """The search as a job.

    Shape: rows of RECORDS; only `columns` are decoded, the others are null. `inflates`: bodies are decompressed.
    """

    conditions: SearchConditions
    columns: tuple[str, ...]
    inflates: bool = False

    @property
    def schema(self) -> pa.Schema:
        """RECORDS."""
        return RECORDS

    def of_split(self, split: Split) -> SplitResult:
        """Return the records of a split that match the conditions.

        Order:  commit-log offset ascending.
        Damage: findings for bytes that are not records, and for compressed bodies that cannot be decompressed.
        """
        scan = split.scan()
        result = SplitResult()
        try:
            for block in scan:
                result.rows.extend(self._rows(split.store, block, result.findings))
        except SourceError as error:
            file, position = split.segment.file, error.position_bytes
            result.findings.append(Finding(split.store.root, "unreadable-file", file, position, actual=str(error)))
        result.decoded_bytes, result.spans = scan.decoded_bytes, scan.spans
        result.findings.extend(span_findings(split.store, split.segment, scan.spans))
        return result

    def of_store(self, store: Store, carried: list[Any]) -> SplitResult:  # noqa: ARG002 -- every job has it
        """Return an empty result: the splits are complete."""
        return SplitResult()

    def _rows(self, store: Store, block: Block, findings: list[Finding]) -> Iterator[pa.RecordBatch]:
        found = self.conditions.narrowed(block)
        if len(found) and self.conditions.looks_at_bodies:
            is_found, unreadable = self.conditions.with_body(found)
            findings.extend(_unreadable(store, found, row) for row in unreadable.tolist())
            found = found.take(is_found)
        for first in range(0, len(found), _BATCH_RECORDS_MAX):
            part = found.take(np.arange(first, min(first + _BATCH_RECORDS_MAX, len(found))))
            wanted = [name for name in RECORDS.names if name in self.columns]
            arrays = record_columns(part, store.root, wanted, decompress=self.inflates)
            values = dict(zip(wanted, arrays, strict=True))
            columns = [values.get(field.name, nulls(len(part), field.type)) for field in RECORDS]
            yield pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def _unreadable(store: Store, block: Block, row: int) -> Finding:
    return Finding(
        store.root, "body-stream", block.file, int(block.positions[row]), int(block.lengths[row]),
        commit_log_offset=int(block.commit_log_offsets[row]), expected="a compressed body, by the record's flag",
    )
