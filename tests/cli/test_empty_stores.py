"""A store whose broker never got a message is empty, and whole: nothing is lost in it, and nothing is missing."""

from __future__ import annotations

import json

import pytest

from rmqtx_cli.words import exit_status
from tests.brokers import corpus
from tests.brokers.empty_stage import DESIGN
from tests.cli.conftest import Run
from tests.forge.stores import unpacked

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
    rows = [json.loads(line) for line in rmqtx("verify", store, *version, "--format", "jsonl").out.splitlines()]
    # A broker that is killed at once has not written its cursors yet; there is nothing that they could decide.
    assert {row["code"] for row in rows} <= ({"config-missing"} if corpus.recipe(name)["stop"] == "kill" else set())
