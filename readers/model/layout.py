"""Structures on disk, declared once as data.

A declaration yields the numpy type that decodes the structure, the packer that tests use, the sentences of
`rmqtx explain` and the tables of the man page `rmqtx-store(5)`. All RocketMQ integers are signed and big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_SIZES_BYTES = {"b": 1, "h": 2, "H": 2, "i": 4, "q": 8}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `code` is a struct code (b, h, H, i, q), or `Ns` for N raw bytes."""

    name: str
    code: str
    meaning: str
    unit: str = ""
    since: str = "all"

    @property
    def size_bytes(self) -> int:
        """The width on disk."""
        return int(self.code[:-1]) if self.code.endswith("s") else _SIZES_BYTES[self.code]

    @property
    def type_name(self) -> str:
        """The type as the documentation writes it."""
        if self.code.endswith("s"):
            return f"{self.code[:-1]} bytes"
        return {"b": "i8", "h": "i16", "H": "u16", "i": "i32", "q": "i64"}[self.code]


@dataclass(frozen=True, slots=True)
class VariablePart:
    """A part whose width is in other fields; documented here, decoded by code beside the layout."""

    name: str
    size: str
    meaning: str
    since: str = "all"


@dataclass(frozen=True)
class Layout:
    """A fixed structure, optionally followed by variable parts.

    Raises: AssertionError when the module loads, if the declared size is not the sum of the fields.
    """

    name: str
    title: str
    fields: tuple[Field, ...]
    size_bytes: int
    source: str
    variable: tuple[VariablePart, ...] = ()
    since: str = "all"

    def __post_init__(self) -> None:
        total = sum(field.size_bytes for field in self.fields)
        assert total == self.size_bytes, f"{self.name}: fields make {total} bytes, declared {self.size_bytes}"

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Field name → position inside the structure. Units: bytes."""
        positions, position = {}, 0
        for field in self.fields:
            positions[field.name] = position
            position += field.size_bytes
        return positions

    @cached_property
    def packer(self) -> struct.Struct:
        """The struct of all fields, big-endian."""
        return struct.Struct(">" + "".join(field.code for field in self.fields))

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The packed big-endian numpy type of all fields."""
        import numpy as np

        codes = {"b": "i1", "h": ">i2", "H": ">u2", "i": ">i4", "q": ">i8"}
        return np.dtype(
            [(f.name, f"S{f.size_bytes}" if f.code.endswith("s") else codes[f.code]) for f in self.fields]
        )

    def pack(self, **values: int | bytes) -> bytes:
        """The structure's bytes; fields not named are zero."""
        return self.packer.pack(
            *(values.pop(f.name, b"" if f.code.endswith("s") else 0) for f in self.fields)
        )

    def unpack(self, data: bytes | memoryview, position_bytes: int = 0) -> dict[str, Any]:
        """Field name → value of the structure at a position."""
        return dict(zip(self.offsets, self.packer.unpack_from(data, position_bytes), strict=True))
