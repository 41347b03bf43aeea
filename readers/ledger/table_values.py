"""Convert values of a database's table, for any declared type and any export format."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa

from rmqtx.readers.model.errors import BadRequest

_DECIMAL = re.compile(r"\s*\+?0*([0-9]{1,19})(?:\.0*)?\s*")
#: The form of large numbers in exported floating-point columns: 1.23456789012e+11.
_SCIENTIFIC = re.compile(r"\s*\+?[0-9]{1,20}(?:\.[0-9]{1,20})?[eE]\+?[0-9]{1,2}\s*")
_OFFSET_MAX = 2**63 - 1


def number_of(text: str | None) -> int | None:
    """Return the number of a decimal text as databases and exports write it; None if it is not an offset."""
    found = _DECIMAL.fullmatch(text or "")
    if found is not None:
        number = int(found.group(1))
    elif text is not None and _SCIENTIFIC.fullmatch(text):
        value = Decimal(text.strip())
        number = int(value) if value == value.to_integral_value() else -1
    else:
        return None
    return number if 0 <= number <= _OFFSET_MAX else None


def column_texts(values: pa.Array | pa.ChunkedArray, name: str) -> list[str | None]:
    """Return the values of a column as text.

    Raises: BadRequest for lists and other nested types.
    """
    if pa.types.is_nested(values.type):
        raise BadRequest(f"{name}: a column has type {values.type}, which is neither an offset nor a group")
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.cast(pa.string())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = values.cast(pa.large_binary())  # texts in Parquet may be any bytes
    return [value_text(value) for value in values.to_pylist()]


def value_text(value: object) -> str | None:
    """Return a value of a database as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return None if value is None else str(value)
