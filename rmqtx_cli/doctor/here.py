"""Examine the installation on this machine: packages and extras, Java, folders, settings, credentials."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import rmqtx
from rmqtx.readers.model.errors import RmqtxError, SourceError
from rmqtx.readers.store.broker_conf import conf_notes, read_broker_conf
from rmqtx.readers.store.broker_settings import settings_of_conf
from rmqtx.repairs.receipts.state_directory import state_directory
from rmqtx.spark_tasks.jobs.stores_seen import StoreSeen, store_seen
from rmqtx.spark_tasks.session.errors import SparkUnavailable
from rmqtx.spark_tasks.session.java import find_java
from rmqtx.spark_tasks.session.worker_facts import credentials_here
from rmqtx_cli.options.configuration import configuration
from rmqtx_cli.pages.installation import HERE, Part, note, ok, problem
from rmqtx_cli.words.text import count, size

#: Extras with what does not work without them.
EXTRAS = {
    "fast": "scans of large stores take two to three times as long",
    "rocksdb": "stores of 5.2 and later with queues or transactions in RocksDB cannot be read completely",
    "database": "reconcile --ledger and --transaction-table read no URL of a database",
    "exporter": "rmqtx exporter does not run",
    "spark": "--engine spark and the data source do not run",
    "connect": "--remote does not run",
}
_OF_SPARK = ("spark", "connect")
#: Less free space is worth a note: an audit of a large store writes a tenth of its bytes there.
_FREE_BYTES_MIN = 1 << 30
_VARIABLES = ("RMQTX_CONFIG", "RMQTX_STORE", "NAMESRV_ADDR", "RMQTX_STATE_DIR", "SPARK_REMOTE", "PYSPARK_PYTHON")


def parts_of_conf(file: Path, version: str | None) -> Iterator[Part]:
    """Yield a part for each line of a broker.conf that the broker does not take as written, with the value in force."""
    part = f"broker.conf {file}"
    try:
        settings = settings_of_conf(read_broker_conf(file), version)
    except SourceError as error:
        yield problem(HERE, part, str(error))
        return
    notes = conf_notes(settings)
    for text in notes:
        yield note(HERE, part, text.removeprefix("broker.conf: "), "correct the line, and start the broker again")
    if not notes:
        yield ok(HERE, part, f"{count(len(settings.given or ()), 'setting')}, all as brokers read them")
    yield ok(HERE, "settings of transactions", settings.describe())


def parts_here(
    stores: Sequence[str], temporary: str | None, *, needs_spark: bool, needs_connect: bool
) -> Iterator[Part]:
    """Yield the parts of this installation.

    `stores`: places that must be readable. `temporary`: the folder of --temp-dir. `needs_spark`, `needs_connect`:
    whether the lack of these extras is a problem.
    """
    wanted = {name for name, is_wanted in zip(_OF_SPARK, (needs_spark, needs_connect), strict=True) if is_wanted}
    yield from _python()
    yield from _packages(wanted)
    yield _java(is_wanted=needs_spark and not needs_connect)
    yield _temporary_folder(temporary)
    yield _state_folder()
    yield _configuration()
    yield _environment()
    yield _credentials()
    yield ok(HERE, "machine", f"{count(len(os.sched_getaffinity(0)), 'core')}, {size(_memory_bytes())} of memory")
    yield from map(_store, stores)


def _store(place: str) -> Part:
    seen = store_seen(place)
    if seen.failure is not None:
        return problem(HERE, f"store {place}", seen.failure)
    return ok(HERE, f"store {place}", store_text(seen))


def store_text(seen: StoreSeen) -> str:
    """Return a sentence about a store."""
    if seen.failure is not None:
        return seen.failure
    return f"{count(seen.segments_count, 'segment')} of {size(seen.size_bytes)}, the first was read"


def _python() -> Iterator[Part]:
    version, required = platform.python_version(), _metadata("Requires-Python") or ""
    found = f"{version}, {sys.executable}"
    is_supported = SpecifierSet(required).contains(version, prereleases=True)
    yield ok(HERE, "Python", found) if is_supported else problem(HERE, "Python", found, f"needed: {required}")


def _metadata(name: str) -> str | None:
    try:
        return importlib.metadata.metadata("rmqtx")[name]
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages(wanted: set[str]) -> Iterator[Part]:
    """Yield rmqtx, the packages that it needs, and its extras."""
    place = Path(rmqtx.__file__).parent.parent
    version = _metadata("Version")
    if version is None:
        yield note(HERE, "rmqtx", f"from {place}, not installed by pip: its requirements are unknown", "pip install .")
        return
    # Beside its own metadata: of the directories of packages, Debian's Python names another one first.
    is_installed = Path(str(importlib.metadata.distribution("rmqtx").locate_file(""))) == place
    yield ok(HERE, "rmqtx", f"{version}, {'installed' if is_installed else 'sources'} in {place}")
    for requirement in _requirements("rmqtx", ""):
        found, lacks = _state_of(requirement)
        part, advice = f"package {requirement.name}", f"pip install '{requirement}'"
        yield problem(HERE, part, found, advice) if lacks else ok(HERE, part, found)
    for extra, without in EXTRAS.items():
        yield _extra(extra, without, is_wanted=extra in wanted)


def _extra(extra: str, without: str, *, is_wanted: bool) -> Part:
    states = dict(_state_of(requirement) for requirement in _requirements("rmqtx", extra))
    lacking = [text for text, lacks in states.items() if lacks]
    if not lacking:
        return ok(HERE, f"extra {extra}", ", ".join(states))
    found = ", ".join(lacking)
    advice = f"pip install 'rmqtx[{extra}]'"
    if is_wanted:
        return problem(HERE, f"extra {extra}", found, advice)
    return note(HERE, f"extra {extra}", f"{found}; without: {without}", advice)


def _requirements(package: str, extra: str) -> list[Requirement]:
    """Return what a package needs with an extra, and not without; "" for what it always needs."""
    found: list[Requirement] = []
    for text in importlib.metadata.requires(package) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        is_always = marker is None or marker.evaluate({"extra": ""})
        if not (is_always if not extra else marker is not None and not is_always and marker.evaluate({"extra": extra})):
            continue
        found.append(requirement)
        for inner in sorted(requirement.extras):
            if _version_of(requirement.name) is not None:
                found.extend(_requirements(requirement.name, inner))
    return found


def _state_of(requirement: Requirement) -> tuple[str, bool]:
    """Return a sentence about a requirement, and whether it is not met."""
    version = _version_of(requirement.name)
    if version is None:
        return f"no {requirement.name}", True
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version}, needed {requirement.specifier}", True
    return f"{requirement.name} {version}", False


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java(*, is_wanted: bool) -> Part:
    try:
        java = find_java()
    except SparkUnavailable as error:
        if is_wanted:
            return problem(HERE, "Java", error.message, error.advice)
        return note(HERE, "Java", f"{error.message}; without: --engine spark runs only with --remote", error.advice)
    return ok(HERE, "Java", f"{java.version}, {java.executable}")


def _temporary_folder(given: str | None) -> Part:
    try:
        folder = given or tempfile.gettempdir()
        with tempfile.NamedTemporaryFile(prefix="rmqtx-", dir=folder) as file:
            file.write(bytes(1))
            file.flush()
            status = os.statvfs(folder)
    except OSError as error:
        return problem(
            HERE, "temporary folder", f"{given or 'none'}: {error.strerror or error}", "set TMPDIR, or give --temp-dir"
        )
    free_bytes = status.f_bavail * status.f_frsize
    found = f"{folder}, {size(free_bytes)} free"
    if free_bytes < _FREE_BYTES_MIN:
        return note(HERE, "temporary folder", found, "set TMPDIR, or give --temp-dir, for audits of large stores")
    return ok(HERE, "temporary folder", found)


def _state_folder() -> Part:
    """Examine the folder of receipts, without making it."""
    try:
        folder = state_directory()
    except (RmqtxError, RuntimeError, OSError) as error:
        return problem(HERE, "folder of receipts", str(error), "set RMQTX_STATE_DIR")
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        return problem(HERE, "folder of receipts", f"{folder} cannot be written", "set RMQTX_STATE_DIR")
    return ok(HERE, "folder of receipts", f"{folder}" if folder.exists() else f"{folder}, not made yet")


def _configuration() -> Part:
    known = configuration()
    if known.file is None:
        return ok(HERE, "configuration file", "none")
    return ok(HERE, "configuration file", f"{known.file}, {count(len(known.stores), 'store')}")


def _environment() -> Part:
    found = [name for name in _VARIABLES if os.environ.get(name)]
    return ok(HERE, "environment", f"set: {', '.join(found)}" if found else "no variable of rmqtx or Spark is set")


def _credentials() -> Part:
    return ok(HERE, "credentials of object stores", credentials_text(credentials_here()))


def credentials_text(names: list[str]) -> str:
    """Return a sentence with the names of credentials, never their values."""
    return f"set: {', '.join(names)}" if names else "none in the environment; a role of the machine is not tested"


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
