"""One table says since which release what is otherwise, and nothing else compares a version with a literal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtx.readers.model import releases
from rmqtx.readers.model.releases import ALWAYS, Change, Version

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("readers", "verdicts", "remoting", "repairs", "spark_tasks", "rmqtx_cli")
_TABLE = _ROOT / "readers/model/releases.py"
#: Since when which file is kept: a table of its own, which nothing but the page of paths and marks reads.
_FILES = _ROOT / "readers/store/paths.py"
#: What the text of every such literal has: spares most files their tree.
_HINT = re.compile(r"\b[0-9], *[0-9]+\b|[0-9]\.[0-9]+\.[0-9]")
_FROM_4_3_TO_5 = Change("a", "b", since=(4, 3, 0), until=(5, 0, 0), but=((4, 9, 2),))


def _release(node: ast.AST) -> tuple[int, ...] | None:
    """What a literal of two or three whole numbers says: (5, 1, 0)."""
    if not isinstance(node, ast.Tuple) or len(node.elts) not in (2, 3):
        return None
    parts = [part.value for part in node.elts if isinstance(part, ast.Constant) and type(part.value) is int]
    return tuple(int(str(part)) for part in parts) if len(parts) == len(node.elts) else None


def _says_release(node: ast.AST) -> bool:
    """Whether an operand is a release by its parts or as text: (5, 1, 0), "5.1.0"."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return _release(node) is not None or re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", text) is not None


def compared(source: str) -> list[int]:
    """The lines that compare a version with a literal, or hold a whole release as one."""
    lines: set[int] = set()
    if not _HINT.search(source):
        return []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            if any(_says_release(one) for one in operands) and any("version" in ast.unparse(one) for one in operands):
                lines.add(node.lineno)
        elif isinstance(node, ast.Tuple) and len(parts := _release(node) or ()) == 3 and parts[0] in (3, 4, 5):
            lines.add(node.lineno)
    return sorted(lines)


def _modules() -> Iterator[Path]:
    for package in _PACKAGES:
        yield from sorted((_ROOT / package).rglob("*.py"))


def test_nothing_but_the_table_compares_a_version_with_a_literal() -> None:
    assert compared(_TABLE.read_text(encoding="utf-8")), "the table itself must be found by this"
    found = {
        f"{path.relative_to(_ROOT)}:{line}"
        for path in _modules()
        if path not in (_TABLE, _FILES)
        for line in compared(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "if version >= (5, 1, 0): pass", "ok = (4, 5) <= self.version < (5, 0)", 'a = settings.version_high == "5.0.0"',
        "_SINCE: Version = (4, 5, 2)", "yield 5, 4, 0",
    ],
)
def test_what_compares_a_version_with_a_literal_is_found(source: str) -> None:
    assert compared(source) == [1]


def test_every_change_is_asked_for() -> None:
    """What is declared and not asked for makes no difference: ask by `holds`, `between` or `since` where it matters."""
    named = {
        name for path in _modules() if path != _TABLE
        for name in re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text(encoding="utf-8"))
    }
    assert {name for name, value in vars(releases).items() if isinstance(value, Change)} - named == set()


def test_defaults_begin_with_one_for_all_and_change_at_a_known_release() -> None:
    for setting, defaults in releases.DEFAULTS.items():
        since = [version for version, _ in defaults]
        assert since[0] == ALWAYS, setting
        assert since == sorted(set(since)), setting
        assert all(releases.release_before(version) == version for version in since[1:]), setting


def test_every_change_has_a_border_and_a_source() -> None:
    changes = {name: value for name, value in vars(releases).items() if isinstance(value, Change)}
    assert len({change.what for change in changes.values()}) == len(changes) > 40
    for name, change in changes.items():
        assert change.source, name
        assert change.since != ALWAYS or change.until is not None, name
        assert change.until is None or change.since < change.until, name
        assert all(not change.holds(one) for one in change.but), name
        borders = {change.since, change.until or change.since, *change.but} - {ALWAYS}
        assert all(releases.release_before(border) == border for border in borders), name


@pytest.mark.parametrize(
    ("version", "holds"),
    [((4, 2, 0), False), ((4, 3, 0), True), ((4, 9, 2), False), ((4, 9, 8), True), ((5, 0, 0), False)],
)
def test_a_change_holds_from_its_first_release_to_the_one_before_its_end(version: Version, holds: bool) -> None:
    assert _FROM_4_3_TO_5.holds(version) is holds
    assert _FROM_4_3_TO_5.between(version, version) is holds


@pytest.mark.parametrize(
    ("low", "high", "known", "border"),
    [
        (None, (4, 2, 0), False, None),
        (None, (4, 3, 0), None, (4, 3, 0)),
        ((4, 3, 0), (4, 4, 0), True, None),
        ((4, 3, 0), (4, 9, 8), None, None),
        ((4, 9, 3), None, None, (5, 0, 0)),
        (None, None, None, (5, 0, 0)),
        ((5, 0, 0), None, False, None),
    ],
)
def test_bounds_leave_open_what_changes_between_them(
    low: Version | None, high: Version | None, known: bool | None, border: Version | None
) -> None:
    assert _FROM_4_3_TO_5.between(low, high) is known
    assert _FROM_4_3_TO_5.border_between(low, high) == border


@pytest.mark.parametrize("version", [(5, 3, 4), (5, 5, 1)])
def test_the_newest_releases_are_known(version: Version) -> None:
    assert releases.release_before(version) == version
