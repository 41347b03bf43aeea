"""A slave of a rig's broker, and the failover after a kill: a master on the slave's store."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.brokers.rig import Rig
from tests.brokers.store_files import log_end

CURSORS = Path("config") / "consumerOffset.json"


def start_slave(master: Rig, directory: Path, **settings: str) -> Rig:
    """Start a slave: it replicates the commit log to a store below the directory, and every ten seconds the master's
    cursors and topics.

    It gets its master's address from the name server (that is `brokerIP2`); versions without half topics need it in
    the settings.
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
    """Wait until the slave's log has the current length of the master's."""
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


def fail_over(master: Rig, acting: Callable[[], None] = lambda: None, keep: Path | None = None) -> int:
    """Kill the broker, stop its slave, and start a master on the slave's store, at the address that the clients know.

    `acting` is called while only the slave runs; `keep` gets a copy of the killed master's store. Return the end of the
    slave's log: later records of the broker are lost.
    """
    assert master.slave is not None
    master.stop("broker", signal.SIGKILL)
    acting()
    master.slave.stop("broker")
    if keep is not None:
        shutil.copytree(master.store, keep)
    shutil.rmtree(master.store)
    shutil.move(master.slave.store, master.store)
    end = log_end(master.store)
    master.start_broker()
    return end
