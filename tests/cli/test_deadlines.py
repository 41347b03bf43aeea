"""Deadlines on the command line: what the broker discards next, how long that is off, and why it never comes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model import clock
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from tests.cli.conftest import Run
from tests.forge.stores import copy_of
from tests.verdicts.check.test_database_slots import second_database

Stores = Callable[[str], Path]
pytestmark = pytest.mark.usefixtures("at_the_real_moment")


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A broker.conf: rounds every ten seconds, three checks, and files that outlive this corpus."""
    file = tmp_path / "broker.conf"
    file.write_text("transactionCheckInterval=10000\ntransactionCheckMax=3\nfileReservedTime=1000000\n")
    return file


def test_pending_by_deadline(rmqtx: Run, corpus_store: Stores, conf: Path) -> None:
    store = corpus_store("common-5.3.3")
    now_ms = clock.now_ms()
    words = ["--broker-conf", conf, "--sort", "deadline", "--format", "jsonl"]
    rows = rmqtx("pending", store, *words).rows
    times = [row["discard_at_ms"] for row in rows]
    assert times == sorted(times)
    assert rows[0]["discard_at"].endswith("Z")
    # Its first round comes ten seconds after the start, and each half has at most three more checks.
    assert now_ms + 9_000 < times[0] <= times[-1] < now_ms + 60_000
    assert len(set(times)) > 1
    middle = (min(times) + max(times)) // 2 - now_ms
    soon = rmqtx("pending", store, *words, "--deadline-within", f"{middle // 1000}s").out.splitlines()
    assert 0 < len(soon) < len(rows)
    by_condition = rmqtx("pending", store, *words, "--where", f"discard_in < {middle // 1000}s").out.splitlines()
    assert [json.loads(line)["transaction_id"] for line in by_condition] == [
        json.loads(line)["transaction_id"] for line in soon
    ]
    result = rmqtx("pending", store, "--broker-conf", conf, "--sort", "deadline")
    assert "discard_in" in result.out
    assert "discard_at" in result.out
    assert re.search(r" within \S+ of its start unless a producer answers", result.err)
    assert "if the broker starts now" not in result.err


def test_a_deadline_is_no_question_about_the_past(rmqtx: Run, corpus_store: Stores) -> None:
    store = corpus_store("common-5.3.3")
    for words in (["--sort", "deadline"], ["--deadline-within", "10m"]):
        result = rmqtx("pending", store, "--at", "2026-11-20T00:00:00Z", *words)
        assert result.status == 2
        assert "deadlines are not predicted for a past time" in result.err


def test_a_deadline_at_a_later_time_counts_from_that_time(rmqtx: Run, corpus_store: Stores, conf: Path) -> None:
    settings = ("--broker-conf", conf, "--at", "2026-11-22T00:00:00Z", "--format", "jsonl")
    asked = ("pending", corpus_store("common-5.3.3"), *settings)
    times = [json.loads(line)["discard_at_ms"] for line in rmqtx(*asked).out.splitlines()]
    near = rmqtx(*asked, "--deadline-within", "1000h", "--sort", "deadline").out.splitlines()
    assert sorted(time for time in times if time is not None) == [json.loads(line)["discard_at_ms"] for line in near]
    assert rmqtx(*asked, "--deadline-within", "1ms").out == ""


def test_show_says_when_and_why_not(rmqtx: Run, corpus_store: Stores, conf: Path) -> None:
    store = corpus_store("common-5.3.3")
    rows = rmqtx("pending", store, "--format", "jsonl").rows
    page = rmqtx("show", rows[0]["transaction_id"], store, "--broker-conf", conf).out
    [line] = [line for line in page.splitlines() if line.startswith("discard ")]
    assert "if the broker starts now: all its checks are then used up, after " in line
    conf.write_text("fileReservedTime=1\n")
    page = rmqtx("show", rows[0]["transaction_id"], store, "--broker-conf", conf).out
    assert "it is then older than fileReservedTime, and no producer is asked before\n" in page
    old = corpus_store("statetable-3.1.4")
    found = json.loads(rmqtx("pending", old, "--format", "jsonl").out.splitlines()[0])
    page = rmqtx("show", found["transaction_id"], old).out
    assert "\ndiscard never: brokers 3.0 and 3.1 check it without a limit and never discard it\n" in page
    [shown] = json.loads(rmqtx("show", found["transaction_id"], old, "--format", "json").out)
    assert (shown["discard_at_ms"], shown["discard_at"]) == (None, None)
    assert shown["discard_reason"].startswith("brokers 3.0 and 3.1 check it")


