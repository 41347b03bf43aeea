"""A producer's side of the protocol: join a group, send half messages, receive the broker's checks.

At several brokers, it is a member of its group with heartbeats, and has a new connection after a loss. Nothing here
decides a transaction: a check is answered by `Broker.end_transaction`, over any connection.
Source: client/impl/factory/MQClientInstance.java, client/impl/producer/DefaultMQProducerImpl.java,
client/impl/ClientRemotingProcessor.java; docs/formats/half_and_op.md#producer, docs/formats/half_and_op.md#ask,
docs/formats/wire.md#requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from rmqtx.readers.model import clock
from rmqtx.remoting.connections.client import checked
from rmqtx.remoting.connections.connection import Connection, Request, Value
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import BadFrame, RemotingError
from rmqtx.remoting.protocol.frames import Frame

#: Prefix of the client ids of rmqtx, which distinguishes them from the application's processes in a list of producers.
OUR_CLIENTS = "rmqtx@"
HALF_MARK, PRODUCER_GROUP, UNIQUE_KEY, KEYS = "TRAN_MSG", "PGROUP", "UNIQ_KEY", "KEYS"
_PREPARED = 0x4
#: Response codes to a send after which the broker has the message.
STORED = (
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
_NAME_END, _VALUE_END = "\x01", "\x02"
#: Official clients send a heartbeat every 30 s; a broker drops a client after 120 s of silence.
HEARTBEAT_MS = 10_000
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 2.0


def our_client_id() -> str:
    """Return a new unique client id: rmqtx@HOST@PROCESS@RANDOM.

    Host and process can be equal in two containers, and two clients with one id would not see each other.
    """
    return f"{OUR_CLIENTS}{socket.gethostname()}@{os.getpid()}@{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Check:
    """A broker's check of a half message: its request CHECK_TRANSACTION_STATE.

    Shape: the half copy that the broker has just put back, which an answer must name; `transaction_id` is None where
           the half has no UNIQ_KEY; `record` is that copy in store format, under its real topic.
    Source: AbstractTransactionalMessageCheckListener.sendCheckMessage; docs/formats/half_and_op.md#ask.
    """

    address: str
    queue_offset: int
    commit_log_offset: int
    transaction_id: str | None
    message_id: str | None
    record: bytes = field(default=b"", repr=False)
    received_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. `queue_id`: one of the topic's write queues."""

    topic: str
    body: bytes
    unique_key: str
    queue_id: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sent:
    """Where the broker stored a message; for a half, its first copy in the half topic.

    Shape: `status`: SUCCESS, or what was not confirmed in time (disk, slave); the message is stored anyway.
    """

    transaction_id: str
    message_id: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    status: str = ResponseCode.SUCCESS.name


class Member:
    """One member of a producer group at one broker; `heartbeat` registers it.

    `groups`: the group that it sends for, and further groups. `on_check`: called in the connection's thread, so it must
    not block.
    Raises: Unreachable.
    """

    def __init__(
        self, settings: RemotingSettings, address: str, groups: Sequence[str], client_id: str,
        on_check: Callable[[Check], None],
    ) -> None:
        self.address = address
        self.groups = tuple(groups)
        self.client_id = client_id
        self._on_check = on_check
        self._connection = Connection(address, settings, self._take)

    @property
    def is_closed(self) -> bool:
        """Whether the broker can no longer reach it."""
        return self._connection.is_closed

    def heartbeat(self) -> None:
        """Register the member in its groups; a broker drops members that are silent for two minutes.

        Raises: Unreachable, NoAnswer, Refused.
        """
        self._call(Request(RequestCode.HEART_BEAT, body=heartbeat_body(self.client_id, self.groups)))

    def leave(self) -> None:
        """Remove the member from its groups. Raises: Unreachable, NoAnswer, Refused."""
        for group in self.groups:
            fields: dict[str, Value] = {"clientID": self.client_id, "producerGroup": group}
            self._call(Request(RequestCode.UNREGISTER_CLIENT, fields))

    def close(self) -> None:
        """End the connection; the broker then drops the member at once."""
        self._connection.close()

    def send_half(self, message: Message) -> Sent:
        """Send a half message, once; consumers receive it only after a commit.

        Raises: Unreachable (nothing was sent), NoAnswer (it may be stored: look up its unique key), Refused.
        """
        marks = {"WAIT": "true", UNIQUE_KEY: message.unique_key, HALF_MARK: "true", PRODUCER_GROUP: self.groups[0]}
        fields = _half_fields(self.groups[0], message, {**message.properties, **marks})
        request = Request(RequestCode.SEND_MESSAGE_V2, fields, message.body)
        return sent(self._call(request, STORED), message.unique_key)

    def _call(self, request: Request, accepted: Container[int] = (ResponseCode.SUCCESS,)) -> Frame:
        return checked(self._connection.call(request), request, self.address, accepted)

    def _take(self, frame: Frame) -> None:
        if frame.code != RequestCode.CHECK_TRANSACTION_STATE:
            return  # brokers also notify consumers of changes, which a producer ignores
        check = parsed_check(frame, self.address)
        if check is not None:
            self._on_check(check)


