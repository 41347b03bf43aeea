"""The runbook: every command in docs/forensics.md is run, in its order, on stores that real brokers wrote."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqtx.readers.model.exit_status import DONE, FINDINGS, INCOMPLETE
from rmqtx.repairs.receipts.plan_file import read_plan
from tests import ledgers
from tests.cli import transcripts
from tests.cli.conftest import Run
from tests.cli.test_transcripts import ROOT, check
from tests.custody_read import custody_of
from tests.forge.stores import contents, copy_of

PAGE = ROOT / "docs" / "forensics.md"
RESULTS = {
    "provenance.jsonl", "findings.parquet", "verdicts.parquet", "reconciled.parquet", "plan.json", "again.parquet",
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the evidence of two brokers and a ledger."""
    copy_of(ledgers.NAME, tmp_path / "evidence" / "broker-a")
    copy_of("killed-5.1.4", tmp_path / "evidence" / "broker-b")
    Path(ledgers.written("parquet", tmp_path)).rename(tmp_path / "orders.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_runbook_runs(desk: Path, rmqtx: Run, request: pytest.FixtureRequest) -> None:
    before = contents(desk / "evidence")
    text = PAGE.read_text("utf-8")
    blocks = text.split("```")
    commands = 0
    for number, block in enumerate(blocks):
        kind, _, body = block.partition("\n")
        if number % 2 and kind == "sh":
            for line in body.splitlines():
                result = rmqtx(*shlex.split(line)[1:])
                assert result.status in (DONE, FINDINGS, INCOMPLETE), (line, result.err)
                assert "Traceback" not in result.err
                commands += 1
        elif number % 2 and kind == "console":
            head, steps = transcripts.parse(body)
            for step in steps:
                result = rmqtx(*shlex.split(step.command)[1:])
                step.output = result.out
                assert (result.status, result.err) == (DONE, "")
                commands += 1
            blocks[number] = f"{kind}\n{transcripts.text_of(head, steps)}"
    lines = text.splitlines()
    # A database, and a trace of producers, are not here.
    left_out = ("jdbc:", "--trace", "--from-trace")
    mine = [line for line in lines if line.startswith(("rmqtx ", "$ rmqtx ")) and not any(w in line for w in left_out)]
    assert commands == len(mine)
    check(PAGE, text, "```".join(blocks), request)
    assert contents(desk / "evidence") == before
    assert {path.name for path in desk.iterdir() if path.is_file()} == {*RESULTS, "orders.parquet"}
    _look_at_results(desk)


def _look_at_results(desk: Path) -> None:
    meta = json.loads((desk / "provenance.jsonl").read_text().splitlines()[0])["meta"]
    assert [store["store"] for store in meta["stores"]] == ["evidence/broker-a/store", "evidence/broker-b/store"]
    assert {file["digest_of"] for store in meta["stores"] for file in store["segments"]} == {"all bytes"}
    for name in ("findings", "verdicts", "reconciled"):
        facts = custody_of(pq.read_schema(desk / f"{name}.parquet"))
        assert facts is not None
        assert [store["taken_time_ms"] > 0 for store in facts["stores"]] == [True, True]
    assert pq.read_table(desk / "verdicts.parquet").num_rows == pq.read_table(desk / "again.parquet").num_rows
    plan = read_plan(desk / "plan.json")
    assert len(plan.steps) == len(ledgers.PLANNED)
    assert [file["file"] for file in plan.made_from["inputs"]] == ["orders.parquet"]
