"""Send rmqtx to the workers of a cluster, which need only Python, pyarrow and numpy."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The directory from which `readers` and `spark_tasks` are imported: the workers must import the same.
PACKAGES_DIRECTORY = Path(readers.__file__).resolve().parent.parent
_PACKAGES = ("readers", "verdicts", "spark_tasks")


def packages_archive(directory: Path) -> Path:
    """Return rmqtx's packages as one file that Python can import from, for workers without rmqtx."""
    archive = directory / "rmqtx.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for package in _PACKAGES:
            for module in sorted((PACKAGES_DIRECTORY / package).rglob("*.py")):
                file.write(module, module.relative_to(PACKAGES_DIRECTORY))
    return archive


def send_packages(spark: SparkSession, directory: Path | None = None) -> None:
    """Send rmqtx's packages to the workers of a session; they are imported before a version that is installed there.

    `directory`: where the archive is written; it must exist as long as the session, whose later workers fetch it too.
    None: a folder that exists as long as this process.
    """
    is_connected = type(spark).__module__.startswith("pyspark.sql.connect")
    if not is_connected and is_local(str(spark.sparkContext.master)):
        return
    archive = str(packages_archive(directory) if directory else _archive_of_process())
    if is_connected:
        spark.addArtifacts(archive, pyfile=True)
    else:
        spark.sparkContext.addPyFile(archive)


@functools.cache
def _archive_of_process() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rmqtx-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return packages_archive(folder)


def is_local(master: str) -> bool:
    """Whether a master runs its tasks in the driver's JVM."""
    return master == "local" or master.startswith("local[")
