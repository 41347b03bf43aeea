"""`rmqtx simulate` as somebody types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx_cli import exit_status
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.stores import copy_of

NAME = "common-5.3.3"
#: Late enough for every half of the store to be checked: its broker's transactionTimeOut is ten minutes.
LATER = "2026-11-21T06:00:00Z"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """The configuration of the store's broker."""
    path = tmp_path / "broker.conf"
    path.write_text(corpus.broker_conf(NAME))
    return path


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_hangs_is_checked_and_given_up_on(rmqtx: Run, common: Path, conf: Path) -> None:
    listed = rmqtx("pending", common, "--all-open", "--format", "jsonl")
    pending = {row["transaction_id"] for row in rows(listed.out)}
    settled = ("--broker-conf", conf, "--at", LATER, "--format", "jsonl")
    first = rmqtx("simulate", common, "--rounds", "1", *settled)
    assert {row["transaction_id"] for row in rows(first.out)} == pending
    assert {row["action"] for row in rows(first.out)} == {"checked", "put back immune"}
    assert "round 1 at 2026-11-21T06:00:00.000Z: 18 checked, 2 put back immune; half cursor 269 to 289" in first.err
    assert "stops at its own copies" in first.err
    fates = rows(rmqtx("simulate", common, "--show", "transactions", *settled).out)
    assert {row["transaction_id"] for row in fates} == pending
    for row in fates:
        asked = 0 if row["next_check_time_ms"] is None else 5 - (row["checks_count"] or 0)
        assert (row["end"], row["checks_to_come_count"]) == ("discarded", asked), row


def test_a_changed_setting_beside_the_present_one(rmqtx: Run, common: Path, conf: Path) -> None:
    options = ("--broker-conf", conf, "--at", LATER, "--with", "transactionCheckMax=7", "--format", "jsonl")
    fates = rows(rmqtx("simulate", common, "--show", "transactions", *options).out)
    for now, then in zip(fates[::2], fates[1::2], strict=True):
        assert now["transaction_id"] == then["transaction_id"]
        assert (now["configuration"], then["configuration"]) == ("as is", "transactionCheckMax=7")
        assert then["end_round"] == now["end_round"] + 2
        assert then["written_bytes"] > now["written_bytes"]


def test_cursors_somebody_thinks_of_setting(rmqtx: Run, common: Path, conf: Path) -> None:
    options = ("--broker-conf", conf, "--at", LATER, "--show", "rounds", "--rounds", "1", "--format", "json")
    back = json.loads(rmqtx("simulate", common, "--half-cursor", "0", "--op-cursor", "0", *options).out)[0]
    assert (back["half_cursor_before"], back["op_cursor_before"]) == (0, 0)
    marks = {mark["half_queue_offset"] for row in corpus.expected(NAME) for mark in row["op_marks"]}
    assert back["ended_count"] == len(marks)


@pytest.mark.parametrize("wish", ["transactionCheckMax", "brokerName=x", "transactionCheckMax=many"])
def test_a_setting_that_is_none(rmqtx: Run, common: Path, wish: str) -> None:
    result = rmqtx("simulate", common, "--with", wish)
    assert result.status == exit_status.USAGE
    assert result.err.startswith(f"rmqtx: --with {wish}: ")


def test_unknown_cursors_must_be_given(rmqtx: Run, tmp_path: Path) -> None:
    store = copy_of("fifteen-5.3.3", tmp_path)
    for file in (store / "config").glob("consumerOffset.json*"):
        file.write_text("{")
    result = rmqtx("simulate", store)
    assert result.status == exit_status.UNREADABLE
    assert "--half-cursor N --op-cursor M" in result.err
    assert rmqtx("simulate", store, "--half-cursor", "0", "--op-cursor", "0").status in (
        exit_status.DONE, exit_status.INCOMPLETE,
    )  # fmt: skip


def test_what_keeps_it_from_being_known(rmqtx: Run, tmp_path: Path) -> None:
    store = copy_of("fifteen-5.3.3", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRole=SLAVE\n")
    assert "a slave does not check" in rmqtx("simulate", store, "--broker-conf", conf).err
    (store / "consumequeue" / "RMQ_SYS_TRANS_HALF_TOPIC").rename(tmp_path / "taken away")
    result = rmqtx("simulate", store)
    assert (result.status, "it has no half queue" in result.err) == (exit_status.DONE, True)
    (store / "consumequeue" / "CURRENT").write_text("MANIFEST-000001\n")
    result = rmqtx("simulate", store)
    assert (result.status, "are in RocksDB" in result.err) == (exit_status.UNREADABLE, True)


def test_a_half_that_ends_every_round(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    result = rmqtx("simulate", corpus_store("poison-4.3.0"), "--show", "transactions", "--format", "jsonl")
    assert "every round ends in an exception at half queue offset 23" in result.err
    assert {row["end"] for row in rows(result.out)} == {None}


def test_every_store_of_the_corpus(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    for name in ("killed-4.4.0", "poison-4.3.0", "delayed-4.3.0", "multipath-5.1.4", "masked-5.5.0", "ipv6-4.9.7"):
        for show in ("checks", "rounds", "transactions"):
            result = rmqtx("simulate", corpus_store(name), "--show", show, "--format", "jsonl")
            assert result.status in (exit_status.DONE, exit_status.INCOMPLETE), (name, show, result.err)
            rows(result.out)
