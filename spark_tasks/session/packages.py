"""Send rmqtx to the workers of a cluster, which need only Python, pyarrow, numpy and pandas."""

from __future__ import annotations

import atexit
import functools
import hashlib
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import rmqtx
from rmqtx.readers.storage.temporary import folder_prefix

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The directory from which `rmqtx` is imported: the workers must import the same.
PACKAGES_DIRECTORY = Path(rmqtx.__file__).resolve().parent.parent
#: What tasks import; in a checkout these are links, which are followed.
_PACKAGES = ("readers", "verdicts", "spark_tasks")


@functools.cache
def archive_name() -> str:
    """Return the name of the archive, which is another one for other contents: an application can get two of them."""
    digest = hashlib.sha256()
    for module in _modules():
        digest.update(f"{module.relative_to(PACKAGES_DIRECTORY)}\n".encode() + module.read_bytes())
    return f"rmqtx-{digest.hexdigest()[:12]}.zip"


def packages_archive(directory: Path) -> Path:
    """Return rmqtx's packages as one file that Python can import from, for workers without rmqtx."""
    archive = directory / archive_name()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for module in _modules():
            file.write(module, module.relative_to(PACKAGES_DIRECTORY))
    return archive


def _modules() -> list[Path]:
    library = PACKAGES_DIRECTORY / "rmqtx"
    inside = [module for package in _PACKAGES for module in sorted((library / package).rglob("*.py"))]
    return [library / "__init__.py", *inside]


def send_packages(spark: SparkSession, directory: Path | None = None) -> None:
    """Send rmqtx's packages to the workers of a session; they are imported before a version that is installed there.

    Once for each session. `directory`: where the archive is written; it must exist as long as the session, whose later
    workers fetch it too. None: a folder that exists as long as this process.
    """
    if not are_workers_elsewhere(spark) or spark in _SENT:
        return
    archive = str(packages_archive(directory) if directory else _archive_of_process())
    if is_connected(spark):
        spark.addArtifacts(archive, pyfile=True)
    else:
        spark.sparkContext.addPyFile(archive)
    _SENT.add(spark)


#: The sessions to which the packages were sent.
_SENT: WeakSet[Any] = WeakSet()


def are_workers_elsewhere(spark: SparkSession) -> bool:
    """Whether tasks run in another installation than this process: on a cluster, or on the machine of a server."""
    return is_connected(spark) or not is_local(str(spark.sparkContext.master))


def is_connected(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect: its driver is a server on any machine."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@functools.cache
def _archive_of_process() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=folder_prefix("spark")))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return packages_archive(folder)


def is_local(master: str) -> bool:
    """Whether a master runs its tasks in the driver's JVM."""
    return master == "local" or master.startswith("local[")
