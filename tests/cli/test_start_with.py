"""`verify --start-with`: what real brokers did on stores of another release, and what the command predicts of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from tests.cli.conftest import Run
from tests.repairs.broker_lock import locked_by_a_broker

#: Stores, releases that were started on stores of the same kind, and what these did with the open transactions: other
#: releases asked about all that the own one asks about; those without the design never saw them.
PAIRS = [
    ("common-5.5.0", "5.3.3", True), ("common-5.5.0", "4.9.7", True), ("common-5.3.3", "5.5.0", True),
    ("common-5.1.4", "4.9.7", True), ("rocksdb-5.5.0", "5.3.3", False), ("rocksdb-5.5.0", "4.9.7", False),
    ("prepared-4.2.0", "4.9.7", False), ("prepared-4.2.0", "5.3.3", False),
]


@pytest.mark.parametrize(("name", "version", "is_same"), PAIRS)
def test_what_another_release_does(
    name: str, version: str, is_same: bool, rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=100000\n")
    result = rmqtx("verify", corpus_store(name), "--start-with", version, "--broker-conf", conf)
    if is_same:
        assert result.status == exit_status.DONE
        assert "the same for 20 open transactions" in result.err
        assert "never seen" not in result.err
    else:
        assert result.status == exit_status.FINDINGS
        assert "never seen: the release does not read its design" in result.err
        assert "the same for" not in result.err


def test_what_is_unknown_is_no_sameness(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    """Queues in RocksDB: no start is predicted."""
    result = rmqtx("verify", corpus_store("rocksdb-queues-killed-5.5.0"), "--start-with", "5.3.3")
    assert result.status == exit_status.INCOMPLETE


def test_a_release_that_is_not_known_is_taken_as_the_one_before(
    rmqtx: Run, corpus_store: Callable[[str], Path]
) -> None:
    assert rmqtx("verify", corpus_store("common-5.3.3"), "--start-with", "5.3.99").status == exit_status.DONE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--start-with", "new"), "'new' is not a broker version"),
        (("--start-with", "2.0.0"), "is not known"),
        (("--start-with", "5.3.3", "--broker-version", "5.3.3"), "exclude each other"),
    ],
)
def test_what_is_refused(
    options: tuple[str, ...], words: str, rmqtx: Run, corpus_store: Callable[[str], Path]
) -> None:
    result = rmqtx("verify", corpus_store("common-5.3.3"), *options)
    assert result.status == exit_status.USAGE
    assert words in result.err


def test_a_running_broker_is_stopped_first(rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(corpus_store("common-5.3.3"), store)
    with locked_by_a_broker(store):
        result = rmqtx("verify", store, "--start-with", "5.5.0")
    assert result.status != exit_status.DONE, result.out
    assert "its broker runs: stop it first" in result.err
