"""Proves a proof file on copies of its stores: reads the bytes that it names, judges again, and compares.

Source: docs/proofs.md.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.model.errors import BadRequest, FileChanged, NoSuchTransaction, UnreadableFile
from rmqtx.readers.model.tables import column
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import lookup
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.model.verdict_words import WITNESS_KINDS
from rmqtx.verdicts.proofs import proof_file
from rmqtx.verdicts.proofs.proof_file import VALUES, ProofReader, ProofVerdict, ProofWitness, ShownSetting, StoreFacts
from rmqtx.verdicts.proofs.writing import PROOF_COLUMNS, leaves_of, settings_shown, small_files


class Result(StrEnum):
    """What a comparison shows."""

    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


PROVED = pa.schema([
    column("result", pa.string(), "same, differs or unknown", values=tuple(Result)),
    column("transaction_id", pa.string(), "the transaction; null for what concerns a whole store or the proof"),
    column("what", pa.string(), "what was compared: verdict, bytes of a record, a column, a setting, a file, the tree"),
    column("store", pa.string(), "the copy"),
    column("file", pa.string(), "file of the copy, or the proof"),
    column("position_bytes", pa.int64(), "position of the bytes that differ in the file"),
    column("length_bytes", pa.int64(), "their length: one of them at least differs"),
    column("expected", pa.string(), "what the proof has"),
    column("actual", pa.string(), "what the copy has"),
])
#: Verdicts that are looked up together.
_GROUP = 1_000
#: Verdicts that are looked through for the next one of an audit that lacks some.
_AHEAD = 20_000
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """Which verdicts are proved: all, some at random (`sample`, drawn by `seed`), or those of one transaction."""

    sample: int | None = None
    seed: int = 0
    transaction: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all verdicts are proved."""
        return self.sample is None and self.transaction is None

    def chosen(self, reader: ProofReader) -> Iterator[bytes]:
        """Yield the lines of the verdicts. Raises: NoSuchTransaction."""
        if self.transaction is not None:
            found = False
            for line in reader.verdict_lines():
                if reader.verdict(line)["transaction_id"] == self.transaction:
                    found = True
                    yield line
            if not found:
                raise NoSuchTransaction(f"{reader.file} has no verdict on {self.transaction}", file=reader.file)
        elif self.sample is None:
            yield from reader.verdict_lines()
        else:
            yield from self._drawn(reader.verdict_lines(), self.sample)

    def _drawn(self, lines: Iterator[bytes], sample: int) -> list[bytes]:
        """Return some lines, each with the same chance; only these are kept."""
        kept = list(islice(lines, sample))
        draw = random.Random(self.seed)
        for number, line in enumerate(lines, len(kept)):
            place = draw.randrange(number + 1)
            if place < sample:
                kept[place] = line
        return kept


def prove(
    reader: ProofReader, stores: Sequence[Store], settings_of: SettingsOf, asked: Asked
) -> Iterator[Row]:
    """Yield what the comparison shows: a row for each verdict that is the same, and for each difference.

    Shape:  rows of PROVED. `stores`: the copies, in the order of the stores of the proof.
    Order:  stores, verdicts, segments, the proof itself.
    Raises: BadRequest, BadText, NoSuchTransaction; SourceError.
    """
    if len(stores) != len(reader.head["stores"]):
        names = ", ".join(one["store"] for one in reader.head["stores"])
        raise BadRequest(f"{reader.file} has {len(reader.head['stores'])} stores: {names}",
                         advice="give --store once for each, in this order")
    copies = [
        _Copy(number, facts, store if store.in_use else replace(store, taken_time_ms=facts["taken_time_ms"]))
        for number, (facts, store) in enumerate(zip(reader.head["stores"], stores, strict=True))
    ]
    for copy in copies:
        yield from copy.compared(settings_of)
    proving = _Proving(copies, settings_of, reader.head["at_ms"])
    lines = map(reader.verdict, asked.chosen(reader))
    yield from proving.in_order(lines) if asked.is_whole or proving.at_ms is not None else proving.by_lookup(lines)
    yield from _trees(reader, copies, is_whole=asked.is_whole)
    if not reader.has_own_digest:
        yield _row(
            Result.DIFFERS, None, "digest", None, reader.file, expected="that of the proof", actual="another one"
        )


