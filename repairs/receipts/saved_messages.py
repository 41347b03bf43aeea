"""Messages saved beside the receipts, so that a discarded message stays readable.

Each message has two files: `RECEIPT_ID.record`, the record byte for byte as in the commit log, and `RECEIPT_ID.json`,
the decoded record with its body decompressed. Both are on disk before anything is sent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from rmqtx.readers.log.record_values import message_of
from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.repairs.receipts.receipts import is_receipt_id
from rmqtx.verdicts.export.folder import on_disk

DIRECTORY = "messages"


def save_message(record: bytes, receipt_id: str, directory: Path) -> Path:
    """Save a message, and return the file with the decoded record.

    `directory`: that of the journal.
    Raises: FormatError if the bytes are not a record; UnwritableFile: then nothing must be sent.
    """
    if not is_receipt_id(receipt_id):
        raise ValueError(receipt_id)
    facts = message_of(record)
    place = directory / DIRECTORY
    kept = place / f"{receipt_id}.record"
    decoded = place / f"{receipt_id}.json"
    text = json.dumps({"receipt_id": receipt_id, "record_file": kept.name, **facts}, ensure_ascii=True, indent=1)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(kept, record)
        _write(decoded, text.encode("ascii") + b"\n")
        on_disk(place)
        on_disk(directory)
    except OSError as error:
        raise UnwritableFile(
            f"cannot save the message in {place}: {error.strerror or error}; nothing was discarded", file=place,
            advice="free some space, or set RMQTX_STATE_DIR to another directory",
        ) from error
    return decoded


def _write(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
