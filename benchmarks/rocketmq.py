"""RocketMQ's code on this machine: its class path from Maven, and Java programs compiled with it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

VERSION = "5.3.3"

JAVA_SOURCES = Path(__file__).resolve().parent / "java"

# Options that the store's mapped files and the broker's reflection need from Java 9 on.
OPENS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)

MODULES = ("namesrv", "broker", "client", "tools")

# First on the class path: without it RocketMQ's logging writes about 200 lines on its own configuration.
QUIET_LOGGING = '<configuration><root level="OFF"/></configuration>\n'


def cache_directory() -> Path:
    """Return the directory of class paths and compiled programs between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "rmqtx" / "benchmarks"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def class_path(version: str = VERSION) -> str:
    """The class path of a RocketMQ release with all it depends on, from Maven (and its local repository)."""
    directory = cache_directory() / f"classpath-{version}"
    found = directory / "classpath.txt"
    if not found.exists():
        directory.mkdir(exist_ok=True)
        dependencies = "".join(
            "<dependency><groupId>org.apache.rocketmq</groupId>"
            f"<artifactId>rocketmq-{module}</artifactId><version>{version}</version></dependency>"
            for module in MODULES
        )
        (directory / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>rmqtx</groupId><artifactId>benchmarks</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>\n"
        )
        part = directory / "classpath.part"
        maven = ["mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={part}"]
        subprocess.run(maven, cwd=directory, check=True)
        part.rename(found)
    return found.read_text().strip()


def programs(version: str = VERSION) -> Path:
    """Return a directory with the Java programs compiled for a release, again when a source changes."""
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    directory = cache_directory() / f"programs-{version}-{digest}"
    if not directory.exists():
        part = directory.with_name(f"{directory.name}.{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        (part / "rmq.logback.xml").write_text(QUIET_LOGGING)
        subprocess.run(["javac", "-nowarn", "-d", part, "-cp", class_path(version), *sources], check=True)
        part.rename(directory)
    return directory


def java(main: str, *arguments: str | Path, options: Sequence[str] = (), version: str = VERSION) -> list[str]:
    """Return the command that runs one of the Java programs, or any class of the release."""
    path = f"{programs(version)}{os.pathsep}{class_path(version)}"
    return ["java", *OPENS, *options, "-cp", path, main, *map(str, arguments)]
