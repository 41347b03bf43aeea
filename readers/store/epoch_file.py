"""Read the epoch file of a replica under a controller (5.0.0+): the commit-log offset at which each master began.

A text file: the number of entries, their checksum, then one line `epoch-offset` for each entry. A replica that joins
again truncates its log after the last epoch that it shares with its master, so bytes changed after that point are
lost (docs/formats/store.md#epochs).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import pyarrow as pa

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Note, NoteKind, Reading
from rmqtx.readers.model.tables import EPOCHS
from rmqtx.readers.store.fastjson import read_text
from rmqtx.readers.store.store import Store

FILE_NAME = "epochFileCheckpoint"
_ENTRY = re.compile(r"(\d{1,18})-(\d{1,19})")
_CHECKSUM_MASK = 0x7FFFFFFF


def read_epochs(store: Store) -> Reading:
    """Return the epochs of a store; none if it has no epoch file.

    Shape:  rows of EPOCHS.
    Order:  the file's.
    Damage: epochs-damaged for a wrong count or checksum, or a line that is not an entry (no row); unreadable-file.
    Source: store/ha/autoswitch/EpochFileCache.java, common/utils/CheckpointFile.java (5.1.4);
            docs/formats/store.md#epochs.
    """
    reading = Reading(EPOCHS, ())
    reading.batches = _batches(store, reading)
    return reading


def _batches(store: Store, reading: Reading) -> Iterator[pa.RecordBatch]:
    place = store.place(FILE_NAME)
    try:
        text = read_text(place, store.files)
    except UnreadableFile as error:
        reading.findings.append(Finding(store.root, "unreadable-file", place, actual=error.message))
        return
    except BadText as error:
        reading.findings.append(Finding(store.root, "epochs-damaged", place, actual=error.message))
        return
    if text is None:
        why = f"{store.root} has no {FILE_NAME}: the broker has no controller, or storePathEpochFile moved it"
        reading.notes.append(Note(NoteKind.WHY, why))
        return
    lines = text.splitlines()
    entries = [match for line in lines[2:] if (match := _ENTRY.fullmatch(line.strip()))]
    for trouble in _troubles(lines, len(entries)):
        reading.findings.append(Finding(store.root, "epochs-damaged", place, expected=trouble[0], actual=trouble[1]))
    epochs, offsets = ([int(match[part]) for match in entries] for part in (1, 2))
    if entries:
        yield pa.record_batch(
            [
                pa.array([store.root] * len(entries), pa.string()),
                pa.array([place] * len(entries), pa.string()),
                pa.array(epochs, pa.int64()),
                pa.array(offsets, pa.int64()),
                pa.array([*offsets[1:], None], pa.int64()),
            ],
            schema=EPOCHS,
        )


def _troubles(lines: list[str], entries_count: int) -> Iterator[tuple[str, str]]:
    """Yield contradictions within the file: expected and found."""
    if entries_count != len(lines[2:]):
        yield "only lines of the form EPOCH-OFFSET", f"{len(lines[2:]) - entries_count} other lines"
    if not lines or lines[0].strip() != str(len(lines[2:])):
        yield f"{len(lines[2:])} as the count in line 1", repr(lines[0] if lines else "")
    checksum = zlib.crc32("".join(f"{line}\n" for line in lines[2:]).encode()) & _CHECKSUM_MASK
    if len(lines) < 2 or lines[1].strip() != str(checksum):
        yield f"{checksum} as the checksum in line 2", repr(lines[1] if len(lines) > 1 else "")
