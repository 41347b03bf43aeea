"""The content of the frames of an undo file: declared forms, and the checks beyond them.

An undo file determines what is written to which file, so a file from elsewhere must name only a broker's own files
below the store's root, and give them only values that such files can have.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import TypedDict

import pyarrow as pa

from rmqtx.readers.model.declared_json import JsonForm, list_of, needed, parsed, shown
from rmqtx.readers.model.errors import BadRequest, BadText
from rmqtx.repairs.changes.change_sets import check_path
from rmqtx.repairs.changes.edits import CREATE, KINDS, REMOVE, REPLACE, WRITE
from rmqtx.repairs.changes.fingerprints import FilePrint

_NAME = "undo file"
_TEXT, _WHOLE, _PATH = pa.string(), pa.int64(), pa.binary()

HEAD_FORM = JsonForm(
    _NAME,
    pa.struct(
        [
            needed("undo_id", _TEXT), needed("root", _PATH), pa.field("first_record", _TEXT),
            needed("about", list_of(_TEXT)), needed("made_by", _TEXT), needed("who", _TEXT),
            needed("made_time_ms", _WHOLE), pa.field("receipts", list_of(_TEXT)),
            pa.field("has_new_lock", pa.bool_()),
        ]
    ),
)
_ATTRIBUTES = pa.struct(
    [needed("mode", _WHOLE), needed("user", _WHOLE), needed("group", _WHOLE), needed("modified_ns", _WHOLE)]
)
EDIT_FORM = JsonForm(
    _NAME,
    pa.struct(
        [
            needed("kind", _TEXT), needed("path", _PATH), needed("group", _WHOLE), pa.field("position_bytes", _WHOLE),
            pa.field("before_bytes", _WHOLE), pa.field("after_bytes", _WHOLE), pa.field("attributes", _ATTRIBUTES),
        ]
    ),
)
_PRINT_FORM = JsonForm(
    _NAME,
    list_of(
        pa.struct(
            [
                needed("path", _PATH), needed("size_bytes", _WHOLE), pa.field("modified_ns", _WHOLE),
                pa.field("digest", _TEXT),
            ]
        )
    ),
)
END_FORM = JsonForm(_NAME, pa.struct([needed("edits_count", _WHOLE)]))
STATE_FORM = JsonForm(
    _NAME,
    pa.struct(
        [
            needed("state", _TEXT), needed("time_ms", _WHOLE), needed("who", _TEXT),
            needed("times", pa.map_(_PATH, pa.field("time", _WHOLE, nullable=False))),
        ]
    ),
)
#: Limit for the list of files, above that of any real store.
_PRINT_BYTES_MAX = 1 << 28
_SIZE_BYTES_MAX = 1 << 42
_UNDO_ID = re.compile(r"[0-9a-f]{16}")
#: What each kind of edit has: a position, content before, content after.
_HAS = {
    WRITE: (True, True, True), CREATE: (False, False, True), REPLACE: (False, None, True), REMOVE: (False, True, False),
}  # fmt: skip


class UndoHead(TypedDict):
    """The head of an undo file; `receipts` and `has_new_lock` are None in files of versions without the field."""

    undo_id: str
    root: str
    first_record: str | None
    about: list[str]
    made_by: str
    who: str
    made_time_ms: int
    receipts: list[str] | None
    has_new_lock: bool | None


class EditValues(TypedDict):
    """An edit in an undo file, without its content."""

    kind: str
    path: str
    group: int
    position_bytes: int | None
    before_bytes: int | None
    after_bytes: int | None
    attributes: dict[str, int] | None


def head_of(content: bytes, path: Path) -> UndoHead:
    """Return the head of an undo file.

    Raises: BadText.
    """
    found = parsed(content, str(path), _NAME)
    if isinstance(found, dict):
        found.setdefault("receipts", None)
        found.setdefault("has_new_lock", None)
    values: UndoHead = HEAD_FORM.check(found, str(path))
    if not _UNDO_ID.fullmatch(values["undo_id"]):
        raise HEAD_FORM.bad(str(path), "undo_id", "16 hexadecimal digits", shown(values["undo_id"]))
    if not Path(values["root"]).is_absolute():
        raise HEAD_FORM.bad(str(path), "root", "an absolute path", shown(values["root"]))
    return values


def print_of(content: bytes, path: Path) -> list[FilePrint]:
    """Return the fingerprint in an undo file.

    Raises: BadText; zlib.error for damaged content.
    """
    inflater = zlib.decompressobj()
    text = inflater.decompress(content, _PRINT_BYTES_MAX)
    if inflater.unconsumed_tail or not inflater.eof:
        raise BadText(f"{path} is not a valid {_NAME}: its list of files is incomplete, or far too long", file=path)
    return [FilePrint(**values) for values in _PRINT_FORM.read(text, str(path))]


def edit_of(content: bytes, path: Path) -> EditValues:
    """Return an edit in an undo file, after checking that its parts fit together.

    Raises: BadText.
    """
    values: EditValues = EDIT_FORM.read(content, str(path))

    def bad(field: str, expected: str) -> BadText:
        return EDIT_FORM.bad(str(path), field, expected, shown(values.get(field)))

    if values["kind"] not in KINDS:
        raise bad("kind", f"one of {', '.join(KINDS)}")
    try:
        check_path(values["path"])
    except BadRequest as error:
        raise BadText(f"{path} is not a valid {_NAME}: {error.message}", file=path) from error
    sizes = {
        "position_bytes": values["position_bytes"], "before_bytes": values["before_bytes"],
        "after_bytes": values["after_bytes"],
    }
    for (field, value), has in zip(sizes.items(), _HAS[values["kind"]], strict=True):
        if has is not None and has != (value is not None):
            raise bad(field, "a number" if has else "null")
        if value is not None and not 0 <= value < _SIZE_BYTES_MAX:
            raise bad(field, "a length or a position in a file")
    if values["kind"] == WRITE and values["before_bytes"] != values["after_bytes"]:
        raise bad("after_bytes", "as many bytes as before")
    if values["attributes"] is None and values["before_bytes"] is not None:
        raise bad("attributes", "the attributes of the file")
    if values["attributes"] is not None and not 0 <= values["attributes"]["mode"] <= 0o777:
        raise EDIT_FORM.bad(str(path), "attributes.mode", "permission bits", str(values["attributes"]["mode"]))
    return values
