"""A user's code is checked by mypy and pyright as they find rmqtx: its types are complete, and mistakes are errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Lines of a user, each with whether it is a mistake.
LINES = {
    "import rmqtx": False,
    "from rmqtx import Plan, Rows, Stores, Transaction": False,
    'stores: Stores = rmqtx.open("store", broker_version="5.3.3")': False,
    "pending: Rows[Transaction] = stores.pending()": False,
    "ages: list[int | None] = [one.half_store_time_ms for one in pending]": False,
    "lost: list[Transaction] = [one for one in stores.audit() if one.state is rmqtx.State.LOST]": False,
    "codes: list[str] = [one.code for one in pending.findings if one.is_error]": False,
    "done: tuple[bool, int] = pending.is_complete, pending.status": False,
    "def oldest(one: Transaction) -> bool: return (one.checks_count or 0) > 3": False,
    'plan: Plan = stores.plan("rollback", where=oldest, reason="OPS-1")': False,
    "groups: list[str | None] = [step.producer_group for step in plan.steps]": False,
    'applied: rmqtx.Applied = stores.apply(plan, to="changed", yes=True)': False,
    "outcomes: list[rmqtx.ActOutcome] = [receipt.outcome for receipt in applied]": False,
    'with rmqtx.connect("10.0.0.1:9876") as brokers: brokers.pending()': False,
    "version: str = rmqtx.__version__": False,
    "def status(error: rmqtx.RmqtxError) -> tuple[int, str | None]: return error.status, error.advice": False,
    "checks: list[str] = [one.action for one in stores.simulate(rounds=2)]": False,
    "bodies: list[bytes | None] = [one.body for one in stores.records(body=True)]": False,
    "stores.pendng()": True,
    "text: str = [one.keys for one in pending][0]": True,
    "rmqtx.State.PENDNG": True,
    'stores.plan("rollback", where=oldest)': True,
    'def late(one: Transaction) -> bool: return one.stat == "LOST"': True,
    "stores.apply(3)": True,
    "rmqtx.opened": True,
    "next(iter(pending)).state = rmqtx.State.LOST": True,
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "incident.py"
    file.write_text("\n".join(LINES) + "\n")
    return file


def expected() -> set[int]:
    return {number for number, is_mistake in enumerate(LINES.values(), 1) if is_mistake}


@pytest.mark.slow  # mypy reads all that rmqtx imports
def test_mypy_finds_the_mistakes_and_nothing_else(code: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n[mypy-pyarrow.*]\nignore_missing_imports = True\n")
    printed, _, _ = api.run(
        ["--config-file", str(settings), "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(code)]
    )
    found = [line for line in printed.splitlines() if ": error:" in line]
    assert {int(line.split("incident.py:")[1].split(":")[0]) for line in found} == expected(), printed


@pytest.mark.slow
def test_pyright_finds_the_mistakes_and_nothing_else(code: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    settings = {"include": [str(code)], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(tmp_path), "--pythonpath", sys.executable]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [one for one in json.loads(ran.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    assert {one["range"]["start"]["line"] + 1 for one in found} == expected(), found
