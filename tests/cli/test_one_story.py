"""Commands that answer about the same transactions agree, also where the next start changes the log or its queues."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, INCOMPLETE, USAGE
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.cli.terminal import on_terminal
from tests.conftest import MOMENT
from tests.field import field_stores
from tests.forge import damage

Stores = Callable[[str], Path]
_HOUR_MS = 3_600_000


@pytest.fixture
def entry_ends_log(corpus_store: Stores, tmp_path: Path) -> Path:
    """A DLedger log whose entry at 44042 has the place 0: a broker 4.9.7 ended it there, and its half queue at 55."""
    store = tmp_path / "entry"
    shutil.copytree(corpus_store("dledger-4.9.7"), store)
    (file,) = (store / "dledger-n0" / "data").iterdir()
    damage.write_bytes(file, 44_042 + 24, bytes(8))
    return store


@pytest.mark.parametrize(
    ("name", "sentence", "events"),
    [
        ("entry", "4 PENDING that the next start of the broker cuts off the log", {"cut": 4}),
        ("dledger-killed-5.1.4", "2 PENDING that the check never reads after the next start", {"skipped": 2}),
        ("dledger-after-5.2.0", "1 PENDING that the check never reads after the next start", {"skipped": 1}),
    ],
)
def test_pending_audit_and_check_count_what_the_start_takes_from_the_check(
    rmqtx: Run, corpus_store: Stores, entry_ends_log: Path, tmp_path: Path, name: str, sentence: str,
    events: dict[str, int],
) -> None:
    if name == "dledger-after-5.2.0":
        store = field_stores(name, tmp_path) / "store"
    else:
        store = entry_ends_log if name == "entry" else corpus_store(name)
    for words in (["pending", store], ["audit", store, "--summary"], ["check", store]):
        result = rmqtx(*words)
        assert sentence in result.err + result.out, words
    rows = rmqtx("pending", store, "--format", "jsonl").rows
    for event, number in events.items():
        chosen = [row for row in rows if row["next_event"] == event]
        assert len(chosen) == number
        assert {row["advice"] for row in chosen} == {"decide"}
        assert {row["discard_at_ms"] for row in chosen} == {None}


def test_simulate_ends_a_dledger_log_where_its_start_ends_it(rmqtx: Run, entry_ends_log: Path) -> None:
    played = rmqtx("simulate", entry_ends_log, "--broker-version", "4.9.7")
    assert "the start cuts the log off at commit-log offset 44042" in played.err
    rows = rmqtx("simulate", entry_ends_log, "--broker-version", "4.9.7", "--format", "jsonl").out.splitlines()
    assert {json.loads(row)["half_queue_offset"] for row in rows if json.loads(row)["round"] == 1} == {53, 54}


def test_each_hidden_transaction_is_counted_once(
    rmqtx: Run, corpus_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the stop of the check, and older than fileReservedTime before it."""
    monkeypatch.setattr(MOMENT, lambda store: known_until_ms(store) + 100 * _HOUR_MS)
    place = (corpus_store("poison-4.5.0"), "--broker-version", "4.5.0")
    notes = re.findall(r"rmqtx: (-?\d+) decided(?: or discarded)? transactions?\b", rmqtx("pending", *place).err)
    rows = rmqtx("pending", *place, "--all-open", "--format", "jsonl").rows
    others = sum(row["state"] != "PENDING" for row in rows)
    assert others == sum(map(int, notes)) > 0
    assert all(int(number) > 0 for number in notes)


def test_a_cursor_before_its_queue_is_an_error_without_a_scan_too(rmqtx: Run, tmp_path: Path) -> None:
    root = field_stores("partial-slave", tmp_path)
    for words in (["pending", root / "slave"], ["audit", root / "slave"]):
        result = rmqtx(*words)
        assert result.status == INCOMPLETE
        assert "error: cursor-before-begin" in result.err
    assert rmqtx("pending", root / "master").status == DONE


def test_the_counter_of_a_copy_is_compared_with_its_own_log(rmqtx: Run, tmp_path: Path) -> None:
    root = field_stores("partial-slave", tmp_path)
    both = rmqtx("audit", root / "master", root / "slave", "--summary").err
    counter = "the broker's counter (config/transactionMetrics) has 53 open for Orders, the log has 15"
    assert f"{root / 'slave'}: {counter}" in both


def test_check_names_what_is_missing(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(common, store)
    shutil.rmtree(store / "config")
    line = rmqtx("check", store).out
    assert "UNDECIDABLE because the check cursor is unknown (no config/consumerOffset.json)" in line


def test_the_summary_of_an_audit_fits_into_a_narrow_terminal(common: Path) -> None:
    _, shown = on_terminal([*WARM, "audit", str(common), "--limit", "1"], COLUMNS="60")
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("group "))
    assert "pending" in lines[head]
    assert max(map(len, lines[head : head + 4])) <= 60


def test_reconcile_counts_what_apply_refuses(rmqtx: Run, corpus_store: Stores, tmp_path: Path) -> None:
    store = corpus_store("opslost-5.3.3")
    rows = rmqtx("pending", store, "--format", "jsonl").rows
    ledger = tmp_path / "ledger.csv"
    ledger.write_text("id,status\n" + "".join(f"{row['transaction_id']},PAID\n" for row in rows), encoding="utf-8")
    number = sum("may_be_decided" in row["flags"] for row in rows)
    assert 0 < number == len(rows)
    compared = rmqtx(
        "reconcile", store, "--ledger", ledger, "--match", "transaction_id = id", "--done", "status = PAID",
        "--not-done", "status = FAILED",
    )
    assert f"act: {len(rows)} ({len(rows)} commit)" in compared.err
    assert "act: rmqtx apply refuses all of them by op-in-memory" in compared.err


