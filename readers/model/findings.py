"""All finding codes, and the rows of the table `findings`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rmqtx.readers.finding_kinds import config, log, queues, receipts, startup, tables, transactions
from rmqtx.readers.finding_kinds.kind import Kind, Severity

if TYPE_CHECKING:
    pass

#: Codes never change.
KINDS: dict[str, Kind] = {
    **log.KINDS,
    **queues.KINDS,
    **config.KINDS,
    **transactions.KINDS,
    **tables.KINDS,
    **startup.KINDS,
    **receipts.KINDS,
}
#: Without a limit, a file of garbage would yield a finding for every second slot.
FINDINGS_MAX = 100

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of `findings`. Units: bytes. `title`, `meaning` and `advice` override the texts of the kind."""

    store: str
    code: str
    file: str | None = None
    position_bytes: int | None = None
    length_bytes: int | None = None
    commit_log_offset: int | None = None
    expected: str | None = None
    actual: str | None = None
    meaning: str | None = None
    advice: str | None = None
    title: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Finding:
        """Make it from a row of FINDINGS."""
        return cls(**{one.name: row[one.name] for one in fields(cls) if one.name in row})

    @property
    def kind(self) -> Kind:
        """Return the entry of the register for this code."""
        return KINDS[self.code]

    @property
    def is_error(self) -> bool:
        """Whether it makes an answer incomplete: evidence is missing or damaged."""
        return self.kind.severity is Severity.ERROR

    def line(self) -> str:
        """Return the finding as one line of text."""
        where = self.file or self.store
        if self.position_bytes is not None:
            where += f" at byte {self.position_bytes}"
            if self.length_bytes is not None:
                where += f", {self.length_bytes} bytes"
        detail = ""
        values = (("expected", self.expected), ("found", self.actual))
        shown = [f"{word} {value}" for word, value in values if value is not None]
        if shown:
            detail = f" ({', '.join(shown)})"
        meaning = self.meaning or self.kind.meaning
        return f"{self.kind.severity}: {self.code}: {where}: {self.title or self.kind.title}{detail}: {meaning}"


def as_text(path: str | os.PathLike[str] | Path) -> str:
    """Return a path as text for a row; bytes that cannot be decoded are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def few(values: Sequence[object], most: int = 5, mark: str = ", ") -> str:
    """Return the first `most` values, joined, and the number of the others."""
    others = len(values) - most
    return mark.join(str(value) for value in values[:most]) + (f" and {others} more" if others > 0 else "")


def one_by_one(items: Sequence[_Item], what: str) -> Iterator[tuple[_Item, str]]:
    """Return the first FINDINGS_MAX items, each with a suffix for its sentence; the last suffix counts the rest.

    `what`: the plural noun that the last suffix counts.
    """
    for number, item in enumerate(items[:FINDINGS_MAX]):
        left = len(items) - FINDINGS_MAX if number == FINDINGS_MAX - 1 else 0
        yield item, f", and {left} more {what}" if left > 0 else ""
