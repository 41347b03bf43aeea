"""`drain` at brokers that serve a store: what is shown, set, waited for, refused, interrupted and released."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live import lookups
from rmqtx.remoting.live.deadlines import OPS_HIDDEN
from rmqtx.remoting.live.queues import OpsUnreadable
from rmqtx.remoting.live.witnesses import LiveWitnesses
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.errors import NoAnswer
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.repairs.holds import draining, open_halves
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.verdicts.check.check_rules import CheckRules
from rmqtx.verdicts.model.predicted import Prediction
from rmqtx.verdicts.model.reading import VerdictReading
from tests.cli.conftest import Run
from tests.remoting.fake import response
from tests.remoting.store_broker import Served, StoreBroker
from tests.remoting.test_discovery import entry, name_server

DRAIN = ("drain", "--yes", "--for", "1ms")
REJECT, OP_BATCH = "rejectTransactionMessage", "transactionOpBatchInterval"
BEFORE = {REJECT: "false", OP_BATCH: "3000"}
DRAINED = {REJECT: "true", OP_BATCH: "100"}
CALM = {"fileReservedTime": "1000000", "transactionCheckMax": "50", REJECT: "false"}
Row = dict[str, Any]


class Draining(Served):
    """Brokers to drain."""

    def __init__(self, store: Path, stack: ExitStack, count: int = 1) -> None:
        super().__init__(store, stack, CALM | {OP_BATCH: "3000"}, count)

    def now(self) -> list[dict[str, str]]:
        """The present values of both settings of each broker."""
        return [{name: broker.more_conf.get(name, "") for name in BEFORE} for broker in self.brokers]

    def root(self, number: int = 0) -> str:
        """The name of a broker."""
        return f"{self.brokers[number].name}@{self.servers[number].address}"


@pytest.fixture
def one(common: Path) -> Iterator[Draining]:
    with ExitStack() as stack:
        yield Draining(common, stack)


@pytest.fixture
def two(common: Path) -> Iterator[Draining]:
    with ExitStack() as stack:
        yield Draining(common, stack, 2)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "_UNDER_WAY_SECONDS", 0.0)
    monkeypatch.setattr(draining, "_PAUSE_SECONDS", 0.05)


def rows(text: str) -> list[Row]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def outcomes(result: Any) -> list[str]:
    return [row["outcome"] for row in rows(result.out)]


def emptied(broker: StoreBroker) -> None:
    """Let the check's cursors be at the ends of the queues: everything is settled."""

    def cursor(request: Frame) -> Frame:
        return broker._ends(request, 1)

    broker._answers[RequestCode.QUERY_CONSUMER_OFFSET] = cursor


def after_update(broker: StoreBroker, times: int, act: Callable[[], None]) -> None:
    """Do something when the broker has been asked for its configuration some times after its settings were set."""
    real = broker._answers[RequestCode.GET_BROKER_CONFIG]
    seen = [0]

    def config(request: Frame) -> Frame:
        if broker.counts.get(RequestCode.UPDATE_BROKER_CONFIG):
            seen[0] += 1
            if seen[0] == times:
                act()
        return real(request)

    broker._answers[RequestCode.GET_BROKER_CONFIG] = config


def test_drained_and_released(rmqtx: Run, one: Draining, quick: None) -> None:
    emptied(one.brokers[0])
    done = rmqtx("drain", "--yes", "--for", "30s", "--reason", "kernel", *one.options, "--format", "jsonl")
    assert (done.status, outcomes(done), one.now()) == (0, ["proved"], [DRAINED]), done.err
    (row,) = rows(done.out)
    assert [(one["setting"], one["before"], one["after"]) for one in row["settings"]] == [
        (REJECT, "false", "true"), (OP_BATCH, "3000", "100"),
    ]
    assert len(row["requests"]) == 1
    assert "no transaction is open" in row["notes"][-1]
    assert f"{one.root()}: safe to stop now: no transaction is open" in done.err
    assert f"after its start: rmqtx release --broker {one.servers[0].address}" in done.err
    listed = rmqtx("holds", *one.options, "--format", "jsonl")
    assert [(row["setting"], row["hold_state"]) for row in rows(listed.out)] == [(REJECT, "held"), (OP_BATCH, "held")]
    assert f"{one.root()}: drained since 20" in listed.err
    released = rmqtx("release", *one.options, "--yes", "--format", "jsonl")
    assert (released.status, outcomes(released), one.now()) == (0, ["proved"], [BEFORE]), released.err
    assert "the broker accepts transactions again" in released.err
    assert rmqtx("holds", "--format", "jsonl").out == ""


