"""Commands that read files, put to live brokers: one source or the other, statuses, and one line on what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker

NOBODY = "127.0.0.1:1"
VERBS = (["pending"], ["audit"], ["show", "ID"], ["decode", "half"], ["decode", "op"], ["producers"])


@pytest.fixture
def address(common: Path) -> Iterator[str]:
    """A broker that serves the store `common`."""
    store = open_store(common)
    settings = broker_settings(store, conf=corpus.recipe("common-5.3.3")["broker_conf"], version="5.3.3")
    with FakeServer(StoreBroker(store, settings, "5.3.3")) as server:
        yield server.address


@pytest.mark.parametrize("verb", VERBS)
def test_a_broker_that_cannot_be_reached_is_14_and_one_line(rmqtx: Run, verb: list[str]) -> None:
    for option in ("-n", "--broker"):
        result = rmqtx(*verb, option, NOBODY)
        assert (result.status, result.out) == (14, "")
        assert result.err.count("\n") == 1
        assert NOBODY in result.err


def test_check_says_unknown_for_a_broker_that_cannot_be_reached(rmqtx: Run, tmp_path: Path) -> None:
    result = rmqtx("check", "-n", NOBODY, "--state-dir", tmp_path)
    assert (result.status, result.err) == (3, "")
    assert result.out.startswith("RMQTX UNKNOWN - ")
    assert result.out.count("\n") == 1


@pytest.mark.parametrize("verb", [["check", "--state-dir", "STATE"], ["pending"], ["report", "-o", "PAGE.md"]])
def test_what_a_broker_does_not_take_from_its_configuration_is_said(
    rmqtx: Run, common: Path, tmp_path: Path, verb: list[str]
) -> None:
    store = open_store(common)
    broker = StoreBroker(store, broker_settings(store, version="5.3.3"), "5.3.3")
    broker.more_conf = {"transactionCheckMax": "15L", "transactionTimeout": "29000", "noSuchKey": "1"}
    words = [str(tmp_path / word) if word.isupper() or word == "PAGE.md" else word for word in verb]
    with FakeServer(broker) as server:
        result = rmqtx(*words, "--broker", server.address)
        quiet = rmqtx(*words, "--quiet", "--broker", server.address)
    said = result.err + ((tmp_path / "PAGE.md").read_text("utf-8") if "report" in verb else "")
    for text in ("brokers cannot parse '15L'", "its name is transactionTimeOut", "the setting noSuchKey, and ignore"):
        assert text in said
    assert "brokers cannot parse" not in quiet.err


@pytest.mark.parametrize("verb", [["pending"], ["audit"], ["show", "ID", "--store"], ["decode", "half"]])
def test_a_store_or_a_broker_and_not_both(rmqtx: Run, common: Path, verb: list[str]) -> None:
    result = rmqtx(*verb, common, "--broker", NOBODY)
    assert (result.status, result.out) == (2, "")
    assert "leave one out" in result.err
    assert rmqtx(*verb, common, "--max-requests-per-second", "5").status == 2


@pytest.mark.parametrize("option", [["--at", "@1"], ["--broker-version", "5.1.4"], ["--commitlog", "x"]])
def test_what_only_files_know_is_refused(rmqtx: Run, option: list[str]) -> None:
    result = rmqtx("pending", "--broker", NOBODY, *option)
    assert result.status == 2
    assert "is for files" in result.err or "time" in result.err


def test_what_is_pending_has_the_same_rows_as_its_files(rmqtx: Run, common: Path, address: str) -> None:
    fields = "transaction_id,state,half_copies,op_marks,keys,producer_group"
    live = rmqtx("pending", "--broker", address, "--fields", f"{fields},producer_alive", "--format", "json")
    files = rmqtx("pending", common, "--fields", fields, "--format", "json")
    rows = json.loads(live.out)
    assert {row.pop("producer_alive") for row in rows} == {False}
    for row in rows:
        for copy in row["half_copies"]:
            copy["store"] = str(common)
    assert rows == json.loads(files.out) != []
    assert "no process answers the checks" in live.err
    assert "a live broker, read over the network" in live.err


def test_show_audit_check_and_decode_of_a_live_broker(rmqtx: Run, common: Path, address: str, tmp_path: Path) -> None:
    pending = json.loads(rmqtx("pending", "--broker", address, "--format", "json").out)
    shown = rmqtx("show", pending[0]["transaction_id"], "--broker", address, "--format", "json")
    assert json.loads(shown.out)[0]["timeline"]
    assert rmqtx("show", "NOTHING", "--broker", address).status == 16
    whole = pending[0]["transaction_id"]
    short = rmqtx("show", whole[-12:].lower(), "--broker", address)
    assert (short.status, short.out.split()[0]) == (0, whole)
    assert f"nothing is named {whole[-12:].lower()}; it is taken as short for {whole}" in short.err
    audited = rmqtx("audit", "--broker", address, "--format", "jsonl")
    files = rmqtx("audit", common, "--format", "jsonl")
    assert audited.out.count("\n") == files.out.count("\n")
    checked = rmqtx("check", "--broker", address, "--state-dir", tmp_path, "--format", "json")
    assert json.loads(checked.out)["pending_count"] == len(pending)
    for verb in ("half", "op"):
        ours = rmqtx("decode", verb, "--broker", address, "--fields", "queue_offset,store_time_ms", "--format", "csv")
        theirs = rmqtx("decode", verb, common, "--fields", "queue_offset,store_time_ms", "--format", "csv")
        assert ours.out == theirs.out


def test_producers_names_the_groups_that_wait_without_a_client(rmqtx: Run, common: Path) -> None:
    store = open_store(common)
    settings = broker_settings(store, conf=corpus.recipe("common-5.3.3")["broker_conf"], version="5.3.3")
    broker = StoreBroker(store, settings, "5.3.3")
    with FakeServer(broker) as server:
        alone = rmqtx("producers", "--broker", server.address, "--format", "json")
        failed = rmqtx("producers", "--broker", server.address, "--fail-on", "client_id is null", "--quiet")
        broker.producers.add("shop")
        found = rmqtx("producers", "--broker", server.address)
    (row,) = json.loads(alone.out)
    assert (row["producer_group"], row["client_id"], alone.status, failed.status) == ("shop", None, 0, 1)
    note = f"{row['pending_count']} pending transactions of group shop, and no client of it is connected"
    assert note in alone.err
    assert row["pending_count"] > 0
    assert "10.0.0.9@1" in found.out
    assert "no client of it is connected" not in found.err
