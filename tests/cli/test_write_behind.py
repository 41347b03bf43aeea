"""Batches that are written in a thread: in order, complete, and with their errors."""

from __future__ import annotations

import gc
import io
import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx_cli.options.options import OutputFormat
from rmqtx_cli.output import columnar
from rmqtx_cli.output.delimited import CsvPort
from rmqtx_cli.output.port import WriteBehind, open_port
from rmqtx_cli.output.views import plain_view

BATCHES = [pa.RecordBatch.from_pydict({"keys": [f"{number}-{row}" for row in range(9)]}) for number in range(20)]
TEXTS = [text for batch in BATCHES for text in batch["keys"].to_pylist()]


class Failing:
    """A port that fails at its third batch."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.threads.append(threading.current_thread().name)
        if len(self.threads) == 3:
            raise BrokenPipeError

    def finish(self) -> None:
        raise AssertionError("after a failure nothing is finished")


def write(to: Failing, batches: list[pa.RecordBatch]) -> None:
    with WriteBehind(to) as port:
        for batch in batches:
            port.write(batch)
        port.finish()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.parquet", "rows.arrow"])
def test_all_rows_in_their_order(name: str, tmp_path: Path) -> None:
    formats = {"rows.jsonl": OutputFormat.JSONL, "rows.json": OutputFormat.JSON, "rows.csv": OutputFormat.CSV,
               "rows.parquet": OutputFormat.PARQUET, "rows.arrow": OutputFormat.ARROW}
    file = tmp_path / name
    with open_port(formats[name], file, BATCHES[0].schema, plain_view(["keys"])) as port:
        for batch in BATCHES:
            port.write(batch)
    if name == "rows.jsonl":
        found = [json.loads(line)["keys"] for line in file.read_text().splitlines()]
    elif name == "rows.json":
        found = [row["keys"] for row in json.loads(file.read_text())]
    elif name == "rows.csv":
        found = file.read_text().splitlines()[1:]
    elif name == "rows.parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        found = pq.read_table(file)["keys"].to_pylist()
    else:
        found = pa.ipc.open_stream(file.read_bytes()).read_all()["keys"].to_pylist()
    assert found == TEXTS


def test_a_file_that_is_given_up_is_given_up_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "_GROUP_BYTES", 1)
    file = tmp_path / "rows.parquet"
    with (  # noqa: PT012 -- the error comes after rows
        pytest.raises(KeyboardInterrupt),
        open_port(OutputFormat.PARQUET, file, BATCHES[0].schema, plain_view(["keys"])) as port,
    ):
        for batch in BATCHES[:3]:
            port.write(batch)
        raise KeyboardInterrupt
    del port
    gc.collect()  # pyarrow's writer ends its file here; an error would be a warning, which is an error in tests
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_raised_by_the_next_call_and_nothing_is_written_after_it() -> None:
    failing = Failing()
    with pytest.raises(BrokenPipeError):
        write(failing, BATCHES)
    assert len(failing.threads) == 3
    assert failing.threads[0] == threading.current_thread().name != failing.threads[1]


def test_an_error_of_the_last_batch_is_not_lost() -> None:
    with pytest.raises(BrokenPipeError):
        write(Failing(), BATCHES[:3])


def test_options_of_the_command_line_reach_the_thread() -> None:
    rows = pa.RecordBatch.from_pydict({"keys": ["=1+1"]})
    stream = io.BytesIO()
    with WriteBehind(CsvPort(stream, rows.schema, plain_view(["keys"]), is_safe=True)) as port:
        port.write(rows)
        port.write(rows)
        port.finish()
    assert stream.getvalue() == b"keys\n'=1+1\n'=1+1\n"
    assert port.formulas_count == 0
