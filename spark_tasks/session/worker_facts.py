"""What a Python worker of Spark is: its Python, its packages, its machine. Runs in tasks, also where packages lack.

Only the standard library is imported, so that a worker without pyarrow and numpy can report this.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

#: What tasks import.
NEEDED = ("pyarrow", "numpy", "pandas")
#: What makes large scans faster, and what reads stores in RocksDB.
USEFUL = ("numba", "rocksdict")
#: Names of variables and files from which credentials of object stores come; their values are never read.
CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SHARED_CREDENTIALS_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_KEY",
)
CREDENTIAL_FILES = ("~/.aws/credentials", "~/.aws/config", "~/.config/gcloud/application_default_credentials.json")


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A Python process that runs tasks, and its machine.

    Shape: `versions`: of NEEDED and USEFUL, None for a package that is not installed. `origin`: the file from which
           tasks import rmqtx, None if they cannot. `installed`: the version of rmqtx that is installed there.
           `failures`: why the import of an installed package fails, by package. `credentials`: the names of
           CREDENTIAL_VARIABLES and CREDENTIAL_FILES that exist.
    """

    host: str
    parent: int
    python: str
    executable: str
    platform: str
    versions: Mapping[str, str | None]
    failures: Mapping[str, str]
    origin: str | None
    installed: str | None
    cores_count: int
    memory_bytes: int
    temporary_directory: str
    free_bytes: int | None
    credentials: Sequence[str]

    @property
    def executor(self) -> tuple[str, int]:
        """Identifies an executor: workers of one have the same parent, Spark's daemon for Python."""
        return self.host, self.parent


def facts_here() -> WorkerFacts:
    """Return the facts of this process. Imports the packages that tasks need."""
    spec = importlib.util.find_spec("rmqtx")
    directory = tempfile.gettempdir()
    versions = {name: version_of(name) for name in (*NEEDED, *USEFUL)}
    failures = {name: failure_of(name) for name in NEEDED if versions[name] is not None}
    return WorkerFacts(
        host=socket.gethostname(),
        parent=os.getppid(),
        python=platform.python_version(),
        executable=sys.executable,
        platform=f"{platform.system()} {platform.machine()}",
        versions=versions,
        failures={name: reason for name, reason in failures.items() if reason is not None},
        origin=None if spec is None else spec.origin,
        installed=_installed(),
        cores_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        temporary_directory=directory,
        free_bytes=_free_bytes(directory),
        credentials=credentials_here(),
    )


def credentials_here() -> list[str]:
    """Return the names of variables that are set, and of files that exist, with credentials of object stores."""
    variables = [name for name in CREDENTIAL_VARIABLES if os.environ.get(name)]
    return [*variables, *(name for name in CREDENTIAL_FILES if Path(name).expanduser().is_file())]


def _installed() -> str | None:
    """Return the version of rmqtx that is installed; None for the one that was sent, which has no metadata."""
    try:
        return importlib.metadata.version("rmqtx")
    except importlib.metadata.PackageNotFoundError:
        return None


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed, "" if it does not show its version."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "" if importlib.util.find_spec(package) is not None else None


def failure_of(package: str) -> str | None:
    """Return why the import of a package fails, in one line; None if it succeeds."""
    try:
        importlib.import_module(package)
    except Exception as error:  # a package can raise anything when it is imported
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None


def _free_bytes(directory: str) -> int | None:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


class Asked:
    """The task: returns the facts of its worker as JSON, after some seconds in which other executors get tasks."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self.__name__ = "worker_facts"  # Spark shows it

    def __call__(self, _number: int) -> str:
        """Return JSON of WorkerFacts."""
        time.sleep(self._seconds)
        return json.dumps(asdict(facts_here()))


def restored(text: str) -> WorkerFacts:
    """Return the facts that a task returned."""
    return WorkerFacts(**json.loads(text))
