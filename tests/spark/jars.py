"""Drivers from Maven Central, kept in a cache directory; a machine that cannot have one says why."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.brokers.maven import cache_directory

SQLITE = "org.xerial:sqlite-jdbc:3.46.1.3"


def jar(artifact: str) -> Path:
    """The jar of `group:name:version`; skips the test, with the reason, where it cannot be had."""
    _, name, version = artifact.split(":")
    directory = cache_directory().parent / "jars"
    found = directory / f"{name}-{version}.jar"
    if found.exists():
        return found
    if shutil.which("mvn") is None:
        pytest.skip(f"mvn is not on the PATH, so {artifact} cannot be had")
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode or not found.exists():
        lines = (said.stdout + said.stderr).strip().splitlines()
        pytest.skip(f"Maven cannot get {artifact}: {lines[0] if lines else 'no reason given'}")
    return found
