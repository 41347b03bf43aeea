"""`hold`, `release` and `holds` at brokers that serve a store: what is shown, set, read back, refused and recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live import lookups
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.repairs.holds import after_a_round, changes
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.verdicts.model.reading import VerdictReading
from tests.cli.conftest import Run
from tests.remoting.store_broker import Served
from tests.remoting.test_discovery import entry, name_server

NOBODY = "127.0.0.1:1"
HOLD = ("hold", "--for", "4h", "--reason", "shop is down", "--no-wait", "--yes")
#: No half message of the store is too old, and a limit that none has reached.
CALM = {"fileReservedTime": "1000000", "transactionCheckMax": "50"}
Row = dict[str, Any]


class Two(Served):
    """Two brokers to hold."""

    def __init__(self, store: Path, stack: ExitStack) -> None:
        super().__init__(store, stack, CALM, 2)

    def now(self, name: str = "transactionCheckMax") -> list[str]:
        """The present value of a setting of both."""
        return [broker.more_conf[name] for broker in self.brokers]


@pytest.fixture
def two(common: Path) -> Iterator[Two]:
    with ExitStack() as stack:
        yield Two(common, stack)


def rows(text: str) -> list[Row]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def outcomes(result: Any) -> list[str]:
    return [row["outcome"] for row in rows(result.out)]


def test_held_and_released(rmqtx: Run, two: Two) -> None:
    held = rmqtx(*HOLD, *two.options, "--format", "jsonl")
    assert (held.status, outcomes(held)) == (0, ["proved", "proved"]), held.err
    assert two.now() == ["1000000", "1000000"]
    assert [row["settings"] for row in rows(held.out)] == 2 * [
        [{"setting": "transactionCheckMax", "before": "50", "after": "1000000"}]
    ]
    assert [len(row["requests"]) for row in rows(held.out)] == [1, 1]
    listed = rmqtx("holds", *two.options, "--format", "jsonl")
    assert (listed.status, [row["hold_state"] for row in rows(listed.out)]) == (0, ["held", "held"])
    assert [(row["before"], row["after"], row["now"]) for row in rows(listed.out)] == 2 * [("50", "1000000", "1000000")]
    assert {row["reason"] for row in rows(listed.out)} == {"shop is down"}
    assert "the time of the hold ends in 3h59m" in listed.err
    released = rmqtx("release", *two.options, "--yes", "--format", "jsonl")
    assert (released.status, outcomes(released)) == (0, ["proved", "proved"]), released.err
    assert two.now() == ["50", "50"]
    assert rmqtx("holds", *two.options, "--format", "jsonl").out == ""


def test_what_follows_is_said_before_the_question(rmqtx: Run, two: Two) -> None:
    shown = rmqtx(*HOLD[:-1], *two.options, "--dry-run")
    assert (shown.status, shown.out) == (0, "")
    assert two.now() == ["50", "50"]
    for text in (
        "transactionCheckMax from 50 to 1000000", "without the hold the check discards the first at",
        "the checks go on", "an hour", ".bak", "--dry-run (2 brokers would be changed)", "then rmqtx release",
    ):
        assert text in shown.err
    assert "fileReservedTime" not in shown.err
    assert not Journal().read().receipts
    asked = rmqtx(*HOLD[:-1], *two.options)
    assert asked.status == 2
    assert "standard input is not a terminal" in asked.err
    assert two.now() == ["50", "50"]


def test_halves_near_file_reserved_time_get_a_longer_one(rmqtx: Run, two: Two) -> None:
    for broker in two.brokers:
        broker.more_conf["fileReservedTime"] = "72"
    held = rmqtx(*HOLD, *two.options, "--format", "jsonl")
    assert held.status == 0, held.err
    assert "old files stay on the disk" in held.err
    (hours,) = set(two.now("fileReservedTime"))
    assert 72 < int(hours) < 100_000
    refused = rmqtx("release", *two.options, "--yes", "--format", "jsonl")
    assert (refused.status, outcomes(refused)) == (12, ["refused_by_guard"] * 2)
    assert refused.err.count("refused by discards-pending") == 2
    assert two.now("fileReservedTime") == [hours, hours]
    override = ("--override", "discards-pending")
    assert rmqtx("release", *two.options, "--yes", *override).status == 2
    done = rmqtx("release", *two.options, "--yes", *override, "--reason", "cancelled", "--format", "jsonl")
    assert (done.status, two.now("fileReservedTime"), two.now()) == (0, ["72", "72"], ["50", "50"])
    assert {tuple(row["overrides"]) for row in rows(done.out)} == {("discards-pending",)}


def test_what_has_used_its_checks_may_be_too_late(rmqtx: Run, two: Two) -> None:
    two.brokers[0].more_conf["transactionCheckMax"] = "2"
    shown = rmqtx(*HOLD[:-1], *two.options, "--dry-run")
    assert shown.err.count("may be too late for") == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ResponseCode.SYSTEM_ERROR, "code 1: refused by the test"),
        (ResponseCode.SUCCESS, "the broker answered 0 and kept the values: transactionCheckMax is 50"),
    ],
)
def test_one_of_two_refuses(rmqtx: Run, two: Two, code: ResponseCode, words: str) -> None:
    two.brokers[1].refuses_settings = code
    held = rmqtx(*HOLD, *two.options, "--format", "jsonl")
    assert (held.status, outcomes(held)) == (17, ["proved", "refused_by_broker"])
    assert f"broker-b@{two.servers[1].address}: refused_by_broker: {words}" in held.err
    listed = rmqtx("holds", *two.options, "--format", "jsonl")
    assert [row["store"] for row in rows(listed.out)] == [f"broker-a@{two.servers[0].address}"]
    alone = rmqtx(*HOLD, "--broker", two.servers[1].address)
    assert alone.status == 15


def test_one_of_three_is_down(rmqtx: Run, two: Two) -> None:
    listed = {
        name: entry(name, "c", id0=address)
        for name, address in (
            ("broker-a", two.servers[0].address), ("broker-b", two.servers[1].address), ("broker-c", NOBODY),
        )
    }
    with name_server(listed) as names:
        held = rmqtx(*HOLD, "-n", names.address, "--format", "jsonl")
        assert (held.status, outcomes(held)) == (17, ["proved", "proved", "not_sent"])
        assert f"broker-c@{NOBODY}: " in held.err
        there = rmqtx("holds", "-n", names.address, "--format", "jsonl")
        assert (there.status, [row["hold_state"] for row in rows(there.out)]) == (3, ["held", "held"])
        del listed["broker-b"]
        part = rmqtx("release", "-n", names.address, "--yes", "--format", "jsonl")
        assert (part.status, outcomes(part)) == (0, ["proved"])
        assert f"is held too and is not one of these: rmqtx release --broker {two.servers[1].address}" in part.err
        assert f"broker-c@{NOBODY}: unknown whether another operator holds it" in part.err
    alone = rmqtx("release", *two.options[2:], "--yes", "--format", "jsonl")
    assert (alone.status, two.now()) == (0, ["50", "50"])


def test_changed_by_another_hand(rmqtx: Run, two: Two) -> None:
    rmqtx(*HOLD, *two.options)
    two.brokers[0].more_conf["transactionCheckMax"] = "777"
    states = [row["hold_state"] for row in rows(rmqtx("holds", *two.options, "--format", "jsonl").out)]
    assert states == ["changed", "held"]
    refused = rmqtx("release", *two.options, "--yes", "--format", "jsonl")
    assert (refused.status, outcomes(refused)) == (17, ["refused_by_guard", "proved"])
    assert "transactionCheckMax is 777, expected 1000000 (the hold) or 50 (before)" in refused.err
    assert two.now() == ["777", "50"]
    done = rmqtx("release", *two.options[:2], "--yes", "--override", "changed-since", "--reason", "asked them")
    assert (done.status, two.now()) == (0, ["50", "50"])


def test_put_back_by_another_hand_ends_without_a_request(rmqtx: Run, two: Two) -> None:
    rmqtx(*HOLD, *two.options[:2])
    two.brokers[0].more_conf["transactionCheckMax"] = "50"
    sent = two.brokers[0].counts[RequestCode.UPDATE_BROKER_CONFIG]
    listed = rmqtx("holds", *two.options[:2], "--format", "jsonl")
    assert [row["hold_state"] for row in rows(listed.out)] == ["put_back"]
    done = rmqtx("release", *two.options[:2], "--yes", "--format", "jsonl")
    assert (done.status, outcomes(done)) == (0, ["proved"])
    assert two.brokers[0].counts[RequestCode.UPDATE_BROKER_CONFIG] == sent
    assert rmqtx("holds", "--format", "jsonl").out == ""


def test_changed_between_the_question_and_the_request(
    rmqtx: Run, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = changes._change

    def after_another_hand(one: changes.CheckedChange, journal: Journal) -> None:
        two.brokers[1].more_conf["transactionCheckMax"] = "60"
        real(one, journal)

    with monkeypatch.context() as patch:
        patch.setattr(changes, "_change", after_another_hand)
        held = rmqtx(*HOLD, *two.options, "--format", "jsonl")
    assert (held.status, outcomes(held), two.now()) == (17, ["proved", "refused_by_guard"], ["1000000", "60"])
    assert "changed-since: transactionCheckMax is 60, and was 50 when it was shown - run the command again" in held.err


def test_a_second_hold_extends_the_first(rmqtx: Run, two: Two) -> None:
    one = two.options[:2]
    rmqtx(*HOLD, *one)
    again = rmqtx("hold", "--for", "8h", "--reason", "still down", "--yes", "--no-wait", *one)
    assert again.status == 0
    assert "transactionCheckMax stays 1000000" in again.err
    (row,) = rows(rmqtx("holds", *one, "--format", "jsonl").out)
    assert (row["before"], row["after"], row["reason"], len(row["receipt_ids"])) == ("50", "1000000", "still down", 2)
    assert row["until_time_ms"] - row["since_time_ms"] > 7 * 3_600_000
    assert rmqtx("release", *one, "--yes").status == 0
    assert two.now() == ["50", "50"]


def test_the_time_of_a_hold_passes(rmqtx: Run, two: Two) -> None:
    rmqtx("hold", "--for", "1ms", "--reason", "short", "--yes", "--no-wait", *two.options)
    listed = rmqtx("holds", *two.options, "--format", "jsonl", "--fail-on", "hold_state != held")
    assert (listed.status, [row["hold_state"] for row in rows(listed.out)]) == (1, ["overdue", "overdue"])
    assert "release it" in listed.err


def test_a_crash_between_two_brokers_is_known_to_the_next_command(
    rmqtx: Run, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = changes._change
    calls: list[changes.CheckedChange] = []

    def one_then_killed(one: changes.CheckedChange, journal: Journal) -> None:
        if calls:
            raise KeyboardInterrupt
        calls.append(one)
        real(one, journal)

    with monkeypatch.context() as patch:
        patch.setattr(changes, "_change", one_then_killed)
        assert rmqtx(*HOLD, *two.options).status == 130
    assert two.now() == ["1000000", "50"]
    assert [receipt.outcome for receipt in Journal().read().receipts] == ["proved", "unknown"]
    listed = rmqtx("holds", *two.options, "--format", "jsonl")
    assert [row["hold_state"] for row in rows(listed.out)] == ["held", "put_back"]
    assert listed.err.count("no proved outcome") == 1
    done = rmqtx("release", *two.options, "--yes", "--format", "jsonl")
    assert (done.status, outcomes(done), two.now()) == (0, ["proved", "proved"], ["50", "50"])
    assert rmqtx("holds", "--format", "jsonl").out == ""


def test_nothing_is_held_here(rmqtx: Run, two: Two) -> None:
    refused = rmqtx("release", *two.options, "--yes", "--format", "jsonl")
    assert (refused.status, outcomes(refused)) == (12, ["refused_by_guard"] * 2)
    assert "refused by not-held" in refused.err
    two.brokers[0].more_conf["transactionCheckMax"] = "1000000"
    listed = rmqtx("holds", *two.options, "--format", "jsonl")
    assert [(row["store"], row["hold_state"]) for row in rows(listed.out)] == [
        (f"broker-a@{two.servers[0].address}", "unrecorded")
    ]
    assert "another operator" in rmqtx("release", *two.options[:2], "--yes").err
    held = rmqtx(*HOLD, *two.options, "--format", "jsonl")
    assert (held.status, len(rows(held.out))) == (0, 1)
    assert "its limits are higher already" in held.err


@pytest.mark.parametrize("state", ["PENDING", "DISCARDED", "LOST"])
def test_a_round_is_awaited_and_what_was_discarded_before_is_named(
    rmqtx: Run, two: Two, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broker in two.brokers:
        broker.more_conf |= {"transactionCheckInterval": "100", "transactionCheckMax": "2"}
    real = lookups.lookup

    def later(brokers: Sequence[Broker], ids: Sequence[str]) -> VerdictReading:
        assert ids  # those that have used all checks but one, or all
        reading = real(brokers, ids)
        rows = [row | {"state": state} for row in reading.table().to_pylist()]
        reading.batches = pa.Table.from_pylist(rows, reading.schema).to_batches()
        return reading

    monkeypatch.setattr(after_a_round, "lookup", later)
    words = [word for word in HOLD if word != "--no-wait"]
    held = rmqtx(*words, *two.options, "--format", "jsonl")
    assert "waiting 2s for a round of the check" in held.err
    if state == "PENDING":
        assert (held.status, outcomes(held)) == (0, ["proved"] * 2), held.err
        notes = {row["notes"][-1] for row in rows(held.out)}
        assert notes == {"a round of the check was awaited, and nothing was discarded"}
    else:
        assert (held.status, outcomes(held)) == (18, ["contradicted"] * 2)
        assert "discarded before the hold acted" in held.err
        assert "rmqtx resume" in held.err
    assert [receipt.outcome for receipt in Journal().read().receipts] == outcomes(held)
    listed = rmqtx("holds", *two.options, "--format", "jsonl")
    assert [row["hold_state"] for row in rows(listed.out)] == ["held", "held"]
    assert "no proved outcome" not in listed.err


def test_the_same_broker_by_another_name_of_its_host(rmqtx: Run, two: Two) -> None:
    rmqtx(*HOLD, *two.options[:2])
    port = two.servers[0].address.rpartition(":")[2]
    refused = rmqtx("release", "--broker", f"localhost:{port}", "--yes")
    assert refused.status == 12
    assert f"if that is the same broker: --broker {two.servers[0].address}" in refused.err


def test_words_that_are_refused(rmqtx: Run, two: Two) -> None:
    for words in (
        ("hold", "--for", "0s", "--reason", "x"), ("hold", "--for", "4", "--reason", "x"), ("hold", "--for", "4h"),
        ("hold", "--for", "4h", "--reason", " "), ("release", "--override", "no-such", "--reason", "x"),
        ("release", "--override", "not-held", "--reason", "x"),
    ):
        assert rmqtx(*words, *two.options).status == 2, words
    assert rmqtx("hold", "--for", "4h", "--reason", "x").status == 2


def test_monitoring_warns_while_a_hold_is_on_and_after_its_time(
    rmqtx: Run, two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ("--state-dir", tmp_path, "--warning", "90d", "--critical", "99d")
    words = ("check", "--broker", two.servers[0].address, *limits)
    assert "held" not in rmqtx(*words).out
    rmqtx(*HOLD, *two.options)
    held = rmqtx(*words)
    assert (held.status, held.out.startswith("RMQTX WARNING - ")) == (1, True), held.out
    assert f"broker-a@{two.servers[0].address} is held until " in held.out
    assert json.loads(rmqtx(*words, "--format", "json").out)["stores"][0]["held"].endswith("its check discards nothing")
    rmqtx(*words, "--textfile", tmp_path / "rmqtx.prom")
    assert re.search(r"^rmqtx_held\{.*\} 1$", (tmp_path / "rmqtx.prom").read_text(), re.MULTILINE)
    rmqtx("hold", "--for", "1ms", "--reason", "short", "--yes", "--no-wait", *two.options)
    assert f"the hold of broker-a@{two.servers[0].address} is over since " in rmqtx(*words).out
    with monkeypatch.context() as patch:  # monitoring runs as another user
        patch.setenv("RMQTX_STATE_DIR", str(tmp_path / "other"))
        assert "is as rmqtx hold sets it (until when: unknown here)" in rmqtx(*words).out
    assert rmqtx("release", *two.options, "--yes").status == 0
    assert "held" not in rmqtx(*words).out
    two.brokers[0].more_conf["transactionCheckMax"] = "2147483647"  # set on purpose
    assert "held" not in rmqtx(*words).out


@pytest.mark.parametrize(("hours", "reserved"), [("1000000", False), ("72", True)])
def test_of_a_stopped_broker_the_lines_for_its_configuration_are_printed(
    rmqtx: Run, common: Path, tmp_path: Path, hours: str, *, reserved: bool
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"transactionCheckMax=7\nfileReservedTime={hours}\n")
    shown = rmqtx("hold", "--store", common, "--for", "4h", "--broker-conf", conf)
    assert shown.status == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0] == "transactionCheckMax=1000000"
    assert [line.partition("=")[0] for line in lines[1:]] == (["fileReservedTime"] if reserved else [])
    if reserved:
        assert int(lines[1].partition("=")[2]) > 72
    assert "nothing was written" in shown.err
    assert "before: transactionCheckMax=7" in shown.err
    assert conf.read_text() == f"transactionCheckMax=7\nfileReservedTime={hours}\n"
    assert not Journal().read().receipts


def test_of_a_stopped_broker_with_limits_that_suffice_there_is_nothing_to_print(
    rmqtx: Run, common: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("transactionCheckMax=2000000\nfileReservedTime=1000000\n")
    shown = rmqtx("hold", "--store", common, "--for", "4h", "--broker-conf", conf)
    assert (shown.status, shown.out) == (0, "")
    assert "nothing to change" in shown.err
    assumed = rmqtx("hold", "--store", common, "--for", "4h")
    assert "transactionCheckMax=1000000" in assumed.out
    assert "assumed: transactionCheckMax 15 and fileReservedTime 72" in assumed.err


def test_what_is_for_live_brokers_is_refused_with_a_store(rmqtx: Run, common: Path, two: Two) -> None:
    words = ("hold", "--store", common, "--for", "4h")
    for more in (two.options[:2], ("--yes",), ("--no-wait",), ("--format", "json")):
        assert rmqtx(*words, *more).status == 2, more
    assert rmqtx(*HOLD, *two.options, "--broker-conf", common).status == 2
