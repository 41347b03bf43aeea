"""Conditions on rows, as `--where` and `--fail-on` take them: `topic = orders and (queue_id > 2 or keys ~ ^A)`.

A small language, so that pasted text is never evaluated as code: comparisons of a column with a value, joined by `and`,
`or`, `not` and parentheses. An unknown value meets no comparison; `is null` tests for it. A list meets a comparison if
one of its values does: `flags = stalled`, `half_copies.queue_offset = 17`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.options.columns import Heads, Path, check_pattern, check_value, resolve
from rmqtx_cli.words.times import parse_duration_ms, parse_time_ms

_TOKEN = (
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<operator>==|!=|<=|>=|!~|=|<|>|~)"""
    r"""|(?P<bracket>[()])|(?P<word>[^\s()=<>!~"']+))"""
)
_CLOSING = "a closing bracket"
_HELP = "write: column = value, joined by and, or, not; operators = != < <= > >= ~ !~, or is null, is not null"

Mask = Callable[["pa.RecordBatch"], "pa.Array"]


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed condition; `columns` are the columns that it uses, `mask` returns one truth value per row of a batch."""

    columns: frozenset[str]
    mask: Mask

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that meet the condition."""
        return batch.filter(self.mask(batch), null_selection_behavior="drop")

#: Longer than any condition that people write; a much deeper one would exhaust the stack.
_WORDS_MAX, _DEPTH_MAX = 1000, 100


def parse_filter(text: str, schema: pa.Schema, option: str = "--where", heads: Heads | None = None) -> Filter:
    """Return the condition on rows of a schema. `option`: name for errors; `heads`: heads of the printed table.

    Raises: BadRequest for text that is not a condition, an unknown column, or a value that the column cannot have.
    """
    words = list(tokens(text, option))
    depth = sum(value.lower() in ("(", "not") for kind, value in words if kind != "quoted")
    if len(words) > _WORDS_MAX or depth > _DEPTH_MAX:
        raise BadRequest(f"{option}: a condition can have at most {_WORDS_MAX} words and {_DEPTH_MAX} brackets")
    parser = _Parser(words, schema, option, heads or {})
    mask = parser.either()
    if parser.left():
        raise BadRequest(f"{option}: unexpected {parser.left()[0][1]!r} in {text!r}", advice=_HELP)
    return Filter(frozenset(parser.columns), mask)


def all_of(texts: Iterable[str | None]) -> str | None:
    """Join conditions, of which some may not be given; None without any."""
    given = [text for text in texts if text]
    return given[0] if len(given) == 1 else " and ".join(f"({text})" for text in given) or None


def tokens(text: str, option: str) -> Iterator[tuple[str, str]]:
    """Yield the words, quoted texts, operators and brackets of a text, each with its kind.

    Raises: BadRequest for other text.
    """
    token, position = re.compile(_TOKEN), 0
    while position < len(text.rstrip()):
        match = token.match(text, position)
        if match is None:
            raise BadRequest(f"{option}: cannot parse {text[position:]!r}", advice=_HELP)
        position = match.end()
        kind = str(match.lastgroup)
        value = match[kind]
        yield kind, re.sub(r"\\(.)", r"\1", value[1:-1]) if kind == "quoted" else value


class _Parser:
    """Recursive descent: either := both ('or' both)*, both := one ('and' one)*, one := not, brackets, comparison."""

    def __init__(self, words: list[tuple[str, str]], schema: pa.Schema, option: str, heads: Heads) -> None:
        self._tokens = words
        self._schema = schema
        self._option = option
        self._heads = heads
        self.columns: set[str] = set()

    def left(self) -> list[tuple[str, str]]:
        """Return the tokens that are not parsed yet."""
        return self._tokens

    def _next(self, wanted: str) -> tuple[str, str]:
        is_closed = self._tokens[:1] == [("bracket", ")")] and wanted != _CLOSING  # that may be a bracket of ours
        if not self._tokens or is_closed:
            raise BadRequest(f"{self._option}: expected {wanted} at the end", advice=_HELP)
        return self._tokens.pop(0)

    def _word(self, word: str) -> bool:
        if self._tokens and self._tokens[0][0] == "word" and self._tokens[0][1].lower() == word:
            self._tokens.pop(0)
            return True
        return False

    def either(self) -> Mask:
        """Parse conditions joined by `or`."""
        mask = self._both()
        while self._word("or"):
            mask = _joined("or_kleene", mask, self._both())
        return mask

    def _both(self) -> Mask:
        mask = self._one()
        while self._word("and"):
            mask = _joined("and_kleene", mask, self._one())
        return mask

    def _one(self) -> Mask:
        if self._word("not"):
            return _inverted(self._one())
        kind, value = self._next("a column")
        if (kind, value) == ("bracket", "("):
            mask = self.either()
            if self._next(_CLOSING) != ("bracket", ")"):
                raise BadRequest(f"{self._option}: a bracket is not closed", advice=_HELP)
            return mask
        if kind != "word":
            raise BadRequest(f"{self._option}: expected a column, found {value!r}", advice=_HELP)
        path = resolve(value, self._schema, self._heads)
        self.columns.add(path.column)
        if self._word("is"):
            negated = self._word("not")
            if not self._word("null"):
                raise BadRequest(f"{self._option}: only 'null' or 'not null' can follow 'is'", advice=_HELP)
            return _inverted(_is_null(path)) if negated else _is_null(path)
        kind, operator = self._next("an operator")
        if kind != "operator":
            raise BadRequest(f"{self._option}: {operator!r} is not an operator", advice=_HELP)
        kind, value = self._next("a value")
        if kind not in ("word", "quoted"):
            raise BadRequest(f"{self._option}: expected a value, found {value!r}", advice=_HELP)
        return _comparison(path, operator, value, self._option)


