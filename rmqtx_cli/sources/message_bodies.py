"""The body of a transaction's message, from the newest of its records that can be read."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model.errors import FormatError
from rmqtx.repairs.receipts.saved_messages import message_of

if TYPE_CHECKING:
    from rmqtx_cli.sources.source import Source

#: Records with the body, in the order in which they are read.
_WITH_BODY = ("half_copies", "final_records", "discard_copies")


def message_body(transaction: Mapping[str, Any], source: Source) -> bytes | None:
    """Return the body, decompressed; None if no record of it can be read or decompressed."""
    return next(_bodies(transaction, source), None)


def body_of(record: bytes) -> bytes | None:
    """Return the body of a record, decompressed; None if that is not possible."""
    try:
        message = message_of(record)
    except FormatError:
        return None
    return base64.b64decode(message["body_base64"]) if message["body_is_readable"] else None


def _bodies(transaction: Mapping[str, Any], source: Source) -> Iterator[bytes]:
    for column in _WITH_BODY:
        for copy in reversed(transaction[column]):
            record = source.record(copy["store"], copy["commit_log_offset"])
            body = None if record is None else body_of(record)
            if body is not None:
                yield body