def test_check_is_critical_before_the_first_discard(
    rmqtx: Run, corpus_store: Stores, conf: Path, tmp_path: Path
) -> None:
    store = corpus_store("common-5.3.3")
    words = ["--state-dir", tmp_path, "--warning", "5000d", "--critical", "5000d"]
    well = rmqtx("check", store, *words, "--broker-conf", conf, "--deadline", "1s", "--textfile", tmp_path / "x.prom")
    assert well.status == 0, well.out
    assert ", first discard in " in well.out
    assert re.search(r"first_discard=[0-9.]+s;;1:\s", well.out)
    metric = (tmp_path / "x.prom").read_text().splitlines()
    [value] = [line.split()[-1] for line in metric if line.startswith("rmqtx_seconds_from_start_to_first_discard{")]
    assert 1 < float(value) < 60
    # A stopped broker discards nothing: the metric of the alert rule has no value.
    assert not any(line.startswith("rmqtx_seconds_until_first_discard{") for line in metric)
    late = rmqtx("check", store, *words, "--broker-conf", conf, "--deadline", "5m")
    assert late.status == 2
    assert "RMQTX CRITICAL - the broker discards the first pending in " in late.out
    checked = json.loads(rmqtx("check", store, *words, "--broker-conf", conf, "--format", "json").out)
    assert checked["status"] == "OK"
    assert checked["first_discard_id"]
    assert 1 < checked["stores"][0]["seconds_until_first_discard"] < 60


def test_a_deadline_that_is_not_known_is_no_good_news(rmqtx: Run, tmp_path: Path) -> None:
    store = copy_of("rocksdb-queues-5.5.0", tmp_path)
    second_database(store)
    words = ["--state-dir", tmp_path, "--warning", "5000d", "--critical", "5000d"]
    assert rmqtx("check", store, *words).status == 0
    result = rmqtx("check", store, *words, "--deadline", "5m")
    assert result.status == 3
    assert "transactions: its half queue is in RocksDB" in result.out


def test_the_settings_are_those_of_the_release(rmqtx: Run, corpus_store: Stores, conf: Path) -> None:
    """Sixteen rounds of 5.1.1 and later take eight minutes; before, they took sixteen."""
    conf.write_text("fileReservedTime=1000000\n")
    for name, seconds in (("common-5.1.4", 30), ("common-4.9.7", 60)):
        store = corpus_store(name)
        settings = broker_settings(open_store(store), version=name.rpartition("-")[2])
        assert settings.transaction_check_interval_ms == seconds * 1_000
        now_ms = clock.now_ms()
        version = name.rpartition("-")[2]
        words = ["--broker-version", version, "--broker-conf", conf, "--format", "jsonl"]
        lines = rmqtx("pending", store, *words).out.splitlines()
        last_ms = max(json.loads(line)["discard_at_ms"] for line in lines)
        assert 14 * seconds * 1_000 <= last_ms - now_ms <= 18 * seconds * 1_000


def test_a_discarded_transaction_that_is_expired_again_is_open(
    rmqtx: Run, corpus_store: Stores
) -> None:
    """The check reads copies of it again, and discards them because of their age: listed as a committed one is."""
    store = corpus_store("parallel-5.3.3")
    audited = {
        row["transaction_id"]: row
        for row in json.loads(rmqtx("audit", store, "--format", "json", "--where", "state = DISCARDED").out)
        if row["next_event"] == "expired"
    }
    assert audited
    listed = json.loads(rmqtx("pending", store, "--all-open", "--format", "json").out)
    assert set(audited) <= {row["transaction_id"] for row in listed}
    noted = rmqtx("pending", store).err
    assert f"{len(audited)} decided or discarded transactions with open copies, which the check discards" in noted
    shown = rmqtx("show", next(iter(audited)), "--store", store).out
    assert "\nnext    discarded without asking, because of its age" in shown