def test_what_is_open_is_listed_and_the_time_passes(rmqtx: Run, one: Draining, quick: None) -> None:
    late = rmqtx(*DRAIN, *one.options, "--format", "jsonl")
    assert (late.status, outcomes(late), one.now()) == (1, ["proved"], [DRAINED])
    assert "half messages without an op message" in late.err
    assert "discarded at 20" in late.err
    assert "not safe to stop: the time is over: " in late.err
    assert "safe to stop now" not in late.err
    assert f"what is set stays set ({REJECT} true, {OP_BATCH} 100)" in late.err
    assert "the time is over" in rows(late.out)[0]["notes"][-1]
    again = rmqtx(*DRAIN, *one.options, "--format", "jsonl")
    assert again.status == 1
    assert f"{REJECT} stays true" in again.err
    assert one.brokers[0].counts[RequestCode.UPDATE_BROKER_CONFIG] == 1
    assert rmqtx("release", *one.options, "--yes").status == 0
    assert one.now() == [BEFORE]


def test_what_follows_is_said_before_the_question(rmqtx: Run, one: Draining) -> None:
    shown = rmqtx("drain", *one.options, "--dry-run")
    assert (shown.status, shown.out, one.now()) == (0, "", [BEFORE])
    for text in (
        f"{REJECT} from false to true", f"{OP_BATCH} from 3000 to 100", "get response 16", "open half messages",
        "the check discards the first at", ".bak", "--dry-run (1 broker would be changed)",
    ):
        assert text in shown.err, text
    assert not Journal().read().receipts
    asked = rmqtx("drain", *one.options)
    assert (asked.status, one.now()) == (2, [BEFORE])


@pytest.mark.parametrize("value", ["0", "50", "100"])
def test_a_short_op_interval_stays_and_no_zero_is_set(rmqtx: Run, one: Draining, quick: None, value: str) -> None:
    one.brokers[0].more_conf[OP_BATCH] = value
    emptied(one.brokers[0])
    assert rmqtx("drain", "--yes", "--for", "30s", *one.options).status == 0
    assert one.now() == [{REJECT: "true", OP_BATCH: value}]


@pytest.mark.parametrize("interval", ["3000", "100"])
def test_already_refused_by_another_operator(rmqtx: Run, one: Draining, quick: None, interval: str) -> None:
    one.brokers[0].more_conf |= {REJECT: "true", OP_BATCH: interval}
    emptied(one.brokers[0])
    done = rmqtx("drain", "--yes", "--for", "30s", *one.options, "--format", "jsonl")
    assert (done.status, one.now()) == (0, [DRAINED]), done.err
    assert "release does not end that" in done.err
    assert "safe to stop now" in done.err
    assert [row["setting"] for receipt in rows(done.out) for row in receipt["settings"]] == (
        [OP_BATCH] if interval == "3000" else []
    )
    listed = [row["hold_state"] for row in rows(rmqtx("holds", *one.options, "--format", "jsonl").out)]
    assert listed == (["held"] if interval == "3000" else ["unrecorded"])
    if interval == "100":
        assert "another operator may drain it" in rmqtx("release", *one.options, "--yes").err


