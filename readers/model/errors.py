"""The errors that stop a command: one tree; an error has the place, what was expected and what was found.

Damage is a row of the table `findings`, not an error; an error leaves nothing to report.
Every class can be pickled, because worker processes pass errors to the command that reports them.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar


class RmqtxError(Exception):
    """A message of one line, with the place of the error.

    Shape: `message` for people; `file`, `position_bytes`, `field`, `expected`, `actual` for programs; `advice`
    is the next step. `status`: the exit status of a command that ends with it.
    """

    status: ClassVar[int] = 10

    def __init__(
        self, message: str, *, file: str | os.PathLike[str] | None = None, position_bytes: int | None = None,
        field: str | None = None, expected: object = None, actual: object = None, advice: str | None = None,
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


def _rebuild(kind: type[RmqtxError], message: str, state: dict[str, object]) -> RmqtxError:
    error = kind(message)
    error.__dict__.update(state)
    return error


class SourceError(RmqtxError):
    """The bytes are not available at all."""


class NotAStore(SourceError):
    """The path is not a store that this version of rmqtx can read."""


class UnreadableFile(SourceError):
    """A file exists but cannot be opened or read."""


class MissingLibrary(SourceError):
    """An optional library is not installed."""


class FileChanged(SourceError):
    """A file shrank or vanished while it was being read."""


class UnwritableFile(RmqtxError):
    """A result cannot be written."""


class FormatError(RmqtxError):
    """Bytes contradict a declared layout."""


class BadText(FormatError):
    """A text file (configuration, cursors) cannot be parsed."""


class BadRequest(RmqtxError):
    """The request is wrong: a filter that cannot be parsed, a column that does not exist."""

    status = 2


class NoSuchTransaction(RmqtxError):
    """No record with the given id, message id or key was found."""

    status = 16


class EvidenceMissing(RmqtxError):
    """No record with an id, message id or key was found, and files that may hold one are missing or damaged."""

    status = 3


class EvidenceUnreadable(EvidenceMissing):
    """No record was found, and files that may hold one cannot be read by this user."""

    status = 10


class NotApproved(RmqtxError):
    """A plan does not have the approval that was required."""

    status = 12


class StoreInUse(RmqtxError):
    """A broker or another rmqtx uses the store, so nothing may be changed in it."""

    status = 11


class UnsafeStore(RmqtxError):
    """Nothing may be changed in the store, because the effect on its broker cannot be predicted."""

    status = 12


class StalePlan(RmqtxError):
    """The evidence of a plan has changed; nothing was done."""

    status = 13


class StoreChanged(RmqtxError):
    """The store is no longer as it was when the change was planned."""

    status = 13
