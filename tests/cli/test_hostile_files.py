"""Every file format of ours, each field with each hostile value: only errors of ours, each a plain sentence."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.changes.in_progress_mark import read_mark
from rmqtx.repairs.receipts.act_words import ActKind, StandingWord
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_file import parse_plan
from rmqtx.repairs.receipts.receipts import Receipt, Recheck
from rmqtx.verdicts.export.export_manifest import opened_directory
from rmqtx.verdicts.export.folder import STATE_DIRECTORY
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.follow.follower import Follower
from rmqtx_cli.monitoring.numbers import recall
from rmqtx_cli.monitoring.verify_state import recall as recall_verified
from tests.cli.conftest import Run
from tests.hostile_values import HOSTILE_VALUES, assert_plain, places_in, said_of, with_value

Read = Callable[[str], object]


def variants(value: Any) -> Iterator[str]:
    """The JSON of a value with every place of it replaced by every hostile value."""
    for place in places_in(value):
        for other in HOSTILE_VALUES.values():
            yield json.dumps(with_value(value, place, other))


def tried(genuine: str, read: Read, *, lines: bool = False) -> int:
    """How many variants of a genuine file (or of each of its lines) were read, each without any error but ours."""
    read(genuine)
    texts = genuine.splitlines() if lines else [genuine]
    count = 0
    for number, text in enumerate(texts):
        for variant in variants(json.loads(text)):
            whole = "\n".join([*texts[:number], variant, *texts[number + 1 :]])
            assert_plain(said_of(lambda whole=whole: read(whole)))  # type: ignore[misc]
            count += 1
        longest = next((place for place in places_in(json.loads(text)) if place), ())
        whole = "\n".join([*texts[:number], json.dumps(with_value(json.loads(text), longest, "x" * 10_000_000))])
        assert_plain(said_of(lambda whole=whole: read(whole)))  # type: ignore[misc]
    for nothing in ("", "x", "[" * 100_000, "{", "\x00", '"\\ud800"', "1e999", "9" * 5000):
        assert_plain(said_of(lambda nothing=nothing: read(nothing)))  # type: ignore[misc]
    return count


def test_plans(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    rows = json.loads(rmqtx("pending", common, "--format", "json").out)
    name = rows[0]["transaction_id"]
    made = rmqtx("plan", "rollback", name, "--store", common, "--reason", "x", "-o", tmp_path / "p.json")
    assert made.status == 0, made.err
    assert tried((tmp_path / "p.json").read_text(), lambda text: parse_plan(text, "p.json")) > 500


def test_a_surrogate_in_a_plan_is_a_sentence(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    """It was status 70."""
    rows = json.loads(rmqtx("pending", common, "--format", "json").out)
    name = rows[0]["transaction_id"]
    rmqtx("plan", "rollback", name, "--store", common, "--reason", "x", "-o", tmp_path / "p.json")
    plan = json.loads((tmp_path / "p.json").read_text())
    plan["steps"][0]["transaction_id"] = "\ud800"
    (tmp_path / "p.json").write_text(json.dumps(plan))
    result = rmqtx("apply", tmp_path / "p.json", "--store", common, "--to", tmp_path / "new", "--reason", "x")
    assert result.status == 10, result.err
    assert "valid UTF-8 text" in result.err


def test_marks_and_memories(tmp_path: Path) -> None:
    def through(name: str, read: Callable[[Path], object]) -> Read:
        def act(text: str) -> object:
            (tmp_path / name).write_text(text)
            return read(tmp_path / name)

        return act

    assert tried('{"undo_file": "/x", "undo_id": "ab"}', through(".rmqtx-begun", lambda _: read_mark(tmp_path))) > 50
    numbers = {"store": "/s", "discard_max_offset": 7, "half_next_offset": 1, "is_in_use": True}
    memory = {"form": 1, "taken_time_ms": 1, "hanging": ["a"], "stores": {"/s": numbers}}
    assert tried(json.dumps(memory), through("check.json", recall)) > 100
    assert tried('{"form": 1, "files": {"/s/0": 7}}', through("verify.json", recall_verified)) > 50


def test_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "receipts.jsonl")
    receipt = Receipt(ActKind.COMMIT, "7F", "/s", plan={"file": "p", "digest": "d"}, notes=["a"])
    receipt.asked("END_TRANSACTION", {"msgId": "7F"})
    journal.begin(receipt)
    journal.end(receipt)
    journal.recheck(receipt.receipt_id, Recheck(1, "a", StandingWord.UNDONE, "b"))

    def read(text: str) -> object:
        journal.path.write_text(text)
        return [one.row() for one in journal.read().receipts]

    assert tried(journal.path.read_text(), read, lines=True) > 500


def test_manifests_of_exports(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert rmqtx("export", "records", common, "--to", target).status == 0
    store = open_store(common)
    state = target / STATE_DIRECTORY
    settings = json.loads((state / "export.json").read_text())

    def read(file: Path) -> Read:
        def act(text: str) -> None:
            file.write_text(text)
            with opened_directory(target, settings, [store]):
                pass

        return act

    manifest = next((state / "manifests").glob("*.json"))
    whole = manifest.read_text()
    kept = {path: path.read_bytes() for path in target.rglob("part-*")}
    assert tried(whole, read(manifest)) > 200
    manifest.write_text(whole)
    assert tried((state / "export.json").read_text(), read(state / "export.json")) > 50
    assert kept


def test_a_manifest_removes_nothing_outside_of_its_export(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    """A snapshot removes what the one before it wrote, as the manifest says."""
    target, victim = tmp_path / "out", tmp_path / "part-mine"
    victim.write_text("mine")
    assert rmqtx("export", "transactions", common, "--to", target).status == 0
    manifest = next((target / STATE_DIRECTORY / "manifests").glob("*.json"))
    for name in (str(victim), "../part-mine", "x/../../part-mine"):
        facts = json.loads(manifest.read_text())
        facts["files"][0]["name"] = name
        manifest.write_text(json.dumps(facts))
        result = rmqtx("export", "transactions", common, "--to", target)
        assert result.status == 10
        assert "a file of an export" in result.err
    assert victim.read_text() == "mine"


def test_checkpoints_of_audits_that_follow(common: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.db"
    store = open_store(common)

    def follow() -> None:
        database = FollowDatabase(str(file), [store])
        try:
            for batch in Follower(database).step([store], broker_settings).batches:
                assert batch.num_rows
        finally:
            database.close()

    follow()
    genuine = file.read_bytes()
    changes = [
        f"UPDATE {table} SET {column} = {value}"
        for table, column in (
            ("stores", "place"), ("stores", "view"), ("segments", "said"), ("segments", "size_bytes"),
            ("halves", "queue_offset"), ("halves", "commit_log_offset"), ("finals", "topic"), ("marks", "queue_offset"),
        )
        for value in ("'x'", "NULL", "x'ff'", "1.5", "-1", "'{}'", "'[1]'", "'{\"offset\": \"x\"}'")
    ]
    changes += ["DROP TABLE halves", "CREATE TABLE more (a)", "DELETE FROM segments", "DELETE FROM meta",
                "CREATE TRIGGER t AFTER INSERT ON unjudged BEGIN DELETE FROM verdicts; END",
                "ALTER TABLE halves RENAME COLUMN keys TO keyz"]
    for change in changes:
        for leftover in tmp_path.glob("c.db*"):
            leftover.unlink()
        file.write_bytes(genuine)
        with closing(sqlite3.connect(file)) as connection:
            try:
                connection.execute(change)
            except sqlite3.Error:
                continue
            connection.execute("INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts")
            connection.commit()
        assert_plain(said_of(follow))


