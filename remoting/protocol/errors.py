"""Errors between rmqtx and a broker: no connection, a refusal, or an unknown outcome."""

from __future__ import annotations

from typing import Any

from rmqtx.readers.model.errors import RmqtxError


class RemotingError(RmqtxError):
    """An error in the communication with a broker."""

    status = 14


class Unreachable(RemotingError):
    """No connection, or it ended before the request was sent: nothing was done."""


class NoAnswer(RemotingError):
    """The request was sent and no response came: its outcome is unknown."""


class BadFrame(RemotingError):
    """The received bytes are not RocketMQ's remoting protocol."""


class Refused(RemotingError):
    """The broker answered with an error. Shape: `code` and `remark` of the response; `request`: name of the request."""

    status = 15

    def __init__(
        self, message: str, *, code: int = -1, remark: str | None = None, request: str = "", **place: Any
    ) -> None:
        super().__init__(message, **place)
        self.code = code
        self.remark = remark
        self.request = request

    @property
    def meets_empty_slot(self) -> bool:
        """Whether the broker refused because a slot of zeros is among those that it would read.

        It leads to a record without bytes (seen on 4.9.7 and 5.0.0).
        """
        return "IndexOutOfBoundsException" in (self.remark or "")
