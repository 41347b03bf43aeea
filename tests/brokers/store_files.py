"""The files of a store that a broker wrote, as the rig itself looks at them and changes them: not by our readers."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path

from tests.brokers.rig import OP_TOPIC

MAGIC = (0xDAA320A7, 0xDAA320AB)
BLANK = 0xCBD43194
DLEDGER_ENTRY, DLEDGER_BLANK = 1, -1


def allow_reading_ops(topics: Path, others: Iterable[str] = ()) -> None:
    """Give the copy's configuration an entry for the op topic, without which 4.x does not serve it, and for others."""
    if not topics.exists():  # the configuration is in RocksDB, whose versions serve the topic
        return
    text = topics.read_text()
    for topic in (OP_TOPIC, *others):
        if f'"{topic}":' not in text:
            entry = f'"{topic}":{{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
            entry += f'"topicName":"{topic}",'
            entry += '"topicSysFlag":0,"writeQueueNums":4},'
            found = re.search(r'"topicConfigTable":\s*\{', text)
            text = text if found is None else text[: found.end()] + entry + text[found.end():]
    topics.write_text(text)


def log_end(store: Path) -> int:
    """Where the commit log ends: the records' own lengths, followed from the first file on."""
    logs = [*store.glob("commitlog*/*"), *store.glob("dledger-*/data/*")]
    files = sorted((path for path in logs if path.name.isdigit()), key=lambda path: path.name)
    end = int(files[0].name) if files else 0
    for path in files:
        data = path.read_bytes()
        position, start = 0, int(path.name)
        while position + 8 <= len(data):
            length, magic = struct.unpack_from(">iI", data, position)
            if length == DLEDGER_ENTRY:  # there the magic comes first
                length, magic = magic, MAGIC[0]
            if magic == BLANK or length == DLEDGER_BLANK:
                position = len(data)
            elif magic in MAGIC and length > 0:
                position += length
            else:
                return start + position
        end = start + len(data)
    return end
