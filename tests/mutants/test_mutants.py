"""The runner on a toy package: what dies, what survives, what is stopped; nothing changes outside its copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forge.stores import contents
from tests.mutants.__main__ import ROOT
from tests.mutants.equivalents import Equivalent, unknown
from tests.mutants.page import merged

RULES = '''
from functools import cache
LIMIT = 3
def is_over(n: int) -> bool:
    return n > LIMIT
def down(n: int) -> int:
    while n > 0:
        n -= 1
    return n
@cache
def shared(n: int) -> int:
    return n + 1
def weak(n: int) -> bool:
    return n > 10
def unused(n: int) -> int:
    return n * 2
'''
TESTS = '''
import subprocess, sys
import pytest
from functools import cache
from toy.rules import down, is_over, shared, weak
@pytest.fixture(scope="session")
def result(): return is_over(4)
@cache
def value(): return shared(1)
def test_over(): assert is_over(4) and not is_over(3)
def test_fixture(result): assert result
def test_down(): assert down(3) == 0
def test_uses_first(): value()
def test_uses_second(): assert value() == 2
def test_weak(): assert weak(20) and not weak(0)
def test_program():
    weak(20)
    program = "from toy.rules import is_over; print(is_over(4))"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"True\\n"
'''


EQUIVALENT = '''
[[equivalent]]
file = "readers/rules.py"
function = "weak"
mutation = "n > 10 → n >= 10"
code = "return n > 10"
why = "No caller has 10."
'''


def played(root: Path, tests: str, *more: str) -> subprocess.CompletedProcess[str]:
    """A toy with these tests, played; nothing outside of its cache may change."""
    pytest.importorskip("coverage")  # not in an environment that was made before it was needed
    for name, text in {
        "readers/rules.py": RULES, "readers/__init__.py": "", "tests/toy/test_rules.py": tests,
        ".gitignore": ".cache/\n", "pyproject.toml": "[tool.pytest.ini_options]\n", "tests/equivalent.toml": EQUIVALENT,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    (root / "toy").symlink_to("readers")  # a package under two names, as those of rmqtx
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    before = contents(root)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    options = ["--root", str(root), "--folder", "readers", "--seconds", "1", *more]
    command = [sys.executable, "-m", "tests.mutants", *options]
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert {name: text for name, text in contents(root).items() if not name.startswith(".cache")} == before
    return ended


def test_outcomes(tmp_path: Path) -> None:
    ended = played(tmp_path, TESTS, "--count", "99")
    found = json.loads((tmp_path / ".cache/mutants/readers.json").read_text("utf-8"))
    rows = {f"{row['function']}: {row['mutation']}": row for row in found}
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert outcomes["is_over: n > LIMIT → n >= LIMIT"] == "killed"
    assert outcomes["None: 3 → 4"] == "killed"
    assert outcomes["shared: n + 1 → n - 1"] == "killed"
    assert rows["shared: n + 1 → n - 1"]["by"].endswith("test_uses_second")
    assert outcomes["down: n > 0 → n >= 0"] == "killed"
    assert outcomes["down: n -= 1 → n += 1"] == "timed out"
    assert outcomes["weak: n > 10 → n >= 10"] == "equivalent"
    assert outcomes["weak: 10 → 11"] == "survived"
    assert outcomes["unused: n * 2 → n // 2"] == "not covered"
    assert ended.returncode == 1, ended.stderr
    assert "survived: readers/rules.py:14 weak: 10 → 11" in ended.stdout


def test_an_equivalent_mutant_is_another_one_if_its_line_has_changed(tmp_path: Path) -> None:
    """A number before it shifts which `0` the entry means: its reason is that of another fault."""
    entry = Equivalent(file="a.py", function="f", mutation="0 → 1", code="return 0", why="")
    for text, entries in (("return 0", []), ("n = 0\n    return 0", [entry])):
        (tmp_path / "a.py").write_text(f"def f():\n    {text}\n", encoding="utf-8")
        assert unknown(tmp_path, [entry]) == entries


def test_a_run_whose_planted_mutant_survives_proves_nothing(tmp_path: Path) -> None:
    tests = "from toy.rules import weak\ndef test_weak():\n    try: weak(20)\n    except AssertionError: pass\n"
    ended = played(tmp_path, tests, "--count", "1")
    assert ended.returncode == 2
    assert "the planted mutant survived in readers/rules.py: weak" in ended.stderr


def test_survivors_that_are_played_again_keep_the_figures_of_their_draw() -> None:
    def row(number: int, outcome: str) -> dict[str, Any]:
        return {
            "file": "a.py", "line": number, "function": "f", "mutation": f"{number}", "nth": 0, "tests": 1,
            "left_out": 0, "outcome": outcome,
        }

    drawn = [row(1, "killed"), row(2, "survived"), row(3, "not covered"), row(4, "survived"), row(5, "timed out")]
    first = merged(ROOT, drawn, 7, "1 of 1", None)
    assert (first["mutants"], first["killed"], first["survived"], first["not_covered"]) == (5, 2, 2, 1)
    again = merged(ROOT, [row(2, "killed"), row(3, "equivalent")], 8, "1 of 1", first)
    assert (again["mutants"], again["killed"], again["killed_later"], again["equivalent"]) == (5, 3, 1, 1)
    assert (again["survived"], again["not_covered"], again["seed"]) == (1, 0, "7")
    assert [one["mutation"] for one in again["survivors"]] == ["4"]
    assert again["killed"] + again["equivalent"] + len(again["survivors"]) == again["mutants"]


def test_a_survivor_whose_code_is_gone_is_no_mutant_of_the_draw_any_longer() -> None:
    old = {
        "file": "a.py", "line": 1, "function": "f", "mutation": "1 → 2", "nth": 0, "tests": 1, "left_out": 0,
        "outcome": "survived",
    }
    first = merged(ROOT, [old, {**old, "nth": 1}], 7, "1 of 1", None)
    again = merged(ROOT, [], 8, "1 of 1", first, {("a.py", "f", "1 → 2", 0)})
    assert (again["mutants"], again["survived"]) == (1, 1)
    assert [one["nth"] for one in again["survivors"]] == [1]
