"""The one reader of our own JSON files: each form is declared as an Arrow type, and what does not fit it is refused.

Such a file may come from elsewhere, torn, edited or forged. Whatever stands in it, a program that reads it here gets
values of the declared types, or one sentence that names the field. Nothing of a form is checked by hand elsewhere but
what a type cannot say.

A declaration is built of structs, lists, maps with text keys, `string` (text that is UTF-8), `binary` (a file name:
text that may hold bytes that are none), `int32`, `int64`, `float64` (finite), `bool`, and `ANYTHING`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from readers.model.errors import BadText

#: A value that is only carried along, of whatever kind JSON knows (a type that no declared value has).
ANYTHING = pa.large_binary()
#: How deep values may lie within each other; the reader of JSON itself gives up at some thousand.
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
    """The struct that a dataclass is in JSON, every field of it there; what is no plain value is only carried along."""
    return pa.struct([_declared(one.name, str(one.type)) for one in fields(kind)])


def _declared(name: str, annotation: str) -> pa.Field:
    plain = annotation.removesuffix(" | None")
    return pa.field(name, _PLAIN.get(plain, ANYTHING), nullable=plain != annotation)


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list without nulls."""
    return pa.list_(pa.field("item", kind, nullable=False))


@dataclass(frozen=True, slots=True)
class JsonForm:
    """One form of JSON.

    Shape: `name` is what a file of it is called, after "is no". `is_open`: fields that are not declared are left in
           peace, and those that may be null may be missing, as other versions write more or less.
    """

    name: str
    kind: pa.DataType
    is_open: bool = False

    def read(self, data: bytes | str, file: str) -> Any:
        """The value in some text; `file` is what errors name.

        Raises: BadText with the field, what was expected and what was found.
        """
        return self.check(parsed(data, file, self.name), file)

    def check(self, value: Any, file: str, place: str = "") -> Any:
        """The same value, if it is of this form; `place` is where it stands in the file.

        Raises: BadText.
        """
        self._check(value, self.kind, file, place, 0)
        return value

    def bad(self, file: str, place: str, expected: str, actual: str) -> BadText:
        """The error that a field of a file is not what it must be."""
        return BadText(
            f"{file} is no {self.name}", file=file, field=_short(place), expected=expected, actual=actual
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

    def _check_fields(self, value: dict[str, Any], kind: pa.StructType, file: str, place: str, depth: int) -> None:
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
        """Look through what is only carried along: it is written and shown again."""
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
    """What some JSON says; NaN and Infinity are none.

    Raises: BadText.
    """
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:160]
        raise BadText(f"{file} is no {name}: it is no JSON: {why}", file=file) from error


def shown(value: Any) -> str:
    """A value for an error, shortened."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        value = value[: _SHOWN_CHARACTERS + 1]
    elif isinstance(value, int) and value.bit_length() > 4 * _SHOWN_CHARACTERS:
        return "a number of very many digits"
    return _short(json.dumps(value, ensure_ascii=True))


def _short(text: str) -> str:
    plain = text.encode("ascii", "backslashreplace").decode("ascii")
    return plain if len(plain) <= _SHOWN_CHARACTERS else f"{plain[:_SHOWN_CHARACTERS]}…"


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


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
        return "text of whole characters" if pa.types.is_string(kind) else "the name of a file"
    return _NAMES[str(kind)]


_NAMES = {
    "string": "a text", "binary": "the name of a file", "int32": "a whole number", "int64": "a whole number",
    "double": "a number", "bool": "true or false",
}