def test_a_slave_and_a_broker_without_half_messages_are_refused(rmqtx: Run, one: Draining) -> None:
    one.brokers[0].more_conf["brokerRole"] = "SLAVE"
    refused = rmqtx(*DRAIN, *one.options, "--format", "jsonl")
    assert (refused.status, outcomes(refused), one.now()) == (12, ["refused_by_guard"], [BEFORE])
    assert "the broker is a slave" in refused.err


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ResponseCode.SYSTEM_ERROR, "code 1: refused by the test"),
        (ResponseCode.SUCCESS, "the broker answered 0 and kept the values"),
    ],
)
def test_one_of_two_refuses(rmqtx: Run, two: Draining, quick: None, code: ResponseCode, words: str) -> None:
    for broker in two.brokers:
        emptied(broker)
    two.brokers[1].refuses_settings = code
    done = rmqtx("drain", "--yes", "--for", "30s", *two.options, "--format", "jsonl")
    assert (done.status, outcomes(done), two.now()) == (17, ["proved", "refused_by_broker"], [DRAINED, BEFORE])
    assert f"{two.root()}: safe to stop now" in done.err
    assert f"{two.root(1)}: safe" not in done.err
    assert f"{two.root(1)}: refused_by_broker: {words}" in done.err
    alone = rmqtx(*DRAIN, *two.options[2:])
    assert alone.status == 15
    assert "safe to stop now" not in alone.err


def test_one_of_two_is_not_empty(rmqtx: Run, two: Draining, quick: None) -> None:
    emptied(two.brokers[0])
    done = rmqtx("drain", "--yes", "--for", "1s", *two.options)
    assert done.status == 17
    assert f"{two.root()}: safe to stop now" in done.err
    assert f"{two.root(1)}: not safe to stop" in done.err


def test_a_broker_must_be_named(rmqtx: Run, one: Draining) -> None:
    with name_server({"broker-a": entry("broker-a", "c", id0=one.servers[0].address)}) as names:
        assert rmqtx(*DRAIN, "-n", names.address).status == 2
        assert rmqtx("drain", "-n", names.address, "--broker", "broker-a", "--dry-run").status == 0
    assert rmqtx("drain", "--for", "0s", *one.options).status == 2
    assert one.now() == [BEFORE]


def test_set_by_another_hand_during_the_wait(rmqtx: Run, one: Draining, quick: None) -> None:
    broker = one.brokers[0]
    emptied(broker)
    after_update(broker, 2, lambda: broker.more_conf.update({REJECT: "false"}))
    done = rmqtx("drain", "--yes", "--for", "30s", *one.options, "--format", "jsonl")
    assert (done.status, outcomes(done)) == (18, ["contradicted"]), done.err
    assert f"another operator changed a setting: {REJECT} is false, and the drain set true" in done.err
    assert "safe to stop now" not in done.err
    assert rmqtx("release", *one.options, "--yes").status == 0
    assert one.now() == [BEFORE]


def test_set_by_another_hand_between_two_readings_of_the_last_look(rmqtx: Run, one: Draining, quick: None) -> None:
    broker = one.brokers[0]
    emptied(broker)
    after_update(broker, 4, lambda: broker.more_conf.update({REJECT: "false"}))
    assert rmqtx("drain", "--yes", "--for", "30s", *one.options).status == 18


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_the_wait_and_not_the_drain(
    rmqtx: Run, one: Draining, quick: None, number: signal.Signals
) -> None:
    after_update(one.brokers[0], 3, lambda: os.kill(os.getpid(), number))
    done = rmqtx("drain", "--yes", "--for", "60s", *one.options, "--format", "jsonl")
    assert (done.status, outcomes(done), one.now()) == (130, ["proved"], [DRAINED]), done.err
    assert "not safe to stop: interrupted" in done.err
    assert "what is set stays set" in done.err
    assert f"rmqtx release --broker {one.servers[0].address}" in done.err
    assert rmqtx("release", *one.options, "--yes").status == 0


