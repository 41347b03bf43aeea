"""The official artifacts of one RocketMQ version, fetched by Maven and kept in a cache directory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

VERSIONS = ("4.3.0", "4.4.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")
MODULES = ("namesrv", "broker", "client", "tools")
OLD_MODULES = ("broker", "client")
NAME_SERVERS = {"3.1.4": "3.2.6", "5.3.0": "5.3.3", "5.3.2": "5.3.3"}
"""The name servers of these were never published; the next one speaks the same protocol."""
SCENARIO = Path(__file__).with_name("Scenario.java")
OLD_SCENARIO = Path(__file__).with_name("OldScenario.java")
GRPC_SCENARIO = Path(__file__).with_name("GrpcScenario.java")
TRACE_SCENARIO = Path(__file__).with_name("TraceScenario.java")
GRPC_VERSION = "5.0.8"
LINES = Path(__file__).with_name("Lines.java")
HALF_TOPIC_SINCE = (4, 3)
JAVA_WANTED = 11
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>rmqtx.tests</groupId><artifactId>brokers</artifactId><version>1</version><dependencies>
{dependencies}
</dependencies></project>
"""
DEPENDENCY = """<dependency><groupId>{group}</groupId>
<artifactId>rocketmq-{module}</artifactId><version>{version}</version>{exclusions}</dependency>"""
OLD_EXCLUSIONS = """<exclusions>
<exclusion><groupId>org.kohsuke</groupId><artifactId>github-api</artifactId></exclusion>
<exclusion><groupId>io.netty</groupId><artifactId>netty-tcnative</artifactId></exclusion>
</exclusions>"""
"""Dependencies of 3.2 that no run needs, and that do not exist for every machine."""


def cache_directory() -> Path:
    """Where classpaths and compiled classes are kept: RMQTX_BROKER_CACHE, else below the user's cache directory."""
    named = os.environ.get("RMQTX_BROKER_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rmqtx" / "brokers"


@cache
def why_not() -> str | None:
    """The reason why no broker can be run here, in one sentence; None if one can."""
    for tool, package in (("java", "a JDK"), ("javac", "a JDK"), ("mvn", "Maven")):
        if shutil.which(tool) is None:
            return f"{tool} is not on the PATH: install {package} (Java {JAVA_WANTED} or later, and Maven)"
    text = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found.group(1)) < JAVA_WANTED:
        return (
            f"Java {JAVA_WANTED} or later is needed, java -version gave: {text.splitlines()[0] if text else 'nothing'}"
        )
    return None


def release(version: str) -> tuple[int, ...]:
    """A version as numbers, for comparisons."""
    return tuple(int(part) for part in version.split("."))


def is_old(version: str) -> bool:
    """Whether a version has no half topics, and the client of that time."""
    return release(version) < HALF_TOPIC_SINCE


def group(version: str) -> str:
    """The Maven group and Java package of a version: it was Alibaba's before 4.0."""
    return "com.alibaba.rocketmq" if release(version) < (4,) else "org.apache.rocketmq"


def jars(version: str, modules: tuple[str, ...] = ()) -> str:
    """The classpath of a version's name server, broker and client, or of some modules only (Maven runs on the first
    call).
    """
    suffix = "".join(f"-{module}" for module in modules)
    modules = modules or (OLD_MODULES if has_foreign_name_server(version) else MODULES)
    directory = cache_directory() / f"{version}{suffix}"
    directory.mkdir(parents=True, exist_ok=True)
    listing = directory / "classpath.txt"
    if not listing.exists():
        exclusions = OLD_EXCLUSIONS if is_old(version) else ""
        lines = [
            DEPENDENCY.format(group=group(version), module=m, version=version, exclusions=exclusions) for m in modules
        ]
        (directory / "pom.xml").write_text(POM.format(dependencies="\n".join(lines)))
        fresh = directory / "classpath.new"
        command = ["mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
        with (directory / "mvn.log").open("wb") as log:
            subprocess.run(command, cwd=directory, check=True, stdout=log, stderr=log)
        fresh.rename(listing)
    return listing.read_text().strip()


def has_foreign_name_server(version: str) -> bool:
    """Whether the name server of a version has its own classpath."""
    return is_old(version) or version in NAME_SERVERS


def names_jars(version: str) -> str:
    """The classpath of the name server for a version."""
    if not has_foreign_name_server(version):
        return jars(version)
    return jars(NAME_SERVERS.get(version, version), ("namesrv",))


def scenario(version: str) -> tuple[str, str]:
    """The name and the source of the program that drives a version's client."""
    if is_old(version):
        return "OldScenario", OLD_SCENARIO.read_text().replace("com.alibaba.rocketmq", group(version))
    return "Scenario", SCENARIO.read_text()


def classpath(version: str) -> str:
    """The compiled scenario, followed by the version's jars."""
    name, source = scenario(version)
    return _compiled(jars(version), version, name, source)


def grpc_classpath() -> str:
    """The compiled scenario of the gRPC client, followed by that client's jars."""
    found = jars(GRPC_VERSION, ("client-java",))
    return _compiled(found, f"{GRPC_VERSION}-client-java", GRPC_SCENARIO.stem, GRPC_SCENARIO.read_text())


def trace_classpath(version: str) -> str:
    """The compiled program whose producer writes message traces, followed by the version's jars."""
    return _compiled(jars(version), f"{version}-trace", TRACE_SCENARIO.stem, TRACE_SCENARIO.read_text())


def _compiled(found: str, directory: str, name: str, source: str) -> str:
    sources = {f"{name}.java": source, LINES.name: LINES.read_text()}
    digest = hashlib.sha256("".join(sources.values()).encode()).hexdigest()[:12]
    classes = cache_directory() / directory / f"classes-{digest}"
    if not (classes / f"{name}.class").exists():
        written = cache_directory() / directory / f"source-{digest}"
        written.mkdir(parents=True, exist_ok=True)
        for file, text in sources.items():
            (written / file).write_text(text)
        files = [str(written / file) for file in sources]
        subprocess.run(["javac", "-nowarn", "-cp", found, "-d", str(classes), *files], check=True, capture_output=True)
    return f"{classes}{os.pathsep}{found}"
