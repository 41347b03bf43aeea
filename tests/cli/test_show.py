"""`rmqtx show`: found by any of its names, drawn with every witness."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conftest import READ_AT_MS
from tests.forge.stores import unpacked
from tests.verdicts.truth import audited


def test_fifteen_checks_are_found_by_any_of_their_ids(rmqtx: Run, fifteen: Path) -> None:
    [row] = json.loads(rmqtx("audit", fifteen, "--format", "json").out)
    drawn = rmqtx("show", row["transaction_id"], "--store", fifteen).out
    records = json.loads(rmqtx("decode", "commitlog", fifteen, "--format", "json").out)
    ids = {record["commit_log_offset"]: record["message_id"] for record in records}
    copies = [*row["half_copies"], *row["discard_copies"]]
    assert len(copies) == 17
    for copy in copies:
        message_id = ids[copy["commit_log_offset"]]
        line = next(line for line in drawn.splitlines() if message_id in line)
        assert {str(copy["queue_offset"]), str(copy["commit_log_offset"]), copy["store_time"]} <= set(line.split())
        assert rmqtx("show", message_id, "--store", fifteen).out == drawn
        assert rmqtx("show", message_id.lower(), "--store", fifteen).status in (0, 16)
    assert rmqtx("show", row["keys"], fifteen).out == drawn


def test_committed_is_not_consumed(rmqtx: Run, common: Path) -> None:
    rows = json.loads(rmqtx("audit", common, "--where", "state = COMMITTED", "--format", "json").out)
    cursors = {
        (row["topic"], row["group"], row["queue_id"]): row["next_queue_offset"]
        for row in json.loads(rmqtx("decode", "cursors", common, "--format", "json").out)
    }
    seen = set()
    for row in rows[:12]:
        [shown] = json.loads(rmqtx("show", row["transaction_id"], "--store", common, "--format", "json").out)
        assert {name: shown[name] for name in row if name != "causes"} == {
            name: value for name, value in row.items() if name != "causes"
        }
        words = {"explains": "", "could_explain": "?"}
        assert sorted(one["cause"] + words[one["strength"]] for one in shown["causes"]) == sorted(row["causes"])
        for consumer in shown["consumers"]:
            following = cursors[consumer["topic"], consumer["group"], consumer["queue_id"]]
            assert consumer["next_queue_offset"] == following
            assert consumer["is_past"] == (following > consumer["final_queue_offset"])
            seen.add(consumer["is_past"])
        events = [event["event"] for event in shown["timeline"]]
        assert events.count("commit") == len(row["final_records"])
    assert seen


def test_several_matches_are_listed(rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqtx.verdicts.audit.local_audit import audit

    everything = lambda stores, settings_of, *_, **__: audit(stores, settings_of)  # noqa: E731
    monkeypatch.setattr("rmqtx_cli.sources.files.show", everything)
    result = rmqtx("show", "KEY", "--store", common)
    assert result.status == 0
    assert len(result.out.splitlines()) > 50
    assert "transactions match: " in result.err
    assert len(rmqtx("show", "KEY", "--store", common, "--format", "jsonl").out.splitlines()) > 50


def test_the_page_goes_into_a_file(rmqtx: Run, fifteen: Path, tmp_path: Path) -> None:
    shown = rmqtx("show", "ORDER-1", "--store", fifteen)
    assert rmqtx("show", "ORDER-1", "--store", fifteen, "-o", tmp_path / "page.txt").out == ""
    assert (tmp_path / "page.txt").read_text() == shown.out


def test_a_start_now_has_all_of_its_time_before_it(rmqtx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the reading takes: the condition is "if the broker starts now"."""
    root = unpacked("common-5.3.3")
    (row, *_) = [one for one in audited("common-5.3.3") if one["next_event"] == "asked"]
    monkeypatch.setattr("rmqtx.readers.model.clock.now_ms", lambda: READ_AT_MS + 20_000)
    page = rmqtx("show", row["transaction_id"], "--store", str(root)).out
    assert re.search(r"^next .* in 30s if the broker starts now", page, re.MULTILINE), page


def test_a_time_after_the_end_keeps_the_causes(rmqtx: Run) -> None:
    """Nothing has happened since: such a time only sets the clock."""
    root = unpacked("statetable-lossy-3.1.4")
    (row, *_) = [one for one in audited("statetable-lossy-3.1.4") if one["causes"]]
    words = ("show", row["transaction_id"], "--store", str(root), "--format", "jsonl")
    now, later = (json.loads(rmqtx(*words, *more).out.splitlines()[0]) for more in ((), ("--at", "2026-11-29")))
    assert later["causes"] == now["causes"] != []
    assert not json.loads(rmqtx(*words, "--at", str(row["half_store_time_ms"] + 1)).out.splitlines()[0])["causes"]
