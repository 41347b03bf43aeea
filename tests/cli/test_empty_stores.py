"""A store whose broker never got a message is empty, and whole: nothing is lost in it, and nothing is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from tests.brokers import corpus
from tests.brokers.empty_stage import DESIGN
from tests.cli.conftest import Run
from tests.forge.stores import copy_of, unpacked

NAMES = corpus.corpus_names(DESIGN)


def test_there_are_such_stores() -> None:
    assert {corpus.recipe(name)["version"] for name in NAMES} == {"3.1.4", "3.2.6", "4.3.0", "4.9.7", "5.3.3", "5.5.0"}
    assert {corpus.recipe(name)["stop"] for name in NAMES} == {"clean", "kill"}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_in_it_and_nothing_is_wrong_with_it(rmqtx: Run, name: str) -> None:
    store, version = unpacked(name), ("--broker-version", corpus.recipe(name)["version"])
    for words in (("pending",), ("audit",), ("simulate",)):
        told = rmqtx(*words, store, *version, "--format", "jsonl")
        assert (told.status, told.out) == (exit_status.DONE, ""), (words, told.err)
    told = rmqtx("check", store, *version)
    assert (told.status, told.out.startswith("RMQTX OK - 0 pending")) == (0, True), told.out
    rows = rmqtx("verify", store, *version, "--format", "jsonl").rows
    # A broker that is killed at once has not written its cursors yet; there is nothing that they could decide.
    assert {row["code"] for row in rows} <= ({"config-missing"} if corpus.recipe(name)["stop"] == "kill" else set())


def test_a_store_without_its_log_is_found_below_a_directory(rmqtx: Run, tmp_path: Path) -> None:
    for name in ("empty-4.3.0", "common-4.9.7"):
        copy_of(name, tmp_path / "all" / name)
    (tmp_path / "all" / "project" / "config").mkdir(parents=True)  # a directory of anything
    (tmp_path / "all" / "project" / "index").mkdir()
    rows = json.loads(rmqtx("stores", tmp_path / "all", "--format", "json").out)
    assert [Path(row["store"]).parent.name for row in rows] == ["common-4.9.7", "empty-4.3.0"]


def test_a_number_of_stores_that_were_not_all_looked_for_is_a_least_number(rmqtx: Run, tmp_path: Path) -> None:
    for number in range(70):
        (tmp_path / f"b{number:02}" / "commitlog").mkdir(parents=True)
        if number in (9, 69):
            err = rmqtx("audit", tmp_path).err
            assert ("it contains 10 stores" in err) == (number == 9)
            assert ("it contains at least 64 stores" in err) == (number == 69)
