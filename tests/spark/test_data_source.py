"""The data source without a session: tables are the local engine's; splits and conditions lose and repeat nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rmqtx.readers.log import splits
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.errors import BadRequest, FileChanged, NotAStore, RmqtxError, UnreadableFile
from rmqtx.readers.model.tables import ALL_TABLES
from rmqtx.readers.storage import segments
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.readers.traces import scan_traces
from rmqtx.spark_tasks.data_source import RmqtxDataSource, RmqtxReader
from rmqtx.spark_tasks.session.schemas import arrow_schema, spark_schema
from rmqtx.spark_tasks.source.read_options import OPTIONS, parse_options
from tests.brokers import corpus
from tests.field import field_stores
from tests.forge import damage
from tests.forge.logs import Forge, in_one_file
from tests.forge.records import Message, blank
from tests.forge.stores import copy_of, unpacked
from tests.representatives import rest_is_slow
from tests.spark.frames import LOCAL, Row, locally, reader_of, rows_of, through_the_source

#: One store of each kind of trouble.
STORES = [
    "batchcq-5.5.0", "busystop-4.3.0", "codecs-5.3.3", "common-4.9.7", "cqext-5.3.3", "cursorback-5.1.4",
    "delayed-5.5.0", "ipv6-5.3.3", "killed-5.3.3", "longtopic-5.1.4", "masked-5.5.0", "multipath-5.1.4", "poison-4.4.0",
    "propcrc-5.5.0",
]
SPLIT_BYTES = 64 << 10


def test_the_local_engine_is_asked_for_every_table() -> None:
    assert set(LOCAL) == set(ALL_TABLES)


@pytest.mark.parametrize("name", rest_is_slow(STORES, quick=4))
def test_every_table_is_the_local_engines(name: str) -> None:
    root = str(unpacked(name))
    for table in ALL_TABLES:
        found, tasks = through_the_source(table=table, path=root, split_size="64KiB")
        assert rows_of(found) == rows_of(locally(table, root)), table
        if table in ("records", "halves", "ops"):
            assert tasks >= sum(segment.size_bytes for segment in open_store(root).commit_log) / SPLIT_BYTES


@pytest.mark.parametrize("design", ["state_table", "prepared_records", "rocksdb"])
def test_half_copies_of_other_designs_are_the_local_engines(design: str) -> None:
    for name in corpus.corpus_names(design=design)[:3]:
        root = str(unpacked(name))
        wanted = locally("halves", root)
        found, _ = through_the_source(table="halves", path=root, split_size="5KiB")
        assert rows_of(found) == rows_of(wanted)
        topic = str(wanted["real_topic"][0])
        found, _ = through_the_source(table="halves", path=root, topic=topic)
        assert rows_of(found) == rows_of(wanted.filter(pc.equal(wanted["real_topic"], topic)))


@pytest.mark.parametrize("split", ["1", "300", "4KiB", "1MiB"])
def test_any_split_gives_each_row_once(tmp_path: Path, split: str) -> None:
    forge = Forge(tmp_path / "store")
    for number in range(30):
        forge.half(f"T{number}")
    root = str(forge.write())
    assert len(open_store(root).commit_log) > 1
    for table in ("halves", "queue_slots"):
        found, tasks = through_the_source(table=table, path=root, split_size=split)
        assert rows_of(found) == rows_of(locally(table, root))
        assert tasks > 1 or split == "1MiB"


def test_lines_of_traces_are_a_table(tmp_path: Path) -> None:
    root = str(field_stores("trace-custom-topic-5.5.0", tmp_path) / "store")
    assert not through_the_source(table="traces", path=root)[0].num_rows
    found, tasks = through_the_source(table="traces", path=root, trace_topic="AuditTrace", split_size="4KiB")
    assert rows_of(found) == rows_of(scan_traces(open_store(root), "AuditTrace").table())
    assert found.num_rows > tasks > 1
    some, _ = through_the_source(table="traces", path=root, trace_topic="AuditTrace", columns="decision,keys")
    assert some.column_names == ["decision", "keys"]


def test_queue_files_far_apart_are_few_tasks(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "s")
    file = damage.queue_files(root, "orders", "0")[0]
    file.with_name(f"{(1 << 61) // 20 * 20:020d}").write_bytes(file.read_bytes())
    found, tasks = through_the_source(table="queue_slots", path=str(root), split_size="700")
    assert rows_of(found) == rows_of(locally("queue_slots", str(root)))
    assert tasks < 5000


def test_planning_reads_no_more_than_the_first_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those tell whether a log is DLedger's."""
    def refuse(segment: Segment) -> OpenFile:
        raise AssertionError(segment.file)

    monkeypatch.setattr(segments, "_begins_with_entry", lambda segment: False)
    monkeypatch.setattr(Segment, "open", refuse)
    for table in ("records", "halves", "ops", "queue_slots"):
        reader, _, _ = reader_of(table=table, path=str(unpacked("killed-5.3.3")), split_size="64KiB")
        partitions = reader.partitions()
        assert partitions
    with pytest.raises(AssertionError):
        list(reader.read(partitions[0]))


