"""What every format makes of rows: types, nulls, times, nested values, and text that is out to harm."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.exit_status import DONE
from rmqtx.readers.model.tables import ALL_TABLES, RECORDS, TRANSACTIONS
from rmqtx_cli.options.options import OutputFormat
from rmqtx_cli.output.jsontext import json_rows, json_texts
from rmqtx_cli.output.port import open_port
from rmqtx_cli.output.views import plain_view
from rmqtx_cli.words.text import cut, escaped, fully_escaped, width
from tests.cli.conftest import Run

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eevil\u2028line\x85\x00\r\n\t\"quote\\ 订单 \U0001f6d2"


def written(rows: pa.Table, output_format: OutputFormat, to: Path) -> bytes:
    with open_port(output_format, to, rows.schema, plain_view(rows.schema.names)) as port:
        for batch in rows.to_batches(max_chunksize=2):
            port.write(batch)
    return to.read_bytes()


def transaction(**values: Any) -> dict[str, Any]:
    copy = {"store": "s", "queue_id": 0, "queue_offset": 7, "commit_log_offset": 4711, "store_time_ms": 1767323045678,
            "checks_count": None}
    return {"store": "s", "transaction_id": "T", "state": "PENDING", "flags": ["stalled"], "half_copies": [copy],
            "op_marks": [], "final_records": [], "discard_copies": [], "state_entries": []} | values


def transactions(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=TRANSACTIONS)


def test_json_has_each_time_twice_nulls_and_lists(tmp_path: Path) -> None:
    rows = transactions(transaction(born_time_ms=0, decided_time_ms=None), transaction(flags=[]), transaction())
    lines = written(rows, OutputFormat.JSONL, tmp_path / "x").decode().splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 3
    assert list(first)[:2] == ["store", "transaction_id"]
    assert first["flags"] == ["stalled"]
    assert first["keys"] is None
    assert (first["born_time_ms"], first["born_time"]) == (0, "1970-01-01T00:00:00.000Z")
    assert (first["decided_time_ms"], first["decided_time"]) == (None, None)
    assert first["op_marks"] == []
    copy = first["half_copies"][0]
    assert (copy["store_time_ms"], copy["store_time"]) == (1767323045678, "2026-01-02T03:04:05.678Z")
    assert copy["checks_count"] is None
    names = list(first)
    assert names[names.index("born_time_ms") + 1] == "born_time"
    assert json.loads(lines[1])["flags"] == []


def test_a_table_shows_each_row_also_an_empty_one_at_its_end(tmp_path: Path) -> None:
    rows = pa.table({"keys": ["订单", "b", ""]})
    assert written(rows, OutputFormat.TABLE, tmp_path / "rows.txt").decode() == "keys\n订单\nb\n\n"


def test_the_contract_of_pending_and_audit(rmqtx: Run, common: Path) -> None:
    evidence = {
        "half_copies": {"store", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms", "store_time",
                        "checks_count"},
        "op_marks": {"store", "queue_id", "queue_offset", "commit_log_offset", "half_queue_offset", "store_time_ms",
                     "store_time"},
        "final_records": {"store", "topic", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms",
                          "store_time", "prepared_transaction_offset"},
        "discard_copies": {"store", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms", "store_time"},
    }
    seen = set()
    for verb in ("pending", "audit"):
        for line in rmqtx(verb, common, "--format", "jsonl").out.splitlines():
            row = json.loads(line)
            times = {"born_time", "half_store_time", "decided_time", "discard_at", "next_event_at"}
            assert {*TRANSACTIONS.names, *times} == set(row)
            assert row["transaction_id"]
            for name, fields in evidence.items():
                for entry in row[name]:
                    assert set(entry) == fields
                    seen.add(name)
            assert row["state_entries"] == []
    assert seen == set(evidence)


def test_times_that_no_calendar_reaches_are_null_in_text(tmp_path: Path) -> None:
    rows = transactions(transaction(born_time_ms=2**62), transaction(born_time_ms=-(2**62)))
    for line in written(rows, OutputFormat.JSONL, tmp_path / "x").decode().splitlines():
        row = json.loads(line)
        assert abs(row["born_time_ms"]) == 2**62
        assert row["born_time"] is None
    assert written(rows, OutputFormat.TABLE, tmp_path / "y")
    assert written(rows, OutputFormat.CSV, tmp_path / "z")


def test_json_of_no_rows_is_an_empty_list(tmp_path: Path) -> None:
    assert json.loads(written(transactions(), OutputFormat.JSON, tmp_path / "x")) == []
    rows = transactions(transaction(), transaction(), transaction())
    assert len(json.loads(written(rows, OutputFormat.JSON, tmp_path / "x"))) == 3


def test_bytes_are_base64_and_maps_are_objects() -> None:
    row = {"body": b"\x00\xff", "properties": [("KEYS", HOSTILE), ("A", "b")]}
    [text] = json_rows(pa.RecordBatch.from_pylist([row], schema=RECORDS)).to_pylist()
    assert json.loads(text)["body"] == "AP8="
    assert json.loads(text)["properties"] == {"KEYS": HOSTILE, "A": "b"}


@given(st.lists(st.one_of(st.none(), st.text())))
def test_any_text_comes_back_and_nothing_unprintable_is_written(values: list[str | None]) -> None:
    texts = json_texts(pa.array(values, pa.string())).to_pylist()
    assert [json.loads(text) for text in texts] == values
    assert all(text.isprintable() for text in texts)


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))))))
def test_any_list_comes_back(values: list[list[int | None] | None]) -> None:
    column = pa.array(values, pa.list_(pa.int64()))
    assert [json.loads(text) for text in json_texts(column).to_pylist()] == values
    assert [json.loads(text) for text in json_texts(column.slice(1)).to_pylist()] == values[1:]


@given(st.text(), st.integers(1, 40))
def test_escaped_text_is_harmless_and_cut_text_fits(text: str, cells: int) -> None:
    assert escaped(text).isprintable()
    assert fully_escaped(text).isprintable()
    assert width(cut(escaped(text), cells)) <= cells


@pytest.mark.parametrize("output_format", [OutputFormat.TABLE, OutputFormat.JSON, OutputFormat.JSONL, OutputFormat.CSV])
def test_hostile_text_is_escaped(tmp_path: Path, output_format: OutputFormat) -> None:
    rows = transactions(transaction(keys=HOSTILE, transaction_id=HOSTILE, flags=[HOSTILE]))
    text = written(rows, output_format, tmp_path / "x").decode()
    assert all(line.isprintable() for line in text.split("\n"))
    assert "订单" in text


def test_a_run_of_one_unprintable_character_is_counted_for_people_only(tmp_path: Path) -> None:
    """A page of zeros in the log tears ids, keys, topics and groups; every row would be as wide as the torn one."""
    torn = "FD000" + "\x00" * 269
    rows = transactions(transaction(transaction_id=torn, keys=torn, topic=torn, producer_group=torn, flags=[torn]))
    table = written(rows, OutputFormat.TABLE, tmp_path / "table").decode()
    assert table.count("FD000\\x00…(269 times)") >= 4
    assert max(map(len, table.splitlines())) < 400
    [row] = json.loads(written(rows, OutputFormat.JSON, tmp_path / "json"))
    assert row["transaction_id"] == torn
    assert "FD000" + "\\x00" * 269 + "," in written(rows, OutputFormat.CSV, tmp_path / "csv").decode()
    assert escaped("a\t\tb\x00c") == fully_escaped("a\t\tb\x00c") == "a\\t\\tb\\x00c"


def test_hostile_names_are_escaped_on_stderr(rmqtx: Run, tmp_path: Path) -> None:
    for arguments in (["pending", tmp_path / HOSTILE.replace("\x00", "").replace("/", "")],
                      ["explain", HOSTILE], [HOSTILE], ["show", HOSTILE], ["pending", tmp_path, "--where", HOSTILE],
                      ["pending", tmp_path, "--format", HOSTILE], ["pending", tmp_path, "--" + HOSTILE]):
        result = rmqtx(*arguments)
        assert result.status in (2, 10)
        assert all(line.isprintable() for line in result.err.split("\n")), arguments


def test_lone_surrogates_in_arguments_are_safe(rmqtx: Run, common: Path) -> None:
    for arguments in (["show", "\udcff", "--store", common], ["pending", common, "--topic", "\udcff"],
                      ["pending", common, "--where", "topic = '\udcff'"], ["explain", "\udcff"],
                      ["decode", "commitlog", common, "--topic", "\udcff"]):
        assert rmqtx(*arguments).status in (0, 2, 16), arguments


def test_csv_has_a_header_and_nested_values_as_json(tmp_path: Path) -> None:
    text = written(transactions(transaction(keys='a,"b"')), OutputFormat.CSV, tmp_path / "x").decode()
    [row] = csv.DictReader(io.StringIO(text))
    assert row["keys"] == 'a,"b"'
    assert json.loads(row["half_copies"])[0]["queue_offset"] == 7
    assert row["topic"] == ""
    assert "born_time" in row
    empty = written(transactions(), OutputFormat.CSV, tmp_path / "y").decode()
    assert empty.count("\n") == 1


@pytest.mark.parametrize("table", list(ALL_TABLES))
def test_every_table_goes_through_every_format(tmp_path: Path, table: str) -> None:
    schema = ALL_TABLES[table]
    rows = pa.Table.from_pylist([{}], schema=schema)
    for output_format in OutputFormat:
        assert written(rows, output_format, tmp_path / f"x.{output_format}")


def test_parquet_and_arrow_keep_types_and_documentation(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    assert rmqtx("audit", common, "-o", tmp_path / "x.parquet").status == 0
    rows = pq.read_table(tmp_path / "x.parquet")
    assert rows.schema.equals(TRANSACTIONS)
    assert rows.schema.field("state").metadata[b"meaning"]
    assert rmqtx("audit", common, "-o", tmp_path / "x.arrow").status == 0
    with pa.ipc.open_stream(tmp_path / "x.arrow") as stream:
        assert stream.read_all().equals(rows)


def test_formats_agree(rmqtx: Run, common: Path) -> None:
    lines = rmqtx("audit", common, "--format", "jsonl").rows
    assert json.loads(rmqtx("audit", common, "--format", "json").out) == lines
    rows = list(csv.DictReader(io.StringIO(rmqtx("audit", common, "--format", "csv").out)))
    assert [row["transaction_id"] for row in rows] == [line["transaction_id"] for line in lines]


def test_fields_choose_and_order(rmqtx: Run, common: Path) -> None:
    out = rmqtx("audit", common, "--format", "csv", "--fields", "state,transaction_id,born_time").out
    assert out.splitlines()[0] == "state,transaction_id,born_time_ms,born_time"


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "jsonl", "json"])
def test_timestamps_instead_of_epoch_milliseconds(kind: str, rmqtx: Run, common: Path, tmp_path: Path) -> None:
    plain, given = tmp_path / f"plain.{kind}", tmp_path / f"given.{kind}"
    assert rmqtx("audit", common, "-o", plain, "-q").status == rmqtx(
        "audit", common, "-o", given, "-q", "--timestamps"
    ).status
    if kind in ("parquet", "arrow"):
        read = pq.read_table if kind == "parquet" else lambda file: pa.ipc.open_stream(file).read_all()
        before, after = read(plain), read(given)
        assert after.schema.field("half_store_time").type == pa.timestamp("ms", "UTC")
        assert not [name for name in after.schema.names if name.endswith("_ms")]
        assert after["half_store_time"].cast(pa.int64()).to_pylist() == before["half_store_time_ms"].to_pylist()
        assert after["deliveries_count"].to_pylist() == before["deliveries_count"].to_pylist()
        return
    text = given.read_text("utf-8")
    assert "_ms" not in text.replace("_ms_", "")
    if kind == "csv":
        rows = list(csv.DictReader(text.splitlines()))
        wanted = [row["half_store_time"] for row in csv.DictReader(plain.read_text("utf-8").splitlines())]
    else:
        rows = json.loads(text) if kind == "json" else [json.loads(line) for line in text.splitlines()]
        lines = plain.read_text("utf-8")
        old = json.loads(lines) if kind == "json" else [json.loads(line) for line in lines.splitlines()]
        wanted = [row["half_store_time"] for row in old]
    assert [row["half_store_time"] for row in rows] == wanted
    assert wanted[0].endswith("Z")


def test_an_export_with_timestamps_is_not_continued_without(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    to = ("export", "halves", common, "--to", tmp_path / "to", "--quiet")
    assert rmqtx(*to, "--timestamps").status == DONE
    assert ds.dataset(tmp_path / "to").schema.field("store_time").type == pa.timestamp("ms", "UTC")
    again = rmqtx(*to)
    assert (again.status != DONE, "timestamps" in again.err) == (True, True), again.err


def test_deliveries_in_conditions_have_a_short_name(rmqtx: Run, common: Path) -> None:
    result = rmqtx("audit", common, "--where", "deliveries > 1", "--fields", "deliveries,flags", "--format", "jsonl")
    rows = result.rows
    assert {row["deliveries_count"] for row in rows} == {2, 3}
    assert all("duplicate_commit" in row["flags"] or "commit_after_discard" in row["flags"] for row in rows)
