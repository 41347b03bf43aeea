"""An account of the bytes that a command read, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqtx.readers.model.reading import Coverage, Reading


def accounting(reading: Reading) -> str | None:
    """The sum decoded + filler + damaged + unread = size over all files; None if no file was read."""
    return amounts_of(reading.coverage)


def amounts_of(files: Sequence[Coverage]) -> str | None:
    """The same for the coverage of some files."""
    if not files:
        return None
    parts = {
        name: sum(getattr(file, f"{name}_bytes") for file in files)
        for name in ("decoded", "filler", "damaged", "unread")
    }
    total = sum(file.size_bytes for file in files)
    amounts = " + ".join(f"{number} {name}" for name, number in parts.items())
    return f"{amounts} = {total} bytes in {count(len(files), 'file')}"
