"""The answer above the table: how many hang, whose, since when, whether the check is alive, what to type next."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.units import parse_time_ms, time_text
from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.cli.terminal import on_terminal
from tests.conftest import READ_AT_MS
from tests.forge.damage import log_files
from tests.forge.stores import copy_of

Stores = Callable[[str], Path]


def notes(err: str) -> list[str]:
    return [line.removeprefix("rmqtx: ") for line in err.splitlines()]


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        ("poison-4.5.0", [], "30 pending transactions, oldest AGE, group shop, topics payments (16), orders (14)"),
        ("common-5.3.3", ["--topic", "orders"], "5 pending transactions (of 16), oldest AGE, group shop, topic orders"),
        ("common-5.3.3", ["--where", "keys = nothing"], "no match among 16 pending transactions"),
        ("fifteen-5.3.3", [], "nothing is pending"),
        (
            "statetable-3.1.4", [],
            "16 pending transactions, oldest AGE, in 3 groups, most in group shop, topic orders (6)",
        ),
    ],
)
def test_pending_begins_with_the_answer(
    rmqtx: Run, corpus_store: Stores, name: str, words: list[str], sentence: str
) -> None:
    result = rmqtx("pending", corpus_store(name), *words)
    line = re.sub(r"oldest [0-9dhms]+", "oldest AGE", notes(result.err)[1])
    assert line.startswith(sentence), result.err
    assert "transactions listed" not in result.err
    assert "no transactions" not in result.err


def test_a_stopped_check_is_in_the_first_line_and_its_remedy_in_the_second(rmqtx: Run, corpus_store: Stores) -> None:
    store = corpus_store("poison-4.5.0")
    for command in ("pending", "audit"):
        _, first, second, *_ = notes(rmqtx(command, store).err)
        assert "; the check is stopped at half 51 since " in first
        assert first.endswith(": 24 of 30 pending transactions are never checked")
        assert second.startswith("next: rmqtx show C00002026E424E0E2F2A6FC7E33B0011 --store ")
    common = corpus_store("common-5.3.3")
    both = notes(rmqtx("pending", store, common).err)
    assert both[2].startswith("46 pending transactions, oldest ")
    assert both[3].startswith(f"{common}: the broker discards all 16 ")  # sooner than the stop harms anything
    assert re.fullmatch("next: rmqtx show [0-9A-F]+ .* # PENDING, discarded first", both[4])
    assert both[5].startswith(f"{store}: the check is stopped at half 51 since ")
    assert both[6].startswith("next: ")


def test_the_commands_for_a_stopped_check_can_be_typed(rmqtx: Run, corpus_store: Stores, tmp_path: Path) -> None:
    """Each command is in a line of its own, and no guard refuses it."""
    store = corpus_store("poison-4.5.0")
    lines = [line for line in notes(rmqtx("pending", store).err) if line.startswith("next: ")]
    typed = [line.removeprefix("next: rmqtx ").partition("   # ")[0] for line in lines]
    assert [words.split()[0] for words in typed] == ["show", "commit", "cursor", "diagnose"]
    for number, words in enumerate(typed):
        words = words.replace("DIR", str(tmp_path / str(number))).replace("X.Y.Z", "4.5.0")
        reads = words.startswith(("show", "diagnose"))
        more = ["--broker-version", "4.5.0"] if reads else ["--yes"]  # a later release does not stop there
        result = rmqtx(*words.split(), *more)
        assert result.status == 0, result.err


def test_show_names_the_transaction_that_stops_the_check(rmqtx: Run, corpus_store: Stores) -> None:
    store, stopping = corpus_store("poison-4.5.0"), "C00002026E424E0E2F2A6FC7E33B0011"
    other = notes(rmqtx("show", "C00002026E424E0E2F2A6FC7E3050004", "--store", store).err)
    shows = [line for line in other if line.startswith("next: rmqtx show")]
    assert len(shows) == 1
    assert f"rmqtx show {stopping} " in shows[0]
    assert shows[0].endswith("   # half 51 is a copy of this transaction, not of the one shown")
    own = [line for line in notes(rmqtx("show", stopping, "--store", store).err) if line.startswith("next: ")]
    assert [line.split()[2:4] for line in own] == [["commit", stopping], ["cursor", "set"]]


@pytest.mark.parametrize("option", ["--fields", "--sort"])
def test_a_column_is_listed_once(rmqtx: Run, common: Path, option: str) -> None:
    listed = rmqtx("pending", common, option, "xyzzy").err.strip().partition("there are: ")[2].split(", ")
    assert len(listed) == len(set(listed))
    assert {"checks_count", "producer_group", "transaction_id"} <= set(listed)
    assert {"checks", "group", "id"}.isdisjoint(listed)
    assert rmqtx("pending", common, option, "chekcs").err.endswith(" - did you mean checks?\n")


def test_check_is_one_short_line(rmqtx: Run, corpus_store: Stores, tmp_path: Path) -> None:
    store = corpus_store("poison-4.5.0")
    first = rmqtx("check", store, "--state-dir", tmp_path).out.partition("; oldest")[0]
    assert first.endswith(f"24 of 30 pending transactions are never checked; next: rmqtx pending {store}")


def test_a_time_in_the_future_is_noted(rmqtx: Run, common: Path) -> None:
    sentence = "rmqtx: --at 2130-01-01T00:00:00Z is in the future; to predict the broker's checks: rmqtx simulate\n"
    for words in (("pending",), ("audit",)):
        result = rmqtx(*words, common, "--at", "2130-01-01T00:00:00Z")
        assert result.status == rmqtx(*words, common, "--at", "2026-11-22T00:00:00Z").status
        assert result.err.count(sentence) == 1
    assert "in the future" not in rmqtx("pending", common, "--at", "2026-11-22T00:00:00Z").err


def test_audit_verify_and_diff_say_it_before_their_rows(rmqtx: Run, corpus_store: Stores) -> None:
    """On a terminal both streams are one: the order in which they are written is what a reader sees.

    Below rows that do not fit the screen, so that the prompt does not follow on rows alone.
    """
    common, poison = corpus_store("common-5.3.3"), corpus_store("poison-4.5.0")
    moment = time_text(READ_AT_MS)
    for words, answer, head in (
        (["audit", common], " ROLLED_BACK, ", "id  "),
        (["verify", poison], "1 error: 1 check-stopped", "severity"),
        (["diff", common, poison, "--limit", "9"], "differences: ", "id  "),
        (["pending", common], "16 pending transactions, oldest ", "id  "),
        (["search", common, "--topic", "orders", "--limit", "9"], "9 records (stopped at --limit 9)", "commit_log"),
        (["decode", "half", common, "--limit", "9"], "9 rows (stopped at --limit 9)", "half  "),
        (["simulate", common, "--rounds", "2", "--at", moment], "2 rounds: 40 checked", "round  "),
    ):
        _, text = on_terminal([*WARM, *map(str, words)], NO_COLOR="1", LINES="200")
        assert 0 < text.index(answer) < text.index(f"\n{head}"), words
        assert text.count(answer) == 1
    _, text = on_terminal([*WARM, "audit", str(common)], NO_COLOR="1", LINES="24")
    assert 0 < text.index("\nid  ") < text.index(" ROLLED_BACK, ")


def test_what_is_longer_than_can_be_held_has_its_answer_below(
    rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtx_cli.output.listing._HELD_ROWS_MAX", 10)
    result = rmqtx("audit", common)
    assert len(result.out.splitlines()) == 110
    assert "rmqtx: 109 transactions: " in result.err


def test_check_names_the_oldest_of_several_stores(rmqtx: Run, corpus_store: Stores, tmp_path: Path) -> None:
    common, killed = corpus_store("common-5.3.3"), corpus_store("killed-5.3.3")
    own = ["--state-dir", tmp_path]
    rows = rmqtx("pending", common, killed, "--format", "jsonl").rows
    assert rows[0]["store"] == str(common)
    whose = f"group {rows[0]['producer_group']}, topic {rows[0]['topic']}"
    alone = rmqtx("check", common, *own).out
    assert f" old ({rows[0]['transaction_id']}, {whose})" in alone
    for stores in ([common, killed], [killed, common]):
        assert f" old ({rows[0]['transaction_id']}, {whose}, store {common})" in rmqtx("check", *stores, *own).out
    calm = rmqtx("check", corpus_store("fifteen-5.3.3"), common, *own, "--warning", "9999d", "--critical", "9999d").out
    assert f"16 pending, oldest {calm.split()[6]} ({whose}, store {common}), first discard in " in calm


def test_quiet_leaves_the_answer_out(rmqtx: Run, corpus_store: Stores) -> None:
    common = corpus_store("common-5.3.3")
    for words in (["search", common, "--topic", "orders"], ["decode", "half", common], ["simulate", common]):
        assert rmqtx(*words, "--quiet").err == ""


def test_diff_says_what_its_statuses_are(rmqtx: Run) -> None:
    text = " ".join(rmqtx("diff", "--help").out.split())
    assert "--exit-code Exit with status 1 if a difference is listed, 0 if none. Status 3 " in text


def test_a_time_before_the_log(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    """No transaction existed, or the records of that time are deleted: then nothing is known."""
    moment = "2026-01-02T03:04:05Z"
    for command in ("pending", "audit"):
        result = rmqtx(command, common, "--at", moment)
        assert result.status == 0
        assert "no transaction existed at 2026-01-02T03:04:05.000Z" in result.err
        assert "the broker's counter" not in result.err
    assert f" at {time_text(parse_time_ms(moment))} - " in rmqtx("show", "X", "--store", common, "--at", moment).err
    root = copy_of("killed-5.3.3", tmp_path)
    log_files(root)[0].unlink()
    for command in ("pending", "audit"):
        result = rmqtx(command, root, "--at", moment)
        assert result.status == 3
        assert "at-before-log" in result.err
