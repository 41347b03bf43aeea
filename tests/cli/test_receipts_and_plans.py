"""receipts, plan and apply as a user runs them, without a broker: rows, pages, second looks at files, refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.exit_status import (
    DONE,
    FINDINGS,
    NO_SUCH_TRANSACTION,
    REFUSED_BY_GUARD,
    SOME_REFUSED,
    UNREACHABLE,
    UNREADABLE,
    USAGE,
)
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.repairs.plans.apply_plan import missing_stores
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_file import StepWitness, read_plan
from rmqtx.repairs.receipts.plan_rows import witnesses_of
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.verdicts.model.transaction import Transaction
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge import damage
from tests.forge.stores import contents, copy_of

NAME = "common-5.3.3"


PLAIN = {"COMMITTED": "commit.1", "ROLLED_BACK": "rollback.2", "PENDING": "pending.7"}


def expected(state: str) -> dict[str, Any]:
    """A transaction of the corpus in a state, of one half copy, with the witnesses that are expected of it."""
    rows: list[dict[str, Any]] = corpus.expected(NAME)
    return next(row for row in rows if row["case"] == PLAIN[state])


def receipt(action: ActKind, row: dict[str, Any], outcome: str = "proved", **more: Any) -> Receipt:
    """A receipt of an act on a transaction of the corpus, as if it had been ours that decided it."""
    made = Receipt(
        action, row["transaction_id"], "broker-a@127.0.0.1:10911", producer_group="shop", topic=row["topic"],
        keys=row["keys"], reason="OPS-1", outcome=ActOutcome(outcome), state_before="PENDING",
        witnesses_before=[StepWitness("half_copy", "x", **_place(copy)) for copy in row["half_copies"]], **more,
    )
    made.asked("END_TRANSACTION", {"commitOrRollback": 8, "AccessKey": "hunter2"}).answered(0, None)
    return made


def _place(entry: dict[str, Any]) -> dict[str, Any]:
    return {"queue_id": 0, "queue_offset": entry["queue_offset"], "commit_log_offset": entry["commit_log_offset"]}


def kept(*receipts: Receipt) -> Journal:
    journal = Journal()
    for one in receipts:
        journal.begin(one)
        journal.end(one)
    return journal


# -- receipts


def test_nothing_was_done_yet(rmqtx: Run, journal_directory: Path) -> None:
    result = rmqtx("receipts")
    assert (result.status, result.out) == (DONE, "")
    assert result.err == f"rmqtx: no receipts in {journal_directory / 'receipts.jsonl'}\n"
    assert not journal_directory.exists()  # a look makes no file


def test_receipts_are_listed_newest_first(rmqtx: Run) -> None:
    first = receipt(ActKind.COMMIT, expected("COMMITTED"))
    second = receipt(ActKind.ROLLBACK, expected("ROLLED_BACK"), "unknown")
    kept(first, second)
    rows = rmqtx("receipts", "--format", "jsonl").rows
    assert [row["receipt_id"] for row in rows] == [second.receipt_id, first.receipt_id]
    assert rows[0]["begun_time"].endswith("Z")
    assert rows[0]["requests"][0]["fields"] == {"commitOrRollback": "8"}

    def chosen(*options: str) -> list[str]:
        out = rmqtx("receipts", *options, "--format", "jsonl", "--quiet").out
        return [json.loads(line)["action"] for line in out.splitlines()]

    assert chosen("--outcome", "unknown") == ["rollback"]
    assert chosen("--action", "commit") == ["commit"]
    assert chosen("--since", "1h") == ["rollback", "commit"]
    assert chosen("--since", "2100-01-01T00:00:00Z") == []
    assert chosen("--where", "requests.response_code = 0 and action ~ ^c") == ["commit"]
    assert chosen("--limit", "1") == ["rollback"]
    assert rmqtx("receipts", "--fail-on", "outcome = unknown", "--quiet").status == FINDINGS
    assert "hunter2" not in rmqtx("receipts", "--format", "json").out


def test_one_receipt_in_full(rmqtx: Run) -> None:
    row = expected("COMMITTED")
    made = receipt(ActKind.COMMIT, row, notes=["a\x1b[31mnote"], saved_message="/x.json")
    kept(made)
    for name in (made.receipt_id, made.receipt_id[:20], row["transaction_id"]):
        result = rmqtx("receipts", name)
        assert result.status == DONE
        for told in (made.receipt_id, "OPS-1", "END_TRANSACTION", "commitOrRollback=8", "half_copy", "/x.json"):
            assert told in result.out
    assert "\x1b" not in result.out
    assert "a\\x1b[31mnote" in result.out


def test_a_torn_journal_is_said_and_read(rmqtx: Run) -> None:
    journal = kept(receipt(ActKind.COMMIT, expected("COMMITTED")))
    journal.path.write_bytes(journal.path.read_bytes() + b'{"journal_ver')
    result = rmqtx("receipts", "--format", "csv", "--fields", "outcome")
    assert result.out.splitlines() == ["outcome", "proved"]
    assert "warning: receipt-torn" in result.err
    assert result.status == DONE


def test_another_journal_can_be_read(rmqtx: Run, tmp_path: Path) -> None:
    journal = kept(receipt(ActKind.COMMIT, expected("COMMITTED")))
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(journal.path.read_bytes())
    assert rmqtx("receipts", "--journal", copy, "--format", "csv", "--quiet").out.count("\n") == 2


def test_a_second_look_at_files(rmqtx: Run, common: Path) -> None:
    before = contents(common)
    good, bad = receipt(ActKind.COMMIT, expected("COMMITTED")), receipt(ActKind.ROLLBACK, expected("COMMITTED"))
    journal = kept(good, receipt(ActKind.ROLLBACK, expected("ROLLED_BACK")))
    result = rmqtx("receipts", "--recheck", "--store", common, "--format", "jsonl")
    assert (result.status, "rechecked: 2 stands" in result.err) == (DONE, True), result.err
    assert {json.loads(line)["standing"] for line in result.out.splitlines()} == {"stands"}
    kept(bad)
    text = journal.path.read_bytes()
    where = ("--where", "standing = contradicted")
    result = rmqtx("receipts", "--recheck", "--store", common, *where, "--format", "jsonl")
    (row,) = result.rows
    assert (result.status, row["receipt_id"]) == (FINDINGS, bad.receipt_id)
    assert "although the act was a rollback" in row["standing_reason"]
    assert journal.path.read_bytes() == text  # a look writes nothing
    assert contents(common) == before


def test_a_second_look_is_written_down_where_that_is_asked(rmqtx: Run, common: Path) -> None:
    made = receipt(ActKind.COMMIT, expected("COMMITTED"), "unknown")
    journal = kept(made)
    assert rmqtx("receipts", made.receipt_id, "--recheck", "--record", "--store", common).status == DONE
    (found,) = journal.read().receipts
    assert [look.standing for look in found.rechecks] == ["stands"]
    assert found.outcome == "unknown"
    assert "rechecks" in rmqtx("receipts", made.receipt_id).out


def test_what_is_elsewhere_is_not_there(rmqtx: Run, common: Path) -> None:
    kept(receipt(ActKind.COMMIT, {**expected("COMMITTED"), "transaction_id": "7F00" * 8}))
    result = rmqtx("receipts", "--recheck", "--store", common, "--format", "csv", "--fields", "standing")
    assert result.out.splitlines() == ["standing", "expired"]


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--outcome", "provd"), USAGE, "did you mean proved?"),
        (("--outcome", "xyzzy"), USAGE, "--outcome: outcome is never 'xyzzy' - there are: proved, accepted, "),
        (("--action", "nonsense"), USAGE, "--action: action is never 'nonsense' - there are: commit, rollback, "),
        (("--action", "comit"), USAGE, "did you mean commit?"),
        (("--recheck",), USAGE, "no store and no live broker given"),
        (("--recheck", "--store", "STORE", "-n", "127.0.0.1:1"), USAGE, "leave one out"),
        (("--record",), USAGE, "--record needs --recheck"),
        (("--store", "STORE"), USAGE, "--store needs --recheck"),
        (("-n", "127.0.0.1:1"), USAGE, "needs --recheck"),
        (("--broker-conf", "b.conf"), USAGE, "--broker-conf needs --recheck"),
        (("--recheck", "-n", "127.0.0.1:1", "--broker-conf", "b.conf"), USAGE, "--broker-conf is for files"),
        (("--recheck", "-n", "127.0.0.1:1", "--broker-version", "5.3.3"), USAGE, "--broker-version is for files"),
        (("nobody",), NO_SUCH_TRANSACTION, "no receipt nobody"),
        (("--since", "last week"), USAGE, "is not a"),
        (("--recheck", "-n", "127.0.0.1:1"), UNREACHABLE, "127.0.0.1:1"),
    ],
)
def test_what_receipts_refuses(
    arguments: tuple[str, ...], status: int, told: str, rmqtx: Run, common: Path
) -> None:
    kept(receipt(ActKind.COMMIT, expected("COMMITTED")))
    result = rmqtx("receipts", *(word.replace("STORE", str(common)) for word in arguments))
    assert (result.status, told in result.err) == (status, True), result.err
    assert result.err.count("\n") == 1


# -- plan


def test_a_plan_by_conditions_holds_what_hangs(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    before = contents(common)
    file = tmp_path / "plan.json"
    result = rmqtx("plan", "rollback", "--store", common, "--group", "shop", "--reason", "OPS-1", "-o", file)
    assert result.status == DONE, result.err
    listed = rmqtx("pending", common, "--group", "shop", "--format", "jsonl", "--quiet").out.splitlines()
    plan = read_plan(file)
    wanted = {row["transaction_id"]: row for row in map(json.loads, listed) if "immune" not in row["flags"]}
    assert {step.transaction_id for step in plan.steps} == set(wanted)
    for step in plan.steps:
        row = wanted[step.transaction_id]
        assert (step.action, step.state, step.reason) == ("rollback", "PENDING", "OPS-1")
        assert step.half_copy is not None
        assert step.half_copy.queue_offset == row["half_copies"][-1]["queue_offset"]
        assert list(step.witnesses) == witnesses_of(Transaction.of(row))
    assert plan.made_from["command"] == "plan"
    assert result.out.count("rollback") == len(plan.steps)
    assert contents(common) == before


def test_a_plan_by_ids_tells_what_a_guard_refuses(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    hanging, done = expected("PENDING"), expected("COMMITTED")
    ids = (hanging["transaction_id"], done["keys"])
    result = rmqtx("plan", "commit", *ids, "--store", common, "--reason", "x", "-o", tmp_path / "p.json")
    assert result.status == SOME_REFUSED
    assert f"{done['transaction_id']}: not planned, refused by already-delivered" in result.err
    assert "not planned: 1 transaction (1 by already-delivered)" in result.err
    assert [step.transaction_id for step in read_plan(tmp_path / "p.json").steps] == [hanging["transaction_id"]]


def test_a_transaction_named_twice_is_planned_once(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    row = expected("PENDING")
    ids = (row["transaction_id"], row["keys"])
    assert rmqtx("plan", "commit", *ids, "--store", common, "--reason", "x", "-o", tmp_path / "p.json").status == DONE
    assert len(read_plan(tmp_path / "p.json").steps) == 1


def test_what_was_given_up_can_be_resumed(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=1000000\n")  # else they are too old for it some days after they were written
    words = ("--reason", "x", "--broker-conf", conf, "-o", tmp_path / "p.json")
    rmqtx("plan", "resume", "--all", "--store", common, *words)
    steps = read_plan(tmp_path / "p.json").steps
    assert {step.state for step in steps} == {"DISCARDED"}
    assert all(step.discard_copy is not None for step in steps)


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("commit", "--store", "STORE"), USAGE, "no transactions selected"),
        (("comit", "--all", "--store", "STORE"), USAGE, "did you mean commit?"),
        (("commit", "--all", "--group", "shop", "--store", "STORE"), USAGE, "--all excludes ids and conditions"),
        (("commit", "--all"), USAGE, "no store and no live broker"),
        (("commit", "NOBODY", "--store", "STORE"), NO_SUCH_TRANSACTION, "no transaction NOBODY"),
        (("commit", "--group", "nobody", "--store", "STORE"), NO_SUCH_TRANSACTION, "no plan written"),
        (("commit", "COMMITTED", "--store", "STORE"), REFUSED_BY_GUARD, "a guard refuses the transaction"),
        (("commit", "--all", "-n", "127.0.0.1:1"), UNREACHABLE, "127.0.0.1:1"),
    ],
)
def test_what_plan_refuses(
    arguments: tuple[str, ...], status: int, told: str, rmqtx: Run, common: Path, tmp_path: Path
) -> None:
    named = {"STORE": str(common), "COMMITTED": expected("COMMITTED")["transaction_id"]}
    words = [named.get(word, word) for word in arguments]
    result = rmqtx("plan", *words, "--reason", "x", "-o", tmp_path / "p.json")
    assert (result.status, told in result.err) == (status, True), result.err
    assert not (tmp_path / "p.json").exists()


def test_a_plan_is_never_written_over_or_into_a_store(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    asked = ("plan", "commit", "--all", "--store", common, "--reason", "x", "-o")
    file = tmp_path / "p.json"
    file.write_text("mine")
    assert rmqtx(*asked, file).status == USAGE
    assert file.read_text() == "mine"
    assert rmqtx(*asked, file, "--force").status == DONE
    assert read_plan(file).steps
    assert rmqtx(*asked, common / "p.json").status == USAGE
    assert rmqtx(*asked[:-2], " ", "-o", tmp_path / "q.json").status == USAGE


# -- apply


def test_a_plan_of_another_broker_misses_it(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    rmqtx("plan", "commit", "--all", "--store", common, "--reason", "x", "-o", tmp_path / "p.json")
    plan = json.loads((tmp_path / "p.json").read_text())
    text = json.dumps(plan).replace(str(common), "broker-z@10.9.9.9:10911")
    plan = json.loads(text)
    plan["stores"][0]["segments"] = []
    (tmp_path / "z.json").write_text(json.dumps(plan))
    assert missing_stores(read_plan(tmp_path / "z.json"), ["broker-a@127.0.0.1:1"]) == ["broker-z@10.9.9.9:10911"]
    assert missing_stores(read_plan(tmp_path / "p.json"), ["broker-a@127.0.0.1:1"]) == []


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("none.json", "-n", "127.0.0.1:1"), UNREADABLE, "cannot read none.json"),
        (("bad.json", "-n", "127.0.0.1:1"), UNREADABLE, "is not a valid plan"),
        (("p.json",), USAGE, "no live broker and no store given"),
        (("p.json", "-n", "127.0.0.1:1"), UNREACHABLE, "127.0.0.1:1"),
        (("p.json", "-n", "127.0.0.1:1", "--override", "immunity"), USAGE, "--override needs --reason"),
        (("p.json", "-n", "127.0.0.1:1", "--override", "imunity", "--reason", "x"), USAGE, "did you mean immunity?"),
        (("p.json", "-n", "127.0.0.1:1", "--max-per-second", "0"), USAGE, "must be more than 0"),
    ],
)
def test_what_apply_refuses(
    arguments: tuple[str, ...], status: int, told: str, rmqtx: Run, common: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, journal_directory: Path,
) -> None:
    rmqtx("plan", "commit", "--all", "--store", common, "--reason", "x", "-o", tmp_path / "p.json")
    (tmp_path / "bad.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    result = rmqtx("apply", *arguments)
    assert (result.status, told in result.err) == (status, True), result.err
    assert result.err.count("\n") == 1
    assert not journal_directory.exists()


def test_an_unreadable_journal_is_one_line(rmqtx: Run, journal_directory: Path) -> None:
    journal_directory.mkdir()
    (journal_directory / "receipts.jsonl").mkdir()
    result = rmqtx("receipts")
    assert (result.status, result.err.count("\n")) == (UNREADABLE, 1)
    assert os.fspath(journal_directory) in result.err


@pytest.mark.parametrize("option", ["--broker-conf", "--broker-version"])
def test_a_plan_from_live_brokers_refuses_options_of_files(option: str, rmqtx: Run, tmp_path: Path) -> None:
    value = {"--broker-conf": tmp_path / "b.conf", "--broker-version": "5.3.3"}[option]
    live = ("-n", "127.0.0.1:1", option, value)
    result = rmqtx("plan", "commit", "--all", *live, "--reason", "x", "-o", tmp_path / "p.json")
    assert (result.status, result.err.count("\n")) == (USAGE, 1)
    assert f"{option} is for files" in result.err


@pytest.mark.parametrize("witness", ["queue", "index"])
def test_what_the_store_contradicts_is_not_planned(rmqtx: Run, tmp_path: Path, witness: str) -> None:
    """A plan of files may be applied live, where its broker is asked nothing of slots and index."""
    store = copy_of(NAME, tmp_path)
    row = expected("PENDING")
    if witness == "queue":  # the slot's length is another: it still points at its record
        file = store / "consumequeue" / HALF_TOPIC / "0" / f"{0:020}"
        places = [20 * row["half_copies"][-1]["queue_offset"] + 8]
    else:
        (file,) = (store / "index").iterdir()
        data, offset = file.read_bytes(), row["half_copies"][-1]["commit_log_offset"].to_bytes(8, "big")
        places = [at + 4 for at in range(40, len(data), 4) if data[at : at + 8] == offset]
    for place in places:
        damage.flip_byte(file, place + 3, 0x01)
    words = ("plan", "commit", row["transaction_id"], "--store", store, "--reason", "x", "-o", tmp_path / "p.json")
    result = rmqtx(*words)
    assert result.status == REFUSED_BY_GUARD, result.err
    why = "records and files of the store contradict each other about it"
    assert f"not planned, refused by evidence-incomplete: {why}" in result.err
    assert not (tmp_path / "p.json").exists()