# --- records that a recovery cut off ---------------------------------------------------------------------------------


def with_stale_tail(tmp_path: Path, *, is_rolled: bool) -> tuple[str, list[int]]:
    """A store whose broker recovered to the twentieth record, went on for two, and stopped; the offsets of all 22.

    `is_rolled`: the third did not fit, so a blank record covers the file's rest and the log goes on in the next file.
    """
    times = iter(range(1_700_000_000_000, 1_800_000_000_000))
    data, offsets = b"", []
    for _ in range(60):
        offsets.append(len(data))
        data += Message(body=bytes(120), store_time_ms=next(times)).record(len(data))
    begin = offsets[20]
    cut, offsets = data[:begin], offsets[:20]
    for _ in range(2):  # of another length, so that old records do not follow them
        offsets.append(len(cut))
        cut += Message(body=bytes(77), store_time_ms=next(times)).record(len(cut))
    size = len(data) + 1000
    if is_rolled:
        cut += blank(size - len(cut))[:8]
    whole = (cut + data[len(cut) :]).ljust(size, b"\0")
    directory = tmp_path / "store" / "commitlog"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(whole)
    if is_rolled:
        offsets.append(size)
        (directory / f"{size:020d}").write_bytes(
            Message(body=bytes(500), store_time_ms=next(times)).record(size).ljust(size, b"\0")
        )
    return str(tmp_path / "store"), offsets


@pytest.mark.parametrize("is_rolled", [False, True])
@pytest.mark.parametrize("split_bytes", [200, 999, 4096, 100_000])
def test_records_behind_the_end_of_the_data_never_come_back(
    tmp_path: Path, is_rolled: bool, split_bytes: int
) -> None:
    root, offsets = with_stale_tail(tmp_path, is_rolled=is_rolled)
    assert locally("records", root)["commit_log_offset"].to_pylist() == offsets
    found, _ = through_the_source(table="records", path=root, split_size=str(split_bytes))
    assert found["commit_log_offset"].to_pylist() == offsets
    # in any order of tasks, each in a process that has seen none of the others
    reader, _, _ = reader_of(table="records", path=root, split_size=str(split_bytes))
    alone: list[int] = []
    for partition in reversed(reader.partitions()):
        splits._looked.clear()
        alone += [offset for batch in reader.read(partition) for offset in batch["commit_log_offset"].to_pylist()]
    assert sorted(alone) == offsets


def test_without_looking_back_they_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, offsets = with_stale_tail(tmp_path, is_rolled=False)
    monkeypatch.setattr(splits, "is_behind_end", lambda split, first_position: False)
    found, _ = through_the_source(table="records", path=root, split_size="999")
    assert found.num_rows > len(offsets)


