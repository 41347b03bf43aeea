"""Change a RocksDB database of a store as no broker would."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

rocksdict = pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")


@contextlib.contextmanager
def changed_database(directory: Path, family: str | None = None) -> Iterator[Any]:
    """A database of raw keys and values, or one of its column families, opened to be changed."""
    families = rocksdict.Rdict.list_cf(str(directory), rocksdict.Options(raw_mode=True))
    options = {name: rocksdict.Options(raw_mode=True) for name in families if name != "default"}
    database = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True), options)
    opened = database if family is None else database.get_column_family(family)
    yield opened
    del opened
    database.close()
    (directory / "rocksdict-config.json").unlink()
