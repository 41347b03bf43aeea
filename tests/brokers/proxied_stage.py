"""A run whose producers reach the broker through a RocketMQ proxy: gRPC clients, and remoting clients."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Literal

from tests.brokers import maven
from tests.brokers.rig import HALF_TOPIC, Agent, Event, Rig
from tests.brokers.script import Script, Stop
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction

Clients = Literal["grpc", "remoting"]
GRPC_STEP, REMOTING_STEP = 10, 11
"""Distance of the ports of a proxy from the broker's port."""
PRODUCER_COMMANDS = ("producer", "leave", "release", "send")
OF_TRANSACTIONS = "+message.type=TRANSACTION"
"""A proxy takes transactions only for topics of this type."""
REMOTING_GROUP = "shop"
"""The producers of this group are remoting clients; gRPC clients have the topics as groups."""
MAIN = "org.apache.rocketmq.proxy.ProxyStartup"


class Proxy:
    """A proxy in cluster mode, of a version of its own, in front of a rig's broker."""

    def __init__(self, rig: Rig, version: str, settings: Mapping[str, object] | None = None) -> None:
        self.rig = rig
        self.classpath = maven.jars(version, ("proxy",))
        self.conf = rig.home / "conf" / "rmq-proxy.json"
        self.settings: dict[str, object] = {
            "rocketMQClusterName": rig.conf["brokerClusterName"], "proxyMode": "CLUSTER",
            "namesrvAddr": rig.name_server, "grpcServerPort": rig.port + GRPC_STEP,
            "remotingListenPort": rig.port + REMOTING_STEP, "localServeAddr": rig.host,
        } | dict(settings or {})

    def start(self) -> None:
        """Start it, and wait until both ports are open."""
        self.conf.write_text(json.dumps(self.settings))
        self.rig.run_java("proxy", self.classpath, MAIN, "-pc", str(self.conf))
        for step in (GRPC_STEP, REMOTING_STEP):
            self.rig.wait_port("proxy", self.rig.port + step)

    def stop(self) -> None:
        """Kill it: in an orderly stop it waits up to 30 s for its transactions."""
        self.rig.stop("proxy", signal.SIGKILL)

    def agent(self, clients: Clients, log: str, on_event: Callable[[Event], None] | None = None) -> Agent:
        """A process of official clients behind the proxy."""
        if clients == "grpc":
            address = f"{self.rig.host}:{self.settings['grpcServerPort']}"
            return self.rig.agent(log, on_event, (maven.grpc_classpath(), maven.GRPC_SCENARIO.stem, address))
        address = f"{self.rig.host}:{self.settings['remotingListenPort']}"  # in place of a name server
        return self.rig.agent(log, on_event, (self.rig.classpath, maven.scenario(self.rig.version)[0], address))


class ProxiedAgent(Agent):
    """Official clients at the broker, whose producers are other processes, behind a proxy."""

    def __init__(self, direct: Agent, grpc: Agent, remoting: Agent) -> None:
        self.direct, self.grpc, self.remoting = direct, grpc, remoting
        self.failed = grpc.failed = remoting.failed = direct.failed

    def start(self, word: str, **fields: object) -> str:
        """Send a command to the process that carries it out."""
        name = "direct"
        if word in PRODUCER_COMMANDS:
            name = "remoting" if fields.get("group") == REMOTING_GROUP else "grpc"
        return f"{name} {self._process(name).start(word, **fields)}"

    def wait(self, reference: str, timeout: float = 90) -> Event:
        """See `Agent`."""
        name, _, rest = reference.partition(" ")
        return self._process(name).wait(rest, timeout)

    def kill(self) -> None:
        """Kill all of them."""
        for name in ("grpc", "remoting", "direct"):
            self._process(name).kill()

    def _process(self, name: str) -> Agent:
        return {"direct": self.direct, "grpc": self.grpc, "remoting": self.remoting}[name]


class ProxiedPlay(Play):
    """One run on one store, behind a proxy."""

    def __init__(self, script: Script, out: Path, say: Callable[[str], None] = print) -> None:
        super().__init__(script, out, say)
        assert script.proxy is not None
        self.proxy = Proxy(self.rig, script.proxy)

    def start_clients(self, log: str) -> Agent:
        """Start the proxy, and clients behind it."""
        direct = super().start_clients(log)
        self.rig.wait_broker(direct)
        self.proxy.start()
        grpc, remoting = (self.proxy.agent(kind, f"{kind}-{log}", self.take) for kind in ("grpc", "remoting"))
        return ProxiedAgent(direct, grpc, remoting)

    def send(self, plan: str, number: int, rng: Random, **wanted: object) -> Transaction:
        """See `Play`; from the gRPC client, whose group is the topic."""
        return super().send(plan, number, rng, **{"group": next(iter(self.script.topics))} | wanted)

    def take(self, event: Event) -> None:
        """See `Events`. The proxy loses the first decision of a remoting client, which reports a success."""
        if event["event"] == "decision" and event["by"] == "client":
            sent = self.cases[event["case"]].sent
            if sent is not None and sent["producer_group"] == REMOTING_GROUP:
                event["event"] = "decision_lost"
        super().take(event)

    def halt(self, how: Stop) -> None:
        """See `StagedBroker`. First add the commit-log offsets, which gRPC clients do not get."""
        halves = self.rig.pull(self.agent, HALF_TOPIC)
        places = {record["queue_offset"]: record["commit_log_offset"] for record in halves}
        for event in self.truth:
            if event["event"] in ("sent", "decision", "decision_lost", "check") and event["commit_log_offset"] is None:
                event["commit_log_offset"] = places.get(event["queue_offset"])
        super().halt(how)
        self.proxy.stop()
