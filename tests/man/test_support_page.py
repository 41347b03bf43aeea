"""docs/support.md is what the declarations, the corpus and pyproject.toml say."""

from __future__ import annotations

import re

from packaging.requirements import Requirement

from tests.support_page import PAGE, PROJECT, filled, releases


def test_the_releases_are_those_that_are_tested() -> None:
    text = PAGE.read_text("utf-8")
    assert filled(text, {"releases": releases()}) == text, "python -m tests.support_page"


def test_each_dependency_has_its_licence() -> None:
    listed = {name for row in PAGE.read_text("utf-8").partition("<!-- licences -->")[2].splitlines()
              for name in re.findall(r"[\w-]+", row)}
    extras = PROJECT["optional-dependencies"]
    of_users = [text for name in extras if name not in ("dev", "docs") for text in extras[name]]
    texts = [*PROJECT["dependencies"], *of_users]
    assert {Requirement(text).name for text in texts} <= listed, "python -m tests.support_page"


def test_each_extra_and_each_python_has_a_row() -> None:
    text = PAGE.read_text("utf-8")
    for name in PROJECT["optional-dependencies"]:
        assert name in ("dev", "docs") or f"| `{name}` |" in text
    for classifier in PROJECT["classifiers"]:
        if re.search(r":: 3\.\d+$", classifier):
            assert f"| {classifier.rpartition(' ')[2]} |" in text
