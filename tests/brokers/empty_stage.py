"""A broker that was started and stopped and never got a message: a store with nothing in it, and nothing lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.brokers import maven
from tests.brokers.old_rig import OldRig
from tests.brokers.script import Act, Script
from tests.brokers.stage import Play

DESIGN = "empty"
_FLUSHED_AFTER_SECONDS = 8
"""By then the broker has written what it writes at intervals of some seconds."""


class EmptyPlay(Play):
    """One such run: no topic, no producer, no consumer."""

    def __init__(self, script: Script, out: Path, say: Callable[[str], None] = print) -> None:
        super().__init__(script, out, say)
        if maven.is_old(script.version):
            self.rig.close()
            self.rig = OldRig(script.version, out, script.conf)

    def run(self, acts: Mapping[str, Act]) -> None:
        """Start, and stop as the script says. There is nothing to play."""
        self.rig.start_names()
        self.rig.start_broker()
        agent = self.rig.agent("client.log")
        self.rig.wait_broker(agent)
        agent.close()
        self.record("started", version=self.script.version)
        time.sleep(_FLUSHED_AFTER_SECONDS)
        self.record("stopping", how=self.script.stop)
        self.rig.stop("broker", signal.SIGKILL if self.script.stop == "kill" else signal.SIGTERM)
        self.record("stopped", how=self.script.stop)

    def after(self, wait_seconds: float = 0) -> None:
        """A second run would show nothing; the log ends where it begins."""
        assert not any((self.rig.store / "commitlog").glob("*")), "no broker makes a file before its first message"
        self.record("log_end", commit_log_offset=0)
