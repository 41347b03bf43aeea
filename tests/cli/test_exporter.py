"""`rmqtx exporter`: what it serves is what check counts, a failed reading is a metric, and nothing grows."""

from __future__ import annotations

import json
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.exporter.reading import Answer, Failed, ReadingProcess, Request, read
from rmqtx_cli.exporter.schedule import Schedule
from rmqtx_cli.exporter.web import Server, StateCollector, WebConfig, parsed_address, web_config
from rmqtx_cli.monitoring.metrics import BY_NAME, GROUPS_MAX, METRICS, OTHER, Kind
from rmqtx_cli.monitoring.numbers import GroupNumbers, Numbers, StoreNumbers
from rmqtx_cli.monitoring.remembered import Became
from rmqtx_cli.monitoring.samples import added, counted_samples, exported_samples
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.sources.source import AskedSource
from tests.cli.conftest import Run
from tests.forge.stores import unpacked

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def request(*stores: str | Path, broker_conf: Path | None = None) -> Request:
    return Request(AskedSource([str(store) for store in stores], LiveOptions(), StoreOptions(broker_conf=broker_conf)))


def wait_for_results(schedule: Schedule, count: int) -> None:
    until = time.monotonic() + 120
    while schedule.state.results.total() < count and time.monotonic() < until:
        time.sleep(0.01)
    assert schedule.state.results.total() >= count


