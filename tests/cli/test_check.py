"""`rmqtx check`: one line, four statuses, whatever goes wrong."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx_cli.monitoring.judge import CRITICAL, OK, UNKNOWN, WARNING, Thresholds, judge
from rmqtx_cli.monitoring.measure import _is_op_held
from rmqtx_cli.monitoring.numbers import Memory, Numbers, StoreNumbers, memory_file, recall, remember
from rmqtx_cli.monitoring.remembered import Became, what_became_of
from rmqtx_cli.monitoring.say_outcome import nagios_line
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.sources.source import AskedSource, chosen_opener
from rmqtx_cli.words.say import Voice
from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.forge.damage import flip_byte, log_files
from tests.forge.stores import copy_of, opened

LINE = re.compile(r"RMQTX (OK|WARNING|CRITICAL|UNKNOWN) - [^|\n]+(\|[^|\n]+)?\n")
AGES = Thresholds(600_000, 3_600_000, None, None)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_statuses_and_the_line(rmqtx: Run, common: Path, fifteen: Path, memory: Path) -> None:
    for store, words, status in [
        (fifteen, [], OK),
        (common, ["--warning", "1s", "--critical", "5000d"], WARNING),
        (common, ["--warning", "1s", "--critical", "2s"], CRITICAL),
        (common, ["--warning", "5000d", "--critical", "5000d", "--critical-count", "1"], CRITICAL),
        (common, ["--warning", "5000d", "--critical", "5000d", "--warning-count", "1"], WARNING),
    ]:
        result = rmqtx("check", store, *words, "--state-dir", memory)
        assert result.status == status, words
        assert LINE.fullmatch(result.out)
        assert result.err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--nonsense"],
        ["/no/such/store"],
        ["STORE", "--warning", "x"],
        ["STORE", "--warning", "2h", "--critical", "1h"],
        ["STORE", "--warning-count", "7", "--critical-count", "3"],
        ["STORE", "--warning-count", "-1"],
        ["STORE", "--textfile", "STORE/commitlog/file.prom"],
        ["STORE", "--broker-conf", "/no/such/file"],
        # The alarm may come between the opening of a file and its `with`: the garbage collector then closes the file.
        pytest.param(
            ["STORE", "--timeout", "1ms"],
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ),
    ],
)
def test_every_failure_of_its_own_is_unknown(rmqtx: Run, common: Path, memory: Path, arguments: list[str]) -> None:
    words = [word.replace("STORE", str(common)) for word in arguments]
    result = rmqtx("check", *words, *([] if "--state-dir" in words or not words else ["--state-dir", memory]))
    assert result.status == UNKNOWN
    assert LINE.fullmatch(result.out), result.out
    assert result.out.startswith("RMQTX UNKNOWN")
    assert result.err == ""
    assert not (common / "commitlog" / "file.prom").exists()
    as_json = rmqtx("check", "--format", "json", *words, *([] if "--state-dir" in words or not words else
                                                          ["--state-dir", memory]))
    outcome = json.loads(as_json.out)
    assert (outcome["status"], outcome["exit_status"], as_json.status) == ("UNKNOWN", UNKNOWN, UNKNOWN)
    assert outcome["reasons"][0]["reason"]


def test_a_bug_is_unknown_too(
    rmqtx: Run, common: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a | bar\nand a line")

    monkeypatch.setattr("rmqtx_cli.sources.files.pending", fail)
    result = rmqtx("check", common, "--state-dir", memory)
    assert result.status == UNKNOWN
    assert LINE.fullmatch(result.out)


def test_performance_data(rmqtx: Run, common: Path, memory: Path) -> None:
    out = rmqtx("check", common, "--warning", "1m", "--critical", "1h", "--state-dir", memory).out
    numbers = dict(part.split("=") for part in out.strip().split("|")[1].split(" "))
    assert re.fullmatch(r"\d+\.\d{3}s;60;3600;0", numbers["oldest_pending"])
    listed = json.loads(rmqtx("pending", common, "--format", "json").out)
    assert numbers["pending"].split(";")[0] == str(len(listed))


def test_json_and_textfile(rmqtx: Run, common: Path, memory: Path, tmp_path: Path) -> None:
    textfile = tmp_path / "rmqtx.prom"
    result = rmqtx("check", common, "--state-dir", memory, "--format", "json", "--textfile", textfile)
    outcome = json.loads(result.out)
    assert outcome["exit_status"] == result.status
    assert outcome["stores"][0]["store"] == str(common)
    lines = textfile.read_text().splitlines()
    assert f"rmqtx_check_status {result.status}" in lines
    assert f'rmqtx_pending_transactions{{store="{common}"}} {outcome["pending_count"]}' in lines
    for line in lines:
        label = r'\w+="[^"]*"'
        assert re.fullmatch(rf"# (HELP|TYPE) rmqtx_\w+ .+|rmqtx_\w+(\{{{label}(,{label})*\}})? [-+.e\d]+", line), line
    result = rmqtx("check", tmp_path / "missing", "--state-dir", memory, "--textfile", textfile)
    assert result.status == UNKNOWN
    assert "rmqtx_check_status 3" in textfile.read_text().splitlines()
    assert not list(tmp_path.glob(".*"))


def test_causes_in_the_line_and_in_the_numbers(
    rmqtx: Run, corpus_store: Callable[[str], Path], memory: Path, tmp_path: Path
) -> None:
    """The same numbers as in the rows of `pending`; the cause of most transactions is in the line unless it is OK."""
    store = corpus_store("killed-5.3.3")
    listed = json.loads(rmqtx("pending", store, "--all-open", "--format", "json").out)
    wanted = Counter(cause for row in listed for cause in row["causes"])
    assert any(cause.endswith("?") for cause in wanted)
    assert not all(cause.endswith("?") for cause in wanted)
    most = max(wanted.values())
    textfile = tmp_path / "rmqtx.prom"
    result = rmqtx("check", store, "--warning", "1m", "--state-dir", memory, "--textfile", textfile)
    assert result.status != OK
    text, _, numbers = result.out.strip().partition("|")
    named = re.search(r"; cause: (\S+) (explains|could explain) (\d+) transactions?$", text)
    assert named is not None
    assert wanted[f"{named[1]}{'' if named[2] == 'explains' else '?'}"] == int(named[3]) == most
    pairs = dict(part.split("=") for part in numbers.split(" ") if "cause_" in part)
    assert pairs == {
        f"possible_cause_{cause[:-1]}" if cause.endswith("?") else f"cause_{cause}": f"{count};;;0"
        for cause, count in wanted.items()
    }
    outcome = json.loads(rmqtx("check", store, "--state-dir", memory, "--format", "json").out)
    found = {one["cause"] + ("?" if one["strength"] == "could_explain" else ""): one for one in outcome["causes"]}
    assert {cause: one["transactions_count"] for cause, one in found.items()} == wanted
    lines = textfile.read_text().splitlines()
    for one in found.values():
        labels = ",".join(f'{name}="{one[name]}"' for name in ("cause", "strength", "store"))
        assert f"rmqtx_transactions_by_cause{{{labels}}} {one['transactions_count']}" in lines


@pytest.mark.parametrize("name", ["common-5.3.3", "masked-5.3.3", "killed-5.3.3", "cursorback-5.3.3"])
def test_the_cause_is_one_of_what_the_line_alerts_about(
    rmqtx: Run, corpus_store: Callable[[str], Path], memory: Path, name: str
) -> None:
    store = corpus_store(name)
    rows = json.loads(rmqtx("pending", store, "--all-open", "--format", "json").out)
    pending = {cause.rstrip("?") for row in rows if row["state"] == "PENDING" for cause in row["causes"]}
    others = {cause.rstrip("?") for row in rows if row["state"] != "PENDING" for cause in row["causes"]}
    result = rmqtx("check", store, "--warning", "1m", "--state-dir", memory)
    named = re.findall(r"; cause: (\S+) ", result.out)
    counted = set(pending)
    if "committed without an op message" in result.out:
        counted |= {
            cause.rstrip("?") for row in rows if "commit_without_op" in row["flags"] for cause in row["causes"]
        }
    assert set(named) <= counted
    assert bool(named) == (bool(counted) and result.status != OK)
    outcome = json.loads(rmqtx("check", store, "--state-dir", memory, "--format", "json").out)
    assert not {one["cause"] for one in outcome["causes"]} & (others - counted)


def test_what_is_discarded_soon_leads_the_line(rmqtx: Run, common: Path, memory: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=1\n")
    line = rmqtx("check", common, "--state-dir", memory, "--broker-conf", conf).out
    assert line.startswith("RMQTX CRITICAL - 16 PENDING: the broker discards all 16 unasked in its first round, ")
    assert "; oldest pending is " in line
    asked = rmqtx("check", common, "--state-dir", memory, "--broker-conf", conf, "--deadline", "5m").out
    assert asked.startswith("RMQTX CRITICAL - the broker discards the first pending ")
    assert "16 PENDING" not in asked


def test_no_cause_in_a_line_that_is_ok(rmqtx: Run, common: Path, memory: Path) -> None:
    result = rmqtx("check", common, "--warning", "9999d", "--critical", "9999d", "--state-dir", memory)
    assert result.status == OK
    assert "cause:" not in result.out
    assert "cause_" in result.out


def test_causes_of_what_is_newly_discarded(rmqtx: Run, memory: Path) -> None:
    """Of transactions that are no longer open the look-up gives the causes."""
    store = opened("fifteen-5.3.3")
    rows = audit([store], broker_settings).table().to_pylist()
    gone = {row["transaction_id"]: None for row in rows if row["state"] == "DISCARDED" and row["advice"] != "wait"}
    asked = AskedSource([store.root], LiveOptions(), StoreOptions())
    with chosen_opener(asked, Voice(quiet=True), "").opened() as source:
        became = what_became_of(source, gone)
    assert set(became.states.values()) == {"DISCARDED"}
    decided = {("no-decision-in-time", "explains"): len(gone)}
    by_logs = {(word, "could_explain"): len(gone) for word in ("producer-not-connected", "producer-answered-unknown")}
    assert became.causes == {(store.root, *key): value for key, value in (decided | by_logs).items()}


def test_damage_is_not_ok(rmqtx: Run, fifteen: Path, memory: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(fifteen, store)
    (store / "config" / "consumerOffset.json").write_text("{nonsense")
    (store / "config" / "consumerOffset.json.bak").write_text("{nonsense")
    result = rmqtx("check", store, "--state-dir", memory)
    assert result.status == CRITICAL
    assert "the broker does not start on this store" in result.out
    assert "config-damaged" in result.out


def test_a_zero_that_missing_evidence_may_hide_is_not_printed(
    rmqtx: Run, common: Path, memory: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(common, store)
    for file in log_files(store):
        file.write_bytes(bytes(file.stat().st_size))
    textfile = tmp_path / "rmqtx.prom"
    result = rmqtx("check", store, "--state-dir", memory, "--textfile", textfile)
    assert result.status == UNKNOWN
    found = dict(part.split("=") for part in result.out.strip().split("|")[1].split(" "))
    assert {name for name, value in found.items() if value.startswith("U;")} == {
        "oldest_pending", "pending", "newly_lost", "newly_discarded", "commit_without_op", "never_asked",
    }
    assert found["half_lag"] == "20;;;0"
    metrics = textfile.read_text()
    for name in ("pending_transactions", "newly_lost_transactions", "oldest_pending_seconds", "check_stopped"):
        assert f"\nrmqtx_{name}" not in metrics
    outcome = json.loads(rmqtx("check", store, "--state-dir", tmp_path / "other", "--format", "json").out)
    assert outcome["pending_count"] is None
    assert outcome["stores"][0]["pending_count"] is None


def test_numbers_are_lower_bounds_if_evidence_is_missing() -> None:
    measured = numbers()
    measured.evidence_missing = ["log-missing"]
    assert measured.counted(0) is None
    assert measured.counted(2) == 2
    measured.evidence_missing = []
    assert measured.counted(0) == 0


def numbers(**values: Any) -> Numbers:
    store = StoreNumbers("/s", is_in_use=True, half_next_offset=5, half_max_offset=9, discard_max_offset=3,
                         check_interval_ms=30_000, pending_count=1, oldest_pending_ms=120_000)
    for name, value in values.items():
        setattr(store, name, value)
    return Numbers(1_000_000_000, [store], ["T"], "T")


def before(**values: Any) -> Memory:
    memory = numbers(**values).as_memory()
    memory["taken_time_ms"] -= 300_000
    return memory


def test_first_run_has_nothing_to_compare_with() -> None:
    assert judge(numbers(), AGES, None, Became()).status == OK


def test_a_cursor_that_stands_still_is_critical() -> None:
    assert judge(numbers(), AGES, before(), Became()).status == CRITICAL
    assert judge(numbers(), AGES, before(half_next_offset=4), Became()).status == OK
    assert judge(numbers(is_in_use=False), AGES, before(), Became()).status == OK
    assert judge(numbers(half_max_offset=5), AGES, before(), Became()).status == OK
    assert judge(numbers(oldest_pending_ms=10_000), AGES, before(), Became()).status == OK


def test_newly_lost_and_discarded() -> None:
    moved = before(half_next_offset=4)
    assert judge(numbers(), AGES, moved, Became({"T": "COMMITTED"})).status == OK
    assert judge(numbers(), AGES, moved, Became({"T": "LOST"})).status == CRITICAL
    assert judge(numbers(), AGES, moved, Became({"T": "DISCARDED"})).status == WARNING
    assert judge(numbers(discard_max_offset=5), AGES, moved, Became()).newly_discarded_count == 2
    assert judge(numbers(), AGES, before(half_next_offset=4, discard_max_offset=None), Became()).status == OK


def test_commits_without_op_warn() -> None:
    assert judge(numbers(commit_without_op_count=1), AGES, None, Became()).status == WARNING


def test_worst_reason_comes_first() -> None:
    outcome = judge(numbers(commit_without_op_count=1, oldest_pending_ms=10**9), AGES, None, Became())
    assert outcome.status == CRITICAL
    assert [status for status, _ in outcome.reasons] == [CRITICAL, WARNING]


def test_the_line_is_one_line_with_one_bar() -> None:
    assert nagios_line(OK, "a|b\nc\x1b[m", "x=1") == "RMQTX OK - a¦b c\\x1b[m|x=1"


def test_what_hung_and_is_gone_is_looked_up(
    rmqtx: Run, common: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [discarded, *_] = json.loads(
        rmqtx("audit", common, "--where", "state = DISCARDED", "--format", "json").out
    )
    rmqtx("check", common, "--state-dir", memory)
    [file] = memory.glob("check-*.json")
    left = json.loads(file.read_text())
    left["hanging"] = [discarded["transaction_id"]]
    left["taken_time_ms"] -= 1_000
    file.write_text(json.dumps(left))
    words = ["check", common, "--state-dir", memory, "--warning", "5000d", "--critical", "5000d", "--format", "json"]
    result = rmqtx(*words)
    outcome = json.loads(result.out)
    assert result.status >= WARNING
    assert outcome["newly_discarded_count"] == 1


def test_memory_survives_nonsense_and_keeps_the_latest(tmp_path: Path) -> None:
    file = memory_file(tmp_path, ["/b", "/a"])
    assert file == memory_file(tmp_path, ["/a", "/b"])
    assert recall(file) is None
    for nonsense in ("", "{", "[]", '{"form": 9}', '{"form": 1, "stores": 7}', "\x00"):
        file.write_text(nonsense)
        assert recall(file) is None
    remember(file, {"taken_time_ms": 2, "hanging": [], "stores": {}})
    remember(file, {"taken_time_ms": 1, "hanging": ["older"], "stores": {}})
    found = recall(file)
    assert found is not None
    assert found["taken_time_ms"] == 2
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".lock"]


def test_two_at_once_do_not_collide(fifteen: Path, memory: Path) -> None:
    words = [*WARM, "check", str(fifteen), "--state-dir", str(memory)]
    words += ["--timeout", "10m"]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process in running:
        out, err = process.communicate(timeout=600)
        assert (process.returncode, err) == (0, "")
        assert LINE.fullmatch(out)
    [file] = memory.glob("check-*.json")
    assert recall(file) is not None


def test_a_read_that_never_returns_is_left_behind(common: Path, memory: Path) -> None:
    program = (
        "import rmqtx.readers.queues.consume_queue, rmqtx.verdicts.audit.lookups as lookups, signal, time\n"
        "def hang(*_, **__):\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
        "    time.sleep(6_000)\n"
        "lookups.pending = hang\n"
        "from rmqtx_cli.main import status_of\n"
        f"raise SystemExit(status_of(['check', {str(common)!r}, '--state-dir', {str(memory)!r}, '--timeout', '1s']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == UNKNOWN
    assert LINE.fullmatch(done.stdout)


def test_another_transaction_is_not_called_the_oldest(rmqtx: Run, tmp_path: Path, memory: Path) -> None:
    """The first copy of the oldest waits for its time; its topic is damaged."""
    root = copy_of("delayed-4.3.0", tmp_path / "store")
    file = log_files(root)[0]
    arguments = ("check", root, "--warning", "9000d", "--critical", "9999d", "--format", "json", "--state-dir")
    oldest = json.loads(rmqtx(*arguments, memory / "before").out)["oldest_transaction_id"]
    (found,) = (row for row in json.loads(rmqtx("show", oldest, "--store", root, "--format", "json").out))
    place = file.read_bytes().index(b"SCHEDULE_TOPIC_XXXX", found["half_copies"][0]["commit_log_offset"])
    flip_byte(file, place + 1)
    result = rmqtx(*arguments, memory / "after")
    assert result.status == UNKNOWN
    assert "words-contradict" in result.out


def test_an_op_message_that_a_running_broker_may_still_hold_is_not_missing_yet() -> None:
    finals = [{"store_time_ms": 1_000}, {"store_time_ms": 10_000}]
    running = StoreNumbers("s", is_in_use=True, op_hold_ms=4_000)
    assert _is_op_held(finals, running, 13_999)
    assert not _is_op_held(finals, running, 14_000)
    assert not _is_op_held(finals, StoreNumbers("s", is_in_use=False, op_hold_ms=0), 10_001)


@pytest.mark.parametrize("option", ["--state-dir", "--textfile"])
def test_what_cannot_be_written_hides_no_harm(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path, option: str
) -> None:
    """A file in the place of the directory; a file below a file. The harm comes first, the other reason after it."""
    (tmp_path / "file").write_text("")
    words = ["--state-dir", tmp_path / "state"] if option == "--textfile" else []
    target = tmp_path / "file" if option == "--state-dir" else tmp_path / "file" / "x.prom"
    result = rmqtx("check", corpus_store("noroom-5.5.0"), *words, option, target)
    assert result.status == CRITICAL
    assert result.out.startswith("RMQTX CRITICAL - 7 PENDING")
    assert f"{target}" in result.out


def test_prepared_records_that_no_broker_checks_are_counted(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    counted = {}
    for name in ("prepared-4.2.0", "upgraded-4.2.0-4.9.7"):
        result = rmqtx("check", corpus_store(name), "--state-dir", tmp_path, "--format", "json")
        [store] = json.loads(result.out)["stores"]
        counted[name] = (store["never_asked_count"], store["pending_count"])
    assert counted == {"prepared-4.2.0": (13, 13), "upgraded-4.2.0-4.9.7": (6, 10)}


@pytest.mark.parametrize(("name", "lost"), [
    ("common-5.5.0", "config/consumerOffset.json*"),  # two reasons: some of these were resumed
    ("common-4.4.0", "config/consumerOffset.json*"), ("killed-4.9.7", "commitlog/00000000000000000000"),
])
def test_all_undecidable_transactions_are_counted_whatever_their_reasons(
    name: str, lost: str, rmqtx: Run, memory: Path, tmp_path: Path
) -> None:
    store = copy_of(name, tmp_path / "store")
    for path in store.glob(lost):
        path.unlink()
    rows = json.loads(rmqtx("audit", store, "--where", "state = UNDECIDABLE", "--format", "json").out)
    # What the check has passed is not pending, whatever left the log before it.
    rows = [row for row in rows if (row["reason_code"], row["next_event"]) != ("log_begins_later", "none")]
    assert rows
    textfile = tmp_path / "rmqtx.prom"
    checked = rmqtx("check", store, "--state-dir", memory, "--textfile", textfile)
    assert re.search(r"(\d+) UNDECIDABLE", checked.out)[1] == str(len(rows))  # type: ignore[index]
    assert f'rmqtx_undecidable_transactions{{store="{store}"}} {len(rows)}' in textfile.read_text().splitlines()
    [finding] = [line for line in rmqtx("pending", store).err.splitlines() if "error: undecidable" in line]
    assert f"(found {len(rows)}, because " in finding or f"(found {len(rows)}: " in finding
