"""Where `-o` writes: a file, or a folder, which is named by a slash at its end or by a URI."""

from __future__ import annotations

from pathlib import Path, PosixPath

from rmqtx.readers.storage.places import is_uri


class OutputFolder(PosixPath):
    """A folder as it was typed. `place`: its path or URI."""

    place: str


def parse_output(text: str) -> Path:
    """Return the place that `-o` names.

    Shape: an OutputFolder for an existing folder, for a name that ends in a slash, and for a URI.
    """
    if not (text.endswith("/") or is_uri(text) or Path(text).is_dir()):
        return Path(text)
    folder = OutputFolder(text)
    folder.place = text
    return folder
