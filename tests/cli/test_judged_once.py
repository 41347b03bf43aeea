"""Causes, facts and conditions are computed once, and only where a column, a condition or a page needs them."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes import strengths
from rmqtx.verdicts.causes.diagnosing import diagnosed_each
from rmqtx.verdicts.evidence import store_facts
from rmqtx_cli.options.filters import Filter
from tests.cli.conftest import Run


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of calls by name."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def counting(*given: Any, **named: Any) -> Any:
            counted[name] += 1
            return function(*given, **named)

        monkeypatch.setattr(owner, name, counting)

    count(strengths, "supports_of")  # all rules of causes
    count(store_facts, "check_cursors")  # the facts of a store
    count(Filter, "apply")
    return counted


@pytest.mark.parametrize(
    ("arguments", "rules", "conditions"),
    [
        (("pending", "STORE"), 0, 0),
        (("pending", "STORE", "--where", "checks > 0"), 0, 1),
        (("pending", "STORE", "--where", "causes = resumed-by-operator"), 1, 1),
        (("pending", "STORE", "--format", "jsonl"), 1, 0),
        (("pending", "STORE", "--scan"), 0, 0),
        (("show", "ID", "--store", "STORE"), 1, 0),
        (("show", "ID", "--store", "STORE", "--format", "json"), 1, 0),
        (("show", "ID", "--store", "STORE", "--scan"), 1, 0),
        (("audit", "STORE", "--where", "state = PENDING"), 1, 1),
    ],
)
def test_a_command_computes_each_once(
    arguments: tuple[str, ...], rules: int, conditions: int, rmqtx: Run, common: Path, calls: Counter[str]
) -> None:
    identity = rmqtx("pending", common, "--fields", "transaction_id", "--format", "csv").out.splitlines()[1]
    words = {"STORE": common, "ID": identity}
    calls.clear()
    result = rmqtx(*(words.get(word, word) for word in arguments))
    assert result.status == 0
    assert calls == Counter(supports_of=rules, check_cursors=1, apply=conditions)


@pytest.mark.parametrize("arguments", [("pending",), ("show", "half:0", "--store"), ("check",)])
def test_the_facts_of_a_store_are_read_once_also_if_its_log_is_scanned(
    arguments: tuple[str, ...], rmqtx: Run, common: Path, tmp_path: Path, calls: Counter[str]
) -> None:
    store = shutil.copytree(common, tmp_path / "store")
    for file in (store / "consumequeue" / "RMQ_SYS_TRANS_OP_HALF_TOPIC" / "0").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    assert "the log is scanned because" in rmqtx("pending", store).err
    calls.clear()
    rmqtx(*arguments, store)
    assert calls["check_cursors"] == 1


def test_the_rules_of_causes_are_applied_once_for_several_transactions(common: Path, calls: Counter[str]) -> None:
    reading = audit([open_store(common)], broker_settings)
    rows = reading.table()
    calls.clear()
    found = diagnosed_each(rows, reading.evidence)
    assert calls["supports_of"] == 1
    chosen = [number for number, causes in enumerate(found) if causes][:4]
    assert len(chosen) == 4
    assert [found[number] for number in chosen] == [
        diagnosed_each(rows.slice(number, 1), reading.evidence)[0] for number in chosen
    ]


def test_the_line_that_names_diagnose_needs_no_column(rmqtx: Run, common: Path) -> None:
    lines = [rmqtx("pending", common, *more).err for more in ((), ("--fields", "id,causes"))]
    assert ["# why" in one for one in lines] == [True, True]
    without = rmqtx("pending", common, "--where", "causes = nothing-has-this")
    assert "# why" not in without.err
