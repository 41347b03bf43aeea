"""`--body-decoder` of `show` and `search`: each row is printed, whatever the filter does."""

from __future__ import annotations

import base64
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, USAGE
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker

SAME = "import base64, sys\nfor line in sys.stdin: print(base64.b64decode(line).hex())"


def filter_of(text: str) -> str:
    return shlex.join([sys.executable, "-c", text])


def found(rmqtx: Run, store: Path, *options: object) -> list[dict[str, str | None]]:
    result = rmqtx("search", store, "--topic", "orders", *options, "--format", "jsonl")
    assert result.status == DONE, result.err
    return result.rows


@pytest.mark.parametrize("processes", [1, 2])
def test_each_record_has_the_text_of_its_own_body(rmqtx: Run, common: Path, processes: int) -> None:
    fields = ("--fields", "message_id,body,body_decoded", "--processes", processes)
    rows = found(rmqtx, common, "--body-decoder", filter_of(SAME), *fields)
    plain = found(rmqtx, common, "--body", "text", "--fields", "message_id,body", "--processes", processes)
    assert [row["message_id"] for row in rows] == [row["message_id"] for row in plain]
    assert len(rows) > 50
    for row, other in zip(rows, plain, strict=True):
        body = base64.b64decode(str(row["body"]))
        assert row["body_decoded"] == (body.hex() or None)
        assert body.decode("utf-8", "backslashreplace") == other["body"]
    texts = found(rmqtx, common, "--body-decoder", filter_of(SAME), "--body", "text")
    assert [row["body"] for row in texts] == [row["body"] for row in plain]
    assert all(row["body"] is None for row in found(rmqtx, common, "--body-decoder", filter_of(SAME)))


def test_a_filter_that_fails_loses_no_row(rmqtx: Run, common: Path) -> None:
    every = len(found(rmqtx, common))
    text = "import sys\nfor n, _ in enumerate(sys.stdin):\n  if n == 7: sys.exit('no \\x1b[31mcodec')\n  print('a')"
    result = rmqtx("search", common, "--topic", "orders", "--body-decoder", filter_of(text), "--format", "jsonl")
    rows = result.rows
    assert (result.status, len(rows)) == (DONE, every)
    assert [row["body_decoded"] for row in rows] == ["a"] * 7 + [None] * (every - 7)
    assert f"before its last answer: no \\x1b[31mcodec; 7 of {every} bodies decoded" in result.err
    table = rmqtx("search", common, "--topic", "orders", "--body-decoder", "/nothing/here", "--limit", 3)
    assert (table.status, len(table.out.splitlines())) == (DONE, 4)
    assert "--body-decoder failed: cannot run /nothing/here" in table.err


def test_what_a_filter_prints_is_escaped(rmqtx: Run, common: Path) -> None:
    command = filter_of("for line in __import__('sys').stdin: print('\\x1b]0;owned\\x07')")
    listed = rmqtx("search", common, "--limit", 1, "--topic", "orders", "--body-decoder", command).out
    assert "\\x1b]0;owned\\x07" in listed
    shown = rmqtx("show", case("pending.0"), "--store", common, "--body-decoder", command).out
    assert shown.endswith("\nbody    \\x1b]0;owned\\x07\n")


def case(name: str) -> str:
    return str(next(row["transaction_id"] for row in corpus.expected("common-5.3.3") if row["case"] == name))


def test_show_prints_the_body_from_files_and_from_a_broker(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    root = corpus_store("common-5.3.3")
    decode = "import base64, sys\nfor line in sys.stdin: print(base64.b64decode(line).decode())"
    command = ("--body-decoder", filter_of(decode))
    text = rmqtx("show", case("commit.1"), "--store", root, *command).out.rpartition("\nbody    ")[2]
    assert json.loads(text)["order"] == "commit.1"
    (row,) = json.loads(rmqtx("show", case("commit.1"), "--store", root, *command, "--format", "json").out)
    assert row["body_decoded"] == text.strip()
    store = open_store(root)
    settings = broker_settings(store, conf=corpus.recipe("common-5.3.3")["broker_conf"], version="5.3.3")
    with FakeServer(StoreBroker(store, settings, "5.3.3")) as server:
        assert rmqtx("show", case("commit.1"), "--broker", server.address, *command).out.endswith(f"body    {text}")


def test_export_writes_the_texts_and_names_what_has_none(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    def exported(name: str, *options: object) -> tuple[str, dict[int, dict[str, object]]]:
        result = rmqtx("export", "records", common, "--to", tmp_path / name, "--format", "jsonl", *options)
        assert result.status == DONE, result.err
        lines = [line for file in (tmp_path / name).rglob("part-*.jsonl") for line in file.read_text().splitlines()]
        return result.err, {row["commit_log_offset"]: row for row in map(json.loads, lines)}

    printed, decoded = exported("decoded", "--body-decoder", filter_of(SAME))
    _, plain = exported("plain", "--body", "inflated")
    assert decoded.keys() == plain.keys()
    assert "body" not in next(iter(decoded.values()))
    for offset, row in decoded.items():
        body = plain[offset]["body"]
        assert row["body_decoded"] == (None if body is None else base64.b64decode(str(body)).hex() or None)
    printed, failed = exported("failed", "--body-decoder", "false", "--body", "inflated")
    assert {offset: row["body"] for offset, row in failed.items()} == {o: row["body"] for o, row in plain.items()}
    assert {row["body_decoded"] for row in failed.values()} == {None}
    assert "warning: body-undecoded" in printed
    assert "it ended with status 1 before its last answer; 0 of " in printed
    again = rmqtx("export", "records", common, "--to", tmp_path / "failed", "--format", "jsonl", "--body", "inflated")
    assert again.status != DONE, "another filter is another export"


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (("--body-decoder", " "), "--body-decoder"),
        (("--body-decoder", "'"), "cannot be split into words"),
        (("--body-decoder", "cat", "--body", "raw"), "contradict each other"),
    ],
)
def test_what_is_refused(rmqtx: Run, common: Path, options: tuple[str, ...], printed: str) -> None:
    result = rmqtx("search", common, "--topic", "orders", *options)
    assert (result.status, printed in result.err) == (USAGE, True), result.err
