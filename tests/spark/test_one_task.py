"""Audits of stores that fit one task: one job reads and judges, and everything is as from the local engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.spark_tasks.jobs import audit as spark_audit
from rmqtx.spark_tasks.jobs.opening import begin_store, fit_one_task
from rmqtx.spark_tasks.session.errors import translated
from rmqtx.verdicts.audit import local_audit
from rmqtx.verdicts.evidence.store_facts import SettingsOf, moment_ms
from rmqtx.verdicts.model.reading import VerdictReading
from tests.brokers import corpus
from tests.field import field_stores
from tests.forge import damage
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import rest_is_slow
from tests.spark.test_audit import OTHER_DESIGNS, SPLIT_BYTES, answers, groups
from tests.spark.test_progress import Watcher
from tests.verdicts.causes.test_traces import torn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def account(reading: VerdictReading) -> dict[str, Any]:
    """Everything that a reading contains."""
    found: dict[str, Any] = answers(reading)
    return found | {
        "notes": sorted(f"{note.kind}: {note.text}" for note in reading.notes),
        "missing": sorted(map(repr, reading.missing)),
        "predicted": {root: repr(one) for root, one in reading.predicted.items()},
        "evidence": reading.evidence,
    }


def settings_for(stores: dict[str, str]) -> SettingsOf:
    """Settings by root. `stores`: root → name in the corpus."""
    of_root = {root: settings_of(name) for root, name in stores.items()}
    return lambda store: of_root[store.root](store)


def jobs_count(spark: SparkSession) -> int:
    count: int = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
    return count


def require_equal(spark: SparkSession, stores: list[Store], settings: SettingsOf) -> dict[str, Any]:
    """Audit in one task; return the account, which is that of the local engine."""
    before = jobs_count(spark)
    found = account(spark_audit.audit(spark, stores, settings))
    assert jobs_count(spark) - before == (2 if len(stores) == 1 else 3)
    assert found == account(local_audit.audit(stores, settings))
    return found


@pytest.mark.parametrize("names", groups(), ids=lambda names: names[0])
def test_every_store_of_the_corpus(spark: SparkSession, names: tuple[str, ...]) -> None:
    """Each alone, and all together."""
    stores = [opened(name) for name in names]
    settings = settings_for({store.root: name for store, name in zip(stores, names, strict=True)})
    for store in stores:
        require_equal(spark, [store], settings)
    assert require_equal(spark, stores, settings)["rows"]


@pytest.mark.parametrize("design", rest_is_slow(OTHER_DESIGNS, quick=1))
def test_stores_of_the_other_designs(spark: SparkSession, design: str) -> None:
    names = corpus.corpus_names(design=design)[:12]
    stores = [opened(name) for name in names]
    settings = settings_for({store.root: name for store, name in zip(stores, names, strict=True)})
    require_equal(spark, stores[:1], settings)
    require_equal(spark, stores, settings)


def _page_zeroed(root: Path) -> None:
    file = damage.log_files(root)[0]
    places = damage.records_in(file)
    damage.zero_bytes(file, places[len(places) // 2][0] // damage.PAGE_BYTES * damage.PAGE_BYTES, damage.PAGE_BYTES)


def _cut_off(root: Path) -> None:
    file = damage.log_files(root)[0]
    places = damage.records_in(file)
    damage.truncate(file, places[len(places) * 2 // 3][0] + 9)


def _half_queue_zeroed(root: Path) -> None:
    file = damage.queue_files(root, "RMQ_SYS_TRANS_HALF_TOPIC")[0]
    damage.zero_bytes(file, 0, 10 * damage.SLOT_BYTES)


DAMAGES = (_page_zeroed, _cut_off, _half_queue_zeroed)


@pytest.mark.parametrize("damaged", rest_is_slow(DAMAGES, quick=1))
@pytest.mark.parametrize("names", rest_is_slow([
    (("common-5.3.3", "killed-4.9.7"),),
    (("masked-4.9.7", "common-5.1.4", "parallel-5.3.3", "poison-4.5.0", "cursorback-5.3.3"),),
    (("killed-5.3.3", "common-4.9.7", "cursoredited-4.4.0", "killed-5.1.4", "common-4.3.0"),),
], quick=1), ids=lambda names: names[0])
def test_damaged_stores(
    spark: SparkSession, names: tuple[str, ...], damaged: Callable[[Path], None], tmp_path: Path
) -> None:
    """Alone and together."""
    of_root: dict[str, str] = {}
    for name in names:
        root = copy_of(name, tmp_path / name)
        damaged(root)
        of_root[str(root)] = name
    settings, stores = settings_for(of_root), [open_store(root) for root in of_root]
    for store in stores:
        assert require_equal(spark, [store], settings)["findings"]
    require_equal(spark, stores, settings)


def test_rows_of_a_query_and_torn_traces(spark: SparkSession, tmp_path: Path) -> None:
    """A query is one job more, and what cannot be read of traces is a finding of the audit."""
    torn_store, name = torn(tmp_path / "torn")[0], "masked-4.9.7"
    for stores in ([torn_store], [opened(name), torn_store]):
        wanted = require_equal(spark, stores, broker_settings)
        assert any("trace-unreadable" in finding for finding in wanted["findings"])
        before, reading = jobs_count(spark), VerdictReading(TRANSACTIONS, [])
        judged = spark_audit.transactions(spark, stores, broker_settings, reading=reading)
        begun = jobs_count(spark) - before
        rows = judged.frame.select(TRANSACTIONS.names).toArrow()
        assert (begun, jobs_count(spark) - before) == (len(stores), len(stores) + 1)
        judged.release()
        assert sorted(json.dumps(row, sort_keys=True) for row in rows.to_pylist()) == wanted["rows"]
        assert sorted(finding.line() for finding in reading.findings) == wanted["findings"]


def test_copies_of_one_log_are_compared_once(spark: SparkSession, tmp_path: Path) -> None:
    root = field_stores("partial-slave", tmp_path)
    stores = [open_store(root / name) for name in ("master", "slave")]
    file = damage.log_files(root / "slave")[0]
    places = damage.records_in(file)
    damage.flip_byte(file, places[len(places) // 2][0] + 60)
    found = require_equal(spark, stores, broker_settings)
    assert sum("logs-differ" in finding for finding in found["findings"]) == 1


def test_as_of_a_past_time(spark: SparkSession) -> None:
    names = ("common-5.3.3", "common-4.9.7")
    stores = [opened(name) for name in names]
    settings = settings_for({store.root: name for store, name in zip(stores, names, strict=True)})
    rows = local_audit.audit(stores, settings).table().to_pylist()
    times = sorted(row["half_store_time_ms"] for row in rows if row["half_store_time_ms"])
    at_ms = times[len(times) // 2]
    wanted = account(local_audit.audit(stores, settings, at_ms=at_ms))
    assert account(spark_audit.audit(spark, stores, settings, at_ms=at_ms)) == wanted
    assert 0 < len(wanted["rows"]) < len(rows)


def test_progress_ends_with_all_bytes(spark: SparkSession) -> None:
    stores = [opened("common-5.3.3"), opened("masked-4.9.7")]
    for given, phases in (
        (stores[:1], ["opening the stores", "writing"]),
        (stores, ["opening the stores", "reading and judging", "writing"]),
    ):
        watcher, here = Watcher(), Watcher()
        spark_audit.audit(spark, given, broker_settings, progress=watcher).table()
        local_audit.audit(given, broker_settings, progress=here).table()
        assert list(dict.fromkeys(phase for phase, _, _ in watcher.phases)) == phases
        assert watcher.bytes[-1] == here.bytes[-1]


def test_a_store_fits_by_its_log_and_several_by_their_number_too() -> None:
    store = opened("common-5.3.3")
    begun = begin_store(None, (store, broker_settings(store), moment_ms(store)))
    assert 0 < begun.total_bytes < 1 << 20
    assert fit_one_task([begun], None)
    assert fit_one_task([begun], begun.total_bytes)
    assert not fit_one_task([begun], begun.total_bytes - 1)
    assert fit_one_task([begun] * 30, None)
    assert not fit_one_task([begun] * 40, None)
    assert not fit_one_task([begun] * 40, 1 << 40), "a longer split does not make the task judge more"


def test_a_file_that_went_away_ends_it_as_here(spark: SparkSession, tmp_path: Path) -> None:
    """The stores are opened by the driver; a task then finds no log file."""
    names = ("common-5.3.3", "common-4.9.7")
    of_root = {str(copy_of(name, tmp_path / name)): name for name in names}
    settings, stores = settings_for(of_root), [open_store(root) for root in of_root]
    damage.log_files(Path(stores[0].root))[0].unlink()
    for given in (stores[:1], stores):
        wanted = _ended(local_audit.audit, given, settings)
        assert _ended(spark_audit.audit, spark, given, settings) == wanted
    assert _ended(spark_audit.audit, spark, stores, settings, work=WorkDivision(SPLIT_BYTES)) == wanted


def _ended(audit: Callable[..., VerdictReading], *given: Any, **options: Any) -> Any:
    """What an audit answers, or its error."""
    try:
        with translated():
            return answers(audit(*given, **options))
    except RmqtxError as error:
        return type(error), str(error)
