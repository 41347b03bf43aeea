"""What a new operator types first: wrong directories, parts of names, answers at prompts, words that are not known."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.verdicts.check.state import half_lag
from rmqtx_cli.commands.all_views import all_views
from rmqtx_cli.pages.glossary import SETTINGS, entries
from rmqtx_cli.pages.plan_page import _by_kind
from tests.cli.conftest import Run, Terminal
from tests.cli.test_access import bare
from tests.field import field_stores, right
from tests.forge.damage import log_files
from tests.forge.stores import copy_of

HALVES = ("pending", "--format", "json", "--fields", "id,keys")


@pytest.fixture
def logs(common: Path, tmp_path: Path) -> Path:
    """The files of a commit log without the rest of a store."""
    shutil.copytree(common / "commitlog", tmp_path / "onlylogs")
    return tmp_path / "onlylogs"


def test_log_files_alone(rmqtx: Run, logs: Path) -> None:
    refused = rmqtx("pending", logs)
    assert refused.status == exit_status.UNREADABLE
    assert refused.err.endswith(f"without the rest of a store - add --commitlog {logs}\n")
    read = rmqtx("audit", logs, "--commitlog", logs)
    assert len(read.out.splitlines()) > 50
    assert "no checkpoint: unknown whether the broker stopped cleanly" in read.err
    assert f"{logs}: stopped cleanly" not in read.err
    above = rmqtx("pending", logs.parent)
    assert above.err.endswith(f"it contains directories of segment files - add --commitlog {logs}\n")


def test_a_log_under_other_names(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(common, root)
    (root / "commitlog").rename(root / "log one")
    found = rmqtx("pending", root)
    assert f"no transaction can be read - add --commitlog '{root}/log one'" in found.err
    assert rmqtx("pending", root, "--commitlog", root / "log one").out == rmqtx("pending", common).out


def test_the_parent_is_named_only_if_it_is_a_store(rmqtx: Run, common: Path) -> None:
    assert f"give the store's root: {common}\n" in rmqtx("pending", common / "commitlog").err


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_directory_above_stores(rmqtx: Run, common: Path, tmp_path: Path, count: int) -> None:
    for number in range(count):
        shutil.copytree(common, tmp_path / "top" / f"s{number}")
    err = rmqtx("pending", tmp_path / "top").err
    if count == 1:
        assert f"did you mean {tmp_path}/top/s0?" in err
    else:
        names = ", ".join(f"s{number}" for number in range(min(count, 5))) + ", …" * (count > 5)
        assert f"it contains {count} stores: {names} - rmqtx stores {tmp_path}/top\n" in err


@pytest.mark.parametrize(
    ("name", "command"),
    [("s.tar", "tar xf"), ("s.tar.xz", "tar xf"), ("s.TGZ", "tar xf"), ("s.zip", "unzip"), ("s.txt", None)],
)
def test_an_archive_must_be_unpacked(rmqtx: Run, tmp_path: Path, name: str, command: str | None) -> None:
    (tmp_path / name).touch()
    err = rmqtx("pending", tmp_path / name).err
    assert (f"unpack it: {command} {tmp_path / name}" in err) == (command is not None)
    assert "the directory that contains commitlog/" in err


def test_a_log_file_alone_needs_a_directory_of_its_own(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    file = common / "commitlog" / f"{0:020}"
    err = rmqtx("decode", "commitlog", file).err
    assert f"mkdir -p NEW/commitlog; cp {file} NEW/commitlog; then give NEW" in err
    (tmp_path / "new" / "commitlog").mkdir(parents=True)
    shutil.copy(file, tmp_path / "new" / "commitlog")
    assert rmqtx("decode", "commitlog", tmp_path / "new", "--limit", "1").out
    queue = common / "consumequeue" / HALF_TOPIC / "0" / f"{0:020}"
    assert "the directory that contains commitlog/" in rmqtx("decode", "consumequeue", queue).err


def test_a_changed_copy_is_not_the_work_of_the_broker(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    identity = json.loads(rmqtx("pending", common, "--format", "json").out)[0]["transaction_id"]
    copy = tmp_path / "copy"
    act = ("--broker-version", "5.3.3", "--reason", "x", "--yes")
    done = rmqtx("commit", identity, "--store", common, "--to", copy, *act)
    assert done.status == exit_status.DONE, done.err
    for words in (["pending", copy], ["stores", copy]):
        result = rmqtx(*words)
        assert "did not stop cleanly" not in result.err + result.out
        assert "abort" in result.err + result.out


@pytest.mark.parametrize("word", ["n\n", "no\n", "", "x\n"])
def test_no_is_not_an_interrupt(
    rmqtx: Run, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(word))
    identity = json.loads(rmqtx("pending", common, "--format", "json").out)[0]["transaction_id"]
    for to in (["--to", tmp_path / "new"], ["--in-place", "--undo", tmp_path / "undo"]):
        words = ["commit", identity, "--store", common, *to, "--broker-version", "5.3.3", "--reason", "x"]
        result = rmqtx(*words)
        assert (result.status, result.err.splitlines()[-1]) == (exit_status.REFUSED_BY_GUARD, "rmqtx: nothing was done")
    cursor = ["cursor", "set", "--half", "0", "--store", common, "--to", tmp_path / "new", "--broker-version", "5.3.3"]
    overrides = ["--override", "asked-again", "--override", "backwards", "--reason", "x"]
    assert "interrupted" not in rmqtx(*cursor, *overrides).err
    assert not (tmp_path / "new").exists()


def test_acts_take_whole_ids_and_print_them(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    identity = json.loads(rmqtx("pending", common, "--format", "json").out)[0]["transaction_id"]
    act = ("--store", common, "--to", tmp_path / "new", "--broker-version", "5.3.3", "--reason", "x", "--yes")
    for action in ("commit", "rollback"):
        refused = rmqtx(action, identity[-12:], *act)
        assert refused.status == exit_status.USAGE
        assert refused.err.endswith(f"is a part of an id - acts take whole ids, here it is: {identity}\n")
    many = rmqtx("commit", identity[:20], *act)
    assert re.search(r"is a part of \d+ ids - acts take whole ids: .* and \d+ more\n$", many.err)
    assert rmqtx("commit", "ZZZZZZ", *act).status == exit_status.NO_SUCH_TRANSACTION
    assert not (tmp_path / "new").exists()


def test_keys_as_a_table_prints_them(rmqtx: Run, common: Path) -> None:
    rows = json.loads(rmqtx("audit", common, "--format", "json", "--fields", "keys,id").out)
    key = next(row["keys"] for row in rows if row["keys"] and " " not in row["keys"])
    assert rmqtx("show", f" {key} ", "--store", common, "--format", "json").status == exit_status.DONE
    several = rmqtx("show", f"{key} another", "--store", common)
    assert several.status == exit_status.NO_SUCH_TRANSACTION
    assert f"no transaction '{key} another' in" in several.err
    assert f"keys are separated by spaces: give one of them, for example {key}" in several.err
    part = rmqtx("show", key[:-1], "--store", common)
    assert "did you mean " in part.err


def test_settings_in_sentences_are_explained() -> None:
    """Methods and files of RocketMQ have a capital letter inside too: they stand in sources, before a file's name."""
    not_settings = {
        "putMessage", "updateTopic", "producerConnection", "sendCheckMessage", "handleScheduleMessage",
        "getReadPosition", "cleanUnusedTopic", "checkLocalTransaction", "gRPC", "producerGroup", "batchSendOpMessage",
        "storePathRootDir", "updateSubGroup", "scanProducerHeartBeat", "getAvailableChannel",
    }
    known = entries(all_views())
    words = {entry.word for entry in known}
    named = {
        word
        for entry in known
        if not entry.kind.startswith(("structure", "field"))
        for line in entry.lines
        for word in re.findall(r"(?<![.\w/(])[a-z]+(?:[A-Z][A-Za-z0-9]*)+\b(?!\.java|\.json|\()", line)
    }
    assert named - words - not_settings == set()
    assert set(SETTINGS) <= words
    assert {"transactionCheckMax", "fileReservedTime", "transactionTimeOut"} <= set(SETTINGS)


