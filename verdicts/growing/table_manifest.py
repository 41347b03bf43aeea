"""The manifest of a Parquet table of verdicts: the files of the present version. Its replacement is the commit.

    TABLE/_rmqtx/manifest.json       TABLE/day=2026-01-31/part-00000007-0000-….parquet

A reader that lists the files once from the manifest reads one version: files never change, and a file that is replaced
stays for RETENTION_MS. On a disk the manifest is replaced by one rename, in an object store by one request.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from rmqtx.readers.model.declared_json import JsonForm, list_of, needed, shown, struct_of
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.storage.places import is_uri
from rmqtx.verdicts.export.folder import STATE_DIRECTORY, is_own_name, write_json

#: Changes with the form of the table.
FORMAT_VERSION = 1
NAME = "manifest.json"
#: How long a replaced file stays for readers that began before its replacement.
RETENTION_MS = 24 * HOUR_MS
_BYTES_MAX = 1 << 28


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file. `is_open`: whether it has only current rows that are about to change. Shape: `day` as 2026-01-31."""

    name: str
    day: str | None
    is_open: bool
    rows_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RetiredFile:
    """A replaced file, and since when it is."""

    name: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class TableManifest:
    """A version of the table.

    Shape: `steps`: for each store the token of the last step; `states`: the number of current rows of each state.
    """

    version: int = 0
    made_at_ms: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    files: tuple[TableFile, ...] = ()
    retired: tuple[RetiredFile, ...] = ()


_COUNTS = pa.map_(pa.string(), needed("value", pa.int64()))
_FORM = JsonForm(
    "manifest of a table of verdicts",
    pa.struct([
        needed("format", pa.string()), *(needed(name, pa.int64()) for name in ("format_version", "version")),
        needed("made_at_ms", pa.int64()), needed("steps", _COUNTS), needed("states", _COUNTS),
        needed("files", list_of(struct_of(TableFile))), needed("retired", list_of(struct_of(RetiredFile))),
    ]),
)
_FORMAT = "rmqtx verdicts"


def read_manifest(system: fs.FileSystem, top: str, place: str) -> TableManifest | None:
    """Return the manifest of a table; None if the folder has none. `place` names the table in errors.

    Raises: BadText if it is not a manifest, BadRequest for a table of another version; OSError.
    """
    path = f"{top}/{STATE_DIRECTORY}/{NAME}"
    try:
        with system.open_input_file(path) as stream:
            data = stream.read(_BYTES_MAX)
    except FileNotFoundError:
        return None
    value: dict[str, Any] = _FORM.read(data, f"{place}/{STATE_DIRECTORY}/{NAME}")
    if value["format"] != _FORMAT or value["format_version"] != FORMAT_VERSION:
        raise BadRequest(f"{place} is a table of another version of rmqtx", advice="give another folder")
    for kind in ("files", "retired"):
        for number, file in enumerate(value[kind]):  # retired ones are deleted
            if not is_own_name(file["name"]):
                raise _FORM.bad(place, f"{kind}[{number}].name", "a file of this table", shown(file["name"]))
    return TableManifest(
        value["version"], value["made_at_ms"], dict(value["steps"]), dict(value["states"]),
        tuple(TableFile(**file) for file in value["files"]), tuple(RetiredFile(**file) for file in value["retired"]),
    )


def write_manifest(system: fs.FileSystem, top: str, place: str, manifest: TableManifest) -> None:
    """Replace the manifest: readers find the old one or the new one. Raises: OSError."""
    facts = {"format": _FORMAT, "format_version": FORMAT_VERSION, **asdict(manifest)}
    if is_uri(place):
        with system.open_output_stream(f"{top}/{STATE_DIRECTORY}/{NAME}") as stream:
            stream.write(json.dumps(facts).encode())
    else:
        write_json(Path(top) / STATE_DIRECTORY / NAME, facts)
