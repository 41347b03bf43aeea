"""The command `rmqtx`, run as a user runs it: as a process, with its own state directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass
class Ran:
    """A command that ended: its exit status, the rows of stdout, the lines of stderr."""

    words: list[str]
    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def rows(self) -> list[Row]:
        """The JSON lines of stdout."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]

    def __str__(self) -> str:
        words = " ".join(self.words[:12]) + (" ..." if len(self.words) > 12 else "")
        return f"$ rmqtx {words}\n{self.stdout}{self.stderr}[exit {self.status}, {self.seconds:.1f} s]"


@dataclass
class Tool:
    """The rmqtx of one user: its name server, and its state directory with the journal."""

    name_server: str
    state: Path
    seconds: float = 180
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *words: str, live: bool = True) -> subprocess.Popen[str]:
        """Start a command; `live` adds the name server."""
        given = [*words, "-n", self.name_server] if live else list(words)
        environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
        environment |= {"RMQTX_STATE_DIR": str(self.state), "COLUMNS": "200"} | self.environment
        return subprocess.Popen(
            [sys.executable, "-m", "rmqtx_cli.main", *given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
        )

    def end(self, process: subprocess.Popen[str]) -> Ran:
        """Wait for the end of a started command; return its result."""
        began = time.monotonic()
        try:
            stdout, stderr = process.communicate(timeout=self.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            stderr += f"(killed by the test after {self.seconds} s)\n"
        assert isinstance(process.args, list)
        words = [str(word) for word in process.args[3:]]
        return Ran(words, process.returncode, stdout, stderr, time.monotonic() - began)

    def run(self, *words: str, live: bool = True) -> Ran:
        """Run a command to its end."""
        began = time.monotonic()
        ran = self.end(self.start(*words, live=live))
        ran.seconds = time.monotonic() - began
        return ran

    def act(self, action: str, *words: str) -> Ran:
        """Run an acting command without confirmation, with JSON lines."""
        return self.run(action, *words, "--yes", "--format", "jsonl")

    def journal(self) -> list[Row]:
        """The complete lines of the journal file; another process may be writing the next one."""
        path = self.state / "receipts.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
