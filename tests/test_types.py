"""The words of verdicts and findings have types: mypy finds one that does not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

ROOT = Path(__file__).resolve().parents[1]
LINES = {
    "from rmqtx.verdicts.model.verdict_words import State": None,
    "print(State.PENDING)": None,
    "print(State.PENDNG)": '"type[State]" has no attribute "PENDNG"',
    "lost: State = State.LOST": None,
    'text: State = "LOST"': "Incompatible types in assignment",
    "from rmqtx.verdicts.model.verdict_words import Advice": None,
    'wait: Advice = "wait"': "Incompatible types in assignment",
    "from rmqtx.readers.finding_kinds.kind import Kind, Severity": None,
    'print(Kind(Severity.ERROR, "a", "b"))': None,
    "from rmqtx.repairs.receipts.act_words import ActOutcome": None,
    "print(ActOutcome.PROOVED)": '"type[ActOutcome]" has no attribute "PROOVED"',
    "from rmqtx.repairs.acts.situation import ActRequest": None,
    "from rmqtx.repairs.receipts.act_words import ActKind": None,
    "print(ActRequest(ActKind.CLOSE))": None,
    "print(ActKind.COMIT)": '"type[ActKind]" has no attribute "COMIT"',
    'print(ActRequest("close"))': 'has incompatible type "str"; expected "ActKind"',
    "from rmqtx.repairs.receipts.recheck import Standing": None,
    "from rmqtx.repairs.receipts.act_words import StandingWord": None,
    'print(Standing(StandingWord.STANDS, "why"))': None,
    'print(Standing("stand", "why"))': 'has incompatible type "str"; expected "StandingWord"',
    "from rmqtx.verdicts.model.verdict_words import NextEvent": None,
    "print(NextEvent.PUTBACK)": '"type[NextEvent]" has no attribute "PUTBACK"',
    "from rmqtx.verdicts.model.verdict_words import Strength": None,
    "print(Strength.EXPLAIN)": '"type[Strength]" has no attribute "EXPLAIN"',
    "from rmqtx.verdicts.model.transaction import Transaction": None,
    "def keys_of(one: Transaction) -> str: return one.keys": '(got "str | None", expected "str")',
    "def show(one: Transaction) -> None: print(one.sate)": '"Transaction" has no attribute "sate"',
    "from rmqtx.repairs.receipts.plan_file import Step": None,
    "def where(step: Step) -> int: return step.half_copy.queue_offset": 'has no attribute "queue_offset"',
    'print(Kind("eror", "a", "b"))': 'has incompatible type "str"; expected "Severity"',
}


def test_a_misspelt_word_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    file = tmp_path / "misspelt.py"
    file.write_text("\n".join(LINES) + "\n")
    printed, _, _ = api.run(["--config-file", "pyproject.toml", "--cache-dir", str(tmp_path / "cache"), str(file)])
    for number, error in enumerate(LINES.values(), 1):
        found = [line for line in printed.splitlines() if f"misspelt.py:{number}:" in line]
        assert len(found) == (error is not None), printed
        assert error is None or error in found[0]
