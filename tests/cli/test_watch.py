"""`rmqtx watch`: the model's arithmetic, the screen at many sizes, keys, and a terminal that is left as it was."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx_cli.monitoring.numbers import Numbers, StoreNumbers
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.sources.source import AskedSource, chosen_opener
from rmqtx_cli.watching.drawing import View, change_text, screen
from rmqtx_cli.watching.model import GONE, Model, Pending, Snapshot, Sort, take, timeline
from rmqtx_cli.watching.terminal import Key, keys
from rmqtx_cli.words.say import Voice
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.stores import copy_of, unpacked
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker
from tests.representatives import rest_is_slow

NOW_MS = 1_795_400_000_000


def pending(
    number: int, group: str = "shop", checks: int = 0, age_ms: int = 60_000, discard: int | None = None
) -> Pending:
    return Pending("/s", f"T{number}", group, "orders", NOW_MS - age_ms, checks, discard)


def snapshot(seconds: int, rows: list[Pending], half_end: int = 0, **ended: str) -> Snapshot:
    store = StoreNumbers(
        "/s", False, pending_count=len(rows), half_next_offset=3, half_max_offset=half_end, op_next_offset=1,
        op_max_offset=1, discard_max_offset=0,
    )
    return Snapshot(
        NOW_MS + 1000 * seconds, 12, {one.transaction_id: one for one in rows}, Numbers(NOW_MS, [store]), ended
    )


def drawn(model: Model, view: View, columns: int = 80, rows: int = 24, title: str = "/s") -> list[str]:
    console = Console(file=io.StringIO(), width=columns, highlight=False, markup=False, force_terminal=False)
    console.print(screen(model, view, columns, rows, title, NOW_MS), end="")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]


def test_held_brokers_are_counted_and_those_after_their_time() -> None:
    model, view = Model(), View()
    one = snapshot(0, [pending(1)])
    store = one.numbers.stores[0]
    model.add(one)
    assert "held" not in drawn(model, view)[1]
    store.held = "b is held until then"
    assert drawn(model, view)[1].endswith(", held: 1 broker")
    store.is_hold_over = True
    assert drawn(model, view)[1].endswith(", held: 1 broker, 1 overdue: rmqtx release")


def test_rates_are_those_of_the_half_queue() -> None:
    model = Model()
    model.add(snapshot(0, [pending(1), pending(2)], half_end=100))
    assert model.rates().halves is None
    # 50 half messages came, of which 48 were decided; the check put 3 copies back.
    model.add(snapshot(10, [pending(1, checks=2), pending(2, checks=1), pending(3), pending(4)], half_end=153))
    rates = model.rates()
    assert (rates.halves, rates.settled, rates.checks, rates.discards) == (5.0, 4.8, 0.3, 0.0)
    # All ended; 5 of 7 new slots are copies that the check put back before, which stay checks.
    model.add(snapshot(15, [pending(1, checks=5), pending(2, checks=3)], half_end=160))
    model.add(snapshot(20, [], half_end=160))
    rates = model.rates()
    assert (rates.halves, rates.settled, rates.checks) == (2.6, 2.7, 0.4)


def test_changes_are_each_listed_once() -> None:
    model = Model()
    first = model.add(snapshot(0, [pending(1), pending(2, age_ms=500)]))
    assert [(one.what, one.one.transaction_id) for one in first] == [("PENDING", "T1")]
    assert model.awaited == ["T1"]
    second = model.add(snapshot(5, [pending(1, checks=1), pending(2, age_ms=500)]))
    assert [one.what for one in second] == ["CHECKED"]
    assert model.add(snapshot(8, [])) == []  # its end was not looked up yet
    third = model.add(snapshot(10, [], T1="ROLLED_BACK"))
    assert [(one.what, one.one.checks_count) for one in third] == [("ROLLED_BACK", 1)]
    assert model.awaited == []
    model.add(snapshot(15, [pending(7)]))
    (gone,) = model.add(snapshot(20, [], T7=GONE))
    line = r"[\d:]{8} GONE        T7  group shop, topic orders, stored [\d:]{8}, checks 0"
    assert re.fullmatch(line, change_text(gone))


def test_many_checks_are_one_line_and_hide_no_end() -> None:
    model, view = Model(), View()
    model.add(snapshot(0, [pending(number) for number in range(30)]))
    rows = [pending(number, checks=number % 3 + 1) for number in range(3, 30)]
    changes = model.add(snapshot(5, rows, T0="DISCARDED", T1="COMMITTED", T2="LOST"))
    assert [one.what for one in changes] == [*["CHECKED"] * 27, "COMMITTED", "DISCARDED", "LOST"]
    lines = drawn(model, view)
    newest = [line.split()[1:4] for line in lines[lines.index("newest changes") + 1 :]]
    assert newest[:4] == [["LOST", "T2", "shop"], ["DISCARDED", "T0", "shop"], ["COMMITTED", "T1", "shop"],
                          ["CHECKED", "27", "transactions,"]]
    assert newest[4][0] == "PENDING"


def test_a_long_line_of_a_timeline_is_wrapped() -> None:
    words = " ".join(f"word{number}" for number in range(30))
    model, view = Model(), View(("shop", "orders"), "T0", [words] * 9, top=999)
    model.add(snapshot(0, [pending(0)]))
    lines = drawn(model, view, 40, 20)[4:-1]
    assert " ".join(lines).split()[-30:] == words.split()
    assert lines[-1].startswith("        word")
    assert all(lines)
    top = view.top
    assert drawn(model, view, 40, 20)[4:-1] == lines
    assert view.top == top


def test_rows_in_each_order_and_filtered() -> None:
    model = Model()
    rows = [pending(1, "a"), pending(2, "a"), pending(3, "b", age_ms=90_000), pending(4, "c", discard=NOW_MS + 5_000)]
    model.add(snapshot(0, rows))
    orders = {}
    for _ in Sort:
        orders[model.sort] = [row.group for row in model.groups()]
        model.next_sort()
    assert orders == {Sort.PENDING: ["a", "b", "c"], Sort.AGE: ["b", "a", "c"], Sort.DEADLINE: ["c", "a", "b"]}
    model.filter = "T3"
    assert [row.group for row in model.groups()] == ["b"]
    assert [one.transaction_id for one in model.transactions("b", "orders")] == ["T3"]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10), (200, 60), (20, 5)])
def test_a_screen_has_the_size_of_its_terminal(columns: int, rows: int) -> None:
    hostile = "\x1b]0;owned\x07‮shop[bold]注文" * 5
    model = Model()
    views = [View(), View((hostile, "orders")), View((hostile, "orders"), "T0", [f"line {hostile}"] * 99, top=3)]
    for view in views:
        assert len(drawn(Model(), view, columns, rows)) <= rows
    model.add(snapshot(0, [pending(number, hostile, checks=number) for number in range(99)], half_end=9))
    model.failure = hostile
    for view in views:
        lines = drawn(model, view, columns, rows, hostile)
        assert len(lines) == rows
        for line in lines:
            assert line.isprintable(), line
            assert Console(width=columns).render_str(line, markup=False).cell_len <= columns


def test_the_screen_shows_the_numbers() -> None:
    model, view = Model(), View()
    assert drawn(model, view)[1] == "reading ..."
    model.add(snapshot(0, [pending(1, discard=NOW_MS + 90_000), pending(2, "other", checks=4)], half_end=10))
    lines = drawn(model, view)
    assert lines[1] == "2 pending, oldest 1m, first discard in 1m30s!"
    assert lines[2].endswith("lag: half 7, op 0")
    assert [line.split() for line in lines[5:7]] == [
        ["other", "orders", "1", "1m", "-", "4"], ["shop", "orders", "1", "1m", "in", "1m30s!", "0"],
    ]
    view = View(("shop", "orders"))
    assert drawn(model, view)[5].split() == ["T1", "1m", "in", "1m30s!", "0"]


def test_a_stopped_broker_has_no_countdown() -> None:
    """Its discards come after a start: nothing runs down, and a running broker's discard is shown before them."""
    rests = Pending("/s", "T1", "shop", "orders", NOW_MS - 60_000, 0, NOW_MS + 30_000, starts_ms=NOW_MS)
    model, view = Model(), View()
    for seconds in (0, 20):
        model.add(snapshot(seconds, [rests]))
        lines = drawn(model, view)
        assert lines[1] == "1 pending, oldest 1m, first discard 30s after the broker starts"
        assert lines[5].split() == ["shop", "orders", "1", "1m", "start+30s", "0"]
    assert drawn(model, View(("shop", "orders")))[5].split() == ["T1", "1m", "start+30s", "0"]
    model.add(snapshot(40, [rests, pending(2, discard=NOW_MS + 90_000)]))
    assert drawn(model, view)[1] == "2 pending, oldest 1m, first discard in 1m30s!"


