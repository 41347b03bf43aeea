"""CHANGELOG.md has the form of keep-a-changelog, also after a merge by union."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"
CATEGORIES = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_VERSION = re.compile(r"\[(?:Unreleased|\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2})\]?")


def faults(text: str) -> list[str]:
    """What is not in the form: versions, categories in their order, each area and each line once, no line outside."""
    found, headings = [], [line for line in text.splitlines() if line.startswith("#")]
    if headings[:2] != ["# Changes", "## [Unreleased]"]:
        found.append("the page begins with its title and [Unreleased]")
    found += [one for one in headings if one.startswith("## ") and not _VERSION.fullmatch(one[3:])]
    for version in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        parts = re.split(r"^### ", version, flags=re.MULTILINE)
        names = [part.split("\n", 1)[0] for part in parts[1:]]
        changes = [one for one in names if not one.startswith("Upgrading to ")]
        if names != [*(one for one in names if one not in changes), *(one for one in CATEGORIES if one in changes)]:
            found.append(f"categories: {names}")
        found += [f"outside of a category: {line}" for line in parts[0].splitlines() if line.startswith("- ")]
        for name, part in zip(names, parts[1:], strict=True):
            areas = re.findall(r"^#### (.*)", part, re.MULTILINE)
            found += [f"an area twice in {name}: {one}" for one in {*areas} if areas.count(one) > 1]
            if name in changes and re.search(r"^- ", part.split("#### ", 1)[0], re.MULTILINE):
                found.append(f"a line without an area in {name}")
    lines = re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)
    return found + [f"twice: {one}" for one in {*lines} if lines.count(one) > 1]


def test_the_changes_are_in_their_form() -> None:
    assert not faults(CHANGELOG.read_text("utf-8"))


@pytest.mark.parametrize(
    "fault",
    [
        "### Fixed\n\n#### Output\n\n- a line\n",
        "### News\n", "## 1.0.0 (soon)\n", "## [1.0.0] - soon\n",
        "#### Output\n\n- x\n\n#### Output\n",
    ],
)
def test_a_fault_of_a_merge_is_found(fault: str) -> None:
    text = CHANGELOG.read_text("utf-8")
    assert faults(text + "\n" + fault)
    assert not faults(text + "\n## [0.9.0] - 2026-01-01\n\n### Fixed\n\n#### Output\n\n- another line\n")
