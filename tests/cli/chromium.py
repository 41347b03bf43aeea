"""Headless Chromium over its debugging pipe: opens a page of a file at a width, and reports what a reader gets."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

#: Flags without which Chromium looks for hosts of its maker.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-quic", "--remote-debugging-pipe", "about:blank",
)
#: Chromium reads commands from descriptor 3 and writes answers to 4.
_AS_3_AND_4 = """
import os, sys
os.dup2(os.dup(int(sys.argv[2])), 4); os.dup2(int(sys.argv[1]), 3)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium_program() -> str:
    """The program; the test is skipped without it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs chromium (Debian: apt install chromium)")
    return found


@dataclass
class Browser:
    """One tab. Shape: `requests`: addresses that it asked for; `messages`: what it wrote to its console."""

    reads: int
    writes: int
    session: str = ""
    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    _sent: int = 0
    _buffer: bytes = b""
    _events: Counter[str] = field(default_factory=Counter)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its result."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self.reads, 1 << 16)
            assert piece, "Chromium ended"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method = message.get("method", "")
        self._events[method] += 1
        if method == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        elif method == "Log.entryAdded":
            self.messages.append(message["params"]["entry"]["text"])
        return message

    def open(self, file: Path, width: int, scheme: str) -> None:
        """Open a file in a window of some CSS pixels, in the colour scheme light or dark."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        loaded = self._events["Page.loadEventFired"]
        self.send("Page.navigate", url=file.resolve().as_uri())
        while self._events["Page.loadEventFired"] == loaded:
            self._receive()

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        return self.send("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def accessible(self) -> list[tuple[str, str, str]]:
        """What assistive software gets: role, name and description of each node."""
        nodes = [node for node in self.send("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
        return [
            (node["role"]["value"], *(str(node.get(part, {}).get("value", "")) for part in ("name", "description")))
            for node in nodes
        ]

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A tab of a Chromium of its own, which ends with the context."""
    program = chromium_program()
    to_child, writes = os.pipe()
    reads, from_child = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _AS_3_AND_4, str(to_child), str(from_child), program, f"--user-data-dir={profile}",
         *_FLAGS],
        pass_fds=(to_child, from_child), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_child)
    os.close(from_child)
    try:
        tab = Browser(reads, writes)
        target = tab.send("Target.createTarget", url="about:blank")["targetId"]
        tab.session = tab.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log"):
            tab.send(f"{domain}.enable")
        yield tab
    finally:
        os.close(writes)
        process.terminate()
        process.wait(300)
        os.close(reads)
