"""Records of the commit log from their declared layout."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from rmqtx.readers.log.record_layout import BLANK, BORN_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD, STORE_V6

FIRST_MS = 1_700_000_000_000
Properties = Iterable[tuple[str, str]]


def signed(number: int, width_bytes: int = 4) -> int:
    """An unsigned number as the signed one with the same bits: magic codes are such."""
    return int.from_bytes(number.to_bytes(width_bytes, "big"), "big", signed=True)


def body_crc(body: bytes) -> int:
    """The CRC that a broker stores for a body."""
    return zlib.crc32(body) & 0x7FFFFFFF if body else 0


def properties_area(properties: Properties, *, is_closed: bool = True) -> bytes:
    """Properties as stored; brokers from 4.9.1 to 5.1.4 leave the last end mark out (`is_closed=False`)."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties)
    return (text if is_closed else text.removesuffix("\x02")).encode()


@dataclass(frozen=True, kw_only=True)
class Message:
    """A record before it has its place. `crc`: another than the body's own; `hosts` may be IPv6."""

    topic: str = "orders"
    queue_id: int = 0
    queue_offset: int = 0
    body: bytes = b"body"
    properties: tuple[tuple[str, str], ...] = ()
    sys_flag: int = 0
    flag: int = 0
    born_time_ms: int = FIRST_MS
    store_time_ms: int = FIRST_MS + 1
    born_host: tuple[str, int] = ("10.0.0.7", 40_000)
    store_host: tuple[str, int] = ("10.0.0.1", 10_911)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    version: int = 1
    is_closed: bool = True
    crc: int | None = field(default=None)

    def record(self, commit_log_offset: int) -> bytes:
        """The record's bytes at a place of the log."""
        born, store = (ipaddress.ip_address(host) for host, _ in (self.born_host, self.store_host))
        sys_flag = self.sys_flag | (BORN_V6 if born.version == 6 else 0) | (STORE_V6 if store.version == 6 else 0)
        topic, properties = self.topic.encode(), properties_area(self.properties, is_closed=self.is_closed)
        is_v2 = self.version == 2
        head = RECORD.pack(
            magic=signed(MAGIC_V2 if is_v2 else MAGIC_V1),
            body_crc=body_crc(self.body) if self.crc is None else self.crc,
            queue_id=self.queue_id,
            flag=self.flag,
            queue_offset=self.queue_offset,
            commit_log_offset=commit_log_offset,
            sys_flag=sys_flag,
            born_time_ms=self.born_time_ms,
            born_port=self.born_host[1],
            store_time_ms=self.store_time_ms,
            store_port=self.store_host[1],
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
            body_length_bytes=len(self.body),
        )
        at = RECORD.offsets
        head = b"".join(
            (
                head[: at["born_address"]], born.packed, head[at["born_port"] : at["store_address"]],
                store.packed, head[at["store_port"] :],
            )
        )
        rest = b"".join(
            (
                self.body, len(topic).to_bytes(2 if is_v2 else 1, "big"), topic,
                len(properties).to_bytes(2, "big"), properties,
            )
        )
        return (len(head) + len(rest)).to_bytes(4, "big") + head[4:] + rest


def blank(left_bytes: int) -> bytes:
    """The blank record that fills the rest of a file."""
    return BLANK.pack(length_bytes=left_bytes, magic=signed(MAGIC_BLANK)).ljust(left_bytes, b"\0")