@dataclass(frozen=True, slots=True)
class _Copy:
    number: int
    facts: StoreFacts
    store: Store

    def compared(self, settings_of: SettingsOf) -> Iterator[Row]:
        """Compare settings, small files and segments."""
        shown = settings_shown(settings_of(self.store))
        for name, given in self.facts["settings"].items():
            mine = shown.get(name)
            if mine is None or given["value"] != mine["value"]:
                yield self._differs(f"setting {name}", None, _setting(given), _setting(mine))
        files = {one["file"]: one["sha256"] for one in small_files(self.store)}
        for one in self.facts["files"]:
            if files.get(one["file"]) != one["sha256"]:
                yield self._differs("file", one["file"], one["sha256"], files.get(one["file"]))
        sizes = {one.base_offset: one.size_bytes for one in self.store.commit_log}
        for segment in self.facts["segments"]:
            size = sizes.get(segment["base_offset"])
            if size != segment["size_bytes"]:
                yield self._differs("size of a segment", segment["file"], segment["size_bytes"], size)
        end = written_end(self.store).offset
        if end != self.facts["end_offset"]:
            yield self._differs("end of the log", None, self.facts["end_offset"], end)

    def _differs(self, what: str, file: str | None, expected: object, actual: object) -> Row:
        return _row(Result.DIFFERS, None, what, self.store.root, file, expected=expected, actual=actual)


class _Proving:
    """Compares verdicts with those of the copies."""

    def __init__(self, copies: Sequence[_Copy], settings_of: SettingsOf, at_ms: int | None) -> None:
        self.copies, self.at_ms = copies, at_ms
        self._settings_of = settings_of
        self._stores = [copy.store for copy in copies]
        self._numbers = {copy.store.root: copy.number for copy in copies}
        self._logs = [copy.store.log() for copy in copies]

    def by_lookup(self, verdicts: Iterable[ProofVerdict]) -> Iterator[Row]:
        """Look up the transactions by queues and index, and compare each."""
        left = iter(verdicts)
        while group := list(islice(left, _GROUP)):
            reading = lookup(self._stores, self._settings_of, [one["transaction_id"] for one in group])
            rows = self._by_key(reading.table())
            for one in group:
                yield from self._compared(one, rows.get(_key(one["transaction_id"], one["store"])))

    def in_order(self, verdicts: Iterator[ProofVerdict]) -> Iterator[Row]:
        """Judge everything again, and compare each verdict; an audit of the same bytes has the same order.

        A verdict that the audit lacks is passed, if one of the next _AHEAD verdicts is there.
        """
        reading = audit(self._stores, self._settings_of, at_ms=self.at_ms, columns=PROOF_COLUMNS)
        ahead: deque[ProofVerdict] = deque()
        for batch in reading:
            rows = self._by_key(pa.Table.from_batches([batch]))
            while rows:
                ahead.extend(islice(verdicts, _AHEAD - len(ahead)))
                keys = (_key(one["transaction_id"], one["store"]) for one in ahead)
                place = next((number for number, key in enumerate(keys) if key in rows), None)
                if place is None:
                    break
                for _ in range(place):
                    yield from self._compared(ahead.popleft(), None)
                current = ahead.popleft()
                yield from self._compared(current, rows.pop(_key(current["transaction_id"], current["store"])))
        rest = chain(ahead, verdicts)
        if self.at_ms is None:
            yield from self.by_lookup(rest)
        else:
            for one in rest:
                yield from self._compared(one, None)

    def _by_key(self, rows: pa.Table) -> dict[tuple[str, int | None], Row]:
        found = rows.select(PROOF_COLUMNS).to_pylist()
        return {_key(one["transaction_id"], self._numbers.get(one["store"])): one for one in found}

    def _compared(self, verdict: ProofVerdict, row: Row | None) -> Iterator[Row]:
        name, differences = verdict["transaction_id"], list(self._other_bytes(verdict))
        if row is None:
            differences.append(_row(Result.DIFFERS, name, "verdict", expected=verdict["state"], actual="none"))
        else:
            differences.extend(
                _row(Result.DIFFERS, name, one, row["store"], expected=_text(verdict.get(one)), actual=_text(row[one]))
                for one in VALUES if verdict.get(one) != row[one]
            )
            differences.extend(self._other_witnesses(verdict, row))
        store = None if verdict["store"] is None or row is None else row["store"]
        yield from differences or [_row(Result.SAME, name, "verdict", store, expected=verdict["state"])]

    def _other_bytes(self, verdict: ProofVerdict) -> Iterator[Row]:
        for one in verdict["witnesses"]:
            if not (0 <= one["store"] < len(self.copies)):
                what = f"store of a {one['kind']}"
                yield _row(Result.DIFFERS, verdict["transaction_id"], what, expected=one["store"])
                continue
            copy, log = self.copies[one["store"]], self._logs[one["store"]]
            segments = copy.facts["segments"]
            segment = segments[one["segment"]] if 0 <= one["segment"] < len(segments) else None
            length, position = one["length_bytes"], one["position_bytes"]
            place = (copy.store.root, None if segment is None else segment["file"], position, length)
            try:
                data = b"" if segment is None else log.read(segment["base_offset"] + position, min(length, 1 << 28))
            except (FileChanged, UnreadableFile) as error:
                yield _row(Result.UNKNOWN, verdict["transaction_id"], f"bytes of the {one['kind']}", *place,
                           actual=error.message)
                continue
            digest = hashlib.sha256(data).hexdigest()
            if not data or len(data) != length or digest != one["sha256"]:
                yield _row(Result.DIFFERS, verdict["transaction_id"], f"bytes of the {one['kind']}", *place,
                           expected=one["sha256"], actual=digest)

    def _other_witnesses(self, verdict: ProofVerdict, row: Row) -> Iterator[Row]:
        proof = {
            (one["kind"], one["store"], self._offset(one), one["half_queue_offset"]) for one in verdict["witnesses"]
        }
        mine = {
            (kind, self._numbers.get(one["store"]), one["commit_log_offset"], one.get("half_queue_offset"))
            for name, kind in WITNESS_KINDS.items() for one in row[name]
        }
        for kind, _, offset, number in sorted(proof ^ mine, key=str):
            is_mine = (kind, _, offset, number) in mine
            named = f"{kind} at commit-log offset {offset}" + ("" if number is None else f" for {number}")
            yield _row(Result.DIFFERS, verdict["transaction_id"], "witness", row["store"],
                       expected=None if is_mine else named, actual=named if is_mine else None)

    def _offset(self, one: ProofWitness) -> int | None:
        try:
            segments = self.copies[one["store"]].facts["segments"]
            return segments[one["segment"]]["base_offset"] + one["position_bytes"]
        except IndexError:
            return None


