"""The responses of name servers and brokers as typed values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """One broker of a cluster: id 0 is the master, others are slaves."""

    cluster: str
    name: str
    addresses: dict[int, str]

    @property
    def master(self) -> str | None:
        """The master's address; None while there is none."""
        return self.addresses.get(0)


@dataclass(frozen=True, slots=True)
class QueueSlot:
    """One slot of a consume queue, from QUERY_CONSUME_QUEUE."""

    queue_offset: int
    commit_log_offset: int
    length_bytes: int
    tags_code: int


@dataclass(frozen=True, slots=True)
class QueueSlots:
    """Some entries of a consume queue, and the queue's ends (the upper excluded)."""

    slots: list[QueueSlot]
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull.

    Shape: `status`: found, none (nothing new), moved (the offset is outside the queue) or filtered (continue at
           `next_offset`); `body`: records one after another, exactly as in the commit log.
    """

    status: Literal["found", "none", "moved", "filtered"]
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes


#: The client id under which a proxy in cluster mode registers as a producer of its clients' groups, since 5.0.0.
#: Source: proxy/service/transaction/ClusterTransactionService.java.
PROXY_PRODUCER = "rmq-proxy-producer-client"


_VERSION_4_0_0 = 213


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A client that a broker has a connection to.

    Shape: `version`: the number of its release (MQVersion); `last_heartbeat_time_ms`: None where the broker does not
           report it.
    Units: the broker's clock.
    """

    client_id: str
    address: str
    language: str
    version: int
    last_heartbeat_time_ms: int | None = None

    @property
    def is_proxy(self) -> bool:
        """Whether it is a proxy, which is registered in place of the clients behind it."""
        return self.client_id == PROXY_PRODUCER

    @property
    def release(self) -> str:
        """Its release as text; the number, where that is older than 4.0.0.

        Source: common/MQVersion.java: from 4.0.0 (213) on each release has two numbers, that of its snapshot first,
        and there are ten releases a line and ten lines.
        """
        number, is_snapshot = divmod(self.version - _VERSION_4_0_0, 2)
        if number < 0:
            return str(self.version)
        number += is_snapshot  # that of the next release comes before it
        text = f"{4 + number // 100}.{number // 10 % 10}.{number % 10}"
        return f"{text}-SNAPSHOT" if is_snapshot else text


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request that changes something: code 0 is SUCCESS, any other code a refusal."""

    code: int
    remark: str | None

    @property
    def is_success(self) -> bool:
        """Whether the broker carried it out."""
        return self.code == 0
