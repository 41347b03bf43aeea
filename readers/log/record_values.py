"""One record of the log as values: its columns, and its body decompressed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from rmqtx.readers.log.commit_log import record_columns
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMPRESSED, RECORD_BYTES_MIN, number_at
from rmqtx.readers.model.columns import SLACK_BYTES
from rmqtx.readers.model.errors import FormatError
from rmqtx.readers.model.units import time_text

#: Columns of RECORDS that are returned.
_COLUMNS = (
    "transaction_id", "producer_group", "real_topic", "real_queue_id", "keys", "tags", "born_time_ms", "born_host",
    "flag", "sys_flag", "topic", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms", "store_host",
    "message_id", "checks", "body_crc", "body_crc_matches", "properties",
)


def message_of(record: bytes) -> dict[str, Any]:
    """Return a decoded record as JSON values.

    Shape: columns of RECORDS; `body_base64`: the decompressed body; `body_text`: the body as text where it is UTF-8,
           else null. `body_is_readable` is false where the record has the flag for compression and the body cannot be
           decompressed: then `body_base64` is as stored.
    Raises: FormatError.
    """
    block = block_of(record)
    values = {name: one[0].as_py() for name, one in zip(_COLUMNS, _columns(block, _COLUMNS), strict=True)}
    stored: bytes = _columns(block, ("body",))[0][0].as_py()
    body: bytes | None = stored
    if int(block.sys_flag[0]) & COMPRESSED:
        body = record_columns(block, "", ["body"], decompress=True)[0][0].as_py()
    kept = stored if body is None else body
    return {
        **_with_times({**values, "properties": dict(values["properties"] or [])}),
        "body_is_readable": body is not None,
        "body_length_bytes": len(kept),
        "body_base64": base64.b64encode(kept).decode("ascii"),
        "body_text": _text(kept),
    }


def block_of(record: bytes) -> Block:
    """One record as a block. Raises: FormatError."""
    if len(record) < RECORD_BYTES_MIN or number_at(record, "length_bytes") != len(record):
        raise FormatError(f"{len(record)} bytes are not a record: its length field differs")
    block = Block(record + bytes(SLACK_BYTES), number_at(record, "commit_log_offset"), 0, "", np.zeros(1, np.int64))
    if not block.sound().all():
        raise FormatError("the parts of the record do not add up to its length")
    return block


def _columns(block: Block, names: tuple[str, ...]) -> list[Any]:
    return record_columns(block, "", list(names))


def _with_times(values: Mapping[str, Any]) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, value in values.items():
        result[name] = value
        if name.endswith("time_ms"):
            result[name.removesuffix("_ms")] = time_text(value) or None
    return result


def _text(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None
