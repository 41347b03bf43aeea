"""The audit on Spark and in this process: the same rows, findings and coverage, by tasks that really read the logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.storage import open_file
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.spark_tasks.jobs import audit as spark_audit
from rmqtx.spark_tasks.session import handover
from rmqtx.spark_tasks.session.tasks import sizes_for
from rmqtx.verdicts.audit import local_audit
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.causes.groups import group_causes
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.transactions.measures import MEASURES
from rmqtx_cli.pages.summary import SUMMARY_COLUMNS
from tests.brokers import corpus
from tests.field import field_stores
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.stores import copy_of, opened, settings_of
from tests.forge.volume import build
from tests.representatives import rest_is_slow
from tests.verdicts.audit.test_measures import summed
from tests.verdicts.causes.test_mixed_stores import BIG, CONF, PLANS, require_plan
from tests.verdicts.causes.test_traces import torn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLIT_BYTES = 64 << 10
#: Several stores are one audit here: fewer jobs, and several stores at once are tried as well.
GROUP_SIZE = 12
OTHER_DESIGNS = ("state_table", "prepared_records", "rocksdb", "rocksdb_queues")


def groups() -> list[Any]:
    """All stores of half topics: one of each release in an audit, the others in slow ones."""
    names = corpus.corpus_names()
    first = tuple(name for name in names if name.startswith("common"))
    others = [name for name in names if name not in first]
    some = [tuple(others[number : number + GROUP_SIZE]) for number in range(0, len(others), GROUP_SIZE)]
    return rest_is_slow([(first[::2],), (first[1::2],), *((names,) for names in some)], quick=1)


def answers(reading: VerdictReading) -> dict[str, list[str]]:
    """Everything that a reading says, in an order that does not depend on the engine."""
    rows = sorted(json.dumps(row, sort_keys=True) for row in reading.table().to_pylist())
    return {
        "rows": rows,
        "findings": sorted(finding.line() for finding in reading.findings),
        "coverage": sorted(json.dumps(row) for row in reading.coverage_table().to_pylist()),
        "check_stops": sorted(map(repr, reading.check_stops)),
        "group_causes": sorted(map(repr, group_causes(reading.habits))),
    }


def on_spark(spark: SparkSession, stores: list[Store], settings: SettingsOf, **options: Any) -> dict[str, list[str]]:
    """What the audit on Spark says."""
    return answers(spark_audit.audit(spark, stores, settings, work=WorkDivision(SPLIT_BYTES), **options))


@pytest.mark.parametrize("names", groups(), ids=lambda names: names[0])
def test_every_store_of_the_corpus(spark: SparkSession, names: tuple[str, ...]) -> None:
    stores = [opened(name) for name in names]
    of_root = {store.root: settings_of(name) for store, name in zip(stores, names, strict=True)}

    def settings(store: Store) -> Any:
        return of_root[store.root](store)

    wanted = answers(local_audit.audit(stores, settings))
    assert on_spark(spark, stores, settings) == wanted
    assert wanted["rows"]


def test_causes_of_whole_groups_are_those_here(spark: SparkSession, tmp_path: Path) -> None:
    """And what the tasks cannot read of traces is a finding."""
    stores = [opened("parallel-5.3.3"), open_store(field_stores("group-shared-5.3.3", tmp_path) / "store")]
    stores.append(torn(tmp_path / "torn")[0])
    wanted = answers(local_audit.audit(stores, broker_settings))
    assert on_spark(spark, stores, broker_settings) == wanted
    assert len(wanted["group_causes"]) == 2
    assert any("trace-unreadable" in finding for finding in wanted["findings"])


def test_a_summary_has_the_local_numbers(spark: SparkSession) -> None:
    name = "common-5.3.3"
    stores, settings = [opened(name)], settings_of(name)
    wanted = summed(local_audit.audit(stores, settings, columns=SUMMARY_COLUMNS).table()).table()
    found = spark_audit.audit(spark, stores, settings, work=WorkDivision(SPLIT_BYTES), measures=MEASURES.names)
    assert summed(found.table()).table().equals(wanted)
    assert wanted["half_to_decision_worst_ms"].null_count < wanted.num_rows


@pytest.mark.parametrize("first", rest_is_slow([True, False], quick=1))
def test_every_store_of_the_other_designs(spark: SparkSession, first: bool) -> None:
    """The first of each design in one audit, and all others in another."""
    of_design = [corpus.corpus_names(design=design) for design in OTHER_DESIGNS]
    names = [name for names in of_design for name in (names[:1] if first else names[1:])]
    stores = [opened(name) for name in names]
    of_root = {store.root: settings_of(name) for store, name in zip(stores, names, strict=True)}

    def settings(store: Store) -> Any:
        return of_root[store.root](store)

    assert on_spark(spark, stores, settings) == answers(local_audit.audit(stores, settings))


def test_as_of_a_past_time(spark: SparkSession) -> None:
    name = "common-5.3.3"
    rows = local_audit.audit([opened(name)], settings_of(name)).table().to_pylist()
    times = sorted(row["half_store_time_ms"] for row in rows if row["half_store_time_ms"])
    at_ms = times[len(times) // 2]
    wanted = answers(local_audit.audit([opened(name)], settings_of(name), at_ms=at_ms))
    assert on_spark(spark, [opened(name)], settings_of(name), at_ms=at_ms) == wanted
    assert len(wanted["rows"]) < len(rows)


@pytest.mark.parametrize("seed", rest_is_slow(range(4), quick=1))
def test_damaged_stores(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    """Damage moves finals away from their halves and makes half copies that are put back by hand."""
    name = ("common-5.3.3", "killed-4.9.7", "common-4.3.0", "masked-4.9.7")[seed]
    root = copy_of(name, tmp_path)
    file = damage.log_files(root)[0]
    data = file.read_bytes()
    for number, (position, _) in enumerate(damage.records_in(file)[3 + seed :: 11]):
        identity = data.find(b"UNIQ_KEY\x01", position) - position + len("UNIQ_KEY\x01") + 30
        places = (3, 6, 30, 26, 15, 86, identity)
        damage.flip_byte(file, position + places[(seed + number) % 7], 0x11)
    wanted = answers(local_audit.audit([open_store(root)], settings_of(name)))
    assert on_spark(spark, [open_store(root)], settings_of(name)) == wanted
    assert wanted["findings"]


def test_damaged_stores_of_the_other_designs(spark: SparkSession, tmp_path: Path) -> None:
    """Bits are flipped all over the log, and its last records are lost."""
    names = ("prepared-3.2.6", "prepared-4.2.0", "statetable-3.1.4", "rocksdb-5.5.0", "rocksdb-queues-5.5.0")
    of_root = {str(copy_of(name, tmp_path / name)): settings_of(name) for name in names}
    for root in map(Path, of_root):
        file = damage.log_files(root)[0]
        records = damage.records_in(file)
        for number, (position, _) in enumerate(records[3::11]):
            damage.flip_byte(file, position + (3, 6, 30, 26, 39, 79, 15, 86)[number % 8], 0x11)
        lost, _ = records[len(records) * 4 // 5]
        damage.zero_bytes(file, lost, file.stat().st_size - lost)
    stores = [open_store(root) for root in of_root]

    def settings(store: Store) -> Any:
        return of_root[store.root](store)

    wanted = answers(local_audit.audit(stores, settings))
    assert on_spark(spark, stores, settings) == wanted
    assert any("log-missing" in line for line in wanted["findings"])


def test_a_slave_that_began_after_the_half_messages_of_its_op_messages(spark: SparkSession, tmp_path: Path) -> None:
    """No op message of its log names one of its half messages; and it is a copy of its master's log."""
    root = field_stores("partial-slave", tmp_path)
    stores = [open_store(root / name) for name in ("master", "slave")]
    assert on_spark(spark, stores, broker_settings) == answers(local_audit.audit(stores, broker_settings))


