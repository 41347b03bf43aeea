"""What `answer` and `probe` say without a broker, and what a canary's flights mean to monitoring."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import settings_of_broker
from rmqtx.repairs.acts.live_medium import settle_ms
from rmqtx.repairs.canary.probe_steps import ProbeRun, ProbeStep, allowed_times_ms, steps_table
from rmqtx_cli.monitoring.flights import as_json, flights_text, judged, performance, prometheus_text
from rmqtx_cli.monitoring.judge import CRITICAL, OK, UNKNOWN, WARNING, Thresholds
from tests.cli.conftest import Run

THRESHOLDS = Thresholds(2_000, 30_000)
STORE = "broker-a@127.0.0.1:10911"
LEDGER = ("--match", "keys = id", "--done", "s = PAID", "--not-done", "s = OFF")


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give exactly one source of answers - --plan FILE or --ledger PLACE"),
        (("--plan", "p.json", "--ledger", "l.csv"), "give exactly one source of answers"),
        (("--ledger", "l.csv", "--match", "keys = id"), "--ledger needs --done, --not-done"),
        (("--ledger", "jdbc:postgresql://db/shop", "--ledger-table", "orders", *LEDGER), "rmqtx reconcile --plan FILE"),
        (("--plan", "p.json", "--override", "immunity", "--reason", "x"), "producer-connected or another-rmqtx"),
        (("--plan", "p.json", "--override", "producer-connected"), "--override needs --reason"),
        (("--plan", "p.json", "--for", "5"), "is not a duration"),
    ],
)
def test_an_answer_without_a_word_is_2(rmqtx: Run, nobody: str, words: tuple[str, ...], says: str) -> None:
    result = rmqtx("answer", "--group", "shop", "-n", nobody, *words)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert says in result.err


def test_an_answer_without_a_broker_is_14(rmqtx: Run, nobody: str, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("id,s\n1,PAID\n")
    result = rmqtx("answer", "--group", "shop", "-n", nobody, "--ledger", tmp_path / "l.csv", *LEDGER)
    assert (result.status, result.out) == (14, "")
    assert nobody in result.err
    missing = rmqtx("answer", "--group", "shop", "-n", nobody, "--plan", tmp_path / "no.json")
    assert missing.status == 10


@pytest.mark.parametrize("words", [("--group", "g"), ("--topic", "t", "--group", "g", "--warning", "1h")])
def test_a_probe_that_is_asked_wrongly_is_unknown(rmqtx: Run, nobody: str, words: tuple[str, ...]) -> None:
    result = rmqtx("probe", "-n", nobody, *words)
    assert result.status == 3
    assert result.out.startswith("RMQTX UNKNOWN - ")
    assert result.out.count("\n") == 1


def test_a_probe_without_a_broker_is_critical_and_its_textfile_says_so(
    rmqtx: Run, nobody: str, tmp_path: Path
) -> None:
    file = tmp_path / "probe.prom"
    result = rmqtx("probe", "-n", nobody, "--topic", "t", "--group", "g", "--format", "nagios", "--textfile", file)
    assert result.status == 2
    assert result.out.startswith("RMQTX CRITICAL - ")
    assert nobody in result.out
    assert result.out.count("\n") == 1
    assert "rmqtx_probe_status 2\n" in file.read_text()
    told = json.loads(rmqtx("probe", "-n", nobody, "--topic", "t", "--group", "g", "--format", "json").out)
    assert (told["status"], told["brokers"]) == ("CRITICAL", [])


# -- flights ----------------------------------------------------------------------------------------------------------


def step(name: str = "deliver", duration_ms: int = 40, *, allowed_ms: int = 0, scenario: str = "commit") -> ProbeStep:
    return ProbeStep(STORE, scenario, name, True, duration_ms, allowed_ms, "T1", "seen", 1_790_000_000_000)


def test_a_flight_is_judged_by_what_it_took_beyond_what_it_may() -> None:
    fine = ProbeRun(STORE, [step(), step("ask", 36_000, allowed_ms=36_000, scenario="check")])
    assert judged([fine], THRESHOLDS).status == OK
    assert flights_text([fine], judged([fine], THRESHOLDS)) == "2 steps proved at 1 broker"
    late = ProbeRun(STORE, [step("ask", 39_000, allowed_ms=36_000, scenario="check")])
    outcome = judged([fine, late], THRESHOLDS)
    assert outcome.status == WARNING
    assert "check ask took 39s, 3s longer than its settings allow" in flights_text([late], outcome)
    assert judged([ProbeRun(STORE, [step("decide", 30_000)])], THRESHOLDS).status == CRITICAL


def test_what_is_not_proved_or_left_behind_is_critical() -> None:
    failed = ProbeRun(STORE, [step()], failure="commit: no COMMIT record")
    assert judged([failed], THRESHOLDS).reasons == [(CRITICAL, f"{STORE}: commit: no COMMIT record")]
    left = ProbeRun(STORE, [step()], left_open=["T1 (cut off)"])
    assert (judged([left], THRESHOLDS).status, left.is_proved) == (CRITICAL, False)
    assert judged([ProbeRun(STORE, is_interrupted=True)], THRESHOLDS).status == UNKNOWN


def test_performance_is_that_of_the_slowest_broker() -> None:
    flights = [ProbeRun(STORE, [step(duration_ms=40)]), ProbeRun("b", [step(duration_ms=1_456)])]
    assert performance(flights, THRESHOLDS) == "commit_deliver=1.456s;2;30;0"
    ask = ProbeRun(STORE, [step("ask", 3_621, allowed_ms=3_000, scenario="check")])
    assert performance([ask], THRESHOLDS) == "check_ask=3.621s;5;33;0"


def test_prometheus_and_json_say_the_same() -> None:
    flights = [ProbeRun('we"ird', [step()], swept=["T0"])]
    text = prometheus_text(flights, OK, 1_790_000_000_000)
    assert 'rmqtx_probe_proved{store="we\\"ird"} 1\n' in text
    assert f'rmqtx_probe_step_seconds{{store="{STORE}",scenario="commit",step="deliver"}} 0.04\n' in text
    told = json.loads(as_json(flights, judged(flights, THRESHOLDS), 1_790_000_000_000))
    assert told["brokers"][0]["ended_of_earlier_probes"] == ["T0"]
    assert told["brokers"][0]["steps"][0]["duration_ms"] == 40
    assert "1 transaction of earlier probes ended" in flights_text(flights, judged(flights, THRESHOLDS))
    assert steps_table(flights).to_pylist()[0]["proof"] == "seen"


def test_what_the_broker_may_take_comes_from_its_settings() -> None:
    conf = {"transactionTimeOut": "6000", "transactionCheckInterval": "30000", "transactionOpBatchInterval": "3000"}
    assert allowed_times_ms(settings_of_broker(conf, "5.3.3")) == {"ask": 36_000, "mark": 3_000, "end": 42_000}
    assert allowed_times_ms(settings_of_broker(conf, "4.9.7")) == {"ask": 36_000, "mark": 0, "end": 36_000}


def test_what_a_broker_does_not_report_is_the_default_of_its_release() -> None:
    assert allowed_times_ms(settings_of_broker({}, "5.3.3")) == {"ask": 36_000, "mark": 3_000, "end": 42_000}
    assert allowed_times_ms(settings_of_broker({}, "4.9.7")) == {"ask": 66_000, "mark": 0, "end": 66_000}
    assert allowed_times_ms(settings_of_broker({}, "4.3.0"))["ask"] == 63_000
    assert settle_ms(settings_of_broker({}, "5.3.3")) == 10_000
    assert settle_ms(settings_of_broker({}, "4.9.7")) == 4_000
