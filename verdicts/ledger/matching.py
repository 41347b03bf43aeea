"""Matches transactions with ledger rows: columns of both are converted to texts and compared.

A term compares a column of TRANSACTIONS with a column of the ledger; `keys` is a list of words, and each of them may
match. A regular expression first extracts a part of the transaction's value. All of several terms must match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import BadRequest

SEPARATOR = "\x1f"
_GROUP = "key"


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