def test_a_log_of_zeros_is_missing_on_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is decoded, and the other files know records: no splits with rows, and a finding all the same."""
    name = "common-4.9.7"
    root = copy_of(name, tmp_path)
    (file,) = damage.log_files(root)
    damage.zero_bytes(file, 0, file.stat().st_size)
    wanted = answers(local_audit.audit([open_store(root)], settings_of(name)))
    assert on_spark(spark, [open_store(root)], settings_of(name)) == wanted
    assert any("log-missing" in line for line in wanted["findings"])


def test_through_spark_where_driver_and_tasks_share_no_disk(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster: results in pieces through the driver."""
    name = "common-5.3.3"
    wanted = answers(local_audit.audit([opened(name)], settings_of(name)))
    monkeypatch.setattr(handover, "_is_on_this_machine", lambda _: False)
    monkeypatch.setattr(handover, "FETCHED_BYTES_MAX", 1)
    monkeypatch.setattr(spark_audit, "PARTITIONS_MIN", 5)
    assert on_spark(spark, [opened(name)], settings_of(name)) == wanted


def test_spark_did_the_work(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "common-5.3.3"
    store = opened(name)
    read_here: list[str] = []
    read = open_file.OpenFile.read

    def remembered(file: open_file.OpenFile, position_bytes: int, length_bytes: int) -> bytes:
        read_here.append(file.file)
        return read(file, position_bytes, length_bytes)

    monkeypatch.setattr(open_file.OpenFile, "read", remembered)
    spark.sparkContext.setJobGroup("audit-test", "which tasks ran")
    judged = spark_audit.transactions(spark, [store], settings_of(name), split_bytes=SPLIT_BYTES)
    frame = judged.frame
    rows = frame.groupBy(frame["transaction_id"]).count().count()
    judged_in = frame.selectExpr("spark_partition_id()").distinct().count()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup("audit-test")]
    stages = {number for job in jobs if job is not None for number in job.stageIds}
    tasks = [info.numCompletedTasks for number in stages if (info := tracker.getStageInfo(number)) is not None]
    spark.sparkContext.setJobGroup("", "")
    judged.release()
    assert max(tasks) >= sum(segment.size_bytes for segment in store.commit_log) / SPLIT_BYTES > 2
    assert judged_in > 1
    assert not [file for file in read_here if "/commitlog/" in file]
    assert rows == len(answers(local_audit.audit([store], settings_of(name)))["rows"])


