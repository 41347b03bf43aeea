"""`rmqtx verify` and `rmqtx search` as they are typed: statuses, formats, limits, hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqtx.readers.model.exit_status import USAGE
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import RECORDS
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx_cli.commands.reading.search import unread_batches
from tests.cli.conftest import Run
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import copy_of


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


#: Not damage: transactions of the store that its broker checks again.
CHECKED_AGAIN = "start-checks-again"


def codes(text: str) -> list[str]:
    """The codes of findings about damage."""
    return [row["code"] for row in rows_of(text) if row["code"] != CHECKED_AGAIN]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A wrong slot and a wrong body."""
    root = copy_of("common-5.3.3", tmp_path)
    queue = damage.queue_files(root, HALF_TOPIC)[0]
    damage.write_bytes(queue, SLOT.size_bytes + 8, (7).to_bytes(4, "big"))
    damage.flip_byte(damage.log_files(root)[0], 100)
    return root


def test_the_status_says_whether_anything_is_wrong(rmqtx: Run, common: Path, damaged: Path) -> None:
    sound = rmqtx("verify", common, "--format", "jsonl")
    assert (sound.status, codes(sound.out)) == (0, [])
    assert "no error or warning found; not examined: the content of compressed bodies" in sound.err
    assert "no error or warning found\n" in rmqtx("verify", common, "--full").err
    assert "no damage found; not examined: bodies" in rmqtx("verify", common, "--quick").err
    found = rmqtx("verify", damaged, "--format", "jsonl")
    assert found.status == 1
    assert codes(found.out) == ["record-body-crc", "slot-mismatch", "start-cuts-log"]
    assert "3 errors: 1 record-body-crc, 1 slot-mismatch, 1 start-cuts-log" in found.err
    assert "+ 0 unread = " in found.err


def test_a_condition_decides_what_fails(rmqtx: Run, damaged: Path) -> None:
    assert rmqtx("verify", damaged, "--fail-on", "code = queue-gap", "--quiet").status == 0
    assert rmqtx("verify", damaged, "--fail-on", "code = slot-mismatch", "--quiet").status == 1
    hidden = rmqtx("verify", damaged, "--where", "code = queue-gap")
    assert (hidden.status, hidden.out) == (1, "")  # what is not listed is wrong all the same


def test_quick_reads_no_bodies(rmqtx: Run, damaged: Path) -> None:
    assert rmqtx("verify", damaged, "--quick").status == 0
    assert rmqtx("verify", damaged, "--quick", "--full").status == 2


def test_findings_go_into_files(rmqtx: Run, damaged: Path, tmp_path: Path) -> None:
    file = tmp_path / "findings.parquet"
    assert rmqtx("verify", damaged, "-o", file, "--quiet").status == 1
    found = [code for code in pq.read_table(file)["code"].to_pylist() if code != CHECKED_AGAIN]
    assert found == ["record-body-crc", "slot-mismatch", "start-cuts-log"]
    inside = rmqtx("verify", damaged, "-o", damaged / "commitlog" / "x.parquet")
    assert inside.status == 2
    assert "lies inside the store" in inside.err


@pytest.mark.parametrize("code", ["slot-missing", "index-mismatch", "checkpoint-ahead", "record-header", "body-stream"])
def test_findings_are_explained(rmqtx: Run, code: str) -> None:
    said = rmqtx("explain", code)
    assert said.status == 0
    assert "(finding)" in said.out
    assert "for transactions:" in said.out


def test_the_advice_of_each_kind_of_finding_is_printed_once(rmqtx: Run, damaged: Path) -> None:
    found = rmqtx("verify", damaged)
    advice = [line for line in found.err.splitlines() if line.startswith("rmqtx: advice: ")]
    assert advice[0] == "rmqtx: advice: compare with the same record on a slave   # record-body-crc"
    assert [line.partition("# ")[2] for line in advice] == ["record-body-crc", "slot-mismatch", "start-cuts-log"]


def test_every_error_has_an_advice() -> None:
    assert [code for code, kind in KINDS.items() if kind.severity == "error" and not kind.advice] == []


def test_the_commands_for_a_stopped_check_have_a_line_each(
    rmqtx: Run, corpus_store: Callable[[str], Path]
) -> None:
    said = rmqtx("verify", corpus_store("poison-4.5.0"), "--format", "jsonl")
    lines = [line.removeprefix("rmqtx: next: ") for line in said.err.splitlines() if "next: " in line]
    assert [line.split()[:2] for line in lines] == [["rmqtx", "show"], ["rmqtx", "commit"], ["rmqtx", "cursor"]]
    [row] = [row for row in said.rows if row["code"] == "check-stopped"]
    assert row["advice"].splitlines() == lines


def test_several_words_are_explained_in_turn(rmqtx: Run) -> None:
    both = rmqtx("explain", "LOST", "half message")
    assert both.out == rmqtx("explain", "LOST").out + rmqtx("explain", "half", "message").out
    assert rmqtx("explain", "LOST", "nonsense").status == 2


