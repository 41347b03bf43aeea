"""Stores by the programming interface: the rows of the commands, typed, for each consumer of Arrow, and no surprise."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pandas
import polars
import pyarrow as pa
import pytest

import rmqtx
from rmqtx.api import rows
from rmqtx.readers.model import exit_status, tables
from rmqtx.verdicts.causes.diagnosing import DIAGNOSES
from tests.cli.conftest import Run
from tests.forge.damage import zero_bytes
from tests.forge.stores import copy_of, unpacked

VERSION = "5.3.3"


@pytest.fixture
def stores() -> rmqtx.Stores:
    return rmqtx.open(unpacked("common-5.3.3"))


def of_command(command: Run, file: Path, *words: object) -> list[dict[str, Any]]:
    command(*words, "-o", file, "-q")
    rows: list[dict[str, Any]] = pa.ipc.open_stream(file.read_bytes()).read_all().to_pylist()
    return rows


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("pending", ("pending", "--all-open")), ("audit", ("audit",)), ("halves", ("decode", "half")),
        ("ops", ("decode", "op")), ("trace", ("decode", "trace")), ("verify", ("verify",)),
        ("diagnose", ("diagnose",)),
    ],
)
def test_the_rows_are_those_of_the_command(
    command: Run, stores: rmqtx.Stores, question: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    expected = of_command(command, tmp_path / "rows.arrow", *words, unpacked("common-5.3.3"))
    found = getattr(stores, question)().to_arrow().to_pylist()
    assert found == expected
    assert found or question in ("trace", "verify")


def test_one_transaction(stores: rmqtx.Stores) -> None:
    (first, *_) = stores.pending()
    (shown,) = stores.show(first.transaction_id)
    assert (shown.state, shown.half_copies) == (rmqtx.State.PENDING, first.half_copies)
    assert [one.transaction_id for one in stores.lookup([first.transaction_id])] == [first.transaction_id]


CONSUMERS: dict[str, Callable[[Any], pa.Table]] = {
    "duckdb": lambda audit: duckdb.sql("SELECT * FROM audit").to_arrow_table(),
    "polars": lambda audit: polars.DataFrame(audit).to_arrow(),
    "ibis": lambda audit: ibis.memtable(audit).to_pyarrow(),
    # pandas takes Arrow streams from 3.0 on (DataFrame.from_arrow): its columns are Arrow's here
    "pandas": lambda audit: pa.Table.from_pandas(
        pa.table(audit).to_pandas(types_mapper=pandas.ArrowDtype), audit.schema, preserve_index=False
    ),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_each_consumer_of_arrow_reads_the_same_rows(stores: rmqtx.Stores, consumer: str) -> None:
    audit = stores.audit()
    expected = audit.to_arrow()
    read = CONSUMERS[consumer](stores.audit()).cast(expected.schema)
    assert sorted(map(repr, read.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    assert [one.transaction_id for one in audit] == expected["transaction_id"].to_pylist()


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (rows.Record, tables.RECORDS), (rows.Half, tables.HALVES), (rows.Op, tables.OPS),
        (rows.Finding, tables.FINDINGS), (rows.TraceLine, tables.TRACES), (rows.Diagnosis, DIAGNOSES),
    ],
)
def test_a_class_has_the_columns_of_its_table(kind: Any, schema: pa.Schema) -> None:
    assert [one.name for one in fields(kind)] == schema.names


def test_damage_is_reported_and_the_answer_is_not_complete(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "store")
    zero_bytes(next((root / "commitlog").iterdir()), 8192, 4096)
    damaged = rmqtx.open(root)
    audit = damaged.audit()
    assert (audit.status, audit.is_complete) == (exit_status.INCOMPLETE, False)
    assert {one.code for one in audit.findings} >= {"record-damaged"}
    some = damaged.audit(columns=["transaction_id"])
    assert some.to_arrow().column_names == ["transaction_id"]
    assert some.so_far.undecidable_count == audit.so_far.undecidable_count > 0
    causes = damaged.diagnose()
    assert (causes.status, causes.so_far.undecidable_count) == (exit_status.INCOMPLETE, audit.so_far.undecidable_count)
    verified = damaged.verify()
    assert verified.status == exit_status.FINDINGS
    assert {one.code for one in verified} >= {"record-damaged"}


def test_errors_have_the_status_of_the_command(stores: rmqtx.Stores, tmp_path: Path) -> None:
    with pytest.raises(rmqtx.NoSuchTransaction) as none:
        stores.show("nothing-has-this-key").to_arrow()
    assert (none.value.status, bool(none.value.advice)) == (exit_status.NO_SUCH_TRANSACTION, True)
    with pytest.raises(rmqtx.NotAStore) as missing:
        rmqtx.open(tmp_path / "missing")
    assert missing.value.status == exit_status.UNREADABLE
    with pytest.raises(rmqtx.BadRequest) as wrong:
        stores.pending(at="2026-01-01")
    assert wrong.value.status == exit_status.USAGE
    assert (rmqtx.Refused.status, rmqtx.Unreachable.status) == (exit_status.REFUSED_BY_BROKER, exit_status.UNREACHABLE)


def test_nothing_is_printed_and_no_signal_is_taken(capfd: pytest.CaptureFixture[str], stores: rmqtx.Stores) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)]
    list(stores.pending(scan=True))
    stores.audit().to_arrow()
    assert capfd.readouterr() == ("", "")
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)] == before


def test_threads_and_asyncio_get_the_same_rows(stores: rmqtx.Stores) -> None:
    expected = stores.audit().to_arrow()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: stores.audit().to_arrow(), range(4)))
    assert all(one.equals(expected) for one in found)
    assert asyncio.run(asyncio.to_thread(lambda: stores.audit().to_arrow())).equals(expected)


def test_a_page_of_rows_escapes_what_producers_wrote(stores: rmqtx.Stores) -> None:
    audit = stores.audit()
    table = audit.to_arrow()
    place = table.schema.get_field_index("keys")
    hostile = pa.array(["<script>alert(1)</script>\x1b[2J"] * table.num_rows)
    audit._table = table.set_column(place, table.schema.field(place), hostile)
    page = audit._repr_html_()
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;" in page


def test_importing_it_loads_no_arrow_and_each_name_is_there() -> None:
    code = "import sys, rmqtx; print(sorted({'pyarrow', 'numpy', 'pyspark'} & set(sys.modules)), rmqtx.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[] ")
    assert all(getattr(rmqtx, name) is not None for name in rmqtx.__all__)
    assert sorted(dir(rmqtx)) == sorted(rmqtx.__all__)
    unknown = "nothing_of_this_name"  # mypy refuses the name itself
    with pytest.raises(AttributeError):
        getattr(rmqtx, unknown)
