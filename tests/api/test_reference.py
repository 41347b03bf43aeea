"""The reference is that of the docstrings, and what is deprecated warns its user."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import rmqtx
import rmqtx.spark
from rmqtx.api.deprecation import deprecated
from tests.pages.api_page import page

PAGE = Path(__file__).parents[2] / "docs" / "api_reference.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make man`"


def test_each_name_has_a_docstring_and_a_place_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    for module in (rmqtx, rmqtx.spark):
        for name in set(module.__all__) - {"__version__"}:
            assert getattr(module, name).__doc__, name
            assert f"### {module.__name__}.{name}\n" in text or f"| `{name}` |" in text, name


class Old:
    @deprecated("Old.look is deprecated, use Old.read")
    def look(self, number: int) -> int:
        """The same."""
        return number


def test_a_deprecated_call_works_and_names_its_replacement() -> None:
    with pytest.warns(DeprecationWarning, match=r"use Old\.read") as seen:
        assert Old().look(3) == 3
    assert seen[0].filename == __file__
    assert (Old.look.__doc__, getattr(Old.look, "__deprecated__", "")) == (
        "The same.", "Old.look is deprecated, use Old.read",
    )


def test_a_deprecated_name_is_its_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rmqtx._DEPRECATED, "Verdicts", "Rows")
    old = "Verdicts"
    with pytest.warns(DeprecationWarning, match=r"use rmqtx\.Rows") as seen:
        assert getattr(rmqtx, old) is rmqtx.Rows
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(getattr(rmqtx, name) for name in rmqtx.__all__)
    assert set(rmqtx._DEPRECATED).isdisjoint(rmqtx.__all__)
