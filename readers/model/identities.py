"""The identity of a transaction, its hash, and the partition that belongs to it; and how a text names a transaction.

A transaction is named by its id, by the offset message id of any of its records, or by one of its business keys.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Int64s

UInt64s = npt.NDArray[np.uint64]


_MIXER = np.uint64(0x9E3779B97F4A7C15)


#: Longer than any id that a client makes; of a longer text only the last bytes, this many, are hashed.
_HASHED_BYTES = 64
#: The kinds of places. `final` is the commit-log offset of a COMMIT record, `at` that of any record's byte.
HALF, OP, AT, FINAL = "half", "op", "at", "final"
_TYPED = re.compile(r"(?:(?P<where>.+)/)?(?P<kind>half|op|at|final):(?P<number>\d{1,19})")
#: How brokers write places in their logs, and rmqtx in columns and sentences. A line that has both is of one record.
_LOGGED_BYTE = re.compile(r"\bcommit[-_]?log[_ ]?offset['\"]?\s*[=: ]\s*(\d{1,19})\b", re.IGNORECASE)
_LOGGED_OP = re.compile(r"\bop queue offset (\d{1,19})\b")
_LOGGED_NUMBER = re.compile(
    r"\b(?:(?:half_?)?queue_?)?offset['\"]?\s*[=:]\s*(\d{1,19})\b|\bhalf (?:queue )?offset (\d{1,19})\b", re.IGNORECASE
)
_BROKER = re.compile(r"\bbrokerName=([^,\]\s]+)")
_LARGEST = (1 << 63) - 1


def identity_hashes(identities: pa.Array) -> UInt64s:
    """Return a 64-bit hash of each identity; the same text has the same hash on any machine."""
    plain = identities.cast(pa.binary())
    if not len(plain):
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(plain.buffers()[1], np.int32, len(plain) + 1 + plain.offset)[plain.offset :]
    # Every byte of an id counts, since a damaged byte makes it another id; padding in front allows reading short ids.
    text = np.concatenate([np.zeros(_HASHED_BYTES, np.uint8), np.frombuffer(plain.buffers()[2] or b"", np.uint8)])
    words = np.ndarray((len(text) - 7,), "<u8", text, 0, (1,))
    ends = offsets[1:].astype(np.int64) + _HASHED_BYTES
    lengths = np.diff(offsets).astype(np.int64)
    mixed = np.zeros(len(plain), np.uint64)
    shortest = int(lengths.min())
    for back in range(8, min(int(lengths.max()) + 7, _HASHED_BYTES) // 8 * 8 + 1, 8):
        word = words[ends - back]
        if back <= shortest:  # every identity has these eight bytes
            mixed = _mixed(mixed, word)
            continue
        kept = np.clip(lengths - (back - 8), 0, 8)
        word = np.where(kept < 8, word >> ((8 - kept) * 8 % 64).astype(np.uint64), word)
        mixed = np.where(kept > 0, _mixed(mixed, word), mixed)
    return mixed


def _mixed(hashes: UInt64s, words: UInt64s) -> UInt64s:
    changed = (hashes ^ words) * _MIXER
    changed ^= changed >> np.uint64(29)
    return changed


def partition_of(hashes: UInt64s, partitions_count: int) -> Int64s:
    """The partition of each identity, by its hash."""
    return (hashes % np.uint64(partitions_count)).astype(np.int64)


def identities(rows: pa.RecordBatch) -> pa.Array:
    """Return the identity that decides the partition of a half copy, discard copy or COMMIT record."""
    names = rows["transaction_id"]
    return pc.coalesce(names, rows["fingerprint"]) if names.null_count else names


#: What an operator can give, for messages.
NAMES_ADVICE = "give a UNIQ_KEY, the message id of any of its records, or a business key"
#: The last digits of an offset message id are the commit-log offset; the digits before are the broker's address.
OFFSET_DIGITS = 16
_MESSAGE_ID = re.compile(r"[0-9A-Fa-f]{32}([0-9A-Fa-f]{24})?")
#: Ids of one process have the same beginning and end in a counter: a shorter part would be a guess.
SHORT_ID_LENGTH_MIN = 4


def offset_of(name: str) -> int | None:
    """Return the commit-log offset in an offset message id; None for a text of another form."""
    return int(name[-OFFSET_DIGITS:], 16) if _MESSAGE_ID.fullmatch(name) else None


def ids_of(name: str) -> tuple[str, ...]:
    """Return the ids that a text names: clients and brokers write them in capitals. A key is named as it is written."""
    return tuple(dict.fromkeys((name, name.upper())))


def keys_of(keys: str | None) -> list[str]:
    """Return the business keys in the property KEYS."""
    return (keys or "").split(" ")


def is_named(name: str, transaction_id: str | None, keys: str | None) -> bool:
    """Whether a text is the id of a transaction or one of its keys."""
    return transaction_id in ids_of(name) or name in keys_of(keys)


class NameForms(IntEnum):
    """The forms of a name that a look-up takes; each has those before.

    `EXACT`: ids, message ids of records, keys. `SHORT`: also the begin or end of an id, if nothing has the name.
    `PLACES`: also the place of a record, and all keys of a table's cell; acts do not take them.
    """

    EXACT = 0
    SHORT = 1
    PLACES = 2


def are_short_for(part: str, ids: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return which ids begin or end with a text that is long enough to be no coincidence; case does not count."""
    if len(part) < SHORT_ID_LENGTH_MIN:
        return pa.array(np.zeros(len(ids), np.bool_))
    whole = pc.utf8_upper(ids)
    return pc.or_(pc.starts_with(whole, part.upper()), pc.ends_with(whole, part.upper()))


