"""Advice names only what works on the store at hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx_cli.options import next_commands
from rmqtx_cli.pages.headlines import usable_advice
from tests.cli.conftest import Run
from tests.forge import damage
from tests.forge.stores import copy_of

_ADVICE = "do not start the broker: rmqtx rebuild queues writes the queues again"


def test_a_dledger_log_gets_no_advice_to_rebuild_or_salvage(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("dledger-killed-5.1.4", tmp_path)
    for command in ("verify", "pending"):
        lines = [one for one in rmqtx(command, str(root)).err.splitlines() if "advice: " in one or "next: " in one]
        assert command == "pending" or any("DLedger group" in one for one in lines)
        assert not [one for one in lines if "rebuild queues" in one or "rmqtx salvage" in one]


def test_only_a_store_that_refuses_changes_the_advice(tmp_path: Path) -> None:
    dledger = str(copy_of("dledger-killed-5.1.4", tmp_path / "a"))
    plain = str(copy_of("common-5.3.3", tmp_path / "b"))
    assert usable_advice(_ADVICE, [plain]) == usable_advice(_ADVICE, [dledger, plain]) == _ADVICE
    assert usable_advice(_ADVICE, [dledger]).startswith("do not start the broker; start this member")


def test_a_given_length_that_fits_no_file_gets_advice_to_correct_it(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "store")
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=123456\n")
    result = rmqtx("verify", str(root), "--broker-conf", str(conf))
    assert "advice: correct mappedFileSizeCommitLog in the configuration" in result.err


def test_one_shorter_file_alone_may_have_been_cut_off(rmqtx: Run, tmp_path: Path) -> None:
    """Then the length in the configuration is right, and the advice must not be to change it."""
    root = copy_of("common-4.9.7", tmp_path / "store")
    (file,) = (root / "commitlog").iterdir()
    os.truncate(file, 180_000)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=262144\n")
    result = rmqtx("verify", str(root), "--broker-conf", str(conf))
    assert "if the file was cut off, replace it from a backup or a slave" in result.err
    assert "advice: correct mappedFileSizeCommitLog" not in result.err
    made = rmqtx("salvage", str(root), "--to", str(tmp_path / "new"))
    assert "which is a guess; set it with --broker-conf or --segment-size" in made.err


def test_an_empty_abort_may_be_of_rmqtx(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path / "store")
    (root / "abort").write_bytes(b"")
    assert "abort exists: rmqtx changed this copy after a clean stop, or" in rmqtx("stores", str(root)).out


def test_a_name_without_utf8_gets_a_link_with_an_absolute_path(
    rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff")).mkdir()
    monkeypatch.chdir(tmp_path)
    assert f"ln -s $'{tmp_path}/b\\xff' /tmp/store" in rmqtx("pending", os.fsdecode(b"b\xff")).err


def test_an_act_on_files_is_named_with_the_version_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_commands, "carried", lambda command, *_: f"{command} --store S")
    assert next_commands.with_places("type rmqtx commit AB") == (
        "type rmqtx commit AB --store S --to DIR --broker-version X.Y.Z"
    )


def test_diff_names_a_way_that_it_has_to_read_log_files_alone(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "store")
    bare = (root / "commitlog").rename(tmp_path / "bare")
    whole = copy_of("common-5.3.3", tmp_path / "whole")
    refused = rmqtx("diff", str(whole), str(bare)).err
    assert f"compare its audit: rmqtx audit {bare} --commitlog {bare} -o FILE.parquet" in refused
    audited = tmp_path / "bare.parquet"
    rmqtx("audit", str(bare), "--commitlog", str(bare), "-o", str(audited))
    assert "rmqtx: error" not in rmqtx("diff", str(whole), str(audited)).err
    assert rmqtx("diff", str(whole), str(audited)).out


def test_advice_in_json_is_that_of_the_text(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("dledger-5.1.4", tmp_path)
    damage.drop(root / "consumequeue" / HALF_TOPIC)
    result = rmqtx("verify", root, "--format", "jsonl")
    advice = {row["code"]: row["advice"] for row in map(json.loads, result.out.splitlines())}
    assert advice["queue-missing"] == advice["start-skips"]
    assert advice["queue-missing"].startswith("start this member of the DLedger group")
    assert f"advice: {advice['queue-missing']}   # start-skips, queue-missing" in result.err
