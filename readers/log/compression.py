"""Decompress bodies: the method in the system flag, whether the bytes are a stream of that method, and its contents.

Source: common/sysflag/MessageSysFlag.java, common/compression; docs/formats/record.md#system-flag,
docs/formats/record.md#body. LZ4 and ZSTD since 4.9.4/5.0.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

COMPRESSED = 0x1
KIND_MASK = 0x700
_LZ4, _ZSTD = 0x100, 0x200
_LZ4_MAGIC, _ZSTD_MAGIC = b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"

#: Limit of a decompressed body: brokers refuse bodies over 4 MiB, but a damaged or hostile one may be longer.
INFLATED_BYTES_MAX = 256 << 20
_PIECE_BYTES = 1 << 20


def is_stream(head: bytes, sys_flag: int) -> bool:
    """Whether a body with the flag for compression begins like a compressed stream. `head`: its first four bytes."""
    kind = sys_flag & KIND_MASK
    if kind == _LZ4:
        return head.startswith(_LZ4_MAGIC)
    if kind == _ZSTD:
        return head.startswith(_ZSTD_MAGIC)
    return len(head) >= 2 and head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0


def inflate(body: bytes, sys_flag: int) -> bytes | None:
    """Return the decompressed body; None if the flag marks it as compressed and it is not a complete stream."""
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & KIND_MASK
    if kind in (_LZ4, _ZSTD):
        return _inflated(body, "lz4" if kind == _LZ4 else "zstd")
    machine = zlib.decompressobj()
    try:
        inflated = machine.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error:
        return None
    return inflated if machine.eof else None


def _inflated(body: bytes, codec: str) -> bytes | None:
    """Return the contents of an LZ4 or ZSTD stream, read in parts: a read allocates the length that it requests."""
    pieces: list[bytes] = []
    left = INFLATED_BYTES_MAX
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            while piece := stream.read(min(_PIECE_BYTES, left)):
                pieces.append(piece)
                left -= len(piece)
                if not left:
                    return None
    except (pa.ArrowInvalid, OSError):
        return None
    return b"".join(pieces)