def test_several_stores_are_told_apart(rmqtx: Run, common: Path, damaged: Path) -> None:
    rows = rmqtx("verify", common, damaged, "--format", "jsonl", "--quiet").rows
    assert {row["store"] for row in rows if row["code"] != CHECKED_AGAIN} == {str(damaged)}
    table = rmqtx("search", common, damaged, "--property", "case=late_commit.0", "--quiet", "--fields", "store,topic")
    assert str(common) in table.out
    assert str(damaged) in table.out


def test_search_stops_at_the_limit(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    store = corpus_store("killed-5.1.4")
    some = rmqtx("search", store, "--topic", "orders", "--limit", "2", "--format", "jsonl", "--split-size", "64KiB")
    assert len(some.rows) == 2
    assert " + 0 unread" not in some.err


@pytest.mark.parametrize(
    "option",
    [
        ("--body-contains", '"late_commit.0'), ("--body-contains", "0x3a226c6174655f636f6d6d69742e30"),
        ("--body-regex", r'"late.commit\.0'), ("--property", "case=late_commit.0"),
        ("--property", "case=late_commi[st].0"),
    ],
)
def test_ways_to_the_same_records(rmqtx: Run, common: Path, option: tuple[str, str]) -> None:
    found = rmqtx("search", common, *option, "--format", "jsonl", "--body", "text")
    rows = found.rows
    assert found.status == 0
    assert rows
    assert all("late_commit.0" in row["body"] for row in rows)
    assert len({row["transaction_id"] for row in rows}) == 1
    assert any(row["topic"] == HALF_TOPIC for row in rows)


def test_bounds_are_offsets_or_times(rmqtx: Run, common: Path) -> None:
    every = rmqtx("search", common, "--from", "0", "--format", "jsonl").rows
    middle = every[len(every) // 2]
    late = rmqtx("search", common, "--from", middle["commit_log_offset"], "--format", "jsonl").rows
    assert late == every[len(every) // 2 :]
    early = rmqtx("search", common, "--to", middle["store_time"], "--format", "jsonl").rows
    assert early == [row for row in every if row["store_time_ms"] < middle["store_time_ms"]]


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("search", "--where", "body ~ order"), "add --body text"),
        (("search", "--where", "queue_id = 0", "--fail-on", "body ~ order"), "add --body text"),
        (("search", "--where", "queue_id = 0", "--sort", "body"), "add --body text"),
        (("decode", "commitlog", "--where", "body ~ order"), "add --body text, and --decompress"),
        (("decode", "commitlog", "--where", "body_crc_matches = true"), "add --check-crc"),
    ],
)
@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_a_condition_on_what_is_not_read_is_refused(
    rmqtx: Run, common: Path, words: tuple[str, ...], advice: str, form: str
) -> None:
    """The column would be null in every row: no row, or a wrong order, would look like an answer."""
    result = rmqtx(*words, common, "--format", form)
    assert (result.status, result.out) == (USAGE, "")
    assert "is not read by default" in result.err
    assert advice in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("search", "--where", "body ~ order", "--body", "text"),
        ("search", "--where", "body ~ order", "--body", "raw"),
        ("search", "--where", "body_crc_matches = true"),
        ("decode", "commitlog", "--where", "body ~ order", "--body", "text"),
        ("decode", "commitlog", "--where", "body ~ order", "--decompress"),
        ("decode", "commitlog", "--where", "body_crc_matches = true", "--check-crc"),
    ],
)
def test_a_condition_on_what_is_read_finds_rows(rmqtx: Run, common: Path, words: tuple[str, ...]) -> None:
    result = rmqtx(*words, common, "--limit", 3, "--format", "jsonl")
    assert (result.status, len(result.rows)) == (0, 3)


@pytest.mark.parametrize("arguments", [(), ("--property", "x"), ("--body-regex", "["), ("--body-contains", "0xq")])
def test_questions_that_cannot_be_are_usage(rmqtx: Run, common: Path, arguments: tuple[str, ...]) -> None:
    said = rmqtx("search", common, *arguments)
    assert said.status == 2
    assert len(said.err.splitlines()) == 1


def test_damage_makes_a_search_incomplete(rmqtx: Run, damaged: Path) -> None:
    damage.zero_bytes(damage.log_files(damaged)[0], 8192, 4096)
    said = rmqtx("search", damaged, "--topic", "orders")
    assert said.status == 3
    assert "record-damaged" in said.err


def test_hostile_text_stays_text(rmqtx: Run, tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.append(Message(body=b"\x1b[31mred\xff", properties=(("KEYS", "k\x1b]0;x\x07"),)))
    root = forge.write()
    said = rmqtx("search", root, "--body-contains", "red", "--body", "text")
    assert "\x1b" not in said.out
    assert "\\x1b[31mred\\xff" in said.out
    assert rmqtx("search", root, "--body-contains", "red", "--body", "raw").out.count("1b5b33316d726564ff") == 1


def test_what_is_left_unread_is_closed_before_the_engine_ends() -> None:
    """A session that has ended cannot clean up behind rows that nobody read."""
    closed = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield pa.RecordBatch.from_pylist([], RECORDS)
        finally:
            closed.append(True)

    reading = Reading(RECORDS, batches())
    rows = unread_batches(reading, is_text=False)
    next(rows)
    rows.close()
    assert closed == [True]
