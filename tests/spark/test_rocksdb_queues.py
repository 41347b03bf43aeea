"""Queues and cursors in RocksDB through the data source: the same rows as the commands give."""

from __future__ import annotations

import sys

import pytest

from rmqtx.readers.model.errors import UnreadableFile
from tests.brokers import corpus
from tests.forge.stores import unpacked
from tests.spark.frames import locally, rows_of, through_the_source

pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")


@pytest.mark.parametrize("name", corpus.corpus_names("rocksdb_queues"))
@pytest.mark.parametrize("table", ["queue_slots", "cursors"])
def test_the_same_rows_as_the_commands(name: str, table: str) -> None:
    root = str(unpacked(name))
    found, _ = through_the_source(table=table, path=root, split_size="700")
    assert rows_of(found) == rows_of(locally(table, root))


def test_without_the_library_the_query_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(UnreadableFile, match="pip install"):
        through_the_source(table="queue_slots", path=str(unpacked("rocksdb-queues-5.5.0")))
