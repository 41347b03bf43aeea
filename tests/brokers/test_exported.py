"""A real Prometheus scrapes the exporter beside a real broker: the alert fires before the first discard."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.brokers import maven
from tests.brokers.script import Script
from tests.brokers.stage import Play

_MAVEN = maven.why_not()
WHY_NOT = _MAVEN or (None if shutil.which("prometheus") else "prometheus is not on the PATH")
SEED = 7043
DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "rmqtx.json").read_text())

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"cannot be run: {WHY_NOT}")]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def exporter(*words: str) -> Iterator[str]:
    """The address of an exporter."""
    command = [sys.executable, "-m", "rmqtx_cli.main", "exporter", *words, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.fullmatch(r"rmqtx: metrics at http://(.+)/metrics\n", process.stderr.readline())
        assert found
        try:
            yield found[1]
        finally:
            process.terminate()
            assert process.wait(20) == 0


@contextmanager
def prometheus(directory: Path, *targets: str) -> Iterator[Callable[..., Any]]:
    """A Prometheus with the rules of deploy/: asks its API."""
    shutil.copy(DEPLOY / "prometheus" / "rmqtx.rules.yml", directory)
    (directory / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rmqtx.rules.yml]\n"
        f"scrape_configs: [{{job_name: rmqtx, static_configs: [{{targets: {json.dumps(targets)}}}]}}]\n"
    )
    port = free_port()
    with (
        (directory / "prometheus.log").open("w") as log,
        subprocess.Popen(
            ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log,
        ) as process,
    ):

        def ask(path: str, **parameters: str) -> Any:
            url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
            with urllib.request.urlopen(url, timeout=20) as response:
                return json.load(response)["data"]

        try:
            yield ask
        finally:
            process.terminate()
            process.wait(20)


def until(what: Callable[[], Any], seconds: float) -> Any:
    """The result of a question, as soon as it is one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := what():
                return found
        except OSError:
            pass  # it is starting
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds} s")


def panels_with_values(ask: Callable[..., Any]) -> set[str]:
    """The panels of the dashboard of which a query has a result now."""
    return {
        panel["title"] for panel in DASHBOARD["panels"] for target in panel["targets"]
        if ask("query", query=target["expr"].replace("$job", ".*").replace("$store", ".*"))["result"]
    }


def test_the_alert_fires_before_the_first_discard(tmp_path: Path) -> None:
    broker_port = free_port()
    conf = {
        "transactionCheckMax": "6", "transactionCheckInterval": "15000", "transactionTimeOut": "3000",
        "metricsExporterType": "PROM", "metricsPromExporterPort": str(broker_port),
        "metricsPromExporterHost": "127.0.0.1",
    }
    play = Play(Script("5.3.3", SEED, {}, conf=conf), tmp_path / "play")
    with play.rig:
        play.rig.start_names()
        play.boot()
        play.send_all("waiting", 5, Random(SEED))
        play.agent.kill()
        with (
            exporter("-n", play.rig.name_server, "--interval", "2s") as address,
            prometheus(tmp_path, address, f"127.0.0.1:{broker_port}") as ask,
        ):

            def value(query: str) -> float | None:
                found = ask("query", query=query)["result"]
                return float(found[0]["value"][1]) if found else None

            def is_firing() -> bool:
                alerts = ask("alerts")["alerts"]
                return any(one["labels"]["alertname"] == "RmqtxDiscardSoon" for one in alerts)

            until(is_firing, 120)
            assert value("sum(rmqtx_pending_transactions)") == 5
            assert not value("sum(rmqtx_discard_queue_max_offset)")
            left_seconds = value("min(rmqtx:seconds_until_first_discard)")
            assert left_seconds is not None
            begun = time.monotonic()
            until(lambda: ask("query", query="rmqtx:half_messages_drift")["result"], 120)
            assert value("rmqtx:half_messages_drift") == 0
            shown: set[str] = set()

            def is_discarded() -> bool:
                shown.update(panels_with_values(ask))  # causes are those of one reading
                return bool(value("sum(rmqtx_discard_queue_max_offset)"))

            until(is_discarded, 240)
            assert abs(time.monotonic() - begun - left_seconds) < 30
            until(lambda: value("sum(rmqtx_discarded_transactions_total)") == 5, 120)
            shown.update(panels_with_values(ask))
            assert shown == {panel["title"] for panel in DASHBOARD["panels"]}
