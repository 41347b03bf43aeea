"""A slave beside a rig's broker, and what follows when the broker is killed: a master on the slave's store."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

from tests.brokers.rig import Rig
from tests.brokers.store_files import log_end

CURSORS = Path("config") / "consumerOffset.json"


def start_slave(master: Rig, directory: Path, **settings: str) -> Rig:
    """Start a slave, which copies the commit log into a store below the directory as it grows, and every ten seconds
    the master's cursors and topics.

    It asks the name server for its master, whose address is then `brokerIP2`; versions before half topics want to have
    it among the settings.
    """
    slave = Rig(master.version, directory, master.conf)
    slave.conf |= {
        "namesrvAddr": master.name_server,
        "brokerId": "1",
        "brokerRole": "SLAVE",
        **settings,
    }
    slave.start_broker()
    master.slave = slave
    return slave


def wait_copied(master: Rig, seconds: float = 30) -> None:
    """Wait until the slave's log is as long as the master's is now."""
    assert master.slave is not None
    end, limit = log_end(master.store), time.monotonic() + seconds
    while log_end(master.slave.store) < end:
        if time.monotonic() > limit:
            raise TimeoutError("the slave did not copy the log")
        time.sleep(0.3)


def wait_cursors(master: Rig, seconds: float = 60) -> None:
    """Wait until the slave fetches the master's cursors the next time."""
    assert master.slave is not None
    file, limit = master.slave.store / CURSORS, time.monotonic() + seconds

    def written() -> int | None:
        return file.stat().st_mtime_ns if file.exists() else None

    before = written()
    while written() == before:
        if time.monotonic() > limit:
            raise TimeoutError("the slave did not fetch the cursors")
        time.sleep(0.05)


def fail_over(master: Rig) -> int:
    """Kill the broker, stop its slave, and start a master on the slave's store, at the address that the clients know.

    Gives where the slave's log ended: what the broker wrote later is lost.
    """
    assert master.slave is not None
    master.stop("broker", signal.SIGKILL)
    master.slave.stop("broker")
    shutil.rmtree(master.store)
    shutil.move(master.slave.store, master.store)
    end = log_end(master.store)
    master.start_broker()
    return end
