"""Real stores of the corpus to read and to damage: unpacked once for each process, copied for whoever changes one."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from rmqtx.readers.log.commit_log import last_with_data
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from tests.brokers import corpus


@functools.cache
def _unpacked_here() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="rmqtx-corpus-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@functools.cache
def unpacked(name: str) -> Path:
    """The root of a store of the corpus, for reading only: it is unpacked once in this process."""
    return corpus.unpack(name, _unpacked_here() / name)


def copy_of(name: str, to: Path) -> Path:
    """A copy of a store of the corpus that may be changed; holes stay holes."""
    source, target = unpacked(name), to / "store"
    for directory, _, files in os.walk(source):
        place = target / Path(directory).relative_to(source)
        place.mkdir(parents=True, exist_ok=True)
        for file in files:
            _copy(f"{directory}/{file}", place / file)
    return target


def _copy(source: str, target: Path) -> None:
    """Copy what a file contains between its holes: preallocated files have 160 MiB, and 100 KiB of data."""
    with open(source, "rb", 0) as old, target.open("wb", 0) as new:
        size, position = os.fstat(old.fileno()).st_size, 0
        new.truncate(size)
        while position < size:
            try:
                position = os.lseek(old.fileno(), position, os.SEEK_DATA)
            except OSError:  # a hole up to the end
                return
            end = os.lseek(old.fileno(), position, os.SEEK_HOLE)
            os.pwrite(new.fileno(), os.pread(old.fileno(), end - position, position), position)
            position = end


def settings_of(name: str) -> SettingsOf:
    """The settings that the broker of a store of the corpus ran with; the last one, where several did."""
    recipe = corpus.recipe(name)
    conf = {str(key): str(value) for key, value in recipe["broker_conf"].items()}

    def settings(store: Store) -> BrokerSettings:
        return broker_settings(store, conf=conf, version=str(recipe.get("upgrade", recipe["version"])))

    return settings


def opened(name: str) -> Store:
    """A snapshot of the unpacked store."""
    return open_store(unpacked(name))


def contents(root: Path) -> dict[str, str]:
    """A digest of every file below a directory, by its path there; directories too."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "/"
        for path in sorted(root.rglob("*"))
    }


#: Stores of the corpus whose log fills more than one file. They are named here as tests are collected by them;
#: tests/test_representatives.py looks whether it is so.
WITH_SEVERAL_SEGMENTS = (
    "killed-4.3.0", "killed-4.4.0", "killed-4.9.7", "killed-5.1.4", "killed-5.3.3", "killed-5.5.0",
    "multipath-4.9.7", "multipath-5.1.4", "multipath-5.3.3", "multipath-5.5.0",
)


def has_several_segments(name: str) -> bool:
    """Whether the log of a store of the corpus fills more than one file."""
    segments = opened(name).commit_log
    return last_with_data(segments) > segments[0].base_offset
