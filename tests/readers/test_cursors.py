"""Cursors of real brokers, and of files that are missing, old, broken or odd."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqtx.readers.cursors import check_cursors, read_cursors, transaction_metrics
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store, open_store
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened
from tests.representatives import each_store


def store_with(tmp_path: Path, **files: str) -> Store:
    (tmp_path / "config").mkdir(exist_ok=True)
    for name, text in files.items():
        (tmp_path / "config" / name.replace("__", ".")).write_text(text)
    return open_store(tmp_path)


@pytest.mark.parametrize("name", each_store(corpus.corpus_names()))
def test_the_check_of_a_real_broker_stands_inside_its_queues(name: str) -> None:
    store = opened(name)
    found = check_cursors(store)
    assert found.findings == []
    for topic, cursors in ((HALF_TOPIC, found.half), (OP_TOPIC, found.op)):
        with open_queue(store, topic, 0) as queue:
            assert cursors is not None
            for offset in cursors.values():
                assert offset >= queue.min_offset
    rows = read_cursors(store).table().to_pylist()
    mine = {(row["topic"], row["queue_id"]): row["next_queue_offset"] for row in rows if row["group"] == CHECK_GROUP}
    assert mine == {(HALF_TOPIC, q): n for q, n in (found.half or {}).items()} | {
        (OP_TOPIC, q): n for q, n in (found.op or {}).items()
    }


def test_topics_and_groups_are_told_apart_and_pull_offsets_are_no_cursors(tmp_path: Path) -> None:
    store = store_with(
        tmp_path,
        consumerOffset__json='{"offsetTable":{"%RETRY%g@g":{0:5,12:7},"t@g":{"3":9}},"pullOffsetTable":{"t@g":{0:1}}}',
    )
    reading = read_cursors(store)
    rows = [(r["topic"], r["group"], r["queue_id"], r["next_queue_offset"]) for r in reading.table().to_pylist()]
    assert rows == [("%RETRY%g", "g", 0, 5), ("%RETRY%g", "g", 12, 7), ("t", "g", 3, 9)]
    (coverage,) = reading.coverage
    assert coverage.decoded_bytes == coverage.size_bytes > 0


def test_no_file_is_not_the_same_as_no_cursor(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    unknown = check_cursors(open_store(tmp_path))
    assert (unknown.half, unknown.op) == (None, None)
    assert [finding.code for finding in unknown.findings] == ["config-missing"]
    known = check_cursors(store_with(tmp_path, consumerOffset__json='{"offsetTable":{}}'))
    assert (known.half, known.op, known.findings) == ({}, {}, [])
    half = f'{{"offsetTable":{{"{HALF_TOPIC}@{CHECK_GROUP}":{{0:7}}}}}}'
    partly = check_cursors(store_with(tmp_path, consumerOffset__json=half))
    assert (partly.half, partly.op) == ({0: 7}, {})


@pytest.mark.parametrize(("name", "lost", "named"), [
    ("rocksdb-configs-5.5.0", "rdb", "config/rdb"),
    ("rocksdb-queues-5.5.0", "consumerOffsets", "config/consumerOffsets"),
    ("rocksdb-both-5.5.0", "consumerOffset.json", None), ("common-4.9.7", "consumerOffset.json", None),
])
def test_lost_cursors_are_named_where_their_broker_had_them(
    name: str, lost: str, named: str | None, tmp_path: Path
) -> None:
    store = copy_of(name, tmp_path)
    for path in (store / "config").glob(f"{lost}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cursors = check_cursors(open_store(store))
    assert cursors.half is None
    [finding] = [one for one in cursors.findings if one.code == "config-missing"]
    if named is None:
        assert finding.advice is None
    else:
        assert named in (finding.advice or "")


def test_cursors_in_a_database_that_is_none_are_unknown_and_said_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "config" / "rdb").mkdir(parents=True)
    (tmp_path / "config" / "rdb" / "CURRENT").write_text("MANIFEST-000001\n")
    found = check_cursors(open_store(tmp_path))
    assert found.half is None
    (finding,) = found.findings
    assert finding.code == "database-unread"
    assert str(Path("config", "rdb")) in finding.line()


def test_the_backup_is_used_and_the_broken_file_counted_as_damaged(tmp_path: Path) -> None:
    good = f'{{"offsetTable":{{"{OP_TOPIC}@{CHECK_GROUP}":{{0:3}}}}}}'
    store = store_with(tmp_path, consumerOffset__json="{broken", consumerOffset__json__bak=good)
    assert check_cursors(store).op == {0: 3}
    reading = read_cursors(store)
    assert [finding.code for finding in reading.findings] == ["config-backup"]
    assert [(c.damaged_bytes, c.decoded_bytes) for c in reading.coverage] == [(7, 0), (0, len(good))]
    assert reading.table().num_rows == 1


@pytest.mark.parametrize(
    "text", ["[]", "null", "3", '{"offsetTable":[]}', "{}"]
)
def test_a_file_without_a_table_of_cursors_is_damaged(tmp_path: Path, text: str) -> None:
    found = check_cursors(store_with(tmp_path, consumerOffset__json=text))
    assert found.half is None
    assert [finding.code for finding in found.findings] == ["config-damaged"]


def test_entries_that_are_no_cursors_are_left_out_and_told(tmp_path: Path) -> None:
    entries = '"nogroup":{0:1},"t@g":{0:1.5,1:"2",-1:3,99999999999:4,3:true,4:5,"x":6,5:9223372036854775808},"u@g":7'
    reading = read_cursors(store_with(tmp_path, consumerOffset__json=f'{{"offsetTable":{{{entries}}}}}'))
    assert [(r["queue_id"], r["next_queue_offset"]) for r in reading.table().to_pylist()] == [(4, 5)]
    (finding,) = reading.findings
    assert finding.code == "config-damaged"
    assert "and 8 more" in str(finding.actual)


def test_the_brokers_own_count_of_open_transactions(tmp_path: Path) -> None:
    assert transaction_metrics(store_with(tmp_path)) is None
    text = '{"dataVersion":{},"transactionCount":{"orders":{"count":-2,"timeStamp":1},"odd":{"count":"x"},"odder":3}}'
    assert transaction_metrics(store_with(tmp_path, transactionMetrics=text)) == {"orders": -2}
    assert transaction_metrics(opened("common-4.9.7")) is None
    assert set(transaction_metrics(opened("common-5.3.3")) or {}) == {"orders", "payments"}


@pytest.mark.parametrize("seed", range(60))
def test_damage_of_any_kind_never_raises(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = copy_of("common-5.5.0", tmp_path)
    for name in ("consumerOffset.json", "consumerOffset.json.bak", "transactionMetrics"):
        path = root / "config" / name
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice([len(data), len(data), chance.randrange(len(data))])])
    store = open_store(root)
    reading = read_cursors(store)
    reading.table()
    assert sum(coverage.unread_bytes for coverage in reading.coverage) == 0
    check_cursors(store)
    transaction_metrics(store)