#: The ids that gRPC clients give their messages: version 1, an address, a process, seconds since 2021 and a number.
#: Source: rocketmq-clients, MessageIdCodec. Remoting clients give 32 digits.
GRPC_MESSAGE_ID = "^01[0-9A-Fa-f]{32}$"


def is_of_grpc_client(message_id: str | None) -> bool:
    """Whether a message id is one of a gRPC client, which reaches brokers only through a proxy."""
    return message_id is not None and re.fullmatch(GRPC_MESSAGE_ID, message_id) is not None


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A place in a store.

    Shape: `where`: the store or broker that the text names, if any; `is_line`: the text is a line of a log.
           `also_number`: the half queue offset that the line has beside a commit-log offset.
    """

    kind: str
    number: int
    where: str | None = None
    also_number: int | None = None
    is_line: bool = False

    @property
    def is_of_log(self) -> bool:
        """Whether the number is a commit-log offset."""
        return self.kind in (AT, FINAL)

    @property
    def words(self) -> str:
        """The place in words."""
        if self.kind == HALF:
            return f"half queue offset {self.number}"
        if self.kind == OP:
            return f"op queue offset {self.number}"
        return f"commit-log offset {self.number}"

    def is_in(self, root: str, broker_name: str | None = None) -> bool:
        """Whether a store or a broker is one that the place may be in."""
        if self.where is None:
            return True
        if self.is_line and broker_name is None:
            return True  # a store without its configuration has no name
        where = self.where.rstrip("/")
        return where in (root.rstrip("/"), PurePosixPath(root).name, root.partition("@")[2], broker_name)


def named_place(text: str) -> NamedPlace | None:
    """Return the place that a text names; None for a text of another form."""
    typed = _TYPED.fullmatch(text.strip())
    if typed is not None:
        return _valid(NamedPlace(typed["kind"], int(typed["number"]), typed["where"]))
    byte = _LOGGED_BYTE.search(text)
    number = _LOGGED_NUMBER.search(text)
    broker = _BROKER.search(text)
    where = broker[1] if broker else None
    half = None if number is None else int(number[1] or number[2])
    if byte is not None:
        return _valid(NamedPlace(AT, int(byte[1]), where, half, is_line=True))
    op = _LOGGED_OP.search(text)
    if op is not None:
        return _valid(NamedPlace(OP, int(op[1]), where, is_line=True))
    return None if half is None else _valid(NamedPlace(HALF, half, where, is_line=True))


def _valid(place: NamedPlace) -> NamedPlace | None:
    return place if place.number <= _LARGEST else None


def keys_of_cell(text: str) -> Collection[str]:
    """Return the business keys in a copied cell of a table; nothing for a text with one key or a place."""
    words = text.split()
    return words if len(words) > 1 and named_place(text) is None else ()