def _trees(reader: ProofReader, copies: Sequence[_Copy], *, is_whole: bool) -> Iterator[Row]:
    """Compare the tree with its root, and with the bytes of the copies if all are asked for."""
    roots = []
    for line in reader.segment_lines():
        entry = reader.leaves(line)
        try:
            leaves = [bytes.fromhex(one) for one in entry["leaves"]]
            copy = copies[entry["store"]]
            named = copy.facts["segments"][entry["segment"]]
        except (ValueError, IndexError):
            yield _row(Result.DIFFERS, None, "tree", None, reader.file, actual="a leaf or a segment that cannot be")
            continue
        roots.append(proof_file.root(leaves))
        segment = next((one for one in copy.store.commit_log if one.base_offset == named["base_offset"]), None)
        if not is_whole or segment is None:
            continue
        size = entry["chunk_bytes"]
        chunks = range(len(leaves)) if entry["chunks"] is None else entry["chunks"]
        for chunk, given, mine in zip(chunks, leaves, leaves_of(segment, chunks, size), strict=False):
            if given != mine:
                yield _row(Result.DIFFERS, None, "tree", copy.store.root, named["file"], chunk * size, size,
                           expected=given.hex(), actual=mine.hex())
    if proof_file.root(roots).hex() != reader.end["merkle_root"]:
        yield _row(Result.DIFFERS, None, "tree", None, reader.file, expected=reader.end["merkle_root"],
                   actual=proof_file.root(roots).hex())


def _key(transaction_id: str, store: int | None) -> tuple[str, int | None]:
    return transaction_id, store


#: Columns of PROVED of a place: store, file, position, length.
_PLACE_COLUMNS = 4


def _row(
    result: Result, transaction_id: str | None, what: str, *place: object, expected: object = None,
    actual: object = None,
) -> Row:
    """Return one row. `place`: the known ones of store, file, position and length, in this order."""
    unknown = [None] * (_PLACE_COLUMNS - len(place))
    values = (result, transaction_id, what, *place, *unknown, _text(expected), _text(actual))
    return dict(zip(PROVED.names, values, strict=True))


def _text(value: object) -> str | None:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return None if value is None else str(value)


def _setting(one: ShownSetting | None) -> str | None:
    return None if one is None else f"{one['value']} ({one['origin']})"
