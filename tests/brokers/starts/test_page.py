"""docs/starts.md: what was not played again keeps its cells."""

from __future__ import annotations

from tests.brokers.starts.__main__ import PAGE, page
from tests.brokers.starts.cases import CASES
from tests.brokers.starts.compare import Outcome, Result

CASE = next(case for case in CASES if case.name == "torn tail")
BASE = next(case for case in CASES if case.name == "untouched")


def played(*differences: str) -> list[Result]:
    whole, cut = Outcome(1000, ["0"], entries=10), Outcome(900, ["0"], entries=9)
    return [Result(BASE, "5.5.0", whole, whole, []), Result(CASE, "5.5.0", cut, cut, list(differences))]


def test_a_cell_is_replaced_and_the_others_are_kept() -> None:
    old = PAGE.read_text(encoding="utf-8")
    assert page([], old) == old
    new = page(played(), old, played="a day, a commit")
    changed = [line for line in new.splitlines() if line not in old.splitlines()]
    rows = [line for line in changed if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| torn tail", "| last played"]
    assert rows[0].endswith("| cut 100, queues −1 |")
    assert rows[1].endswith("| a day, a commit |")
    assert page([], new) == new


def test_what_was_not_as_foreseen_stands_below_until_it_is_played_again() -> None:
    old = page(played("900 foreseen, 800 found"), PAGE.read_text(encoding="utf-8"))
    assert old.endswith("- torn tail, 5.5.0: 900 foreseen, 800 found\n")
    assert page([], old) == old
    assert "Not as predicted" not in page(played(), old)
