"""Pack the Python packages that Spark's workers need into an archive, for executors with a bare Python.

The archive has the packages of this environment, and `bin/python`: a shell script that runs a Python of the executor
with them. Spark unpacks it (`spark.archives`, `--archives`), and PYSPARK_PYTHON names the script. It suits executors
with the system, the processor and the minor version of Python of this machine.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from packaging.requirements import Requirement

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.spark_tasks.session.worker_facts import NEEDED, USEFUL

#: The variable that names the Python to run, if it is not the first one on the executor's PATH.
PYTHON_VARIABLE = "RMQTX_PYTHON"
_PACKAGES = PurePosixPath("packages")
#: Folders in packages that no task imports: half of the bytes.
_LEFT_OUT = {"__pycache__", "tests", "include"}
_LEFT_OUT_SUFFIXES = (".pyi", ".pyx", ".pxd", ".h", ".hpp", ".a")
_TRY_SECONDS_MAX = 300

_SCRIPT = """\
#!/bin/sh
# Runs a Python {version} of this machine with the packages beside this folder.
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P) || exit 1
for python in ${variable} python{version} python3 python; do
  if "$python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{version}")' 2>/dev/null; then
    PYTHONPATH=$here/packages${{PYTHONPATH:+:$PYTHONPATH}}
    export PYTHONPATH
    exec "$python" "$@"
  fi
done
echo "the archive of rmqtx needs Python {version}, and PATH has none: set spark.executorEnv.{variable} to one" >&2
exit 127
"""


class CannotPack(RmqtxError):
    """A package that workers need is not installed here, or cannot be copied, or the archive does not work."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What an archive contains. Shape: `versions`: of the packages that tasks import, by name."""

    versions: Mapping[str, str]
    files_count: int
    python: str


def write_archive(stream: IO[bytes]) -> Packed:
    """Write the archive, a compressed tar. Raises: CannotPack."""
    found = _distributions()
    files = [pair for name in sorted(found) for pair in _files(found[name])]
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=6) as archive:
        _add_script(archive)
        for place, file in files:
            archive.add(file, str(place), recursive=False, filter=_owned_by_none)
    versions = {name: found[name].version for name in (*NEEDED, *USEFUL) if name in found}
    return Packed(versions, len(files), _minor_version())


def try_archive(archive: Path, directory: Path) -> None:
    """Unpack an archive into a new directory, and import its packages there with nothing else on Python's path.

    Raises: CannotPack if that fails.
    """
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="tar")
        names = {PurePosixPath(name).parts[1] for name in packed.getnames() if name.startswith(f"{_PACKAGES}/")}
    modules = ["pyarrow.compute", "pyarrow.parquet", "pyarrow.fs", "numpy", "pandas", *sorted(names & {*USEFUL})]
    environment = {"PATH": os.environ.get("PATH", os.defpath), PYTHON_VARIABLE: sys.executable, "HOME": str(directory)}
    # -s: a package in the home of a user must not stand in for one that the archive lacks.
    done = subprocess.run(
        [str(directory / "bin" / "python"), "-s", "-c", _TRIED.format(modules=modules)], env=environment,
        cwd=directory, capture_output=True, text=True, check=False, timeout=_TRY_SECONDS_MAX,
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise CannotPack(f"the packages of the archive cannot be imported: {reason}")


#: Packages must come from the archive, not from the environment of the Python that runs it.
_TRIED = """
import importlib, os
for name in {modules}:
    module = importlib.import_module(name)
    place = os.path.realpath(module.__file__)
    if not place.startswith(os.path.realpath('packages') + os.sep):
        raise SystemExit(name + ' is imported from ' + place)
"""


def _distributions() -> dict[str, importlib.metadata.Distribution]:
    """Return the packages that tasks need, those that are useful and installed, and all that these need, by name."""
    for name in NEEDED:
        if not _is_installed(name):
            raise CannotPack(f"{name} is not installed here", advice="pip install 'rmqtx[spark]'")
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [*NEEDED, *(name for name in USEFUL if _is_installed(name))]
    while waiting:
        name = _normal(waiting.pop())
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise CannotPack(f"{name}, which the packages need, is not installed here") from None
        needs = (Requirement(text) for text in found[name].requires or ())
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _normal(name: str) -> str:
    """Return the form of a package's name that metadata has."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _files(distribution: importlib.metadata.Distribution) -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield the files of a package: their place in the archive, and here.

    Raises: CannotPack for a package whose files are not listed.
    """
    listed = distribution.files
    if not listed:
        raise CannotPack(
            f"the installation of {distribution.name} does not list its files",
            advice="use a virtual environment of pip for rmqtx",
        )
    for file in listed:
        inner = PurePosixPath(file)
        is_outside = inner.is_absolute() or ".." in inner.parts  # programs in bin/
        if is_outside or _LEFT_OUT & {*inner.parts[:-1]} or inner.suffix in _LEFT_OUT_SUFFIXES:
            continue
        yield _PACKAGES / inner, Path(str(distribution.locate_file(file)))


def _add_script(archive: tarfile.TarFile) -> None:
    content = _SCRIPT.format(version=_minor_version(), variable=PYTHON_VARIABLE).encode()
    member = tarfile.TarInfo("bin/python")
    member.size, member.mode = len(content), 0o755
    archive.addfile(member, io.BytesIO(content))


def _owned_by_none(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the member without what differs between users: owner and group; readable by all."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode |= 0o644
    return member


def _minor_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