def test_a_resume_in_spite_of_the_age_does_not_promise_a_check(rmqtx: Run, fifteen: Path, tmp_path: Path) -> None:
    [row] = rmqtx("audit", fifteen, "--format", "jsonl").rows
    words = ("resume", row["transaction_id"], "--store", fifteen, "--to", tmp_path / "new", "--reason", "x", "--yes",
             "--broker-version", "5.3.3")
    assert "refused by resume-too-old" in rmqtx(*words).err
    done = rmqtx(*words, "--override", "resume-too-old")
    assert done.status == DONE
    assert "the check discards it without asking, because of its age" in done.out + done.err
    assert "will check it again" not in done.out + done.err


def test_a_dledger_store_of_an_unknown_release_may_start_in_several_ways(rmqtx: Run, corpus_store: Stores) -> None:
    """Killed; 5.2.0 cuts its queues at the begin of the log, 5.3.3 near the end, and 5.1.4 leaves them."""
    store = corpus_store("dledger-killed-5.1.4")
    for name in ("pending", "audit"):
        unknown = rmqtx(name, store)
        assert unknown.status == INCOMPLETE
        assert "error: start-differs" in unknown.err
        known = rmqtx(name, store, "--broker-version", "5.1.4")
        assert known.status == DONE
        assert "start-differs" not in known.err


def test_a_check_that_only_some_possible_releases_stop_is_a_finding(rmqtx: Run, corpus_store: Stores) -> None:
    """4.3.1 to 4.5.2 stop at the half message; later releases discard it."""
    store = corpus_store("poison-4.4.0")
    for name in ("pending", "audit", "simulate", "diagnose"):
        unknown = rmqtx(name, store)
        assert unknown.status == INCOMPLETE, name
        assert "error: start-differs" in unknown.err
        for version in ("4.4.0", "4.9.8"):
            known = rmqtx(name, store, "--broker-version", version)
            assert known.status == DONE, (name, version)
            assert "start-differs" not in known.err
    assert "are never checked" in rmqtx("pending", store, "--broker-version", "4.4.0").err
    assert "are never checked" not in rmqtx("pending", store, "--broker-version", "4.9.8").err


def test_a_diagnosis_of_another_time_is_that_of_the_audit(rmqtx: Run, corpus_store: Stores) -> None:
    """Older than fileReservedTime, the half message that stops the check is discarded."""
    store = corpus_store("noroom-5.5.0")
    at = ("--at", "2026-11-23T14:10Z")
    assert "no-room-for-check" in rmqtx("diagnose", store, *at).out
    assert "no-room-for-check" not in rmqtx("diagnose", store, "--at", "2026-12-23T14:10Z").out
    line = f"rmqtx diagnose --store {store} --at 2026-11-23T14:10:00.000Z"
    assert line in rmqtx("pending", store, *at).err
    assert line in rmqtx("audit", store, *at).err
    assert "the check is stopped at half 13" in rmqtx("simulate", store, *at).err


def test_no_diagnosis_of_a_time_before_the_end(rmqtx: Run, corpus_store: Stores) -> None:
    refused = rmqtx("diagnose", corpus_store("common-5.1.4"), "--at", "2026-11-20T00:00Z")
    assert refused.status == USAGE
    assert "--at is before the last record" in refused.err


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["close", "--all", "--store", "s"], "for many transactions: rmqtx plan close --all"),
        (["commit", "--where", "x", "--store", "s"], "for many transactions: rmqtx plan commit --where"),
        (["close", "--unknown", "--store", "s"], "see rmqtx close --help"),
        (["search", "order-1", "s"], "rmqtx search STORE --key order-1, or add --key"),
    ],
)
def test_a_wrong_option_leads_to_the_right_command(rmqtx: Run, words: list[str], advice: str) -> None:
    refused = rmqtx(*words)
    assert refused.status == USAGE
    assert advice in refused.err


def test_an_audit_with_a_cause_of_a_whole_group_does_not_end_with_nothing_to_do(rmqtx: Run, tmp_path: Path) -> None:
    shown = rmqtx("audit", field_stores("shared-group", tmp_path) / "store", "--summary").err
    assert "next: rmqtx diagnose" in shown
    assert "nothing to do" not in shown


def test_a_time_after_the_last_record_of_a_killed_broker_is_a_clock(rmqtx: Run, corpus_store: Stores) -> None:
    store, at = corpus_store("killed-5.3.3"), ("--at", "2026-11-25T00:00Z")
    assert "the broker discards all 11 unasked in its first round" in rmqtx("pending", store, *at).err
    assert "21 expired" in rmqtx("simulate", store, *at).err
    rows = rmqtx("pending", store, *at, "--format", "jsonl").rows
    assert {row["next_event"] for row in rows} == {"expired"}
    early = rmqtx("pending", store, "--at", "2026-11-21T05:41:45Z", "--format", "jsonl")
    assert {json.loads(line)["discard_at_ms"] for line in early.out.splitlines()} == {None}


def test_a_refused_resume_of_a_decided_transaction_advises_no_decision(
    rmqtx: Run, corpus_store: Stores, tmp_path: Path
) -> None:
    store = corpus_store("common-5.3.3")
    where = ("--where", "state = ROLLED_BACK", "--limit", "1", "--format", "jsonl")
    row = json.loads(rmqtx("audit", store, *where).out)
    words = ("--store", store, "--to", tmp_path / "new", "--broker-version", "5.3.3", "--reason", "x", "--yes")
    refused = rmqtx("resume", row["transaction_id"], *words).err
    assert "refused by resume-too-old" in refused
    assert "rmqtx commit" not in refused
