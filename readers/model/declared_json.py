"""The reader of rmqtx's own JSON files: each form is declared as an Arrow type, and other values are refused.

A file may be truncated, edited or forged. Whatever it contains, the caller gets values of the declared types, or an
error that names the field. Other code checks only what a type cannot express.

A declaration is built of structs, lists, maps with text keys, `string` (UTF-8 text), `binary` (a file name: text that
may hold bytes that are not UTF-8), `int32`, `int64`, `float64` (finite), `bool`, and `ANYTHING`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from rmqtx.readers.model.errors import BadText

#: A value that is passed on without use, of any JSON type (an Arrow type that no declared value has).
ANYTHING = pa.large_binary()
#: How deep values may be nested; Python's JSON parser stops at about a thousand levels.
_DEPTH_MAX = 64
_SHOWN_CHARACTERS = 60
#: Annotations of dataclasses, which are text here.
_PLAIN: dict[str, pa.DataType] = {
    "int": pa.int64(), "str": pa.string(), "bool": pa.bool_(), "float": pa.float64(),
    "dict[str, int]": pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
}


def needed(name: str, kind: pa.DataType) -> pa.Field:
    """A field that has a value."""
    return pa.field(name, kind, nullable=False)


def struct_of(kind: type) -> pa.StructType:
    """Return the struct of a dataclass in JSON, with every field; a value of no plain type is ANYTHING."""
    return pa.struct([_declared(one.name, str(one.type)) for one in fields(kind)])


def _declared(name: str, annotation: str) -> pa.Field:
    plain = annotation.removesuffix(" | None")
    return pa.field(name, _PLAIN.get(plain, ANYTHING), nullable=plain != annotation)


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list without nulls."""
    return pa.list_(pa.field("item", kind, nullable=False))


@dataclass(frozen=True, slots=True)
class JsonForm:
    """One form of JSON file.

    Shape: `name` is what a file of this form is called, after "is not a valid". `is_open`: fields that are not
           declared are ignored, and nullable fields may be missing, as other versions write more or fewer.
    """

    name: str
    kind: pa.DataType
    is_open: bool = False

    def read(self, data: bytes | str, file: str) -> Any:
        """Return the value of a JSON text; `file` is the name for errors.

        Raises: BadText with the field, what was expected and what was found.
        """
        return self.check(parsed(data, file, self.name), file)

    def check(self, value: Any, file: str, place: str = "") -> Any:
        """Return the value if it has this form; `place` is its place in the file. Raises: BadText."""
        self._check(value, self.kind, file, place, 0)
        return value

    def bad(self, file: str, place: str, expected: str, actual: str) -> BadText:
        """Return the error for a field with another value than expected."""
        return BadText(
            f"{file} is not a valid {self.name}", file=file, field=_short(place), expected=expected, actual=actual
        )

    def _check(self, value: Any, kind: pa.DataType, file: str, place: str, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise self.bad(file, place, f"at most {_DEPTH_MAX} levels", "more")
        if kind == ANYTHING:
            self._check_carried(value, file, place, depth)
        elif pa.types.is_struct(kind):
            if not isinstance(value, dict):
                raise self.bad(file, place, "an object", shown(value))
            self._check_fields(value, kind, file, f"{place}." if place else "", depth)
        elif pa.types.is_map(kind):
            if not isinstance(value, dict):
                raise self.bad(file, place, "an object", shown(value))
            for name, one in value.items():
                self._check_field(name, kind.key_field, file, f"{place} (a name)", depth)
                self._check_field(one, kind.item_field, file, f"{place}.{name}" if place else name, depth)
        elif pa.types.is_list(kind):
            if not isinstance(value, list):
                raise self.bad(file, place, "a list", shown(value))
            for number, one in enumerate(value):
                self._check_field(one, kind.value_field, file, f"{place}[{number}]", depth)
        elif not _is_of(value, kind):
            raise self.bad(file, place, _expected(value, kind), shown(value))

    def _check_fields(self, value: dict[str, object], kind: pa.StructType, file: str, place: str, depth: int) -> None:
        fields = [kind.field(number) for number in range(kind.num_fields)]
        for one in fields:
            if one.name in value:
                self._check_field(value[one.name], one, file, place + one.name, depth)
            elif not (self.is_open and one.nullable):
                raise self.bad(file, place + one.name, "a value", "nothing")
        if not self.is_open and len(value) > len(fields):
            known = {one.name for one in fields}
            name = next(name for name in value if name not in known)
            raise self.bad(file, place + name, "no such field", shown(value[name]))

    def _check_field(self, value: Any, one: pa.Field, file: str, place: str, depth: int) -> None:
        if value is None and one.nullable:
            return
        self._check(value, one.type, file, place, depth + 1)

    def _check_carried(self, value: Any, file: str, place: str, depth: int) -> None:
        """Check a value that is passed on: it will be written and shown again."""
        if isinstance(value, dict | list):
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            for name, one in parts:
                self._check(name if isinstance(name, str) else "", pa.string(), file, f"{place} (a name)", depth + 1)
                self._check(one, ANYTHING, file, place, depth + 1)
        elif isinstance(value, str):
            self._check(value, pa.string(), file, place, depth + 1)
        elif isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
            raise self.bad(file, place, "a whole number of 64 bits", shown(value))


def parsed(data: bytes | str, file: str, name: str) -> Any:
    """Return the value of a JSON text; NaN and Infinity are refused. Raises: BadText."""
    try:
        return json.loads(data, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"at line {error.lineno}, column {error.colno}"
        raise BadText(f"{file} is not a valid {name}: not JSON {where}", file=file) from error
    except UnicodeDecodeError as error:
        raise BadText(f"{file} is not a valid {name}: not JSON, but binary data", file=file) from error
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:160]
        raise BadText(f"{file} is not a valid {name}: not JSON: {why}", file=file) from error


def shown(value: Any) -> str:
    """Return a value as text for an error, shortened."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        value = value[: _SHOWN_CHARACTERS + 1]
    elif isinstance(value, int) and value.bit_length() > 4 * _SHOWN_CHARACTERS:
        return "a number of too many digits"
    return _short(json.dumps(value, ensure_ascii=True))


def _short(text: str) -> str:
    plain = text.encode("ascii", "backslashreplace").decode("ascii")
    return plain if len(plain) <= _SHOWN_CHARACTERS else f"{plain[:_SHOWN_CHARACTERS]}…"


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


def _is_of(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        bits = kind.bit_width - 1
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    if pa.types.is_floating(kind):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and abs(value) < 1e308 and math.isfinite(value)
    return isinstance(value, str) and _is_text(value, is_name=pa.types.is_binary(kind))


def _is_text(text: str, *, is_name: bool) -> bool:
    if text.isascii():
        return not is_name or "\0" not in text
    try:
        text.encode("utf-8", "surrogateescape" if is_name else "strict")
    except UnicodeEncodeError:
        return False
    return not is_name or "\0" not in text


def _expected(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, str) and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return "valid UTF-8 text" if pa.types.is_string(kind) else "the name of a file"
    return _NAMES[str(kind)]


_NAMES = {
    "string": "text", "binary": "the name of a file", "int32": "a whole number", "int64": "a whole number",
    "double": "a number", "bool": "true or false",
}