def heartbeat_body(client_id: str, groups: Sequence[str]) -> bytes:
    """The body of a heartbeat of a producer."""
    producers = [{"groupName": group} for group in groups]
    return json.dumps({"clientID": client_id, "producerDataSet": producers, "consumerDataSet": []}).encode()


def parsed_check(frame: Frame, address: str) -> Check | None:
    """Return the check in a frame; None if it does not contain the copy's place, which an answer must name."""
    fields = frame.fields
    try:
        queue_offset, offset = int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"])
    except (KeyError, ValueError):
        return None
    identity = fields.get("transactionId") or fields.get("msgId")
    return Check(address, queue_offset, offset, identity, fields.get("offsetMsgId"), frame.body, clock.now_ms())


def _half_fields(group: str, message: Message, properties: Mapping[str, str]) -> dict[str, Value]:
    # defaultTopic (c) names the topic itself, so that no broker creates the topic from TBW102.
    return {
        "a": group, "b": message.topic, "c": message.topic, "d": 0, "e": message.queue_id, "f": _PREPARED,
        "g": clock.now_ms(), "h": 0, "i": properties_text(properties), "j": 0, "k": False, "l": 0,
        "m": False,
    }


def properties_text(properties: Mapping[str, str]) -> str:
    """Return properties in the form of requests: name 0x01 value 0x02, repeated."""
    assert not any(mark in text for pair in properties.items() for text in pair for mark in (_NAME_END, _VALUE_END))
    return "".join(f"{name}{_NAME_END}{value}{_VALUE_END}" for name, value in properties.items())


def sent(frame: Frame, unique_key: str) -> Sent:
    """Return the response to a send as a value. Raises: BadFrame."""
    try:
        message_id = frame.fields["msgId"]
        return Sent(
            unique_key, message_id, int(frame.fields["queueId"]), int(frame.fields["queueOffset"]),
            int(message_id[-16:], 16), ResponseCode(frame.code).name,
        )
    except (KeyError, ValueError) as error:
        raise BadFrame(f"the response to a send lacks {error}") from error


class Membership:
    """A member of some producer groups while the block runs; it sends for the first group.

    `on_check`: called from several threads with checks from brokers; it must not block. `on_change`: called with an
    address and why the connection to it was lost, or None when it is connected again.
    Raises: Unreachable, NoAnswer, Refused if a broker cannot be joined at the start; later losses are repaired.
    """

    def __init__(
        self, settings: RemotingSettings, addresses: Sequence[str], groups: Sequence[str],
        on_check: Callable[[Check], None], on_change: Callable[[str, str | None], None] = lambda _address, _why: None,
        heartbeat_ms: int = HEARTBEAT_MS,
    ) -> None:
        self.client_id = our_client_id()
        self.groups = tuple(groups)
        self._settings = settings
        self._addresses = list(dict.fromkeys(addresses))
        self._on_check = on_check
        self._on_change = on_change
        self._heartbeat_seconds = heartbeat_ms / 1000
        self._members: dict[str, Member] = {}
        self._due: dict[str, float] = {}
        self._lost: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"membership of {groups[0]}", daemon=True)

    def __enter__(self) -> Membership:
        try:
            for address in self._addresses:
                self._join(address)
        except BaseException:
            self._leave()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(self._settings.timeout_ms / 1000 + 5)
        self._leave()

    def member(self, address: str) -> Member:
        """The member at one broker."""
        return self._members[address]

    def _join(self, address: str) -> None:
        member = Member(self._settings, address, self.groups, self.client_id, self._on_check)
        try:
            member.heartbeat()
        except BaseException:
            member.close()
            raise
        self._members[address] = member
        self._due[address] = time.monotonic() + self._heartbeat_seconds

    def _keep(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            for address in self._addresses:
                if self._stop.is_set():
                    return
                self._renew(address)

    def _renew(self, address: str) -> None:
        """Send a heartbeat to one broker if it is time, over a new connection if the old one was lost."""
        now, member = time.monotonic(), self._members[address]
        if now < self._due[address] and (address in self._lost or not member.is_closed):
            return
        try:
            if member.is_closed:
                self._join(address)
            else:
                member.heartbeat()
                self._due[address] = now + self._heartbeat_seconds
        except RemotingError as error:
            member.close()
            self._due[address] = now + _RETRY_SECONDS
            if address not in self._lost:
                self._lost[address] = error.message
                self._on_change(address, error.message)
            return
        if self._lost.pop(address, None) is not None:
            self._on_change(address, None)

    def _leave(self) -> None:
        for member in self._members.values():
            with contextlib.suppress(RemotingError):  # without a connection the broker drops the member anyway
                member.leave()
            member.close()