def test_explain_a_setting_and_a_word_that_is_not_known(rmqtx: Run) -> None:
    result = rmqtx("explain", "transactionCheckMax", "--no-pager")
    assert "default: 5, 15 from 4.3.1 on" in result.out
    mixed = rmqtx("explain", "wait", "nope", "fileReservedTime", "--no-pager")
    assert mixed.status == exit_status.USAGE
    assert "wait (advice)" in mixed.out
    assert "fileReservedTime (setting)" in mixed.out
    assert mixed.err.startswith("rmqtx: unknown word 'nope' - ")


@pytest.mark.parametrize("words", [["-q", "pending", "x"], ["--format", "json", "x"], ["-q"]])
def test_options_before_the_command(rmqtx: Run, words: list[str]) -> None:
    result = rmqtx(*words)
    assert result.status == exit_status.USAGE
    assert ("options go after the command: rmqtx pending -q\n" in result.err) == (words[:2] == ["-q", "pending"])


def test_check_is_quiet_while_all_is_well(rmqtx: Run, common: Path) -> None:
    never = ["--warning", "9000d", "--critical", "9000d"]
    loud = rmqtx("check", common, *never)
    assert (loud.status, loud.out[:9]) == (0, "RMQTX OK "), loud.out
    silent = rmqtx("check", common, *never, "--quiet")
    assert (silent.status, silent.out, silent.err) == (0, "", "")
    bad = rmqtx("check", common, "--warning", "1ms", "-q")
    assert (bad.status, bad.out.count("\n")) == (2, 1)
    assert rmqtx("check", common / "nothing", "-q").out.startswith("RMQTX UNKNOWN - ")


