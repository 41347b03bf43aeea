"""enableLmq and a downgrade at the command line: what real brokers' stores say, and with which status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, FINDINGS
from tests.cli.conftest import Run

Unpack = Callable[[str], Path]


def test_nothing_of_a_light_store_is_undecidable_or_unknown(rmqtx: Run, corpus_store: Unpack) -> None:
    for name in ("lmq-4.9.3", "lmq-5.3.2", "lmq-switched-5.3.3"):
        store = corpus_store(name)
        audited = rmqtx("audit", store, "--format", "jsonl")
        assert audited.status == DONE, audited.err
        rows = audited.rows
        assert {row["state"] for row in rows} <= {"COMMITTED", "ROLLED_BACK", "DISCARDED", "PENDING"}
        checked = rmqtx("check", store, "--warning", "3650d", "--critical", "3650d")
        assert "UNKNOWN" not in checked.out
        assert "half_lag=" in checked.out


def test_verify_warns_of_the_release_that_forgets_alone(rmqtx: Run, corpus_store: Unpack) -> None:
    assert rmqtx("verify", corpus_store("lmq-5.3.2")).status == DONE
    store = corpus_store("lmq-4.9.3")
    assert rmqtx("verify", store, "--broker-version", "4.9.4").status == DONE
    verified = rmqtx("verify", store, "--broker-version", "4.9.3", "--format", "jsonl")
    assert verified.status == FINDINGS
    codes = [json.loads(line)["code"] for line in verified.out.splitlines()]
    assert codes == ["cursors-not-loaded", "start-checks-again"]


def test_simulate_says_from_where_it_begins(rmqtx: Run, corpus_store: Unpack) -> None:
    store = corpus_store("lmq-4.9.3")
    forgetting = rmqtx("simulate", store, "--broker-version", "4.9.3", "--rounds", 1)
    assert forgetting.status == DONE
    assert "does not read" in forgetting.err
    assert "half cursor 0 to 73" in forgetting.err
    reading = rmqtx("simulate", store, "--broker-version", "4.9.4", "--rounds", 1)
    assert "half cursor 67 to 73" in reading.err


def test_the_header_says_who_ran_last_and_who_once_ran(rmqtx: Run, corpus_store: Unpack) -> None:
    store = corpus_store("downgraded-5.5.0-5.3.3-4.9.7")
    brief = rmqtx("pending", store).err.splitlines()[0]
    assert brief.endswith("; 2 settings assumed (--verbose)")
    assert "; broker 4.9.8 or earlier, previously 5.4.0 or later (rocksdbstore); " in brief
    said = rmqtx("pending", store, "--verbose").err
    assert "broker 4.9.8 or earlier (config/consumerOffset.json), previously 5.4.0 or later (rocksdbstore)" in said
    assert "assumed, default of 4.3.1 or later (5 before): transactionCheckMax 15" in said, "that is a guess"
    assert "default before 5.1.1: transactionCheckInterval 60000" in said


@pytest.mark.parametrize("command", ["pending", "audit"])
def test_pending_and_audit_have_the_warning_of_verify(rmqtx: Run, corpus_store: Unpack, command: str) -> None:
    store = corpus_store("lmq-4.9.3")
    forgetting = rmqtx(command, store, "--broker-version", "4.9.3")
    assert forgetting.err.count("warning: cursors-not-loaded") == 1
    assert "67 half copies are read again" in forgetting.err
    for version in ("4.9.4", "5.3.3"):
        assert "cursors-not-loaded" not in rmqtx(command, store, "--broker-version", version).err
    assert "cursors-not-loaded" not in rmqtx(command, corpus_store("lmq-5.3.2")).err
