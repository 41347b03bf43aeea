"""The official artifacts of one RocketMQ version, fetched by Maven and kept in a cache directory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

VERSIONS = ("4.3.0", "4.4.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")
MODULES = ("namesrv", "broker", "client", "tools")
SCENARIO = Path(__file__).with_name("Scenario.java")
JAVA_WANTED = 11
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>rmqtx.tests</groupId><artifactId>brokers</artifactId><version>1</version><dependencies>
{dependencies}
</dependencies></project>
"""
DEPENDENCY = """<dependency><groupId>org.apache.rocketmq</groupId>
<artifactId>rocketmq-{module}</artifactId><version>{version}</version></dependency>"""


def cache_directory() -> Path:
    """Where classpaths and compiled classes are kept: RMQTX_BROKER_CACHE, else below the user's cache directory."""
    named = os.environ.get("RMQTX_BROKER_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rmqtx" / "brokers"


def why_not() -> str | None:
    """The reason why no broker can be run here, in one sentence; None where everything is there."""
    for tool, package in (("java", "a JDK"), ("javac", "a JDK"), ("mvn", "Maven")):
        if shutil.which(tool) is None:
            return f"{tool} is not on the PATH: install {package} (Java {JAVA_WANTED} or later, and Maven)"
    text = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found.group(1)) < JAVA_WANTED:
        return (
            f"Java {JAVA_WANTED} or later is wanted, java -version says: {text.splitlines()[0] if text else 'nothing'}"
        )
    return None


def jars(version: str) -> str:
    """The classpath of a version's name server, broker and client (a Maven run when it is asked for the first time)."""
    directory = cache_directory() / version
    directory.mkdir(parents=True, exist_ok=True)
    listing = directory / "classpath.txt"
    if not listing.exists():
        lines = (DEPENDENCY.format(module=module, version=version) for module in MODULES)
        (directory / "pom.xml").write_text(POM.format(dependencies="\n".join(lines)))
        fresh = directory / "classpath.new"
        command = ["mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
        with (directory / "mvn.log").open("wb") as log:
            subprocess.run(command, cwd=directory, check=True, stdout=log, stderr=log)
        fresh.rename(listing)
    return listing.read_text().strip()


def classpath(version: str) -> str:
    """The version's jars with our compiled Scenario in front of them."""
    found = jars(version)
    digest = hashlib.sha256(SCENARIO.read_bytes()).hexdigest()[:12]
    classes = cache_directory() / version / f"classes-{digest}"
    if not (classes / "Scenario.class").exists():
        subprocess.run(
            ["javac", "-nowarn", "-cp", found, "-d", str(classes), str(SCENARIO)], check=True, capture_output=True
        )
    return f"{classes}{os.pathsep}{found}"
