"""What a shell is offered: the words that a command takes, never an error, never for long."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.repairs.acts.guards import GUARDS
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx_cli.main import app
from rmqtx_cli.options import completion
from tests.cli.program import WARM
from tests.forge.stores import opened, settings_of

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(tmp_path: Path) -> Complete:
    """What bash is offered for the last of some words."""

    def complete(*words: str, **environment: str) -> list[str]:
        line = {"_RMQTX_COMPLETE": "complete_bash", "COMP_WORDS": f"rmqtx {' '.join(words)}", "HOME": str(tmp_path),
                "COMP_CWORD": str(len(words))}
        done = subprocess.run(
            [*WARM], env=os.environ | line | environment, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return done.stdout.split("\n") if done.stdout else []

    return complete


def offered(words: list[str]) -> list[str]:
    return [word for word in words if word]


def test_words_actions_and_guards(complete: Complete) -> None:
    assert {"LOST", "LIVE_TRANSACTIONS"} & set(offered(complete("explain", "LO"))) == {"LOST"}
    assert "log-missing" in offered(complete("explain", "log-m"))
    assert offered(complete("schema", "epochs", "trans")) == ["transactions"]
    assert offered(complete("plan", "re")) == ["resume", "redeliver"]
    assert set(offered(complete("commit", "X", "--override", ""))) == {guard.name for guard in GUARDS}


def test_columns_of_the_table_that_is_listed(complete: Complete) -> None:
    assert set(TRANSACTIONS.names) <= set(offered(complete("pending", "x", "--fields", "")))
    assert offered(complete("audit", "x", "--fields", "state,deliv")) == ["state,deliveries_count"]
    assert offered(complete("audit", "x", "--sort", "age,half_store")) == ["age,half_store_time_ms"]
    assert "half_queue_offsets" in offered(complete("decode", "op", "x", "--where", "half"))


@pytest.mark.parametrize(
    ("begin", "wanted"),
    [("stat", "state"), ("state = LOST and key", "state = LOST and keys"), ("(advi", "(advice"), ("state = LO", None)],
)
def test_where_a_name_can_stand(begin: str, wanted: str | None) -> None:
    audit_command = typer.main.get_command(app).commands["audit"]  # type: ignore[attr-defined]
    context = audit_command.make_context("audit", [], resilient_parsing=True)
    found = completion.condition_fields(context, begin)
    assert (wanted in found) if wanted else found == []


def test_ids_of_what_hangs_in_the_store_of_every_day(
    common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "_PATIENCE_SECONDS", 600.0)
    rows = audit([opened("common-5.3.3")], settings_of("common-5.3.3")).table().to_pylist()
    waiting = [row["transaction_id"] for row in rows if row["state"] == "PENDING"]
    assert completion.transaction_ids("") == []
    monkeypatch.setenv("RMQTX_STORE", str(common))
    found = completion.transaction_ids("")
    assert set(waiting) <= set(found)
    assert len(found) <= completion.IDS_MAX
    assert completion.transaction_ids(waiting[0]) == [waiting[0]]
    monkeypatch.setenv("RMQTX_STORE", str(tmp_path))
    assert completion.transaction_ids("") == []


def test_what_takes_too_long_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(completion, "_pending_ids", lambda: time.sleep(60))
    assert completion.transaction_ids("") == []


def test_names_of_stores(complete: Complete, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[stores]\norders = '/a'\nold = '/b'\n", "utf-8")
    assert offered(complete("audit", "or", RMQTX_CONFIG=str(file))) == ["orders"]
    file.write_text("[stores\n", "utf-8")
    assert offered(complete("audit", "or", RMQTX_CONFIG=str(file))) == []