def test_check_answers_without_a_state_directory(common: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    words = [*bare(), sys.executable, "-m", "rmqtx_cli.main", "check", str(common)]
    words += ["--state-dir", str(closed / "state")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 2
    assert done.stdout.startswith("RMQTX CRITICAL - ")
    assert f"cannot keep these numbers for the next run in {closed}/state (Permission denied)" in done.stdout
    assert "--state-dir or RMQTX_STATE_DIR" in done.stdout
    words += ["--warning", "9000d", "--critical", "9000d"]
    assert subprocess.run(words, capture_output=True, check=False, env=os.environ).returncode == 3


def test_verify_of_a_damaged_log_names_salvage(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    root = tmp_path / "a store"
    shutil.copytree(common, root)
    file = log_files(root)[0]
    data = bytearray(file.read_bytes())
    data[40_000:43_000] = bytes(range(250)) * 12
    file.write_bytes(data)
    err = rmqtx("verify", root, "--broker-version", "5.3.3").err
    assert f"next: rmqtx salvage '{root}' --to NEW" in err
    assert rmqtx("salvage", root, "--to", tmp_path / "new").status in (exit_status.DONE, exit_status.INCOMPLETE)
    assert "salvage" not in rmqtx("verify", common, "--broker-version", "5.3.3").err
    assert {"record-damaged", "start-cuts-log"} <= set(KINDS)


def test_reasons_of_a_plan_that_differ_in_offsets_are_one() -> None:
    reasons = [f"done in the ledger: queue offset {n} at commit-log offset {n * 7}" for n in range(22)]
    assert _by_kind([*reasons, "OPS-4711", "OPS-4712", "paid at 12:30"]) == {
        "done in the ledger: queue offset N at commit-log offset N": 22, "OPS-4711": 1, "OPS-4712": 1,
        "paid at 12:30": 1,
    }


@pytest.mark.parametrize(
    ("cursor", "end", "lag"),
    [
        (None, None, 0), (0, None, 0), (342, None, None), (342, 0, None), (None, 9, None), (3, 9, 6), (9, 9, 0),
        (10, 9, 0),
    ],
)
def test_half_lag(cursor: int | None, end: int | None, lag: int | None) -> None:
    assert half_lag(cursor, end) == lag


@pytest.mark.parametrize(
    "name",
    ["opslost-5.3.3", "common-4.3.0", "empty-5.3.3", "empty-3.2.6", "rocksdb-queues-5.5.0", "rocksdb-single-5.5.0"],
)
def test_check_and_stores_have_one_half_lag(rmqtx: Run, name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    for missing in (False, True):
        if missing:
            shutil.rmtree(root / "consumequeue", ignore_errors=True)
        [row] = json.loads(rmqtx("stores", root, "--format", "json", "--fields", "half_lag").out)
        [store] = json.loads(rmqtx("check", root, "--format", "json").out)["stores"]
        assert row["half_lag"] == store["half_lag"]


def test_the_half_lag_counts_the_queue_in_rocksdb_not_the_files_of_before(rmqtx: Run, tmp_path: Path) -> None:
    root = field_stores("rocksdb-in-place", tmp_path) / "store"
    [row] = json.loads(rmqtx("stores", root, "--format", "json", "--fields", "half_lag").out)
    [store] = json.loads(rmqtx("check", root, "--format", "json").out)["stores"]
    assert row["half_lag"] == store["half_lag"] == right("rocksdb-in-place")["pending"]


def test_a_file_of_another_name_than_its_format(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    result = rmqtx("pending", common, "-o", file, "--format", "csv")
    assert f"{file} is written as csv (--format), although its name ends in .json" in result.err
    assert "although" not in rmqtx("pending", common, "-o", file, "--format", "json").err


def test_a_binary_plan_is_not_json(rmqtx: Run, common: Path) -> None:
    err = rmqtx("apply", common / "checkpoint", "--store", common, "--to", common.parent / "never").err
    assert "not JSON, but binary data" in err
    assert "utf" not in err
