"""The lines of a message trace: what a Java producer wrote about a transaction when it sent it and when it decided it.

A trace record has a text body: fields end with byte 01, lines with byte 02, in the order of events; lines of several
transactions are mixed. A producer writes the line of a decision before it sends END_TRANSACTION, so the line is there
even if the request never arrived; that it is missing shows nothing (docs/formats/traces.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

FIELD_END, LINE_END = "\x01", "\x02"
#: The text that a client writes for a property that the message lacks.
_ABSENT = "null"
#: The message type of a half message in a line `Pub`.
_HALF = "1"

#: The fields of a line that reports a sent message, in order. Older clients end with `message_type` and
#: `is_success`; later `client_host` may follow.
#: Source: client/trace/TraceDataEncoder.java encoderFromContextBean, decoderFromTraceDataString.
SENT_FIELDS = (
    "line", "time_ms", "region", "producer_group", "topic", "transaction_id", "tags", "keys", "broker",
    "body_length_bytes", "cost_ms", "message_type", "message_id", "is_success",
)
#: The fields of a line that reports a decision (4.9.0+).
DECIDED_FIELDS = (
    "line", "time_ms", "region", "producer_group", "topic", "transaction_id", "tags", "keys", "broker", "message_type",
    "transaction_id_again", "decision", "is_check_answer",
)
#: Lines about consumers, and about timers that were recalled.
_OTHER_LINES = frozenset({"SubBefore", "SubAfter", "Recall"})
#: Where lines of both kinds have the id.
_ID_PLACE = SENT_FIELDS.index("transaction_id")
#: No clock has this time; differences of such times have 64 bits.
_TIME_MS_END = 1 << 62
_WITHOUT_MESSAGE_ID = len(SENT_FIELDS) - 1


class TraceKind(StrEnum):
    """What a line of a trace reports."""

    SENT = "sent"
    DECIDED = "decided"


class Decision(StrEnum):
    """What a producer decided, or answered to a check."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"


_DECISIONS = {
    "COMMIT_MESSAGE": Decision.COMMIT, "ROLLBACK_MESSAGE": Decision.ROLLBACK, "UNKNOW": Decision.UNKNOWN,
}
_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One line about a transaction.

    Units: `time_ms` on the producer's clock. `number`: of the line in its record, from 0. `message_id` (the offset
    message id of the half message), `cost_ms` and `is_success` only of `SENT`; `decision` and `is_check_answer`
    only of `DECIDED`.
    """

    number: int
    kind: TraceKind
    time_ms: int
    producer_group: str | None
    topic: str | None
    transaction_id: str | None
    tags: str | None
    keys: str | None
    broker: str | None
    body_length_bytes: int | None = None
    cost_ms: int | None = None
    message_id: str | None = None
    is_success: bool | None = None
    decision: Decision | None = None
    is_check_answer: bool | None = None


def trace_lines(body: str, wanted: Collection[str] | None = None) -> tuple[list[TraceLine], list[int]]:
    """Return the lines about transactions, and the numbers of lines of these kinds that cannot be read.

    Lines about other messages and of consumers are left out. `wanted`: only lines with these transaction ids, and those
    that have none; a record has the lines of many transactions.
    Order: of the body.
    """
    found: list[TraceLine] = []
    unreadable: list[int] = []
    for number, text in _numbered(body):
        if wanted is not None:
            begin = text.split(FIELD_END, _ID_PLACE + 1)
            if len(begin) > _ID_PLACE and begin[_ID_PLACE] not in wanted:
                continue
        fields = text.split(FIELD_END)
        if fields and not fields[-1]:
            fields.pop()  # each field ends with the separator
        try:
            line = _line(number, fields)
        except (ValueError, KeyError):
            unreadable.append(number)
            continue
        if line is not None:
            found.append(line)
    return found, unreadable


def _numbered(body: str) -> Iterator[tuple[int, str]]:
    return ((number, text) for number, text in enumerate(body.split(LINE_END)) if text)


def _line(number: int, fields: list[str]) -> TraceLine | None:
    """Return a line; None for one about something else. Raises: ValueError, KeyError."""
    if fields[0] == "Pub":
        return _sent(number, fields)
    if fields[0] == "EndTransaction":
        return _decided(number, fields)
    if fields[0] not in _OTHER_LINES:
        raise ValueError("a line of another kind")
    return None


def _sent(number: int, fields: list[str]) -> TraceLine | None:
    if len(fields) == _WITHOUT_MESSAGE_ID:
        fields = [*fields[:-1], _ABSENT, fields[-1]]
    if len(fields) < len(SENT_FIELDS):
        raise ValueError("too few fields")
    values = dict(zip(SENT_FIELDS, fields, strict=False))
    if values["message_type"] != _HALF:
        return None
    return TraceLine(
        number, TraceKind.SENT, _time_ms(values["time_ms"]), *_shared(values), _integer(values["body_length_bytes"]),
        _integer(values["cost_ms"]), _text(values["message_id"]), _TRUTHS[values["is_success"]],
    )


def _decided(number: int, fields: list[str]) -> TraceLine:
    if len(fields) < len(DECIDED_FIELDS):
        raise ValueError("too few fields")
    values = dict(zip(DECIDED_FIELDS, fields, strict=False))
    return TraceLine(
        number, TraceKind.DECIDED, _time_ms(values["time_ms"]), *_shared(values),
        decision=_DECISIONS[values["decision"]], is_check_answer=_TRUTHS[values["is_check_answer"]],
    )


_Words = tuple[str | None, str | None, str | None, str | None, str | None, str | None]


def _shared(values: dict[str, str]) -> _Words:
    group, topic, identity, tags, keys, broker = (
        _text(values[name]) for name in ("producer_group", "topic", "transaction_id", "tags", "keys", "broker")
    )
    return group, topic, identity, tags, keys, broker


def _text(value: str) -> str | None:
    return None if value in ("", _ABSENT) else value


def _time_ms(value: str) -> int:
    number = int(value)
    if not 0 <= number < _TIME_MS_END:
        raise ValueError("beyond all clocks")
    return number


def _integer(value: str) -> int:
    number = int(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError("beyond 32 bits")
    return number