def test_a_process_looks_over_a_segment_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, places = in_one_file(Message(body=bytes(900), store_time_ms=1_700_000_000_000 + n) for n in range(1000))
    directory = tmp_path / "store" / "commitlog"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(data)
    reader, _, _ = reader_of(path=str(tmp_path / "store"), split_size="16KiB")
    partitions = reader.partitions()
    assert len(partitions) > 50
    read = counted_bytes(monkeypatch)
    rows = sum(len(batch) for partition in partitions[1::2] for batch in reader.read(partition))
    assert abs(rows - len(places) / 2) < 20
    assert read[0] < 4 * len(data)  # not once for each of them


def counted_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by every byte that is read from a file."""
    count = [0]
    read = OpenFile.read

    def counting(file: OpenFile, position_bytes: int, length_bytes: int) -> bytes:
        data = read(file, position_bytes, length_bytes)
        count[0] += len(data)
        return data

    monkeypatch.setattr(OpenFile, "read", counting)
    return count


def _read_all(reader: RmqtxReader, partitions: list[InputPartition]) -> list[pa.RecordBatch]:
    return [batch for partition in partitions for batch in reader.read(partition)]


# --- damage and loss -------------------------------------------------------------------------------------------------


def test_damage_in_one_split_harms_no_other(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "s")
    whole = locally("records", str(root))
    file = damage.log_files(root)[0]
    damage.write_bytes(file, 20_000, b"\xff" * 3000)
    found, _ = through_the_source(table="records", path=str(root), split_size="8KiB")
    assert rows_of(found) == rows_of(locally("records", str(root)))
    lost = set(whole["commit_log_offset"].to_pylist()) - set(found["commit_log_offset"].to_pylist())
    places = dict(zip(*(whole[name].to_pylist() for name in ("commit_log_offset", "length_bytes")), strict=True))
    assert lost
    assert all(offset < 23_000 and offset + places[offset] > 20_000 for offset in lost)


@pytest.mark.parametrize(("table", "kind"), [("records", "commitlog"), ("queue_slots", "consumequeue")])
def test_a_file_removed_after_planning_is_an_error_that_names_it(tmp_path: Path, table: str, kind: str) -> None:
    root = copy_of("common-5.3.3", tmp_path / "s")
    reader, _, _ = reader_of(table=table, path=str(root))
    partitions = reader.partitions()
    file = next(path for path in sorted((root / kind).rglob("0*")) if path.is_file() and path.stat().st_size)
    file.unlink()
    with pytest.raises((UnreadableFile, FileChanged)) as caught:
        _read_all(reader, partitions)
    assert caught.value.file == str(file)


def test_a_file_that_became_shorter_is_an_error_with_its_position(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "s")
    reader, _, _ = reader_of(table="halves", path=str(root), split_size="64KiB")
    partitions = reader.partitions()
    damage.truncate(damage.log_files(root)[0], 100_000)
    with pytest.raises(FileChanged) as caught:
        _read_all(reader, partitions)
    assert caught.value.position_bytes == 100_000


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"option.table": "ops"}, "only temporary views can use rmqtx"),  # as CREATE TABLE gives them
        ({"tabel": "ops"}, "no option 'tabel' - did you mean table?"),
        ({"table": "recrods"}, "no table 'recrods' - did you mean records?"),
        ({"columns": "topic,kays"}, "no column 'kays' in records - did you mean keys?"),
        ({"columns": "topic,topic"}, "has no column, or one twice"),
        ({"columns": ","}, "has no column, or one twice"),
        ({"from": "2026-01-01T00:00:00Z"}, "is not an offset"),
        ({"from_time": "2026-01-01T00:00:00"}, "option 'from_time': '2026-01-01T00:00:00' has no time zone"),
        ({"split_size": "64KB"}, "option 'split_size': '64KB' is not a size"),
        ({"split_size": "0"}, "is less than one byte"),
        ({"body": "all"}, "option 'body': 'all' is not a value of body"),
        ({"check_crc": "yes"}, "neither true nor false"),
        ({"table": "cursors", "from": "0"}, "'from' does not apply to the table cursors"),
        ({"table": "records", "at": "0"}, "'at' does not apply to the table records"),
        ({"paths": "[1]"}, "is not a JSON list of texts"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        RmqtxDataSource({"path": "/s", **options}).schema()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_store_and_none_that_is_one() -> None:
    with pytest.raises(BadRequest, match="no store is given"):
        parse_options({"table": "ops"})
    for path in ("/nowhere/at/all", "/nowhere/*/store"):
        with pytest.raises(NotAStore) as caught:
            reader_of(path=path)
        assert path in str(caught.value)


def test_several_stores(tmp_path: Path) -> None:
    one, other = copy_of("poison-4.3.0", tmp_path / "a"), copy_of("poison-4.4.0", tmp_path / "b")
    both = rows_of(locally("halves", str(one))) + rows_of(locally("halves", str(other)))
    ways: list[dict[str, str]] = [
        {"path": f"{one}, {other}"}, {"paths": f'["{one}", "{other}"]'}, {"path": f"{tmp_path}/*/store"},
        {"path": f"{one},{other}", "paths": f'["{one}/"]'},
    ]
    for options in ways:
        found, _ = through_the_source((), table="halves", **options)
        assert rows_of(found) == sorted(both)
    with pytest.raises(BadRequest, match="several stores"):
        reader_of(path=f"{one},{other}", commitlog=f"{one}/commitlog")
    found, _ = through_the_source(table="halves", path=str(one), commitlog=f"{other}/commitlog")
    assert found.num_rows == locally("halves", str(other)).num_rows


def test_bounds_topics_and_columns() -> None:
    root = str(unpacked("common-5.3.3"))
    whole = locally("records", root)
    offsets, times = (sorted(whole[name].to_pylist()) for name in ("commit_log_offset", "store_time_ms"))
    columns = "topic,commit_log_offset,store_time_ms"
    cases: dict[str, tuple[str, Callable[[Row], bool]]] = {
        "from": (str(offsets[50] + 1), lambda row: row["commit_log_offset"] > offsets[50]),
        "to": (str(offsets[50]), lambda row: row["commit_log_offset"] < offsets[50]),
        "from_time": (str(times[70]), lambda row: row["store_time_ms"] >= times[70]),
        "to_time": (str(times[70]), lambda row: row["store_time_ms"] < times[70]),
        "topic": (HALF_TOPIC, lambda row: row["topic"] == HALF_TOPIC),
    }
    rows = whole.select(columns.split(",")).to_pylist()
    for name, (value, is_wanted) in cases.items():
        found, _ = through_the_source((), **{"path": root, "columns": columns, "split_size": "64KiB", name: value})
        assert found.schema.names == columns.split(",")
        wanted = [row for row in rows if is_wanted(row)]
        assert found.to_pylist() == wanted, name
        assert 0 < len(wanted) < len(rows)
    halves = locally("halves", root)
    topics = halves["real_topic"].unique().to_pylist()
    counts = [through_the_source(table="halves", path=root, topic=topic)[0].num_rows for topic in topics]
    assert len(topics) > 1
    assert sum(counts) == halves.num_rows


def test_bodies_and_crcs(tmp_path: Path) -> None:
    root = copy_of("codecs-5.3.3", tmp_path / "s")
    raw, _ = through_the_source(path=str(root), columns="commit_log_offset,body,body_length_bytes,sys_flag")
    assert [len(row["body"]) for row in raw.to_pylist()] == raw["body_length_bytes"].to_pylist()
    inflated, _ = through_the_source(path=str(root), body="decompressed")
    wanted = scan_records(open_store(root), with_body=True, decompress=True).table()
    assert inflated["body"].to_pylist() == wanted["body"].to_pylist()
    assert inflated["body"].to_pylist() != raw["body"].to_pylist()
    none, _ = through_the_source(path=str(root))
    assert none["body"].null_count == none["body_crc_matches"].null_count == none.num_rows
    row = next(row for row in none.to_pylist() if row["body_length_bytes"] > 20)
    damage.flip_byte(Path(row["file"]), row["position_bytes"] + 90)
    checked, _ = through_the_source(path=str(root), check_crc="true")
    assert [r["commit_log_offset"] for r in checked.to_pylist() if not r["body_crc_matches"]] == [
        row["commit_log_offset"]
    ]


def test_the_audit_takes_time_and_settings(tmp_path: Path) -> None:
    root = str(unpacked("common-5.3.3"))
    whole, _ = through_the_source(table="transactions", path=root)
    times = sorted(time for time in whole["half_store_time_ms"].to_pylist() if time is not None)
    middle = times[len(times) // 2]
    early, _ = through_the_source(table="transactions", path=root, at=str(middle))
    assert 0 < early.num_rows < whole.num_rows
    conf = tmp_path / "broker.conf"
    conf.write_text("transactionCheckMax=1\n", encoding="utf-8")
    given, _ = through_the_source(table="transactions", path=root, broker_conf=str(conf))
    assert given.num_rows == whole.num_rows
    with pytest.raises(RmqtxError):
        through_the_source(table="transactions", path=root, broker_conf=str(tmp_path / "none.conf"))


def test_a_schema_of_the_query_chooses_columns() -> None:
    source = RmqtxDataSource({"path": str(unpacked("poison-4.3.0"))})
    schema = StructType([StructField("topic", StringType()), StructField("commit_log_offset", LongType())])
    reader = source.reader(schema)
    batches = _read_all(reader, reader.partitions())
    assert batches[0].schema.equals(arrow_schema(schema))
    for wrong in (StructField("topics", StringType()), StructField("topic", LongType())):
        with pytest.raises(BadRequest):
            source.reader(StructType([wrong]))


@pytest.mark.parametrize("table", ["records", "transactions"])
def test_points_in_time_can_be_timestamps(table: str) -> None:
    root = str(unpacked("poison-4.3.0"))
    plain, _ = through_the_source(table=table, path=root)
    rows, _ = through_the_source(table=table, path=root, timestamps="true")
    assert not [name for name in rows.schema.names if name.endswith("_ms")]
    assert rows.schema.field("born_time").type == pa.timestamp("us", "UTC")
    moments = [time and round(time.timestamp() * 1000) for time in rows["born_time"].to_pylist()]
    assert moments == plain["born_time_ms"].to_pylist()
    if table == "transactions":
        copies = [copy["store_time"] for row in rows["half_copies"].to_pylist() for copy in row]
        wanted = [copy["store_time_ms"] for row in plain["half_copies"].to_pylist() for copy in row]
        assert [round(time.timestamp() * 1000) for time in copies] == wanted
    else:
        some, _ = through_the_source(table=table, path=root, timestamps="true", columns="topic,store_time")
        assert some.schema.names == ["topic", "store_time"]
        assert some["store_time"].to_pylist() == rows["store_time"].to_pylist()
    with pytest.raises(BadRequest):
        parse_options({"path": root, "timestamps": "maybe"})


@pytest.mark.parametrize("table", sorted(ALL_TABLES))
def test_schemas_keep_names_types_and_sentences(table: str) -> None:
    whole = ALL_TABLES[table]
    schema = spark_schema(whole)
    assert arrow_schema(schema).equals(whole)
    assert [field.metadata["comment"] for field in schema] == [field.metadata[b"meaning"].decode() for field in whole]


def test_every_option_has_a_sentence_and_a_place() -> None:
    assert all(sentence and tables for tables, sentence in OPTIONS.values())


# --- conditions ------------------------------------------------------------------------------------------------------

OFFSET, TIME, TOPIC, QUEUE, STORE = (
    (name,) for name in ("commit_log_offset", "store_time_ms", "topic", "queue_id", "store")
)


def test_conditions_are_kept_exactly_and_read_less(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(unpacked("common-5.3.3"))
    rows = locally("records", root).to_pylist()
    middle = rows[200]
    offset, time = middle["commit_log_offset"], middle["store_time_ms"]
    cases: list[tuple[list[Filter], Callable[[Row], bool]]] = [
        ([EqualTo(OFFSET, offset)], lambda row: row["commit_log_offset"] == offset),
        ([GreaterThan(OFFSET, offset)], lambda row: row["commit_log_offset"] > offset),
        ([GreaterThanOrEqual(OFFSET, offset)], lambda row: row["commit_log_offset"] >= offset),
        ([LessThan(OFFSET, offset)], lambda row: row["commit_log_offset"] < offset),
        ([LessThanOrEqual(OFFSET, offset)], lambda row: row["commit_log_offset"] <= offset),
        ([LessThanOrEqual(TIME, time), GreaterThan(TIME, time - 2000)],
         lambda row: time - 2000 < row["store_time_ms"] <= time),
        ([In(TOPIC, ("orders", HALF_TOPIC, None)), EqualTo(QUEUE, 0)],
         lambda row: row["topic"] in ("orders", HALF_TOPIC) and row["queue_id"] == 0),
        ([EqualTo(TOPIC, "orders"), EqualTo(TOPIC, HALF_TOPIC)], lambda row: False),
        ([In(QUEUE, (1, 2)), IsNotNull(QUEUE), EqualTo(STORE, root)], lambda row: row["queue_id"] in (1, 2)),
        ([EqualTo(STORE, "/another")], lambda row: False),
    ]
    for filters, is_wanted in cases:
        _, left, _ = reader_of(filters, path=root)
        assert left == []
        found, _ = through_the_source(filters, path=root, split_size="16KiB")
        assert found.to_pylist() == [row for row in rows if is_wanted(row)], filters
    read = counted_bytes(monkeypatch)
    through_the_source(path=root, split_size="16KiB")
    whole, read[0] = read[0], 0
    _, tasks = through_the_source([LessThan(OFFSET, 10_000)], path=root, split_size="16KiB")
    assert tasks == 1
    assert read[0] < whole / 4


def test_conditions_on_queues_open_only_those(monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(unpacked("common-5.3.3"))
    rows = locally("queue_slots", root).to_pylist()
    read = counted_bytes(monkeypatch)
    through_the_source(table="queue_slots", path=root)
    whole, read[0] = read[0], 0
    filters = [EqualTo(TOPIC, "orders"), In(QUEUE, (0, 1))]
    found, _ = through_the_source(filters, table="queue_slots", path=root)
    assert rows_of(found) == sorted(repr(r) for r in rows if r["topic"] == "orders" and r["queue_id"] in (0, 1))
    assert 0 < read[0] < whole / 2


def test_other_conditions_stay_with_spark() -> None:
    root = str(unpacked("poison-4.3.0"))
    others = [
        Not(EqualTo(TOPIC, "orders")), StringStartsWith(TOPIC, "or"), EqualTo(("keys",), "k"),
        EqualTo(("properties", "KEYS"), "k"), In(OFFSET, (1, 5)), EqualTo(OFFSET, 1.5), GreaterThan(TOPIC, "a"),
    ]
    assert reader_of(others, path=root)[1] == others
    for table in ("transactions", "findings"):  # without one store another's would be judged differently
        asked = [EqualTo(STORE, root), EqualTo(TOPIC, "orders")]
        assert reader_of(asked, table=table, path=root)[1] == asked
    assert reader_of([EqualTo(OFFSET, 1)], table="queue_slots", path=root)[1]


def test_bounds_and_conditions_meet() -> None:
    root = str(unpacked("common-5.3.3"))
    offsets = locally("records", root)["commit_log_offset"].to_pylist()
    options = {"path": root, "from": str(offsets[10]), "to": str(offsets[60])}
    found, _ = through_the_source([GreaterThanOrEqual(OFFSET, offsets[50]), LessThan(OFFSET, offsets[80])], **options)
    assert found["commit_log_offset"].to_pylist() == offsets[50:60]
    found, tasks = through_the_source([GreaterThan(OFFSET, offsets[80])], **options)
    assert (found.num_rows, tasks) == (0, 0)
