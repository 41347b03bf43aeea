"""The parts of an installation that `rmqtx doctor` examines: rows with what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import pyarrow as pa

from rmqtx.readers.model.tables import column
from rmqtx_cli.output.views import ALWAYS, View, plain

#: One part of an installation.
INSTALLATION = pa.schema(
    [
        column("place", pa.string(), "where it was examined: here, or an executor of Spark by its host and process"),
        column("part", pa.string(), "Python, a package, an extra of pip, Java, a folder, credentials, a store"),
        column("outcome", pa.string(), "ok, note (most works without the part), problem"),
        column("found", pa.string(), "what was found; of credentials only the names"),
        column("advice", pa.string(), "what to do; null if nothing"),
    ]
)
HERE = "here"


@dataclass(frozen=True, slots=True)
class Part:
    """One row of INSTALLATION."""

    place: str
    part: str
    outcome: str
    found: str
    advice: str | None = None


def ok(place: str, part: str, found: str) -> Part:
    """Return a part that is as needed."""
    return Part(place, part, "ok", found)


def note(place: str, part: str, found: str, advice: str | None = None) -> Part:
    """Return a part without which most works."""
    return Part(place, part, "note", found, advice)


def problem(place: str, part: str, found: str, advice: str | None = None) -> Part:
    """Return a part that stops what was asked for."""
    return Part(place, part, "problem", found, advice)


def installation_table(parts: Iterable[Part]) -> pa.Table:
    """Return rows of INSTALLATION. Order: as given."""
    rows = [dict(zip(INSTALLATION.names, astuple(part), strict=True)) for part in parts]
    return pa.Table.from_pylist(rows, schema=INSTALLATION)


def installation_view() -> View:
    """Return the printed table."""
    return View((
        plain("place", ALWAYS), plain("part", ALWAYS), plain("outcome", ALWAYS),
        plain("found", ALWAYS, wraps=True, least_cells=24), plain("advice", 1, wraps=True, least_cells=24),
    ))
