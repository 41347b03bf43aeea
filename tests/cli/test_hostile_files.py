"""Every file format of ours, each field with each hostile value: only errors of ours, each a plain sentence."""

from __future__ import annotations

import io
import json
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from readers.model.errors import BadText
from readers.store.broker_settings import broker_settings
from readers.store.store import open_store
from repairs.changes.in_progress_mark import read_mark
from repairs.receipts.journal import Journal
from repairs.receipts.plan_file import parse_plan
from repairs.receipts.receipts import Receipt
from repairs.transaction_table.plan import read_plan
from repairs.transaction_table.undo import read_undo
from rmqtx_cli.monitoring.memory import recall
from rmqtx_cli.monitoring.verify_state import recall as recall_verified
from rmqtx_cli.words import exit_status
from tests.cli.conftest import Run
from tests.forge.stores import unpacked
from tests.hostile_values import HOSTILE_VALUES, assert_plain, places_in, said_of, with_value
from verdicts.export.export_manifest import STATE_DIRECTORY, opened_directory
from verdicts.follow.checkpoint_db import FollowDatabase
from verdicts.follow.follower import Follower

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


STEP = {"action": "delete", "half_commit_log_offset": 7, "producer_group": "shop", "reason": "why"}
ADDRESS = {"location": "sqlite:///t.db", "table": "t", "offset_column": "offset", "group_column": "g"}


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
    assert "text of whole characters" in result.err


def test_plans_and_undo_files_of_tables() -> None:
    head = {"kind": "rmqtx-table-plan", "version": 1, "made_by": "rmqtx", "made_time_ms": 1, "store": "/s",
            "transaction_table": ADDRESS}  # fmt: skip
    text = "\n".join(json.dumps(one) for one in (head, STEP))
    assert tried(text, lambda given: read_plan(given, "plan"), lines=True) > 200
    undo = [{**head, "kind": "rmqtx-table-undo", "receipts": ["x"]},
            {**STEP, "row": {"offset": {"decimal": "7"}, "g": "shop", "bytes": {"bytes": "00"}}}]  # fmt: skip
    text = "\n".join(json.dumps(one) for one in undo)
    assert tried(text, lambda given: read_undo(given, "undo"), lines=True) > 200


def test_a_row_of_another_offset_is_not_put_back() -> None:
    head = {"kind": "rmqtx-table-undo", "version": 1, "transaction_table": ADDRESS}
    text = "\n".join(json.dumps(one) for one in (head, {**STEP, "row": {"offset": 8, "g": "shop"}}))
    with pytest.raises(BadText, match="not that of its step"):
        read_undo(text, "undo")


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
    receipt = Receipt("commit", "7F", "/s", plan={"file": "p", "digest": "d"}, notes=["a"])
    receipt.asked("END_TRANSACTION", {"msgId": "7F"})
    journal.begin(receipt)
    journal.end(receipt)
    journal.recheck(receipt.receipt_id, {"rechecked_time_ms": 1, "who": "a", "standing": "undone",
                                         "standing_reason": "b"})  # fmt: skip

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
    ]  # fmt: skip
    changes += ["DROP TABLE halves", "CREATE TABLE more (a)", "DELETE FROM segments", "DELETE FROM meta",
                "CREATE TRIGGER t AFTER INSERT ON unjudged BEGIN DELETE FROM verdicts; END",
                "ALTER TABLE halves RENAME COLUMN keys TO keyz"]  # fmt: skip
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


def test_nobody_logs_in_to_a_host_that_only_a_file_names(
    rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQTX_LEDGER_PASSWORD", "secret")
    head = {"kind": "rmqtx-table-undo", "version": 1, "receipts": ["x"],
            "transaction_table": {**ADDRESS, "location": "mysql+pymysql://127.0.0.1:9/db"}}  # fmt: skip
    (tmp_path / "undo").write_text("\n".join(json.dumps(one) for one in (head, {**STEP, "row": {"offset": 7}})))
    result = rmqtx("transaction-table", "undo", tmp_path / "undo", "--yes")
    assert result.status == 2
    assert "user and password would go to that host" in result.err


class Terminal:
    """A terminal with one answer to every question."""

    def __init__(self, answer: str) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._answer


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_plan_of_rows_asks_before_it_logs_in(
    rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """The plan names the server: whoever wrote the file must not get user and password unasked."""
    monkeypatch.setenv("RMQTX_LEDGER_PASSWORD", "secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        location = f"mysql+pymysql://127.0.0.1:{server.getsockname()[1]}/db"
        head = {"kind": "rmqtx-table-plan", "version": 1, "store": str(unpacked("prepared-4.2.0")),
                "transaction_table": {**ADDRESS, "location": location}}  # fmt: skip
        (tmp_path / "plan").write_text("\n".join(json.dumps(one) for one in (head, STEP)))
        words = ("transaction-table", "apply", tmp_path / "plan", "--undo", tmp_path / "undo", *more)
        monkeypatch.setattr("sys.stdin", io.StringIO())
        unasked = rmqtx(*words)
        assert (unasked.status, "user and password would go to the server" in unasked.err) == (2, True), unasked.err
        monkeypatch.setattr("sys.stdin", Terminal("n\n"))
        refused = rmqtx(*words)
        assert (refused.status, location in refused.err) == (exit_status.INTERRUPTED, True), refused.err
        with pytest.raises(BlockingIOError):  # no client has connected
            server.accept()
        assert not (tmp_path / "undo").exists()
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))  # no terminal is there any more
    tried = rmqtx(*words)
    assert (tried.status, "connect" in tried.err) == (exit_status.UNREADABLE, True), tried.err
