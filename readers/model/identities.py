"""The identity of a transaction, its hash, and the partition that belongs to it."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Int64s

UInt64s = npt.NDArray[np.uint64]


_MIXER = np.uint64(0x9E3779B97F4A7C15)


#: Longer than any id that a client makes; of a longer text only the last bytes, this many, are hashed.
_HASHED_BYTES = 64


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


#: The ids that gRPC clients give their messages: version 1, an address, a process, seconds since 2021 and a number.
#: Source: rocketmq-clients, MessageIdCodec. Remoting clients give 32 digits.
GRPC_MESSAGE_ID = "^01[0-9A-Fa-f]{32}$"


def is_of_grpc_client(message_id: str | None) -> bool:
    """Whether a message id is one of a gRPC client, which reaches brokers only through a proxy."""
    return message_id is not None and re.fullmatch(GRPC_MESSAGE_ID, message_id) is not None