@contextmanager
def serving(schedule: Schedule, config: WebConfig | None = None) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), schedule, config or WebConfig())
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def fetched(url: str, context: ssl.SSLContext | None = None, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=300, context=context
        ) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples_of(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_it_serves_what_check_counts(rmqtx: Run, tmp_path: Path) -> None:
    root, said = unpacked("killed-5.3.3"), list[str]()
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=100000\n")  # nothing is too old to be checked, whenever this runs
    schedule = Schedule(request(root, broker_conf=conf), 3600, 60, said.append)
    schedule.start()
    with serving(schedule) as server:
        wait_for_results(schedule, 1)
        status, text = fetched(f"{server.url}metrics", Accept=_OPENMETRICS)
        assert (status, fetched(f"{server.url}healthz")) == (200, (200, "ok\n"))
        assert fetched(f"{server.url}elsewhere")[0] == 404
        assert "/metrics" in fetched(server.url)[1]
    schedule.stop()
    found = samples_of(text)
    counted = json.loads(rmqtx(
        "check", root, "--format", "json", "--state-dir", tmp_path, "--broker-conf", conf
    ).out)
    (store,) = counted["stores"]
    labels = {"store": str(root)}
    assert found["rmqtx_up"] == [({}, 1)]
    assert found["rmqtx_pending_transactions"] == [(labels, store["pending_count"])]
    assert found["rmqtx_half_queue_max_offset"] == [(labels, store["half_max_offset"])]
    assert found["rmqtx_half_queue_next_offset"] == [(labels, store["half_next_offset"])]
    assert found["rmqtx_commit_without_op_transactions"] == [(labels, store["commit_without_op_count"])]
    assert sum(value for _, value in found["rmqtx_group_pending_transactions"]) == store["pending_count"]
    causes = {(one["cause"], one["strength"]): one["transactions_count"] for one in counted["causes"]}
    by_cause = {(names["cause"], names["strength"]): value for names, value in found["rmqtx_transactions_by_cause"]}
    assert by_cause == causes
    assert {names["result"]: value for names, value in found["rmqtx_readings_total"]}["ok"] == 1
    assert found["rmqtx_lost_transactions_total"] == [(labels, 0)]
    (line,) = said
    assert re.fullmatch(rf"reading succeeded in \w+: {store['pending_count']} pending transactions", line)


def test_the_first_reading_says_what_brokers_do_not_take_from_their_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("transactionCheckMax=15L\n", "utf-8")
    first = request(unpacked("common-5.3.3"), broker_conf=conf)
    memory = read(first)["memory"]
    assert "brokers cannot parse '15L': in force is transactionCheckMax 15" in capsys.readouterr().err
    read(replace(first, before=memory))
    assert capsys.readouterr().err == ""


def test_a_failed_reading_is_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    schedule = Schedule(request(tmp_path / "nowhere"), 3600, 60, said.append)
    schedule.start()
    wait_for_results(schedule, 1)
    found = {family.name: family.samples for family in StateCollector(schedule).collect()}
    schedule.stop()
    assert found["rmqtx_up"][0].value == 0
    assert "rmqtx_pending_transactions" not in found
    assert "rmqtx_reading_age_seconds" not in found
    path = re.escape(str(tmp_path / "nowhere"))
    (line,) = said
    assert re.fullmatch(rf"error: reading failed: {path} does not exist; rmqtx_up is 0 until .* every 1h", line)
    late = ReadingProcess(0.01)
    with pytest.raises(Failed, match=r"no answer within 0\.01 s") as caught:
        late.answer(request(tmp_path))
    assert caught.value.result == "timed_out"
    late.close()
    with pytest.raises(Failed):
        late.answer(request(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing"))
    with pytest.raises(Failed, match="cannot start a process: No such file"):
        ReadingProcess(1).answer(request(tmp_path))


def test_few_groups_have_samples_of_their_own() -> None:
    numbers = Numbers(1_000, [StoreNumbers("/a", False), StoreNumbers("/b", False)])
    for number in range(GROUPS_MAX + 20):
        for store in ("/a", "/b"):
            key = (store, "orders", f"group-{number:03}")
            numbers.groups[key] = GroupNumbers(*key, pending_count=number + 1, oldest_ms=1000 * number)
    found = exported_samples(numbers, None)
    rows = found["rmqtx_group_pending_transactions"]
    assert len(rows) == GROUPS_MAX + 2
    assert [names["store"] for names, _ in rows if names["producer_group"] == OTHER] == ["/a", "/b"]
    assert sum(value for _, value in rows) == sum(one.pending_count for one in numbers.groups.values())
    assert max(value for _, value in found["rmqtx_group_oldest_pending_seconds"]) == GROUPS_MAX + 19
    assert set(found) <= BY_NAME.keys()
    for name, samples in found.items():
        assert all(set(labels) <= set(BY_NAME[name].labels) for labels, _ in samples), name


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"rmqtx_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.meaning.endswith(".")


def test_an_end_that_could_not_be_looked_up_is_counted() -> None:
    store = StoreNumbers("/a", False)
    found = counted_samples(Numbers(1_000, [store]), Became(unanswered=["A", "B"], vanished=["C"]))
    assert found["rmqtx_unanswered_transactions_total"] == [({}, 2)]
    assert found["rmqtx_vanished_transactions_total"] == [({}, 1)]
    assert found["rmqtx_lost_transactions_total"] == [(store.labels, 0)]


def test_counters_grow() -> None:
    totals = added({}, {"rmqtx_lost_transactions_total": [({"store": "/a"}, 1)]})
    totals = added(totals, {"rmqtx_lost_transactions_total": [({"store": "/a"}, 2), ({"store": "/b"}, 0)]})
    assert totals == {"rmqtx_lost_transactions_total": [({"store": "/a"}, 3), ({"store": "/b"}, 0)]}


def test_tls_and_users(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "key.pem", "-out",
         tmp_path / "cert.pem", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )
    import bcrypt

    file = tmp_path / "web.yml"
    file.write_text(
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem, min_version: TLS13}\n"
        f"basic_auth_users: {{scraper: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}\n"
    )
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    right, wrong = "Basic c2NyYXBlcjpzZWNyZXQ=", "Basic c2NyYXBlcjp3cm9uZw=="
    schedule = Schedule(request(tmp_path), 3600, 60, lambda _: None)
    with serving(schedule, web_config(file)) as server:
        url = f"{server.url}metrics"
        assert url.startswith("https://")
        assert fetched(url, context, Authorization=right)[0] == 200
        for refused in (wrong, "Basic x", "Bearer c2NyYXBlcjpzZWNyZXQ=", "Basic bm9ib2R5OnNlY3JldA=="):
            assert fetched(url, context, Authorization=refused)[0] == 401, refused
        assert fetched(url, context)[0] == 401
        assert fetched(f"{server.url}healthz", context)[0] == 200
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            fetched(url.replace("https", "http"))
    for text, reason in (
        ("tls_server_config: {cert_file: cert.pem}", "has no key_file"),
        ("tls_server_config: {cert_file: no.pem, key_file: key.pem}", "cannot use the certificate"),
        ("tls_server_config: {cert_file: cert.pem, key_file: key.pem, min_version: SSL3}", "TLS12 or TLS13"),
        ("basic_auth_users: {scraper: secret}", "bcrypt hash"), ("http_server_config: {}", "unknown field"),
        ("[", "not YAML"),
    ):
        file.write_text(text)
        with pytest.raises(BadRequest, match=reason):
            web_config(file)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9560", ("127.0.0.1", 9560)), (":80", ("", 80)), ("[::1]:9560", ("::1", 9560)), ("9560", None),
     ("a:b", None), ("a:70000", None)],
)
def test_addresses(text: str, address: tuple[str, int] | None) -> None:
    if address is not None:
        assert parsed_address(text) == address
        return
    with pytest.raises(BadRequest, match="--listen"):
        parsed_address(text)


