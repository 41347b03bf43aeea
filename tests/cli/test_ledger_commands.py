"""reconcile, diff and export as a user runs them: rows, plans, custody, exit statuses, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.exit_status import DONE, FINDINGS, INCOMPLETE, UNREADABLE, USAGE
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.receipts.plan_file import read_plan
from rmqtx.verdicts.ledger.reconcile import OUTCOMES
from tests import ledgers
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.custody_read import custody_of
from tests.forge.stores import contents, copy_of

ASKED = ("--match", ledgers.MATCH, "--done", ledgers.DONE, "--not-done", ledgers.NOT_DONE)


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return ledgers.written("sqlite", tmp_path)


def test_reconcile_lists_what_is_not_agreed(rmqtx: Run, common: Path, ledger: str) -> None:
    where = ("--where", "ledger_word = done")
    result = rmqtx("reconcile", common, "--ledger", ledger, *ASKED, "--format", "jsonl", *where)
    rows = result.rows
    wanted = [case for case, one in ledgers.CASES.items() if one.word == "done" and one.outcome != "agrees"]
    assert (result.status, len(rows)) == (DONE, len(wanted))
    assert "agrees: " in result.err
    everything = rmqtx("reconcile", common, "--ledger", ledger, *ASKED, "--all", "--format", "csv")
    assert len(everything.out.splitlines()) == 1 + len(corpus.expected(ledgers.NAME))


def test_what_to_act_on_comes_first_and_the_next_command_last(
    rmqtx: Run, common: Path, ledger: str, tmp_path: Path
) -> None:
    asked = ("reconcile", common, "--ledger", ledger, *ASKED, "--all", "--format", "jsonl", "--fields", "outcome")
    result = rmqtx(*asked)
    outcomes = [json.loads(line)["outcome"] for line in result.out.splitlines()]
    assert list(dict.fromkeys(outcomes)) == ["act", "contradiction", "open", "agrees"]
    assert outcomes == sorted(outcomes, key=list(OUTCOMES).index)
    assert "rmqtx: next: run this again with --plan plan.json" in result.err
    planned = rmqtx(*asked, "--plan", tmp_path / "plan.json")
    assert planned.err.splitlines()[-1] == f"rmqtx: next: rmqtx plan show {tmp_path}/plan.json"
    assert planned.out == result.out


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_ledger_rows_of_no_transaction_are_counted_and_named(
    kind: str, rmqtx: Run, common: Path, tmp_path: Path
) -> None:
    result = rmqtx("reconcile", common, "--ledger", ledgers.written(kind, tmp_path), *ASKED, "--format", "csv")
    assert result.status == DONE
    assert (
        "rmqtx: ledger: 1 of 19 rows match no transaction in the stores: order_id = somebody-else, status = PAID\n"
        in result.err
    )


def test_a_match_that_fits_nothing_is_an_error(rmqtx: Run, common: Path, ledger: str, tmp_path: Path) -> None:
    """With --missing-is-not-done it would plan a rollback of all that is pending."""
    asked = ("reconcile", common, "--ledger", ledger, *ASKED[2:], "--missing-is-not-done")
    result = rmqtx(*asked, "--match", "transaction_id = order_id", "--plan", tmp_path / "p.json", "--quiet")
    assert (result.status, result.out) == (USAGE, "")
    assert "matches nothing" in result.err
    assert "a ledger row 'K-3733-" in result.err
    assert not (tmp_path / "p.json").exists()
    nothing = pa.array([], pa.string())
    pq.write_table(pa.table({"order_id": nothing, "status": nothing}), tmp_path / "empty.parquet")
    empty = rmqtx("reconcile", common, "--ledger", tmp_path / "empty.parquet", *ASKED, "--missing-is-not-done")
    assert (empty.status, empty.out) == (USAGE, "")
    assert "has no rows" in empty.err
    (tmp_path / "empty.csv").write_text("order_id,status\n")
    heads = rmqtx("reconcile", common, "--ledger", tmp_path / "empty.csv", *ASKED, "--missing-is-not-done")
    assert (heads.status, heads.out) == (USAGE, "")
    assert "no row has a value of status" in heads.err


def test_conditions_that_no_ledger_row_meets_are_reported(rmqtx: Run, common: Path, ledger: str) -> None:
    asked = ("reconcile", common, "--ledger", ledger, *ASKED[:2])
    wrong = rmqtx(*asked, "--done", "status = 'PAYED'", "--not-done", "status = 'CANCELED'")
    assert "no ledger row meets --done or --not-done" in wrong.err
    assert "meets --done" not in rmqtx("reconcile", common, "--ledger", ledger, *ASKED).err


def test_the_plan_holds_what_the_ledger_settles(rmqtx: Run, common: Path, ledger: str, tmp_path: Path) -> None:
    before = contents(common)
    result = rmqtx("reconcile", common, "--ledger", ledger, *ASKED, "--plan", tmp_path / "plan.json", "--quiet")
    assert result.status == DONE
    plan = read_plan(tmp_path / "plan.json")
    truth = {row["transaction_id"]: row for row in corpus.expected(ledgers.NAME)}
    assert {truth[step.transaction_id]["case"]: step.action for step in plan.steps} == ledgers.PLANNED
    for step in plan.steps:
        row = truth[step.transaction_id]
        newest = row["half_copies"][-1]
        assert step.half_copy is not None
        assert step.half_copy.commit_log_offset == newest["commit_log_offset"]
        assert step.half_copy.queue_offset == newest["queue_offset"]
        assert step.state == row["state"]
        data = (common / "commitlog" / f"{0:020d}").read_bytes()
        at = newest["commit_log_offset"]
        assert step.half_copy.length_bytes == int.from_bytes(data[at : at + 4], "big")
        assert step.half_copy.body_crc == int.from_bytes(data[at + 8 : at + 12], "big") & 0x7FFFFFFF
        kinds = [witness.kind for witness in step.witnesses]
        assert kinds.count("half_copy") == len(row["half_copies"])
        assert kinds.count("final_record") == len(row["final_records"])
        assert ledgers.keys_of(row["case"]) in step.reason_from
    (store,) = plan.stores
    cursors = check_cursors(open_store(common))
    assert store["half_cursors"] == [{"queue_id": 0, "next_queue_offset": (cursors.half or {})[0]}]
    assert contents(common) == before


def test_a_result_says_what_it_was_made_from(rmqtx: Run, common: Path, ledger: str, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    assert rmqtx("reconcile", common, "--ledger", ledger, *ASKED, "-o", file, "--hash", "--quiet").status == DONE
    facts = custody_of(pq.read_schema(file))
    assert facts is not None
    assert (facts["command"], facts["engine"]["name"]) == ("reconcile", "local")
    assert facts["options"]["match"] == ledgers.MATCH
    assert facts["stores"][0]["segments"][0]["digest_of"] == "all bytes"
    assert facts["inputs"][0]["digest"].startswith("sha256:")
    lines = rmqtx("audit", common, "--with-meta", "--format", "jsonl", "--limit", "1", "--quiet").out.splitlines()
    assert list(json.loads(lines[0])) == ["meta"]
    assert json.loads(lines[1])["state"]
    assert rmqtx("audit", common, "--format", "jsonl", "--limit", "1", "--quiet").out.count("\n") == 1
    arrow = tmp_path / "out.arrow"
    rmqtx("audit", common, "-o", arrow, "--quiet")
    with pa.memory_map(str(arrow)) as source:
        assert custody_of(pa.ipc.open_stream(source).schema) is not None


def test_pending_in_parquet_carries_it_too(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    assert rmqtx("pending", common, "-o", tmp_path / "p.parquet", "--quiet").status == DONE
    facts = custody_of(pq.read_schema(tmp_path / "p.parquet"))
    assert facts is not None
    assert facts["stores"][0]["store"] == str(common)


def test_provenance_is_printed_and_hides_secrets(rmqtx: Run, common: Path) -> None:
    told = rmqtx("audit", common, "--verbose", "--summary").err
    assert "provenance: rmqtx " in told
    length = f"{(common / 'commitlog' / f'{0:020d}').stat().st_size:,}".replace(",", " ")
    assert f"provenance: {common}/commitlog/{0:020d}: {length} bytes, sha256:" in told
    assert "provenance" not in rmqtx("audit", common, "--summary").err


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("spark.hadoop.fs.s3a.secret.key=hunter2", "spark.hadoop.fs.s3a.secret.key=(not written down)"),
        ("spark.executor.memory=2g", "spark.executor.memory=2g"),
        ("s3://user:hunter2@bucket/x", "s3://bucket/x"),
    ],
)
def test_secrets_are_not_written_down(setting: str, kept: str) -> None:
    from rmqtx_cli.sources.provenance import without_secrets

    assert without_secrets(setting) == kept


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (("--ledger", "none.csv"), UNREADABLE, "none.csv does not exist"),
        (("--ledger", "jdbc:postgresql://db/x?user=me&password=hunter2"), USAGE, "RMQTX_LEDGER_USER"),
        (("--ledger", "jdbc:postgresql://me:hunter2@db/x"), USAGE, "RMQTX_LEDGER_USER"),
        (("--ledger", "jdbc:sqlserver://db;password=hunter2"), USAGE, "RMQTX_LEDGER_USER"),
        (("--ledger", "jdbc:oracle:thin:me/hunter2@db:1521:x"), USAGE, "RMQTX_LEDGER_USER"),
        (("--ledger", "jdbc:postgresql://db/x"), USAGE, "--ledger-table is required"),
        (("--ledger", "jdbc:sqlite:/x", "--ledger-table", "o", "--engine", "local"), USAGE, "needs Spark"),
        (("--ledger", "LEDGER", "--ledger-driver-jar", "x.jar"), USAGE, "is for jdbc: ledgers"),
        (("--ledger", "LEDGER", "--match", "keys order_id"), USAGE, "expected =, found"),
        (("--ledger", "LEDGER", "--match", "keys = order_id or topic = x"), USAGE, "only 'and' can follow"),
        (("--ledger", "LEDGER", "--match", "key = order_id"), USAGE, "did you mean keys?"),
        (("--ledger", "LEDGER", "--match", "flags = order_id"), USAGE, "transactions have no column 'flags'"),
        (("--ledger", "LEDGER", "--match", "keys = id"), USAGE, "the ledger has no column 'id'"),
        (("--ledger", "LEDGER", "--match", "keys ~ '[' = order_id"), USAGE, "is not a regular expression"),
        (("--ledger", "LEDGER", "--done", "amount = much"), USAGE, "is not a value of amount, which is int64"),
        (("--ledger", "LEDGER", "--not-done", "status PAID"), USAGE, "--not-done: 'PAID' is not an operator"),
        (("--ledger", "LEDGER", "--plan", "p.json", "--at", "1"), USAGE, "--plan needs the present state"),
        (("--ledger", "LEDGER", "--with-meta", "--format", "csv"), USAGE, "--with-meta is not possible with csv"),
        (("--ledger", "LEDGER", "--plan", "STORE/plan.json"), USAGE, "lies inside the store"),
    ],
)
def test_what_reconcile_refuses(
    options: tuple[str, ...], status: int, told: str, rmqtx: Run, common: Path, ledger: str
) -> None:
    given = [word.replace("LEDGER", ledger).replace("STORE", str(common)) if "jdbc" not in word else word
             for word in options]
    result = rmqtx("reconcile", common, *ASKED, *given)
    assert result.status == status, result.err
    assert told in result.err
    assert "hunter2" not in result.err
    assert result.out == ""


def test_what_cannot_be_known_is_status_3(rmqtx: Run, tmp_path: Path, ledger: str) -> None:
    root = copy_of(ledgers.NAME, tmp_path / "broker")
    (root / "config" / "consumerOffset.json").unlink()
    (root / "config" / "consumerOffset.json.bak").unlink()
    result = rmqtx("reconcile", root, "--ledger", ledger, *ASKED, "--format", "jsonl", "--plan", tmp_path / "p.json")
    rows = {json.loads(line)["keys"]: json.loads(line) for line in result.out.splitlines()}
    row = rows[ledgers.keys_of("pending.0")]
    assert (row["state"], row["ledger_word"], row["advice"], row["outcome"]) == ("UNDECIDABLE", "done", "none", "open")
    assert result.status == INCOMPLETE
    planned = {step.state for step in read_plan(tmp_path / "p.json").steps}
    # a copy in the discard topic, and an op message of the newest half copy, prove this without any cursor
    assert planned == {"DISCARDED", "ROLLED_BACK"}


# -- diff


def test_diff_of_a_store_with_itself(rmqtx: Run, common: Path) -> None:
    result = rmqtx("diff", common, common, "--exit-code")
    assert (result.status, result.out) == (DONE, "")
    assert "no differences" in result.err


def test_diff_of_two_times_and_of_files(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    rmqtx("audit", common, "-o", tmp_path / "now.parquet", "--quiet")
    then = str(ledgers.middle_ms())
    rmqtx("audit", common, "--at", then, "-o", tmp_path / "then.arrow", "--quiet")
    times = rmqtx("diff", common, "--at", then, "--format", "jsonl", "--exit-code", "--quiet")
    files = rmqtx("diff", tmp_path / "then.arrow", tmp_path / "now.parquet", "--format", "jsonl", "--quiet")
    mixed = rmqtx("diff", tmp_path / "then.arrow", common, "--format", "jsonl", "--quiet")
    assert times.status == INCOMPLETE  # UNDECIDABLE then, for cursors have no history: 1 would say that all is known
    assert times.out.count("\n") > 10
    assert times.out == files.out == mixed.out


def test_diff_of_two_stores_without_a_common_transaction_says_so(
    rmqtx: Run, common: Path, fifteen: Path, tmp_path: Path
) -> None:
    result = rmqtx("diff", common, fifteen, "--exit-code")
    assert (result.status, result.out) == (FINDINGS, "")
    assert "have no transaction in common: are they from the same broker?" in result.err
    assert "their logs begin with different records" in result.err
    assert "no differences" not in result.err
    given = rmqtx("diff", common, fifteen, "--format", "jsonl")
    assert given.status == DONE
    assert "no transaction in common" in given.err
    assert len(given.out.splitlines()) == int(given.err.split(" differences")[0].split()[-1])
    rmqtx("audit", common, "-o", tmp_path / "now.parquet", "--quiet")
    then = rmqtx("diff", common, tmp_path / "now.parquet")
    assert "in common" not in then.err


def test_diff_of_two_stores_that_are_known_in_full(rmqtx: Run, common: Path, fifteen: Path) -> None:
    assert rmqtx("diff", common, fifteen, "--exit-code", "--quiet").status == FINDINGS
    assert rmqtx("diff", common, fifteen, "--quiet").status == DONE


@pytest.mark.parametrize(
    ("sides", "told"),
    [
        (("STORE",), "only one side was given"),
        (("STORE", "STORE", "STORE"), "3 sides given, expected 2"),
        (("STORE", "STORE", "--at", "1"), "--and-at compare two times of one store"),
        (("a.parquet", "--at", "1"), "is the result of one audit"),
    ],
)
def test_what_diff_refuses(sides: tuple[str, ...], told: str, rmqtx: Run, common: Path) -> None:
    result = rmqtx("diff", *(word.replace("STORE", str(common)) for word in sides))
    assert result.status == USAGE
    assert told in result.err


# -- export


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "jsonl"])
def test_export_in_every_format(kind: str, rmqtx: Run, common: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    options = ("export", "records", common, "--to", to, "--format", kind, "--fields", "commit_log_offset,topic,keys")
    first = rmqtx(*options)
    assert first.status == DONE
    assert "nothing new" in rmqtx(*options).err
    table = ds.dataset(to, format={"jsonl": "json"}.get(kind, kind)).to_table()
    offsets = sorted(table["commit_log_offset"].to_pylist())
    records = rmqtx("decode", "commitlog", common, "--format", "csv", "--fields", "commit_log_offset", "--quiet").out
    assert f"{len(offsets)} rows written" in first.err
    assert offsets == sorted(int(line) for line in records.splitlines()[1:])
    assert set(table.schema.names) >= {"commit_log_offset", "topic", "keys"}


def test_verdicts_replace_those_of_the_run_before(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    to, one, two = tmp_path / "to", corpus_store("common-5.3.3"), corpus_store("fifteen-5.3.3")
    wanted = rmqtx("audit", one, two, "--format", "jsonl", "--quiet").rows
    for stores in ((one,), (one, two), (one, two)):
        assert rmqtx("export", "transactions", *stores, "--to", to, "--quiet").status == DONE
    table = ds.dataset(to).to_table()
    assert sorted(table["transaction_id"].to_pylist()) == sorted(row["transaction_id"] for row in wanted)
    assert len([file for file in to.rglob("part-*") if file.is_file()]) == 2  # topics


def test_an_export_of_verdicts_that_fails_leaves_the_last_one(
    rmqtx: Run, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "to"
    rmqtx("export", "transactions", common, "--to", to, "--quiet")
    before = contents(to / "topic=orders")
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr("rmqtx.verdicts.export.partition_files._ArrowFile.finish", broken)
    result = rmqtx("export", "transactions", common, "--to", to, "--quiet")
    assert (result.status, "No space left on device" in result.err) == (UNREADABLE, True)
    assert contents(to / "topic=orders") == before


def test_export_lists_its_files_and_keeps_its_custody(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    result = rmqtx("export", "halves", common, "--to", tmp_path / "to", "--list")
    assert "part-" in result.out
    (kept,) = (tmp_path / "to" / "_rmqtx").glob("custody-*.json")
    assert json.loads(kept.read_text())["stores"][0]["store"] == str(common)


def test_bodies_are_exported_as_they_were_made(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    for kind in ("raw", "inflated"):
        assert rmqtx("export", "records", common, "--to", tmp_path / kind, "--body", kind, "--quiet").status == DONE
    raw, inflated = (
        ds.dataset(tmp_path / kind).to_table().sort_by("commit_log_offset")["body"].to_pylist()
        for kind in ("raw", "inflated")
    )
    lengths = [(len(one), len(two)) for one, two in zip(raw, inflated, strict=True)]
    assert all(one <= two for one, two in lengths)
    assert any(one < two for one, two in lengths)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("records", "STORE", "--to", "STORE/to"), "lies inside the store"),
        (("records", "STORE", "--to", "s3://bucket/x"), "must be a local directory"),
        (("records", "STORE", "--to", "to", "--format", "table"), "cannot export as table"),
        (("halves", "STORE", "--to", "to", "--body", "raw"), "--body is for the table records"),
        (("records", "STORE", "--to", "to", "--fields", "colour"), "no column 'colour'"),
        (("colours", "STORE", "--to", "to"), "is not one of"),
    ],
)
def test_what_export_refuses(
    options: tuple[str, ...], told: str, rmqtx: Run, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = contents(common)
    result = rmqtx("export", *(word.replace("STORE", str(common)) for word in options))
    assert result.status == USAGE, result.err
    assert told in result.err
    assert contents(common) == before
    assert not list(tmp_path.iterdir())
