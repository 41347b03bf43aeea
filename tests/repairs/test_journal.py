"""The journal: on disk before the act, whatever crashes; any number of writers; no act where it cannot be written."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.repairs.receipts.act_words import OUTCOMES, ActKind, ActOutcome, StandingWord
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt, Recheck
from rmqtx.repairs.receipts.state_directory import state_directory

TEXTS = st.text(max_size=30)


def written(path: Path, count: int) -> list[Receipt]:
    """Receipts that were begun and ended, the last one only begun."""
    journal = Journal(path)
    made = [Receipt(ActKind.COMMIT, f"ID{number}", "b", reason=f"because {number}") for number in range(count)]
    for receipt in made:
        journal.begin(receipt)
        receipt.outcome = ActOutcome.PROVED
        if receipt is not made[-1]:
            journal.end(receipt)
    return made


def test_what_only_began_has_an_unknown_outcome(tmp_path: Path) -> None:
    first, last = written(tmp_path / "r.jsonl", 2)
    found = Journal(tmp_path / "r.jsonl").read()
    assert found.findings == []
    assert [(one.receipt_id, one.outcome, one.has_ended) for one in found.receipts] == [
        (first.receipt_id, "proved", True), (last.receipt_id, "unknown", False),
    ]


def test_it_is_begun_before_anything_else_and_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def counting(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", counting)
    journal = Journal(tmp_path / "state" / "r.jsonl")
    journal.begin(Receipt(ActKind.COMMIT, "A", "b"))
    assert len(synced) == 2  # its directory, for the file is new, and the line
    assert journal.path.read_text().count("\n") == 1
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.directory.stat().st_mode) == 0o700


def test_a_further_request_is_known_after_a_crash(tmp_path: Path) -> None:
    journal, receipt = Journal(tmp_path / "r.jsonl"), Receipt(ActKind.COMMIT, "A", "b")
    journal.begin(receipt)
    receipt.asked("RESUME_CHECK_HALF_MESSAGE", {"msgId": "0A"})
    journal.go_on(receipt)
    (found,) = journal.read().receipts
    assert [one.request for one in found.requests] == ["RESUME_CHECK_HALF_MESSAGE"]
    assert found.outcome == "unknown"


@given(st.data())
def test_a_journal_cut_anywhere_is_read_and_written_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "r.jsonl"
    made = written(path, 3)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n")
    # A line that lacks nothing but its end is whole.
    lines += any(cut == len(b"".join(whole.splitlines(True)[: lines + 1])) - 1 for _ in (0,))
    journal = Journal(path)
    found = journal.read()
    assert [finding.code for finding in found.findings] in ([], ["receipt-torn"])
    is_torn = cut > 0 and whole[cut - 1 : cut] != b"\n" and whole[cut : cut + 1] != b"\n"
    assert bool(found.findings) == is_torn
    # made: begun, ended, begun, ended, begun
    assert [(one.receipt_id, one.outcome) for one in found.receipts] == [
        (made[number].receipt_id, "proved" if lines >= 2 * number + 2 else "unknown")
        for number in range((lines + 1) // 2)
    ]
    later = Receipt(ActKind.ROLLBACK, "later", "b")
    journal.begin(later)
    after = journal.read()
    assert [one.receipt_id for one in after.receipts] == [*(one.receipt_id for one in found.receipts), later.receipt_id]
    assert len(after.findings) == len(found.findings)


@given(st.binary(max_size=400))
def test_no_bytes_stop_it(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    path = tmp_path_factory.mktemp("junk") / "r.jsonl"
    made = written(path, 1)
    path.write_bytes(junk + b"\n" + path.read_bytes())
    found = Journal(path).read()
    assert [one.receipt_id for one in found.receipts] == [made[0].receipt_id]
    assert len(found.findings) <= junk.count(b"\n") + 1


@pytest.mark.parametrize(
    "line",
    [
        b"[]", b"null", b"3", b'{"journal_version": 2, "line": "begun"}', b'{"journal_version": 1, "line": "ate"}',
        b'{"journal_version": 1, "line": "begun"}', b'{"journal_version": 1, "line": "rechecked", "receipt_id": "x"}',
        b"[" * 100_000,
    ],
)
def test_lines_of_others_are_findings(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_bytes(line + b"\n")
    found = Journal(tmp_path / "r.jsonl").read()
    assert found.receipts == []
    assert len(found.findings) == 1
    assert "\n" not in found.findings[0].line()


@given(TEXTS, TEXTS, TEXTS)
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, reason: str, keys: str, note: str) -> None:
    journal = Journal(tmp_path_factory.mktemp("text") / "r.jsonl")
    receipt = Receipt(ActKind.COMMIT, "A", "b", reason=reason, keys=keys, notes=[note])
    receipt.outcome = ActOutcome.PROVED
    journal.end(receipt)
    assert journal.read().receipts == [receipt]
    assert journal.path.read_bytes().count(b"\n") == 1


def _write(path: Path, number: int, count: int) -> None:
    journal = Journal(path)
    for turn in range(count):
        receipt = Receipt(ActKind.COMMIT, f"ID-{number}-{turn}", "b", reason="x" * (turn * 97 % 20_000))
        journal.begin(receipt)
        receipt.outcome = ActOutcome.PROVED
        journal.end(receipt)


def test_several_processes_write_whole_lines(tmp_path: Path) -> None:
    path, writers, count = tmp_path / "r.jsonl", 3, 15
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(path, number, count)) for number in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
        assert process.exitcode == 0
    found = Journal(path).read()
    assert found.findings == []
    wanted = {f"ID-{number}-{turn}" for number in range(writers) for turn in range(count)}
    assert {one.transaction_id for one in found.receipts} == wanted
    assert {one.outcome for one in found.receipts} == {"proved"}


def test_a_writer_that_is_killed_leaves_the_others_lines_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    context = multiprocessing.get_context("spawn")
    victim = context.Process(target=_write, args=(path, 0, 100_000))
    victim.start()
    end = time.monotonic() + 600
    while time.monotonic() < end and not (path.exists() and path.stat().st_size > 50_000):
        time.sleep(0.01)
    victim.kill()
    victim.join(600)
    _write(path, 1, 5)
    found = Journal(path).read()
    assert [finding.code for finding in found.findings] in ([], ["receipt-torn"])
    proved = {one.transaction_id for one in found.receipts if one.outcome == "proved"}
    assert {f"ID-1-{turn}" for turn in range(5)} <= proved
    unfinished = [one for one in found.receipts if not one.has_ended]
    assert len(unfinished) <= 1


def test_without_a_journal_nothing_is_begun(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "r.jsonl", Path("/dev/full"), tmp_path):
        journal = Journal(path)
        with pytest.raises(UnwritableFile) as caught:
            journal.begin(Receipt(ActKind.COMMIT, "A", "b"))
        assert "no act is possible without a receipt" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert Journal().path == tmp_path / "xdg" / "rmqtx" / "receipts.jsonl"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # to be ignored, says the specification
    assert state_directory() == tmp_path / ".local" / "state" / "rmqtx"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_directory() == tmp_path / ".local" / "state" / "rmqtx"
    monkeypatch.setenv("RMQTX_STATE_DIR", str(tmp_path / "own"))
    assert state_directory() == tmp_path / "own"


def test_later_looks_are_kept_and_change_no_outcome(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "r.jsonl")
    (receipt,) = written(journal.path, 1)
    look = Recheck(1, "w", StandingWord.STANDS, "r")
    journal.recheck(receipt.receipt_id, look)
    (found,) = journal.read().receipts
    assert found.outcome == "unknown"
    assert found.rechecks == [look]
    assert json.loads(journal.path.read_text().splitlines()[-1])["recheck"]["rechecked_time"].startswith("1970")


def test_every_outcome_is_one_word() -> None:
    assert all(word.replace("_", "").isalpha() for word in OUTCOMES)
