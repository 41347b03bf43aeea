"""What can stop a reading: one tree, and every error says where, what was expected and what was found.

Damage is not an error but a row of the table `findings`; an error is what leaves nothing to answer with.
Every class survives pickling, because errors travel from worker processes to the command that reports them.
"""

from __future__ import annotations

import os
from typing import Any


class RmqtxError(Exception):
    """One readable line, with the place it happened at.

    Shape: `message` for people; `file`, `position_bytes`, `field`, `expected`, `actual` for programs; `advice`
    says what to do next.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | os.PathLike[str] | None = None,
        position_bytes: int | None = None,
        field: str | None = None,
        expected: object = None,
        actual: object = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = None if file is None else os.fspath(file)
        self.position_bytes = position_bytes
        self.field = field
        self.expected = expected
        self.actual = actual
        self.advice = advice

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))

    def __str__(self) -> str:
        parts = [self.message]
        if self.file is not None and self.file not in self.message:
            where = self.file if self.position_bytes is None else f"{self.file} at byte {self.position_bytes}"
            parts.append(f"({where})")
        if self.field is not None:
            parts.append(f"[{self.field}: expected {self.expected}, found {self.actual}]")
        if self.advice is not None:
            parts.append(f"- {self.advice}")
        return " ".join(parts)


def _rebuild(kind: type[RmqtxError], message: str, state: dict[str, Any]) -> RmqtxError:
    error = kind(message)
    error.__dict__.update(state)
    return error


class SourceError(RmqtxError):
    """The bytes cannot be had at all."""


class NotAStore(SourceError):
    """The path is not a store that this version can read."""


class UnreadableFile(SourceError):
    """A file exists but cannot be opened or read."""


class MissingLibrary(SourceError):
    """A library that is an extra of this one is not installed."""


class FileChanged(SourceError):
    """A file shrank or vanished while it was being read."""


class UnwritableFile(RmqtxError):
    """A result cannot be written."""


class FormatError(RmqtxError):
    """Bytes contradict a declared layout."""


class BadText(FormatError):
    """A text file (configuration, cursors) cannot be parsed."""


class BadRequest(RmqtxError):
    """The question itself is wrong: a filter that cannot be parsed, a column that does not exist."""


class NoSuchTransaction(RmqtxError):
    """No witness of the given id, message id or key was found."""


class EvidenceMissing(RmqtxError):
    """No witness of an id, message id or key was found, but not all that may hold one is there and sound."""


class EvidenceUnreadable(EvidenceMissing):
    """The same, because files cannot be read by whoever asks."""


class StoreInUse(RmqtxError):
    """A broker, or another rmqtx, uses the store: nothing may be changed in it."""


class UnsafeStore(RmqtxError):
    """A store in which nothing may be changed, because what its broker would make of it cannot be foreseen."""


class StoreChanged(RmqtxError):
    """A store is not as what was planned for it supposes."""