def test_keys() -> None:
    assert list(keys(b"q\x1b[A\x1bOB\r\x7f\x1b[5~\x1b[6~\x1b")) == [
        "q", Key.UP, Key.DOWN, Key.ENTER, Key.ERASE, Key.PAGE_UP, Key.PAGE_DOWN, Key.BACK,
    ]
    assert list(keys("é注\x00\x1b[1;5C/".encode())) == ["é", "注", "/"]
    assert list(keys(b"\xff\x1b[")) == []


def _read_until(master: int, wanted: bytes, seconds: float = 300) -> bytes:
    found, end = b"", time.monotonic() + seconds
    while wanted not in found and time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            found += os.read(master, 65536)
    assert wanted in found, found[-2000:]
    return found


@pytest.mark.parametrize("how", rest_is_slow(["q", signal.SIGINT, signal.SIGTERM, signal.SIGHUP], quick=1))
def test_the_terminal_is_left_as_it_was(how: str | signal.Signals) -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    before = termios.tcgetattr(slave)
    words = [sys.executable, "-m", "rmqtx_cli.main", "watch", str(unpacked("killed-5.3.3")), "--interval", "1s"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(words, stdin=slave, stdout=slave, stderr=subprocess.PIPE, env=environment) as process:
        shown = _read_until(master, b"11 pending")
        assert shown.startswith(b"\x1b[?1049h\x1b[?25l")
        assert termios.tcgetattr(slave) != before
        if isinstance(how, str):
            os.write(master, b"\r")
            _read_until(master, b"transaction_id")
            os.write(master, b"\r")
            _read_until(master, b"check")
            os.write(master, how.encode())
        else:
            process.send_signal(how)
        left = _read_until(master, b"\x1b[?1049l")
        assert b"\x1b[?25h" in left
        assert process.wait(300) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


@pytest.mark.slow
def test_the_terminal_is_as_it_was_while_the_process_is_stopped() -> None:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    before = termios.tcgetattr(slave)
    words = [sys.executable, "-m", "rmqtx_cli.main", "watch", str(unpacked("killed-5.3.3"))]
    with subprocess.Popen(words, stdin=slave, stdout=slave, env={**os.environ, "TERM": "xterm"}) as process:
        _read_until(master, b"11 pending")
        process.send_signal(signal.SIGTSTP)
        assert b"\x1b[?25h" in _read_until(master, b"\x1b[?1049l")
        if is_stopped(process.pid):  # a process of an orphaned group is not stopped
            assert termios.tcgetattr(slave) == before
        process.send_signal(signal.SIGCONT)
        assert b"11 pending" in _read_until(master, b"Return open")
        os.write(master, b"q")
        _read_until(master, b"\x1b[?1049l")
        assert process.wait(300) == 0
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


def is_stopped(process: int) -> bool:
    """Whether a process is stopped, at the latest after two seconds."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return True
        time.sleep(0.05)
    return False


def test_a_timeline_of_a_live_broker(common: Path) -> None:
    store = open_store(common)
    settings = broker_settings(store, conf=corpus.recipe("common-5.3.3")["broker_conf"], version="5.3.3")
    with FakeServer(StoreBroker(store, settings, "5.3.3")) as server:
        live = LiveOptions(broker=[server.address])
        opener = chosen_opener(AskedSource([], live, StoreOptions()), Voice(quiet=True), "")
        found = take(opener, [])
        identity = max(found.pending.values(), key=lambda one: one.checks_count).transaction_id
        lines = timeline(opener, identity)
    assert lines[0].split() == [identity, "PENDING"]
    checks = [line for line in lines if re.search(r" check  .* check \d", line)]
    assert len(checks) >= found.pending[identity].checks_count > 0
    assert any(line.startswith("check: next half ") for line in lines)


@pytest.mark.slow
def test_plain_lines_of_a_store_that_is_settled(tmp_path: Path, rmqtx: Run) -> None:
    root = copy_of("killed-5.3.3", tmp_path / "store")
    rows = json.loads(rmqtx("pending", root, "--format", "json").out)
    words = [sys.executable, "-m", "rmqtx_cli.main", "watch", str(root), "--interval", "1s"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"watching {root}: {len(rows)} pending\n"
        listed = {process.stdout.readline().split()[2] for _ in rows}
        assert listed == {row["transaction_id"] for row in rows}
        settled = rmqtx(
            "rollback", rows[0]["transaction_id"], "--store", root, "--in-place", "--undo", tmp_path / "undo",
            "--reason", "test", "--yes", "--broker-version", "5.3.3",
        )
        line = process.stdout.readline() if settled.status == 0 else ""
        process.terminate()
        assert process.wait(300) == 0
    assert settled.status == 0, settled.err
    assert line.split()[1:3] == ["ROLLED_BACK", rows[0]["transaction_id"]]


def test_what_brokers_do_not_take_from_their_configuration_stands_above_the_screen(tmp_path: Path) -> None:
    root, conf = copy_of("common-5.3.3", tmp_path / "store"), tmp_path / "broker.conf"
    conf.write_text("transactionTimeout=29000\n", "utf-8")
    words = [sys.executable, "-m", "rmqtx_cli.main", "watch", str(root), "--broker-conf", str(conf)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "its name is transactionTimeOut" in process.stderr.readline()
        process.terminate()
        process.wait(300)


def test_an_unreadable_store_is_an_error_before_the_screen(rmqtx: Run, tmp_path: Path) -> None:
    result = rmqtx("watch", tmp_path)
    assert result.status != 0
    assert "is not a store" in result.err
    assert result.out == ""
