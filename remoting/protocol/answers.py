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


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A client that a broker has a connection to."""

    client_id: str
    address: str
    language: str
    version: int

    @property
    def is_proxy(self) -> bool:
        """Whether it is a proxy, which is registered in place of the clients behind it."""
        return self.client_id == PROXY_PRODUCER


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request that changes something: code 0 is SUCCESS, any other code a refusal."""

    code: int
    remark: str | None

    @property
    def is_success(self) -> bool:
        """Whether the broker carried it out."""
        return self.code == 0