@pytest.mark.parametrize("exponent", range(20, 45))
def test_pieces_stay_large_enough_to_be_worth_sending(exponent: int) -> None:
    """Of any log: what one task reads for one that judges is a good many rows, up to 10 TB."""
    total_bytes = 1 << exponent
    split_bytes, partition_bytes = sizes_for(total_bytes)
    assert 128 << 20 <= split_bytes <= 1 << 30
    assert 96 << 20 <= partition_bytes <= 512 << 20
    if total_bytes <= 100 << 30:
        assert (split_bytes, partition_bytes) == (128 << 20, 96 << 20)
    if total_bytes <= 10 << 40:
        assert split_bytes / 1400 * partition_bytes / total_bytes >= 30


def test_rows_as_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    name = "masked-4.9.7"
    stores = [opened(name), torn(tmp_path / "torn")[0]]
    judged = spark_audit.transactions(spark, stores, settings_of(name), split_bytes=SPLIT_BYTES)
    table = judged.frame.select(TRANSACTIONS.names).toArrow()
    unread = spark_audit.unread_in(judged.frame)
    judged.release()
    reading = local_audit.audit(stores, settings_of(name))
    wanted = reading.table()
    assert unread == [one for one in reading.findings if one.code == "trace-unreadable"] != []
    found, expected = (
        sorted(json.dumps(row, sort_keys=True) for row in rows.to_pylist()) for rows in (table, wanted)
    )
    assert found == expected


def test_one_transaction_with_ten_thousand_copies_and_a_group_with_nearly_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Skew is a partition's share of the log, not of a group or of a transaction."""
    forge = Forge(tmp_path, segment_bytes=8 << 20)
    for number in range(10_000):
        forge.half("asked-for-ever", checks=number)
        if number % 5 == 0:
            half = forge.half(f"{number:032d}", group="one-group")
            forge.commit(half)
            forge.op(half)
    root = forge.write(half_cursor=11_000, op_cursor=2_000)
    settings = settings_of("common-5.3.3")
    wanted = answers(local_audit.audit([open_store(root)], settings))
    found = answers(spark_audit.audit(spark, [open_store(root)], settings, work=WorkDivision(1 << 20)))
    assert found == wanted
    assert max(len(json.loads(row)["half_copies"]) for row in wanted["rows"]) == 10_000


def test_nothing_stays_behind(spark: SparkSession, tmp_path: Path) -> None:
    name = "masked-4.9.7"
    kept = set(spark.sparkContext._jsc.getPersistentRDDs())
    reading = spark_audit.audit(spark, [opened(name)], settings_of(name), work=WorkDivision(None, str(tmp_path)))
    assert reading.table().num_rows
    assert list(tmp_path.iterdir()) == []
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) == kept


def test_causes_of_several_stores(spark: SparkSession) -> None:
    stores = [opened(name) for name in ("killed-5.3.3", "poison-4.5.0", "cursoredited-4.4.0")]
    settings = {store.root: broker_settings(store) for store in stores}
    found, causes = [], []
    for reading in (
        local_audit.audit(stores, lambda store: settings[store.root], columns=(*NEEDED_COLUMNS, "causes")),
        spark_audit.audit(spark, stores, lambda store: settings[store.root], work=WorkDivision(SPLIT_BYTES)),
    ):
        diagnosis = Diagnosis(reading.evidence)
        of_row: dict[tuple[str, str], list[str]] = {}
        for batch in reading:
            diagnosis.add(batch)
            rows = batch.select(["store", "transaction_id", "causes"]).to_pylist()
            of_row |= {(row["store"], row["transaction_id"]): row["causes"] for row in rows}
        found.append(diagnosis.table())
        causes.append(of_row)
    assert found[0].num_rows > 10
    assert found[1].equals(found[0])
    assert sum(map(bool, causes[0].values())) > 10
    assert causes[1] == causes[0]


@pytest.mark.parametrize("name", rest_is_slow(BIG, quick=0, slow=1))
def test_causes_of_many_transactions_are_those_of_the_plan(spark: SparkSession, name: str, tmp_path: Path) -> None:
    version, plan, wanted = PLANS[name]
    store = open_store(str(build(tmp_path, plan)))
    settings = broker_settings(store, version=version, conf=CONF)
    tables = []
    for reading in (
        local_audit.audit([store], lambda _: settings, columns=NEEDED_COLUMNS),
        spark_audit.audit(spark, [store], lambda _: settings, work=WorkDivision(4 << 20)),
    ):
        diagnosis = Diagnosis(reading.evidence)
        for batch in reading:
            diagnosis.add(batch)
        tables.append(diagnosis.table())
        require_plan(diagnosis, wanted)
    assert tables[1].equals(tables[0])