@pytest.mark.parametrize(
    ("host", "is_local"), [("127.0.0.1", True), ("localhost", True), ("", False), ("0.0.0.0", False)]
)
def test_whether_other_hosts_reach_it(host: str, is_local: bool) -> None:
    server = Server((host, 0), Schedule(request("/s"), 60, 60, lambda _: None), WebConfig())
    server.server_close()
    assert server.is_local is is_local
    assert not WebConfig().demands_clients
    assert WebConfig(users={"scraper": b"$2"}).demands_clients
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert not WebConfig(context).demands_clients
    context.verify_mode = ssl.CERT_REQUIRED
    assert WebConfig(context).demands_clients


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_reading(number: signal.Signals) -> None:
    words = [sys.executable, "-m", "rmqtx_cli.main", "exporter", str(unpacked("killed-5.3.3")), "--interval", "1s"]
    with subprocess.Popen([*words, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline(), process.stderr.readline()]
        process.send_signal(number)
        assert process.wait(300) == 0
        assert process.stderr.read() == ""
    assert re.fullmatch(r"rmqtx: metrics at http://127\.0\.0\.1:\d+/metrics\n", lines[0])
    assert re.fullmatch(r"rmqtx: reading succeeded in \w+: 11 pending transactions\n", lines[1])


class _Answers(ReadingProcess):
    """Answers at once: as many readings as the exporter makes in a day."""

    def answer(self, request: Request) -> Answer:
        if request.source.live.tls:
            raise Failed("refused")
        last = 0 if request.before is None else request.before["taken_time_ms"]
        labels = {"store": "/s", "topic": "orders", "producer_group": f"group-{last % 70}"}
        return Answer(
            {"rmqtx_group_pending_transactions": [(labels, last)], "rmqtx_pending_transactions": [(labels, last)],
             "rmqtx_evidence_missing": [({"code": "gap"}, 1)]},
            {"rmqtx_lost_transactions_total": [({"store": "/s"}, 1)]},
            {"taken_time_ms": last + 1, "hanging": [], "stores": {}},
        )


def test_each_failure_is_printed_once_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtx_cli.exporter.schedule.ReadingProcess", _Answers)
    said: list[str] = []
    schedule = Schedule(request("/s"), 60, 60, said.append)
    schedule._read()
    for live in (LiveOptions(tls=True), LiveOptions(tls=True), LiveOptions()):
        schedule._request = replace(schedule._request, source=replace(schedule._request.source, live=live))
        schedule._read()
    assert [re.sub(r"in \d\w*", "in 0s", line) for line in said] == [
        "reading succeeded in 0s: at least 0 pending transactions, evidence is missing or damaged: gap",
        "error: reading failed: refused; rmqtx_up is 0 until a reading succeeds, and one begins every 1m",
        "reading succeeded again in 0s: at least 1 pending transaction, evidence is missing or damaged: gap",
    ]


@pytest.mark.slow
def test_a_day_of_readings_needs_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtx_cli.exporter.schedule.ReadingProcess", _Answers)
    schedule = Schedule(request("/s"), 0, 60, lambda _: None)
    collector = StateCollector(schedule)
    schedule.start()
    wait_for_results(schedule, 200)
    tracemalloc.start()
    try:
        before, scrapes = tracemalloc.get_traced_memory()[0], 0
        until = schedule.state.results.total() + 1440
        while schedule.state.results.total() < until:
            assert list(collector.collect())
            scrapes += 1
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        schedule.stop()
    assert scrapes
    assert grown < 300_000  # a leak of a number and its labels for each reading would be more
