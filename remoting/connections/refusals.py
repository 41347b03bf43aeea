"""Classifying a broker's responses: refusals, responses that something does not exist, and advice for refusals."""

from __future__ import annotations

import re
from collections.abc import Container

from rmqtx.remoting.connections.connection import Request
from rmqtx.remoting.protocol.codes import ADVICE, NAMES, RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.frames import Frame

#: Code 1 is used for most errors: only the remark shows that something does not exist (the same from 4.9.7 to 5.5.0).
_NOT_THERE: dict[int, re.Pattern[str]] = {
    RequestCode.VIEW_MESSAGE_BY_ID: re.compile(
        # The second if the four bytes at the offset, read as a length, are negative: inside a record.
        r"can not find message by the offset|java\.lang\.IllegalArgumentException: (newLimit|newPosition)"
    ),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: re.compile(r"the producer group\[.*\] not exist", re.DOTALL),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: re.compile(r"the consumer group\[.*\] not online", re.DOTALL),
    RequestCode.QUERY_CONSUME_QUEUE: re.compile(r"\d+@.* is not exist!", re.DOTALL),
}
#: Refusals of access control: of 4.x and 5.0 to 5.2 with code 1, of 5.3+ with code 16.
_ACCESS_1 = re.compile(r"org\.apache\.rocketmq\.acl\.|.*AclException", re.DOTALL)
_ACCESS_2 = re.compile(
    r"username cannot be null|User:.* is not found|check signature failed|User:.* has no permission|.*whitelist",
    re.DOTALL | re.IGNORECASE,
)
_CREDENTIALS_ADVICE = (
    "set RMQTX_ACCESS_KEY and RMQTX_SECRET_KEY, or add --credentials FILE; docs/remoting.md lists the rights"
)

#: Only a slave rejects a pull without processing it, from 5.0.0 on (PullMessageProcessor.java rejectRequest), with the
#: same code as a busy broker.
_REJECTED = "[REJECTREQUEST]"
_SLAVE_ADVICE = (
    "it is a slave that refuses reads (slaveReadEnable=false): select its master, or set slaveReadEnable=true"
)


def is_access_refusal(frame: Frame) -> bool:
    """Whether access control refused the request."""
    remark = frame.remark or ""
    if frame.code == ResponseCode.SYSTEM_ERROR:
        return _ACCESS_1.match(remark) is not None
    return frame.code == ResponseCode.NO_PERMISSION and _ACCESS_2.match(remark) is not None


def is_not_there(frame: Frame, code: int) -> bool:
    """Whether code 1 stands for something that does not exist; `code`: that of the request."""
    pattern = _NOT_THERE.get(code)
    if frame.code != ResponseCode.SYSTEM_ERROR or pattern is None:
        return False
    return pattern.match(frame.remark or "") is not None


def is_shut_slave(frame: Frame, code: int) -> bool:
    """Whether a slave with slaveReadEnable=false refused a read; `code`: that of the request."""
    is_rejected = frame.code == ResponseCode.SYSTEM_BUSY and (frame.remark or "").startswith(_REJECTED)
    return is_rejected and code == RequestCode.PULL_MESSAGE


def checked(frame: Frame, request: Request, address: str, accepted: Container[int]) -> Frame:
    """Return the response if its code is an answer; SYSTEM_ERROR is one only if its remark shows "does not exist".

    Raises: Refused.
    """
    if frame.code in accepted and (frame.code != ResponseCode.SYSTEM_ERROR or is_not_there(frame, request.code)):
        return frame
    raise refusal(frame, request, address)


def refusal(frame: Frame, request: Request, address: str) -> Refused:
    """Return a broker's refusal as an error."""
    name = f" {NAMES[frame.code]}" if frame.code in NAMES else ""
    advice = ADVICE.get(frame.code)
    if is_access_refusal(frame):
        advice = _CREDENTIALS_ADVICE
    elif is_shut_slave(frame, request.code):
        advice = _SLAVE_ADVICE
    return Refused(
        f"{address} refused {request.name}: code {frame.code}{name}, {_short(frame.remark)}",
        code=frame.code, remark=frame.remark, request=request.name,
        advice=advice,
    )


def _short(remark: str | None) -> str:
    """A remark in one line, without the positions in Java files that exceptions have."""
    text = " ".join((remark or "no remark").split())
    text = re.sub(r"^org\.apache\.rocketmq\.acl\.common\.AclException: ", "", text)
    return re.sub(r", [\w.$/]+\([\w$]+\.java:\d+\)$", "", text)[:300]
