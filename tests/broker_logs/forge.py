"""Forged logs: lines as brokers write them, and what is in them."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path

UTC_PLUS_8 = datetime.timezone(datetime.timedelta(hours=8))


def line(time_ms: int, message: str, *, zone: datetime.tzinfo = UTC_PLUS_8, thread: str = "Thread_1") -> str:
    """A line in the log configuration of the brokers."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, zone)
    return f"{moment:%Y-%m-%d %H:%M:%S} WARN {thread} - {message}\n"


def round_begins(time_ms: int, zone: datetime.tzinfo = UTC_PLUS_8) -> str:
    """The first line of a round of the check."""
    return line(time_ms, f"Begin to check prepare message, begin time:{time_ms}", zone=zone)


def no_producer(time_ms: int, group: str, zone: datetime.tzinfo = UTC_PLUS_8) -> str:
    """A check without a connected producer."""
    return line(time_ms, f"Check transaction failed, channel is null. groupId={group}", zone=zone)


def answered_unknown(time_ms: int, group: str, queue_offset: int, log_offset: int) -> str:
    """An answer UNKNOWN."""
    return line(
        time_ms, "Check producer[127.0.0.1:1] transaction state, but it's pending status.RequestHeader: "
        f"EndTransactionRequestHeader{{producerGroup={group}, tranStateTableOffset={queue_offset}, "
        f"commitLogOffset={log_offset}, commitOrRollback=0, fromTransactionCheck=true, msgId=A, transactionId=A}} "
        "Remark: null",
    )


def written(folder: Path, lines: Iterable[str] | bytes, name: str = "transaction.log") -> Path:
    """A directory with a log of these lines."""
    folder.mkdir(parents=True, exist_ok=True)
    data = lines if isinstance(lines, bytes) else "".join(lines).encode()
    if name.endswith(".gz"):
        data = gzip.compress(data)
    (folder / name).write_bytes(data)
    return folder


def numbered(count: int, seconds: Sequence[int]) -> Iterable[str]:
    """Lines of which one in ten is known: a check of some group without a producer."""
    for number in range(count):
        time_ms = seconds[number % len(seconds)] * 1000
        yield no_producer(time_ms, f"group_{number % 7}") if number % 10 == 0 else line(time_ms, f"Nothing {number}")
