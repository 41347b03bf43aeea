"""Message ids in the form of official clients (UNIQ_KEY), which are the transaction ids.

Source: common/message/MessageClientIDSetter.java; docs/formats/wire.md#message-ids.
"""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from datetime import datetime

from rmqtx.readers.model import clock
from rmqtx.readers.model.layout import Field, Layout

UNIQUE_KEY = Layout(
    "unique-key",
    "Unique key of a message, written as 32 hexadecimal digits (clients with an IPv4 address)",
    (
        Field("address", "4s", "the client's address"),
        Field("process", "H", "the client's process, low 16 bits"),
        Field("loader", "i", "hash of its class loader; rmqtx uses a random number"),
        Field("month_ms", "i", "time since the client's month began, low 32 bits", "ms"),
        Field("counter", "h", "counts up with every message"),
    ),
    16,
    "common/message/MessageClientIDSetter.java, docs/formats/wire.md#message-ids",
)
_LOOPBACK = socket.inet_aton("127.0.0.1")


class UniqueKeys:
    """Makes unique keys; two processes, and two instances, never make the same key."""

    def __init__(self) -> None:
        self._loader = int.from_bytes(secrets.token_bytes(4), "big", signed=True)
        self._numbers = itertools.count()

    def new(self, now_ms: int | None = None) -> str:
        """Return a key for a message made now."""
        now = clock.now_ms() if now_ms is None else now_ms
        month = datetime.fromtimestamp(now / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        since = now - int(month.timestamp() * 1000)
        key = UNIQUE_KEY.pack(
            address=_LOOPBACK, process=os.getpid() & 0xFFFF, loader=self._loader,
            month_ms=_wrapped(since, 32), counter=_wrapped(next(self._numbers), 16),
        )
        return key.hex().upper()


def _wrapped(number: int, bits: int) -> int:
    """The number after Java's narrowing conversion."""
    return (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
