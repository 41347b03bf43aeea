"""One name server, one broker and official clients of a named version, as processes on 127.0.0.1."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote

from tests.brokers import maven
from tests.brokers.maven import why_not

__all__ = ["Agent", "Event", "Rig", "why_not"]

Event = dict[str, Any]

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK = 8, 12
BROKER_PORT, NAME_SERVER_PORT, PORT_STEP = 10911, 9876, 20
DLEDGER_STEP, CONTROLLER_STEP = 5, 6
"""Distance of the ports of a DLedger member and of a controller from the broker's port."""
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
PATIENCE_SECONDS = 300
"""How long to wait for the start of a process: the machine may be busy."""
NOT_YET = ("RemotingTimeoutException", "RemotingConnectException")
REQUEST_OFFSET, REQUEST_TOPIC, REQUEST_CONFIG, REQUEST_END_TRANSACTION, REQUEST_RESUME = 14, 17, 25, 37, 323

JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    # Else name server and broker make RSA keys at each start: half of its processor time. `tls_broker` says otherwise.
    "-Dtls.server.mode=disabled",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
LOGBACK = """<configuration><appender name="F" class="ch.qos.logback.core.FileAppender"><file>{file}</file><encoder>
<pattern>%d %p %c{{0}} %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="F"/></root></configuration>
"""

SMALL: dict[str, str] = {
    "brokerClusterName": "rmqtx",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": str(1 << 18),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxIndexNum": "4000",
    "maxHashSlotNum": "1000",
    "transactionTimeOut": "2000",
    "transactionCheckMax": "5",
    "transactionCheckInterval": "1000",
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "diskMaxUsedSpaceRatio": "98",
    "fileReservedTime": "48",
    "traceTopicEnable": "false",
    "defaultTopicQueueNums": "4",
    "waitTimeMillsInSendQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
    "waitTimeMillsInPullQueue": "20000",
    "waitTimeMillsInTransactionQueue": "20000",
}
"""The broker configuration of the corpus, which a recipe can change: small files, short intervals."""
SMALL_5: dict[str, str] = {"transactionOpBatchInterval": "500", "timerWheelEnable": "false"}
"""Further settings of 5.x."""
IPV6_NAME = "six.localhost"
"""A name for ::1 in the rig's Java processes: the 5.1 client cannot parse an address with several colons."""
OLD_JAVA_OPTIONS = (
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Drocketmq.client.log.loadconfig=false",
    "-Dcom.rocketmq.sendMessageWithVIPChannel=false",
)
"""Further options of versions before 4.3, whose JSON and Netty libraries use internals of the JDK."""
OLD_NAMES = {
    "mappedFileSizeCommitLog": "mapedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue": "mapedFileSizeConsumeQueue",
}
"""The names of these settings before 4.9."""


def _free(*ports: int) -> bool:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def _filled(value: str, words: Mapping[str, str]) -> str:
    for word, text in words.items():
        value = value.replace(word, text)
    return value


def claim_ports() -> tuple[int, int, socket.socket]:
    """A broker port (its neighbours, fast and HA, are free too), a name server port, and the claim to both.

    The claim is a UDP socket bound to the broker's port: two rigs, even of two processes, cannot hold it at once.
    """
    for step in range(0, 2000, PORT_STEP):
        broker, names = BROKER_PORT + step, NAME_SERVER_PORT + step
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", broker))
        except OSError:
            claim.close()
            continue
        if _free(broker - 2, broker, broker + 1, names):
            return broker, names, claim
        claim.close()
    raise RuntimeError("no free ports")


