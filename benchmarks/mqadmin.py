"""RocketMQ's own command line with a real broker, as operators use it without rmqtx."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import rocketmq
from benchmarks.measure import Command

# The options that bin/tools.sh of the release gives the virtual machine.
TOOL_OPTIONS = (
    "-server", "-Xms1g", "-Xmx1g", "-Xmn256m", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=128m",
)
START_SECONDS = 120


@dataclass(frozen=True)
class Cluster:
    """A name server and a broker on this machine."""

    home: Path
    name_server: str
    broker: str

    def mqadmin(self, name: str, *words: str, expect: str) -> Command:
        """Return the command that runs mqadmin; its status is not reliable, so the output must contain `expect`."""

        def check(output: str) -> None:
            if expect not in output:
                raise RuntimeError(f"{name} did not answer: no {expect!r} in\n{output[-2000:]}")

        return Command(
            name,
            rocketmq.java(
                "org.apache.rocketmq.tools.command.MQAdminStartup", *words,
                options=(*TOOL_OPTIONS, f"-Duser.home={self.home}"),
            ),
            check,
            {"ROCKETMQ_HOME": str(self.home), "NAMESRV_ADDR": self.name_server},
        )

    def help(self) -> Command:
        """Return the command `mqadmin` alone: the virtual machine's start and the list of subcommands.

        `mqadmin help`, without a subcommand, only prints that the command does not exist.
        """
        return self.mqadmin("mqadmin", expect="brokerStatus")

    def broker_status(self) -> Command:
        """Return the command `mqadmin brokerStatus`: the cheapest request to a broker."""
        return self.mqadmin("mqadmin brokerStatus", "brokerStatus", "-b", self.broker, expect="brokerVersion")


@contextmanager
def running(directory: Path) -> Iterator[Cluster]:
    """Run a name server and a broker with a new store below `directory`, until the block ends."""
    home = directory / "home"
    (home / "conf").mkdir(parents=True)
    base = _free_ports()
    name_port, broker_port = base, base + 3  # a broker also uses the ports beside its port
    name_conf, broker_conf = home / "conf" / "namesrv.conf", home / "conf" / "broker.conf"
    name_conf.write_text(f"listenPort={name_port}\n")
    broker_conf.write_text(
        "brokerClusterName=benchmark\nbrokerName=broker-a\nbrokerId=0\n"
        f"namesrvAddr=127.0.0.1:{name_port}\nlistenPort={broker_port}\nbrokerIP1=127.0.0.1\n"
        f"haListenPort={broker_port + 1}\nstorePathRootDir={directory / 'store'}\n"
        f"storePathCommitLog={directory / 'store' / 'commitlog'}\nmappedFileSizeCommitLog=16777216\n"
        "diskMaxUsedSpaceRatio=98\n"
    )
    with ExitStack() as stack:
        for main, conf, port in (
            ("org.apache.rocketmq.namesrv.NamesrvStartup", name_conf, name_port),
            ("org.apache.rocketmq.broker.BrokerStartup", broker_conf, broker_port),
        ):
            stack.enter_context(_server(main, conf, port, home, directory / f"{conf.stem}.log"))
        yield Cluster(home, f"127.0.0.1:{name_port}", f"127.0.0.1:{broker_port}")


@contextmanager
def _server(main: str, conf: Path, port: int, home: Path, log: Path) -> Iterator[None]:
    command = rocketmq.java(main, "-c", conf, options=("-Xmx512m", f"-Duser.home={home}"))
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, cwd=home, env={**os.environ, "ROCKETMQ_HOME": str(home)}
        )
    try:
        until = time.monotonic() + START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{main} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int = 6) -> int:
    """Return the first of some consecutive free ports."""
    for base in range(36_000, 60_000, 10):
        try:
            with ExitStack() as stack:
                for port in range(base, base + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise RuntimeError("no free ports")
