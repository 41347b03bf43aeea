"""Two ages of what waits in the store of a stopped broker: until now, and until it stopped."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.brokers import corpus
from tests.cli.conftest import Run

NAME = "opslost-5.3.3"


def test_show_and_commit_say_how_old_it_was_when_its_broker_stopped(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    store = corpus_store(NAME)
    name = next(row["transaction_id"] for row in corpus.expected(NAME) if row["case"] == "pending.0")
    page = rmqtx("show", name, "--store", store).out
    said = re.search(r"^age     .+, (\d+)s when the broker stopped$", page, re.MULTILINE)
    assert said is not None
    assert int(said[1]) < 60
    act = rmqtx("rollback", name, "--store", store, "--to", tmp_path / "to", "--broker-version", "5.3.3", "--dry-run")
    assert f"{said[1]}s when the broker stopped" in act.err
    assert "before the broker stopped" not in rmqtx("show", name, "--store", store, "--at", "2020-01-01T00:00:00Z").out