class Agent:
    """One process of official clients (Scenario.java): commands go in, events come out."""

    def __init__(
        self, rig: Rig, log: str, on_event: Callable[[Event], None] | None = None,
        program: tuple[str, str, str] | None = None,
    ) -> None:
        """`program`: another classpath, main class and address than those of the version's client."""
        classpath, main, address = program or (rig.classpath, maven.scenario(rig.version)[0], rig.name_server)
        self._on_event = on_event
        self._events: dict[str, Event] = {}
        self._numbers = itertools.count(1)
        self._came = threading.Condition()
        self.failed: list[Event] = []
        self._log = (rig.out / log).open("ab")
        options = [
            "-Xmx512m",
            *rig.options,
            f"-Duser.home={rig.home}",
            "-Drocketmq.client.rebalance.waitInterval=1000",
        ]
        self.process = subprocess.Popen(
            ["java", *options, "-cp", classpath, main, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=rig.out,
            text=True,
            encoding="utf-8",
            bufsize=1,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._await("ready", PATIENCE_SECONDS)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            event: Event = json.loads(line)
            reference = event.pop("ref", None) or ("ready" if event["event"] == "ready" else None)
            if self._on_event is not None and event["event"] not in ("ready", "done", "response", "pulled"):
                self._on_event(event)
            with self._came:
                if event["event"] == "error":
                    self.failed.append(event)
                if reference is not None:
                    self._events[reference] = event
                self._came.notify_all()
        with self._came:
            self._came.notify_all()

    def _await(self, reference: str, timeout: float) -> Event:
        end = time.monotonic() + timeout
        with self._came:
            while reference not in self._events:
                if self.process.poll() is not None:
                    raise RuntimeError("the client process ended")
                if time.monotonic() > end:
                    raise TimeoutError(reference)
                self._came.wait(0.5)
            return self._events.pop(reference)

    def start(self, word: str, **fields: object) -> str:
        """Send a command; return the reference to wait for."""
        reference = f"{word}{next(self._numbers)}"
        parts = [word, f"ref={reference}"]
        for name, value in fields.items():
            if value is not None:
                parts.append(f"{quote(name.replace('__', '.'))}={quote(str(value), safe='')}")
        assert self.process.stdin is not None
        with self._came:
            self.process.stdin.write("\t".join(parts) + "\n")
            self.process.stdin.flush()
        return reference

    def wait(self, reference: str, timeout: float = 90) -> Event:
        """The answer to a command sent by `start`; an error of the client is raised."""
        answer = self._await(reference, timeout)
        if answer["event"] == "error":
            raise RuntimeError(str(answer["error"]))
        return answer

    def do(self, word: str, patience: float = 90, **fields: object) -> Event:
        """Send a command and wait for its answer."""
        return self.wait(self.start(word, **fields), patience)

    def kill(self) -> None:
        """Kill the clients; they do not unregister at the broker."""
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):  # unsent data for a killed process
                    stream.close()

    def close(self) -> None:
        """End the clients; the broker sees their connections close."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write("quit\n")
            self.process.stdin.flush()
            self.process.wait(20)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):  # unsent data for a killed process
                    stream.close()


class Rig:
    """A broker and a name server of one version in one output directory (`store/`, `home/`, logs)."""

    def __init__(self, version: str, out: Path, conf: Mapping[str, str] | None = None, host: str = "127.0.0.1") -> None:
        self.version = version
        self.out = out.resolve()
        self.home = self.out / "home"
        self.store = self.out / "store"
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        self.classpath = maven.classpath(version)
        self.names_classpath = maven.names_jars(version) if maven.has_foreign_name_server(version) else self.classpath
        self.port, self.names_port, self._claim = claim_ports()
        self.host = host
        self.conf = dict(SMALL) | (SMALL_5 if version.startswith("5.") else {}) | dict(conf or {})
        self.start_seconds: float = PATIENCE_SECONDS
        self._processes: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._agents: list[Agent] = []
        self.slave: Rig | None = None  # see slave.py
        self.others: list[Rig] = []
        self.options = [*JAVA_OPTIONS, *(OLD_JAVA_OPTIONS if maven.is_old(version) else ())]
        if host == IPV6_NAME:
            hosts = self.home / "hosts"
            hosts.write_text(f"::1 {IPV6_NAME}\n127.0.0.1 localhost {socket.gethostname()}\n")
            self.options.append(f"-Djdk.net.hosts.file={hosts}")
        for name in ("namesrv", "broker", "tools"):  # 4.x does not start without them
            text = LOGBACK.format(file=self.out / f"{name}-logback.log")
            (self.home / "conf" / f"logback_{name}.xml").write_text(text)

    def become(self, version: str) -> None:
        """Use another version from the next start on, with the same store and settings; the name server stays."""
        self.version, self.classpath = version, maven.classpath(version)

    @property
    def name_server(self) -> str:
        """The address of the name server."""
        return f"{self.host}:{self.names_port}"

    @property
    def address(self) -> str:
        """The address of the broker."""
        return f"{self.host}:{self.port}"

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers, for comparisons."""
        return tuple(int(part) for part in self.version.split("."))

    # ---- processes

    def _java(self, name: str, main: str, conf: Path) -> None:
        version = maven.NAME_SERVERS.get(self.version, self.version) if name == "namesrv" else self.version
        classpath = self.names_classpath if name == "namesrv" else self.classpath
        self.run_java(name, classpath, f"{maven.group(version)}.{main}", "-c", str(conf))

    def run_java(self, name: str, classpath: str, main: str, *arguments: str) -> None:
        """Start a program of RocketMQ; `stop` ends it."""
        log = (self.out / f"{name}.log").open("ab")
        command = ["java", "-Xmx1g", *self.options, "-Duser.home=home", "-Drocketmq.client.logUseSlf4j=false"]
        process = subprocess.Popen(
            [*command, "-cp", classpath, main, *arguments],
            env=dict(os.environ, ROCKETMQ_HOME=str(self.home), RMQ_PROXY_HOME=str(self.home)),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.out,
        )
        self._processes[name] = (process, log)

    def wait_port(self, name: str, port: int, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until a started program listens on a port."""
        end = time.monotonic() + seconds
        process = self._processes[name][0]
        while time.monotonic() < end:
            if process.poll() is not None:
                raise RuntimeError(f"{name} {self.version} ended with {process.returncode}, see {self.out}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"{name} {self.version} does not listen on {port}, see {self.out}")

    def start_names(self) -> None:
        """Start the name server."""
        conf = self.home / "conf" / "namesrv.conf"
        bind = f"bindAddress={self.conf['bindAddress']}\n" if "bindAddress" in self.conf else ""
        controller = "".join(f"{name}={value}\n" for name, value in self._controller().items())
        if self.conf.get("enableSlaveActingMaster") == "true":
            controller += "supportActingMaster=true\n"
        conf.write_text(f"listenPort={self.names_port}\n{bind}{controller}")
        self._java("namesrv", "namesrv.NamesrvStartup", conf)
        self.wait_port("namesrv", self.names_port, PATIENCE_SECONDS)

    def _controller(self) -> dict[str, str]:
        """The settings that make the name server a controller too (5.0.0+), for a broker in controller mode."""
        if self.conf.get("enableControllerMode") != "true":
            return {}
        return {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self.port + CONTROLLER_STEP}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(self.out / "controller"),
        }

    def full_conf(self) -> dict[str, str]:
        """The configuration with the values of this run.

        Paths are relative to the output directory, so that none of this machine gets into the store.
        """
        wanted = {"storePathRootDir": "store", "storePathCommitLog": "store/commitlog"} | self.conf
        if self.release < (4, 9):
            wanted |= {old: wanted[new] for new, old in OLD_NAMES.items()}
        ports = {
            "{dledger_port}": str(self.port + DLEDGER_STEP),
            "{controller_port}": str(self.port + CONTROLLER_STEP),
        }
        wanted = {name: _filled(value, ports) for name, value in wanted.items()}
        return {"namesrvAddr": self.name_server, "listenPort": str(self.port)} | wanted

    def start_broker(self) -> None:
        """Start the broker on the store, and wait until it listens."""
        conf = self.home / "conf" / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in self.full_conf().items()))
        self._java("broker", "broker.BrokerStartup", conf)
        self.wait_port("broker", self.port, self.start_seconds)

    def restart_broker(self) -> None:
        """Stop the broker and start it with its configuration file as it left it."""
        self.stop("broker")
        self.start_as_left()

    def start_as_left(self) -> None:
        """Start a stopped broker with its configuration file as it left it."""
        self._java("broker", "broker.BrokerStartup", self.home / "conf" / "broker.conf")
        self.wait_port("broker", self.port, self.start_seconds)

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop a process by a signal; return its exit status."""
        process, log = self._processes.pop(name)
        process.send_signal(how)
        try:
            status = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            log.close()
        return status

    def agent(
        self, log: str = "client.log", on_event: Callable[[Event], None] | None = None,
        program: tuple[str, str, str] | None = None,
    ) -> Agent:
        """A process of official clients."""
        agent = Agent(self, log, on_event, program)
        self._agents.append(agent)
        return agent

    def close(self) -> None:
        """End everything that still runs, at once."""
        for other in (self.slave, *self.others):
            if other is not None:
                other.close()
        for agent in self._agents:
            if agent.process.poll() is None:
                agent.kill()
        for name in list(self._processes):
            if self._processes[name][0].poll() is None:
                self.stop(name, signal.SIGKILL)
        self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- requests, sent by the client's own remoting layer

    def request(
        self, agent: Agent, code: int, body: bytes | None = None, timeout: float = 15, **fields: object
    ) -> Event:
        """Any remoting request to the broker; the answer has `code`, `remark`, `fields`, `body`."""
        named = {f"f.{name}": value for name, value in fields.items() if value is not None}
        encoded = None if body is None else base64.b64encode(body).decode()
        named |= {"address": self.address, "code": code, "body": encoded, "timeout": int(timeout * 1000)}
        return agent.wait(agent.start("request", **named), timeout + 5)

    def wait_broker(self, agent: Agent) -> None:
        """Wait until the name server has the broker's address (request 106, cluster information).

        On a busy machine a single answer may take longer than the client waits for it: it is asked again.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            try:
                answer = agent.do("request", address=self.name_server, code=106, timeout=5000)
            except RuntimeError as error:
                if not any(word in str(error) for word in NOT_YET):
                    raise
                agent.failed.clear()
                continue
            if self.conf["brokerName"] in str(answer["body"]):
                return
            time.sleep(0.2)
        raise TimeoutError("the broker did not register")

    def create_topic(self, agent: Agent, topic: str, queues: int = 4, attributes: str | None = None) -> None:
        """Create or change a topic on the broker."""
        answer = self.request(
            agent,
            REQUEST_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
            attributes=attributes,
        )
        if answer["code"] != 0:
            raise RuntimeError(f"topic {topic}: {answer}")

    def set_config(self, agent: Agent, **values: str) -> None:
        """Change settings of the running broker, which then also hold for its next start."""
        self.conf.update(values)
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        answer = self.request(agent, REQUEST_CONFIG, text.encode())
        if answer["code"] != 0:
            raise RuntimeError(f"configuration {values}: {answer}")

    def cursor(self, agent: Agent, topic: str) -> int | None:
        """The check's cursor in one of its two topics."""
        answer = self.request(agent, REQUEST_OFFSET, consumerGroup=CHECK_GROUP, topic=topic, queueId=0)
        return int(answer["fields"]["offset"]) if answer["code"] == 0 else None

    def pull(self, agent: Agent, topic: str, queue: int = 0, offset: int = 0, bodies: bool = False) -> list[Event]:
        """The records of a queue from an offset on, as the broker returns them and the official decoder reads them."""
        answer = agent.do(
            "pull", address=self.address, topic=topic, queue=queue, offset=offset, bodies="yes" if bodies else None
        )
        records: list[Event] = answer["records"]
        return records