def test_a_broker_that_is_stopped_during_the_wait(rmqtx: Run, one: Draining, quick: None) -> None:
    after_update(one.brokers[0], 3, lambda: one.servers[0].__exit__(None, None, None))
    done = rmqtx("drain", "--yes", "--for", "1s", "--timeout", "200ms", *one.options)
    assert done.status == 14
    assert "not safe to stop: the broker could not be read" in done.err


def test_a_right_that_is_missing_before_and_during_the_wait(rmqtx: Run, one: Draining, quick: None) -> None:
    broker = one.brokers[0]
    emptied(broker)

    def refused(request: Frame) -> Frame:
        return response(request, ResponseCode.NO_PERMISSION, "no permission to access Cluster:c")

    def take_away() -> None:
        broker._answers[RequestCode.GET_BROKER_RUNTIME_INFO] = refused

    after_update(broker, 1, take_away)
    late = rmqtx("drain", "--yes", "--for", "1s", *one.options)
    assert (late.status, one.now()) == (15, [DRAINED]), late.err
    assert "not safe to stop: the broker could not be read" in late.err
    assert "no permission to access Cluster:c" in late.err
    early = rmqtx("drain", "--yes", "--for", "1s", *one.options)
    assert (early.status, "safe to stop now" in early.err) == (15, False)


