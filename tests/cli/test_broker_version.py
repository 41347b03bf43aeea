"""A release that is not known, at the command line: one note says which one it is treated as."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.model.releases import LAST_OF_LINES, dotted
from tests.cli.conftest import Run
from tests.forge.stores import copy_of


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of("common-5.3.3", tmp_path_factory.mktemp("version"))


@pytest.mark.parametrize("command", [("stores",), ("pending",), ("verify",), ("check", "--store")])
def test_a_release_that_is_not_known_is_said_once(rmqtx: Run, store: Path, command: tuple[str, ...]) -> None:
    told = rmqtx(*command, store, "--broker-version", "5.9.0").err
    assert told.count(f"rmqtx: 5.9.0 is not a known release: treated as {dotted(LAST_OF_LINES[-1])}\n") == 1


@pytest.mark.parametrize("version", ["5.5.1", "5.3.4", "5.3.4-SNAPSHOT", "V5_5_0"])
def test_nothing_is_said_of_a_known_one(rmqtx: Run, store: Path, version: str) -> None:
    ran = rmqtx("stores", store, "--broker-version", version)
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.parametrize("quiet", [("-q", "--broker-version", "5.9.0"), ("--broker-version", "5.9.0", "--quiet")])
def test_quiet_leaves_the_note_out_wherever_it_stands(rmqtx: Run, store: Path, quiet: tuple[str, ...]) -> None:
    assert rmqtx("pending", store, *quiet).err == ""


@pytest.mark.parametrize(
    ("version", "words"),
    [("2.0.0", "version 2.0.0 is not known"), ("x.y", "'x.y' is not a broker version"), ("4.9.8", "contradicts")],
)
def test_what_was_an_error_stays_one(rmqtx: Run, store: Path, version: str, words: str) -> None:
    refused = rmqtx("stores", store, "--broker-version", version)
    assert refused.status == 2
    assert words in refused.err
    assert "treated as" not in refused.err


def test_of_a_line_whose_numbers_are_not_known_the_last_one_is_named(rmqtx: Run, store: Path) -> None:
    told = rmqtx("stores", store, "--broker-version", "3.3.0").err
    assert "3.3.0 is not a known release: treated as the last 3.2\n" in told
