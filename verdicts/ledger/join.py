"""Joins verdicts with a ledger on this machine, in bounded memory: only keys, values and matches are held.

Verdicts are written to a temporary file while their keys are collected; the ledger is then read once, and rows without
a match are not kept.

Columns of both are converted to texts and compared. A term compares a column of TRANSACTIONS with a column of the
ledger; `keys` is a list of words, and each of them may match. A regular expression first extracts a part of the
transaction's value. All of several terms must match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.ledger.ledger import Ledger
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.verdicts.ledger.reconcile import LOOKED_UP, SAYS_BOTH, SAYS_DONE, SAYS_NOT_DONE, reconciled

SEPARATOR = "\x1f"
_GROUP = "key"
#: A condition on rows of the ledger: one truth value per row, null if unknown.
Condition = Callable[[pa.RecordBatch], pa.Array]

#: The values of a ledger row that a transaction needs.
LEDGER_WORDS = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("says", pa.int8()),
        pa.field("ledger_row", pa.string()),
    ]
)
#: The number of ledger rows without a transaction that are named.
UNMATCHED_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison. `pattern`: its first group, or all that it matches, is compared instead of the whole value."""

    column: str
    ledger_column: str
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """The comparisons that a transaction and its ledger row must all fulfil."""

    terms: tuple[Term, ...]

    @property
    def columns(self) -> list[str]:
        """The compared columns of TRANSACTIONS."""
        return list(dict.fromkeys(term.column for term in self.terms))

    @property
    def ledger_columns(self) -> list[str]:
        """The compared columns of the ledger."""
        return list(dict.fromkeys(term.ledger_column for term in self.terms))

    def keys_of(self, rows: pa.RecordBatch) -> tuple[Int64s, pa.Array]:
        """Return the possible ledger keys of each transaction: row numbers and keys; none if a value is unknown.

        Order: row number.
        """
        numbers, parts = np.arange(rows.num_rows), []  # type: Int64s, list[pa.Array]
        for term in self.terms:
            values, owners = _values(term, rows.column(term.column).take(pa.array(numbers)))
            numbers, parts = numbers[owners], [part.take(pa.array(owners)) for part in parts]
            parts.append(values)
        keys = pc.binary_join_element_wise(*parts, SEPARATOR)
        pairs = pa.table({"row": numbers, "key": keys}).group_by(["row", "key"], use_threads=False).aggregate([])
        return np.asarray(pairs["row"]), pairs["key"].combine_chunks()

    def ledger_keys(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the key of each ledger row; null if one of its values is null."""
        return pc.binary_join_element_wise(*(plain_texts(rows.column(t.ledger_column)) for t in self.terms), SEPARATOR)


def _values(term: Term, column: pa.Array) -> tuple[pa.Array, Int64s]:
    """Return the texts that may match, and the row of each."""
    texts = plain_texts(column)
    if term.column == "keys":
        words = pc.split_pattern(texts, " ")  # MessageConst.KEY_SEPARATOR
        texts, owners = pc.list_flatten(words), np.asarray(pc.list_parent_indices(words)).astype(np.int64)
    else:
        owners = np.arange(len(texts))
    if term.pattern is not None:
        texts = pc.struct_field(pc.extract_regex(texts, named_pattern(term.pattern)), _GROUP)
    kept = np.flatnonzero(np.asarray(pc.fill_null(pc.greater(pc.utf8_length(texts), 0), False)))
    return texts.take(pa.array(kept)), owners[kept]


def plain_texts(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return values as texts that are equal if a person would call them equal: 42 equals 42.0, and trailing blanks of
    fixed-width columns do not count.
    """
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        column = column.cast(pa.string(), safe=False)
    texts = column.cast(pa.string())
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return pc.replace_substring_regex(texts, r"\.0+$", "")
    return pc.utf8_rtrim(texts, " ")


def named_pattern(pattern: str) -> str:
    """Return the expression with a fixed name for its first group, or for all of it.

    Raises: BadRequest for what is not a regular expression.
    """
    text, place, has_group, in_class = "", 0, False, False
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            text, place = text + pattern[place : place + 2], place + 2
            continue
        if in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character == "(" and not pattern.startswith("(?", place):
            text, place, has_group = text + ("(?:" if has_group else f"(?P<{_GROUP}>"), place + 1, True
            continue
        text, place = text + character, place + 1
    named = text if has_group else f"(?P<{_GROUP}>{text})"
    try:
        pc.extract_regex(pa.array(["x"]), named)
    except pa.ArrowInvalid as error:
        raise BadRequest(f"--match: {pattern!r} is not a regular expression: {error}") from error
    return named


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """How a transaction matches rows of a ledger, and what these rows show.

    `done`, `not_done`: whether a row shows that its transaction was done, or was not. `missing_is_not_done`: whether a
    transaction without a row was not done.
    """

    match: Match
    done: Condition
    not_done: Condition
    missing_is_not_done: bool = False


@dataclass(slots=True)
class LedgerFit:
    """How transactions and a ledger match; complete before the first row of a comparison is returned.

    Shape: `unmatched`: the texts of some ledger rows without a transaction; `key` and `ledger_key`: examples of the
           compared values, None if there are none.
    """

    keys_count: int = 0
    rows_count: int = 0
    unmatched_count: int = 0
    unmatched: list[str] = field(default_factory=list)
    key: str | None = None
    ledger_key: str | None = None

    @property
    def fits_nothing(self) -> bool:
        """Whether there were rows and keys to compare, and none matched."""
        return self.keys_count > 0 and self.unmatched_count == self.rows_count > 0

    def add(self, words: pa.Table, is_matched: pa.ChunkedArray) -> None:
        """Count some ledger rows: LEDGER_WORDS, and whether each matches a transaction."""
        self.rows_count += len(words)
        left = words.filter(pc.invert(is_matched))
        self.unmatched_count += len(left)
        self.unmatched += left["ledger_row"].slice(0, UNMATCHED_SHOWN_MAX - len(self.unmatched)).to_pylist()
        self.ledger_key = self.ledger_key or next(iter(words["key"].drop_null().slice(0, 1).to_pylist()), None)


#: Ledger rows that are looked up together, because each search hashes all keys first.
_ROWS_AT_ONCE = 1 << 20


def reconcile(
    verdicts: Iterable[pa.RecordBatch], ledger: Ledger, terms: LedgerTerms, columns: list[str], *,
    temporary_directory: str | None = None, fit: LedgerFit | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of RECONCILED for some verdicts.

    Shape:  `columns`: the ledger columns that the terms use; `fit` is filled.
    Order:  that of the verdicts.
    Raises: what reading the ledger raises.
    """
    with RunFolder(directory=temporary_directory) as name:
        file = Path(name) / "verdicts.arrow"
        keys, count = _set_aside(verdicts, terms.match, file)
        known, fit = pc.unique(keys["key"]), LedgerFit() if fit is None else fit
        fit.keys_count, fit.key = len(known), known[0].as_py() if len(known) else None
        words = _matching_words(ledger, terms, columns, known, fit)
        looked_up = look_up(keys, words, count)
        first = 0
        with pa.OSFile(str(file)) as opened:
            reader = pa.ipc.open_file(opened)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                looked_up_here = looked_up.slice(first, batch.num_rows)
                yield reconciled(batch, looked_up_here, missing_is_not_done=terms.missing_is_not_done)
                first += batch.num_rows


def _set_aside(verdicts: Iterable[pa.RecordBatch], match: Match, file: Path) -> tuple[pa.Table, int]:
    """Write verdicts to a file; return their keys, one row per key, and the number of verdicts."""
    rows, keys, count = [np.empty(0, np.int64)], [pa.array([], pa.string())], 0
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, TRANSACTIONS) as writer:
        for batch in verdicts:
            writer.write_batch(batch)
            numbers, texts = match.keys_of(batch)
            rows.append(numbers + count)
            keys.append(texts)
            count += batch.num_rows
    return pa.table({"row": np.concatenate(rows), "key": pa.chunked_array(keys)}), count


def ledger_words(rows: pa.RecordBatch, terms: LedgerTerms) -> pa.RecordBatch:
    """Return the values of ledger rows as rows of LEDGER_WORDS."""
    says = _numbers(terms.done(rows)) * SAYS_DONE + _numbers(terms.not_done(rows)) * SAYS_NOT_DONE
    assert SAYS_DONE + SAYS_NOT_DONE == SAYS_BOTH
    arrays = [terms.match.ledger_keys(rows), pa.array(says.astype(np.int8)), _row_texts(rows)]
    return pa.RecordBatch.from_arrays(arrays, schema=LEDGER_WORDS)


def _row_texts(rows: pa.RecordBatch) -> pa.Array:
    parts: list[pa.Array | str] = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        parts += [f"{', ' if parts else ''}{name} = ", pc.fill_null(plain_texts(column), "null")]
    return pc.binary_join_element_wise(*parts, "")


def _matching_words(
    ledger: Ledger, terms: LedgerTerms, columns: list[str], keys: pa.Array, fit: LedgerFit
) -> pa.Table:
    kept: list[pa.RecordBatch] = []
    waiting: list[pa.RecordBatch] = []
    waiting_rows = 0
    for batch in ledger.batches(columns):
        waiting.append(ledger_words(batch, terms))
        waiting_rows += batch.num_rows
        if waiting_rows >= _ROWS_AT_ONCE:
            kept.extend(_among(waiting, keys, fit))
            waiting, waiting_rows = [], 0
    kept.extend(_among(waiting, keys, fit))
    return pa.Table.from_batches(kept, schema=LEDGER_WORDS)


def _among(words: list[pa.RecordBatch], keys: pa.Array, fit: LedgerFit) -> list[pa.RecordBatch]:
    table = pa.Table.from_batches(words, schema=LEDGER_WORDS)
    is_matched = pc.is_in(table["key"], value_set=keys, skip_nulls=True)
    fit.add(table, is_matched)
    found: list[pa.RecordBatch] = table.filter(is_matched).to_batches()
    return found


def look_up(keys: pa.Table, words: pa.Table, count: int) -> pa.RecordBatch:
    """Return the ledger rows that each of `count` transactions matches: rows of LOOKED_UP.

    A ledger row has one key, and the keys of a transaction differ, so no row is counted twice.
    Shape: `keys` has row (of a transaction) and key, `words` is LEDGER_WORDS.
    """
    by_key = words.group_by("key", use_threads=False).aggregate(
        [("key", "count"), ("says", "max"), ("ledger_row", "max")]
    )
    places = np.asarray(pc.fill_null(pc.index_in(keys["key"], value_set=by_key["key"].combine_chunks()), -1))
    rows = np.asarray(keys["row"])[places >= 0]
    places = places[places >= 0].astype(np.int64)
    rows_of_key = np.asarray(by_key["key_count"]).astype(np.int64)
    transactions_of_key = np.bincount(places, minlength=len(rows_of_key))
    found, shared, of_one = (np.zeros(count, np.int64) for _ in range(3))
    np.add.at(found, rows, rows_of_key[places])
    np.maximum.at(shared, rows, transactions_of_key[places])
    of_one[rows] = places
    taken = pa.array(of_one, mask=found != 1)
    has_key = np.zeros(count, np.bool_)
    has_key[np.asarray(keys["row"])] = True
    return pa.RecordBatch.from_arrays(
        [
            pa.array(has_key), pa.array(found), pa.array(shared),
            _flat(by_key["says_max"].take(taken)), _flat(by_key["ledger_row_max"].take(taken)),
        ],
        schema=LOOKED_UP,
    )


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _numbers(truths: pa.Array) -> Int64s:
    return np.asarray(pc.fill_null(truths, False)).astype(np.int64)