def test_an_op_queue_that_is_not_served_leaves_it_unknown(
    rmqtx: Run, one: Draining, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_served(source: LiveWitnesses, rules: CheckRules) -> None:
        raise OpsUnreadable(f"{source.root} {rules}")

    monkeypatch.setattr(LiveWitnesses, "check_window", not_served)
    monkeypatch.setattr(open_halves, "predict_from_live", lambda *_: Prediction(is_running=True, why=OPS_HIDDEN))
    late = rmqtx("drain", "--yes", "--for", "300ms", *one.options)
    assert (late.status, one.now()) == (3, [DRAINED]), late.err
    assert "unknown whether a transaction is open: the broker does not serve its op queue" in late.err


@pytest.mark.parametrize(("what", "status"), [("undecidable", 3), ("error", 3), ("open", 1)])
def test_what_the_other_way_of_reading_finds_keeps_it_from_being_safe(
    rmqtx: Run, one: Draining, quick: None, monkeypatch: pytest.MonkeyPatch, what: str, status: int
) -> None:
    emptied(one.brokers[0])
    real = lookups.pending

    def found(brokers: Sequence[Broker]) -> VerdictReading:
        reading = real(brokers)
        if what == "undecidable":
            reading.undecidable[one.root(), "why"] = 1
        elif what == "error":
            reading.findings.append(Finding(one.root(), "ops-unreadable", actual="4 entries"))
        else:
            row = {"store": one.root(), "transaction_id": "A1", "producer_group": "g", "topic": "t"}
            columns = {name: [row.get(name)] for name in reading.schema.names}
            reading.batches = pa.table(columns, reading.schema).to_batches()
        return reading

    monkeypatch.setattr(draining, "pending", found)
    late = rmqtx("drain", "--yes", "--for", "300ms", *one.options)
    assert (late.status, "safe to stop now" in late.err) == (status, False), late.err


def test_a_half_message_that_appears_between_two_readings_is_waited_for(
    rmqtx: Run, one: Draining, quick: None
) -> None:
    """The half queue is one shorter at first, as if its last record were not dispatched yet."""
    broker = one.brokers[0]
    ends = broker._answers[RequestCode.GET_MAX_OFFSET]
    is_short = [True]

    def end(request: Frame) -> Frame:
        found = ends(request)
        if is_short[0] and request.fields["topic"] == HALF_TOPIC:
            return response(request, offset=str(int(found.fields["offset"]) - 1))
        return found

    broker._answers[RequestCode.GET_MAX_OFFSET] = end
    broker._answers[RequestCode.QUERY_CONSUMER_OFFSET] = end
    after_update(broker, 3, lambda: is_short.__setitem__(0, False))
    done = rmqtx("drain", "--yes", "--for", "30s", *one.options)
    last = int(ends(Frame(0, 0, {"topic": HALF_TOPIC, "queueId": "0"}, b"")).fields["offset"])
    assert (done.status, f"up to half message {last - 1}" in done.err) == (0, True), done.err
    assert broker.counts[RequestCode.GET_BROKER_CONFIG] >= 6


@pytest.mark.parametrize("is_answered", [True, False])
def test_what_was_discarded_meanwhile_is_named(
    rmqtx: Run, one: Draining, quick: None, monkeypatch: pytest.MonkeyPatch, *, is_answered: bool
) -> None:
    broker = one.brokers[0]
    broker.more_conf["transactionCheckMax"] = "1"  # the next round discards them
    after_update(broker, 3, lambda: emptied(broker))

    def discarded(_: Broker, ids: Sequence[str]) -> list[str]:
        assert ids
        if not is_answered:
            raise NoAnswer("no answer")
        return list(ids)

    monkeypatch.setattr(draining, "discarded_of", discarded)
    done = rmqtx("drain", "--yes", "--for", "30s", *one.options, "--format", "jsonl")
    assert (done.status, "safe to stop now" in done.err) == (0, True), done.err
    words = "discarded by the check meanwhile: " if is_answered else "unknown whether a half message was discarded"
    assert words in done.err
    assert words in rows(done.out)[0]["notes"][-1]


def test_what_is_not_dispatched_yet_is_waited_for(rmqtx: Run, one: Draining, quick: None) -> None:
    broker = one.brokers[0]
    emptied(broker)
    real = broker._answers[RequestCode.GET_BROKER_RUNTIME_INFO]

    def behind(request: Frame) -> Frame:
        table = json.loads(real(request).body)
        table["table"]["dispatchBehindBytes"] = "1"
        return response(request, body=json.dumps(table).encode())

    broker._answers[RequestCode.GET_BROKER_RUNTIME_INFO] = behind
    done = rmqtx("drain", "--yes", "--for", "500ms", *one.options)
    assert (done.status, "safe to stop now" in done.err) == (1, False)
    assert "the queues may lack half messages that the broker has accepted" in done.err


def test_a_hold_and_a_drain_of_one_broker_end_together(rmqtx: Run, one: Draining, quick: None) -> None:
    emptied(one.brokers[0])
    assert rmqtx("hold", "--for", "4h", "--reason", "down", "--no-wait", "--yes", *one.options).status == 0
    assert rmqtx("drain", "--yes", "--for", "30s", *one.options).status == 0
    listed = rows(rmqtx("holds", *one.options, "--format", "jsonl").out)
    assert [row["setting"] for row in listed] == ["transactionCheckMax", REJECT, OP_BATCH]
    assert {(row["reason"], row["until_time_ms"] is None) for row in listed} == {("down", False)}
    assert rmqtx("release", *one.options, "--yes").status == 0
    assert (one.now(), one.brokers[0].more_conf["transactionCheckMax"]) == ([BEFORE], "50")


def test_monitoring_warns_while_a_broker_is_drained(
    rmqtx: Run, one: Draining, quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied(one.brokers[0])
    words = ("check", *one.options, "--state-dir", tmp_path, "--warning", "90d", "--critical", "99d")
    assert "drained" not in rmqtx(*words).out
    assert rmqtx("drain", "--yes", "--for", "30s", *one.options).status == 0
    drained = rmqtx(*words)
    assert (drained.status, f"{one.root()} is drained: it refuses transactions since 20" in drained.out) == (1, True)
    with monkeypatch.context() as patch:  # monitoring runs as another user
        patch.setenv("RMQTX_STATE_DIR", str(tmp_path / "other"))
        assert "is drained: it refuses transactions (since when: unknown here)" in rmqtx(*words).out
    assert rmqtx("release", *one.options, "--yes").status == 0
    assert "drained" not in rmqtx(*words).out
    one.brokers[0].more_conf[REJECT] = "true"  # set on purpose
    assert "drained" not in rmqtx(*words).out
