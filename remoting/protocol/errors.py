"""What can go wrong between rmqtx and a broker: nobody answers, the broker says no, or nobody knows what happened."""

from __future__ import annotations

from typing import Any

from readers.model.errors import RmqtxError


class RemotingError(RmqtxError):
    """Something on the way to a broker or back."""


class Unreachable(RemotingError):
    """No connection can be made, or it ended before the request was sent: nothing was done."""


class NoAnswer(RemotingError):
    """The request may have been received and no response came: what became of it is unknown."""


class BadFrame(RemotingError):
    """What came over the connection is not RocketMQ's remoting protocol."""


class Refused(RemotingError):
    """The broker answered with an error.

    Shape: `code` and `remark` as the broker gave them; `request` is the name of what was asked.
    """

    def __init__(
        self, message: str, *, code: int = -1, remark: str | None = None, request: str = "", **place: Any
    ) -> None:
        super().__init__(message, **place)
        self.code = code
        self.remark = remark
        self.request = request
