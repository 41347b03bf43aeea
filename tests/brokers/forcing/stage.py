"""A broker with an official consumer that counts deliveries, and official producers that can be killed at any time."""

from __future__ import annotations

import base64
import contextlib
import itertools
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random

from rmqtx.readers.model import clock
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from tests.brokers.forcing.tool import Tool
from tests.brokers.rig import HALF_TOPIC, Agent
from tests.brokers.script import Script
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction, same

TOPIC = "orders"
FILLER = "filler"
QUEUES = 4
PATIENCE_SECONDS = 300
"""How long to wait for the clients: the machine may be busy."""
CALM = "600000"
"""A transactionTimeOut without checks during a test."""
DEFAULT_WAITS = {"waitTimeMillsInTransactionQueue": "3000"}
DEFAULT_WAITS_5 = {"transactionOpBatchInterval": "3000"}
"""The default waiting times of brokers; those of the rig differ."""


def waits(version: str) -> dict[str, str]:
    """The two default waiting times of a version."""
    return DEFAULT_WAITS | (DEFAULT_WAITS_5 if version.startswith("5.") else {})


class Shop:
    """A process of the official producer, and the transactions that it began."""

    def __init__(self, stage: Stage, group: str, strangers: str | None = None) -> None:
        self.stage = stage
        self.group = group
        self.agent: Agent = stage.rig.agent(f"shop-{group}.log", stage.take)
        self.agent.do("producer", group=group, topic=TOPIC, strangers=strangers)
        self._under_way: list[str] = []

    def join(self, group: str, strangers: str | None = None) -> str:
        """Produce for another group; return its name."""
        self.agent.do("producer", group=group, topic=TOPIC, strangers=strangers)
        return group

    def fill(self, kibibytes: int) -> None:
        """Send ordinary messages of this size in total, so that the broker begins another file."""
        for number in range(-(-kibibytes // 64)):
            body = base64.b64encode(self.stage.rng.randbytes(48 << 10)).decode()
            self.agent.do("send", group=self.group, topic=FILLER, kind="ordinary", case=f"fill.{number}", body=body)

    def begin(self, plan: str, number: int, **wanted: object) -> Transaction:
        """Begin a transaction; its half and its decision are reported as events.

        `first`: its decision, by default UNKNOWN; it is sent at the time `at`, if given.
        """
        stage = self.stage
        case = f"{plan}.{number}"
        transaction = Transaction(case, plan)
        stage.keep(transaction)
        body = wanted.pop("body", None) or f"{case} ".encode() * 5
        assert isinstance(body, bytes)
        stage.body_crcs[case] = zlib.crc32(body)
        fields: dict[str, object] = {
            "kind": "transaction", "group": self.group, "topic": TOPIC, "first": "UNKNOWN", "keys": f"key-{case}",
            "body": base64.b64encode(body).decode(),
        }
        fields |= {name: value for name, value in wanted.items() if value is not None}
        self._under_way.append(self.agent.start("send", case=case, plan=plan, **fields))
        return transaction

    def begin_all(self, plan: str, count: int, **wanted: object) -> list[Transaction]:
        """Begin several of one kind; wait until the broker has their halves and the decisions are sent."""
        begun = [self.begin(plan, number, **wanted) for number in range(count)]
        self.until_decided()
        return begun

    def until_decided(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until every decision has been handed to the network."""
        for reference in self._under_way:
            self.agent.wait(reference, seconds)
        self._under_way.clear()

    def under_way(self) -> list[str]:
        """Return the references of what was begun and not waited for, and forget them."""
        found, self._under_way = self._under_way, []
        return found

    def kill(self) -> None:
        """Kill it with signal 9."""
        self.agent.kill()


class Stage(Play):
    """A name server, a broker and a consumer that receives every delivery; `shop` starts producers."""

    def __init__(
        self, version: str, out: Path, conf: Mapping[str, str] | None = None, seed: int = 1,
        say: Callable[[str], None] = print,
    ) -> None:
        settings = {"transactionTimeOut": CALM, "transactionCheckInterval": "1000", "transactionCheckMax": "100000"}
        settings |= {"brokerIP2": "127.0.0.1"}  # its address for a slave
        settings |= waits(version) | dict(conf or {})
        topics = {TOPIC: QUEUES, FILLER: 1}
        super().__init__(Script(version, seed, {}, conf=settings, topics=topics, groups=()), out, say)
        self.rng = Random(f"{seed}/{version}")
        self._tools = itertools.count(1)  # several races may be played at once
        self._shops = itertools.count(1)
        self.body_crcs: dict[str, int] = {}
        self.client = Client()

    def __enter__(self) -> Stage:
        try:
            self.rig.start_names()
            self.boot()
        except BaseException:
            self.rig.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.rig.close()

    def keep(self, transaction: Transaction) -> None:
        """Register a transaction for its events."""
        with self._changed:
            self.cases[transaction.case] = transaction

    def tool(self, name_server: str | None = None) -> Tool:
        """The rmqtx of one user, with its own state directory."""
        return Tool(name_server or self.rig.name_server, self.out / f"state-{next(self._tools)}")

    def shop(self, group: str | None = None, strangers: str | None = None) -> Shop:
        """Start a producer process; without `group`, with a new group."""
        return Shop(self, group or f"f-shop-{next(self._shops)}", strangers)

    @property
    def broker(self) -> Broker:
        """The broker, with the requests of rmqtx."""
        return Broker(self.client, self.rig.address, self.rig.conf["brokerName"], self.rig.conf["brokerClusterName"])

    def until_sent(self, transactions: Iterable[Transaction]) -> None:
        """Wait until the broker has acknowledged them."""
        wanted = list(transactions)
        self.until("all sent", lambda: all(one.sent is not None for one in wanted), PATIENCE_SECONDS)

    def orphans(self, plan: str, count: int = 1, group: str | None = None, **wanted: object) -> list[Transaction]:
        """Transactions whose producer is dead."""
        shop = self.shop(group)
        begun = shop.begin_all(plan, count, **wanted)
        shop.kill()
        self.until_gone(shop.group)
        return begun

    def put_back(self, transactions: Iterable[Transaction], times: int = 1) -> None:
        """Wait until the check has put each transaction back `times` times."""
        wanted = list(transactions)
        with self.checks():
            end = time.monotonic() + 60
            while min(self.copies_counts(wanted).values()) <= times:
                if time.monotonic() > end:
                    raise TimeoutError("the check puts nothing back")
                time.sleep(0.3)
        time.sleep(1.2)  # until the current round has ended

    def discard(self, transactions: Iterable[Transaction]) -> None:
        """Let the broker discard them, and all other open transactions."""
        self.config(transactionCheckMax="1")
        with self.checks():
            self.until_discarded(transactions)
        self.config(transactionCheckMax="100000")

    def until_gone(self, group: str) -> None:
        """Wait until the broker has removed a killed producer from its list."""
        end = time.monotonic() + 30
        while self.broker.producer_connections(group):
            if time.monotonic() > end:
                raise TimeoutError(f"{group} is still connected")
            time.sleep(0.05)

    @contextlib.contextmanager
    def checks(self, timeout_ms: int = 1000) -> Iterator[None]:
        """Inside the block, the broker checks transactions older than this in every round."""
        self.config(transactionTimeOut=str(timeout_ms))
        try:
            yield
        finally:
            self.config(transactionTimeOut=CALM)

    # ---- the final state, by the official client and consumer

    def delivered(self, transaction: Transaction) -> int:
        """The number of different records of it that the consumer received; the same record twice is a redelivery."""
        with self._changed:
            return len({event["commit_log_offset"] for event in transaction.deliveries})

    def until_consumed(self) -> None:
        """Wait until the consumer has received every record of the topic."""
        pulled = {queue: self.rig.pull(self.agent, TOPIC, queue) for queue in range(QUEUES)}
        wanted = {(queue, record["queue_offset"]) for queue, records in pulled.items() for record in records}

        def seen() -> bool:
            came = (event for event in self.truth if event["event"] == "delivered" and event["topic"] == TOPIC)
            return wanted <= {(event["queue_id"], event["queue_offset"]) for event in came}

        self.until("everything consumed", seen, PATIENCE_SECONDS)

    def copies_counts(self, transactions: Iterable[Transaction]) -> Counter[str]:
        """The number of half copies of each transaction, by case."""
        records = self.rig.pull(self.agent, HALF_TOPIC)
        found: Counter[str] = Counter()
        for one in transactions:
            found[one.case] = sum(same(record, one) for record in records)
        return found

    def asked_again(self, transactions: Iterable[Transaction], seconds: float = 4) -> list[str]:
        """The cases that the broker puts back in a few rounds of its check."""
        wanted = list(transactions)
        with self.checks():
            time.sleep(1.5)  # a round that began before a decision was readable may still put its copy back
            before = self.copies_counts(wanted)
            time.sleep(seconds)
            after = self.copies_counts(wanted)
        return [case for case in before if after[case] != before[case]]

    def logged(self, text: str) -> None:
        """Log a line."""
        self.say(f"{time.strftime('%H:%M:%S')} {self.script.version}: {text}")


def soon_ms(seconds: float) -> int:
    """The wall clock some seconds from now."""
    return clock.now_ms() + int(seconds * 1000)
