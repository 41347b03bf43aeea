from __future__ import annotations

import pytest

from tests.mutants.__main__ import ROOT
from tests.mutants.equivalents import read_equivalents, unknown
from tests.mutants.operators import mutations_of

CASES = [
    ("a < b", {"a < b → a <= b", "a < b → a >= b"}),
    ("a is None", {"a is None → a is not None"}),
    ("a in b", {"a in b → a not in b"}),
    ("a and not b", {"a and (not b) → a or not b", "not b → b"}),
    ("~a & b", {"~a & b → ~a | b", "~a → a"}),
    ("f(7)", {"7 → 8", "7 → 6"}),
    ("f(True)", {"True → False"}),
    ("a + b", {"a + b → a - b"}),
    ("min(a, b)", {"min(a, b) → max(a, b)"}),
    ("sorted(a)", {"sorted(a) → a"}),
    ("b if a else c", {"a → not a"}),
    ('a + "text"', set()),
    ('f"{a + 1}"', set()),
]


@pytest.mark.parametrize(("expression", "changes"), CASES)
def test_each_operator_changes_the_expression(expression: str, changes: set[str]) -> None:
    source = f"def f(x: int = 0 + y) -> None | int:\n    '''1 + 1'''\n    x = {expression}\n"
    found = [one for one in mutations_of(source) if one.function == "f"]
    assert {one.change for one in found} == changes
    for one in found:
        text = one.applied(source)
        compile(text, "f", "exec")
        assert text != source
        assert text.splitlines()[:2] == source.splitlines()[:2]


def test_statements() -> None:
    source = "def f():\n    é.append('é')\n    n += 2\n    assert n > 1\n    return n\n"
    texts = {one.applied(source) for one in mutations_of(source)}
    assert source.replace("é.append('é')", "pass") in texts
    assert source.replace("n += 2", "n -= 2") in texts
    assert source.replace("return n", "return None") in texts
    assert all("assert n > 1" in text for text in texts)


def test_names_of_places() -> None:
    source = (
        "LIMIT = 5\nclass A:\n    n: int = 3\n    def f(self, x=7):\n"
        "        def g():\n            return x < 1, x < 1\n        return g\n"
    )
    found = {(one.function, one.name, one.change, one.nth) for one in mutations_of(source)}
    assert (None, "LIMIT", "5 → 6", 0) in found
    assert (None, "n", "3 → 4", 0) in found
    assert (None, "f", "7 → 8", 0) in found
    inner = "A.f.<locals>.g"
    assert {(inner, None, "x < 1 → x <= 1", 0), (inner, None, "x < 1 → x <= 1", 1)} <= found


def test_each_equivalent_mutant_is_still_one_and_has_a_reason() -> None:
    entries = read_equivalents()
    assert unknown(ROOT, entries) == []
    assert len({one.key for one in entries}) == len(entries)
    assert all(len(one.why) > 20 for one in entries)
