"""One JVM with the classes of a release's broker, without its network and its timers (java/Machine.java)."""

from __future__ import annotations

import base64
import hashlib
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rmqtx.remoting.connections.connection import Request
from rmqtx.remoting.protocol.frames import Frame, decoded, encoded
from tests.brokers import maven

SOURCES = Path(__file__).with_name("java")
_NO_LOG = SOURCES / "logback.xml"
RELEASES = ("4.3.0", "4.4.0", "4.5.2", "4.9.7", "5.0.0", "5.1.4", "5.2.0", "5.3.3", "5.5.0")
ADDRESS = "10.0.0.2:10911"
_PATIENCE_SECONDS = 60
#: Small files, so that segments and queues roll over; nothing is flushed but by a step, so that a history can be
#: repeated.
SMALL_FILES: dict[str, str] = {
    "mappedFileSizeCommitLog": "16384", "mapedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400",
    "mapedFileSizeConsumeQueue": "400", "maxIndexNum": "1000",
    "maxHashSlotNum": "250", "mappedFileSizeTimerLog": "102400", "mappedFileSizeConsumeQueueExt": "4096",
    "flushCommitLogTimed": "false", "flushIntervalCommitLog": "3600000", "flushIntervalConsumeQueue": "3600000",
    "flushCommitLogLeastPages": "1000000", "flushConsumeQueueLeastPages": "1000000",
    "flushCommitLogThoroughInterval": "2000000000", "flushConsumeQueueThoroughInterval": "2000000000",
    "warmMapedFileEnable": "false", "transientStorePoolEnable": "false", "diskMaxUsedSpaceRatio": "99",
    "asyncSendEnable": "false", "timerWheelEnable": "false",
}


class MachineFailed(Exception):
    """A step that the classes did not carry out."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What a step gave: the response to a request, checks that clients got, and other lines."""

    answers: Sequence[Frame]
    asked: Sequence[tuple[str, Frame]]
    lines: Sequence[str]
    refusal: str | None = None


def compiled(version: str) -> tuple[Path, str]:
    """The agent that sets the clock, and the classpath of a release with our classes in front."""
    found = maven.jars(version)
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    classes = maven.cache_directory() / version / f"machine-{digest}"
    agent = classes / "agent.jar"
    if not agent.exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-cp", found, "-d", str(classes), *map(str, sources)]
        subprocess.run(command, check=True, capture_output=True)
        manifest = classes / "manifest.txt"
        manifest.write_text("Premain-Class: ClockAgent\n")
        made = ["jar", "cfm", str(agent), str(manifest), "-C", str(classes), "ClockAgent.class"]
        subprocess.run(made, check=True, capture_output=True)
    return agent, f"{classes}{os.pathsep}{found}"


class Machine:
    """The classes of one release, in a JVM of their own; `start` opens a store, one at a time."""

    def __init__(self, version: str, home: Path) -> None:
        self.version = version
        agent, classpath = compiled(version)
        self._log = (home / f"machine-{version}.log").open("ab")
        command = [
            "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k", "-Xmx700m", "-XX:MaxDirectMemorySize=2g",
            f"-javaagent:{agent}", f"-Duser.home={home}", f"-Drocketmq.home.dir={home}",
            "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED", "-Dio.netty.tryReflectionSetAccessible=true",
            f"-Dlogback.configurationFile={_NO_LOG}", f"-Drmq.logback.configurationFile={_NO_LOG}",
            "-Duser.timezone=UTC", "-Dtls.server.mode=disabled", "-Dtls.test.mode.enable=false",
            "-cp", classpath, "Machine",
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, cwd=home
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        self._opaque = 0
        self.now_ms = 0

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("failed the JVM ended")

    def step(self, *words: object) -> Effects:
        """Carry out one step.

        Raises: MachineFailed.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answers: list[Frame] = []
        asked: list[tuple[str, Frame]] = []
        lines: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=_PATIENCE_SECONDS)
            except queue.Empty:
                self.close()
                raise MachineFailed(f"{words[0]}: no end after {_PATIENCE_SECONDS} s") from None
            if line == "ok":
                return Effects(answers, asked, lines)
            word, *rest = line.split("\t")
            if word == "answer":
                answers.append(_frame(rest[1]))
            elif word == "asked":
                asked.append((rest[0], _frame(rest[1])))
            elif word.startswith("no "):
                return Effects(answers, asked, lines, line.removeprefix("no "))
            elif word.startswith("failed "):
                raise MachineFailed(f"{self.version} {' '.join(map(str, words))[:200]}: {line.removeprefix('failed ')}")
            else:
                lines.append(line)

    def clock(self, now_ms: int) -> None:
        """Set the broker's time."""
        self.now_ms = now_ms
        self.step("clock", now_ms)

    def start(self, root: Path, conf: Mapping[str, str]) -> Effects:
        """Open a store; `refusal` says why the release does not start on it."""
        words = [f"{name}={value}" for name, value in (SMALL_FILES | dict(conf)).items()]
        return self.step("start", root, *words)

    def request(self, client: str, request: Request) -> Frame | None:
        """Have a request carried out by the processor for its code; None if the broker does not respond."""
        self._opaque += 1
        answers = self.carried_out(client, Frame(request.code, self._opaque, request.texts(), request.body))
        return answers[0] if answers else None

    def carried_out(self, client: str, frame: Frame) -> Sequence[Frame]:
        """Have a frame carried out; the responses."""
        return self.step("request", client, base64.b64encode(encoded(frame)).decode()).answers


def _frame(text: str) -> Frame:
    return decoded(base64.b64decode(text))