def _joined(function: str, left: Mask, right: Mask) -> Mask:
    return lambda batch: pc.call_function(function, [left(batch), right(batch)])


def _inverted(mask: Mask) -> Mask:
    return lambda batch: pc.invert(mask(batch))


def _is_null(path: Path) -> Mask:
    def mask(batch: pa.RecordBatch) -> pa.Array:
        if path.field is None:
            return pc.is_null(batch.column(path.column))
        return pc.invert(_any_of(path, batch, pc.is_valid))

    return mask


_FUNCTIONS = {"=": "equal", "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater",
              ">=": "greater_equal"}


def _comparison(path: Path, operator: str, text: str, option: str) -> Mask:
    if operator in ("~", "!~"):
        matches = _regular_expression(path, text, option)
        return matches if operator == "~" else _inverted(matches)
    if operator == "!=" and path.is_list:  # no value of the list equals it, not: some value differs from it
        return _inverted(_comparison(path, "=", text, option))
    if operator in ("=", "==", "!="):
        check_value(path.name, path.values, text, option)
    value = _scalar(path, text, option)
    function = _FUNCTIONS[operator]
    return lambda batch: _any_of(path, batch, lambda values: pc.call_function(function, [values, value]))


def _regular_expression(path: Path, text: str, option: str) -> Mask:
    if not pa.types.is_string(path.type) and not pa.types.is_binary(path.type):
        raise BadRequest(f"{option}: {path.name} is not text, ~ cannot search it", advice=_HELP)
    try:  # RE2: a hostile pattern costs linear time at most
        pc.match_substring_regex(pa.array(["x"]), text)
    except pa.ArrowInvalid as error:
        raise BadRequest(f"{option}: {text!r} is not a regular expression: {error}") from error
    check_pattern(path.name, path.values, text, option)
    return lambda batch: _any_of(path, batch, lambda values: pc.match_substring_regex(values, text))


def _any_of(path: Path, batch: pa.RecordBatch, test: Callable[[pa.Array], pa.Array]) -> pa.Array:
    column = batch.column(path.column)
    if path.is_map:
        return test(pc.map_lookup(column, path.field, "first"))
    if not path.is_list:
        return test(column)
    values = pc.list_flatten(column)
    if path.field is not None:
        values = pc.struct_field(values, path.field)
    parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    found = np.zeros(len(column), bool)
    found[parents[pc.fill_null(test(values), False).to_numpy(zero_copy_only=False)]] = True
    return pa.array(found)


def _scalar(path: Path, text: str, option: str) -> pa.Scalar:
    kind = path.type
    if pa.types.is_null(kind):  # a CSV file without rows, or without a value in this column, shows no type
        raise BadRequest(f"{option}: no row has a value of {path.name}", advice="is this the right file and column?")
    try:
        if pa.types.is_integer(kind):
            is_number = re.fullmatch(r"-?[0-9]+", text) is not None
            if path.is_duration and not is_number:
                return pa.scalar(parse_duration_ms(text), pa.int64())
            is_number |= not path.is_time
            return pa.scalar(int(text) if is_number else parse_time_ms(text), pa.int64())
        if pa.types.is_boolean(kind):
            return pa.scalar({"true": True, "false": False}[text.lower()])
        if pa.types.is_binary(kind):
            return pa.scalar(text.encode(), kind)
        return pa.scalar(text, pa.string()).cast(kind)
    except (ValueError, KeyError, OverflowError, NotImplementedError) as error:
        raise BadRequest(f"{option}: {text!r} is not a value of {path.name}, which is {kind}", advice=_HELP) from error
