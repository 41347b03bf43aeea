"""Every folder of ours stands in a contract of `pyproject.toml`; `make contracts` runs this after lint-imports.

lint-imports sees only packages that a contract names and folders that have an `__init__.py`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LINTER = PROJECT["tool"]["importlinter"]
#: Folders with modules that no product imports.
NO_PRODUCT = {"tests", "benchmarks", "deploy", "examples", "build"}  # `pip install .` leaves build/


def contracts_of(kind: str) -> list[dict[str, Any]]:
    """The contracts of one kind."""
    return [one for one in LINTER["contracts"] if one["type"] == kind]


def packages(root: Path) -> list[str]:
    """The folders beside `pyproject.toml` that modules are in, but for those of no product and linked ones."""
    linked = {path.resolve().name for path in (root / "rmqtx").iterdir() if path.is_symlink()}
    return sorted(
        folder.name for folder in root.iterdir()
        if folder.is_dir() and not folder.name.startswith(".") and any(folder.rglob("*.py"))
        and folder.name not in NO_PRODUCT | linked
    )


def folders(root: Path, package: str) -> Iterator[Path]:
    """A package and every folder in it that modules are in; links are followed, which `rglob` does not."""
    for place, inner, files in os.walk(root / package, followlinks=True):
        inner.sort()
        if any(name.endswith(".py") for name in files):
            yield Path(place)


def without_a_contract(root: Path) -> list[str]:
    """What is wrong with each folder that no contract sees, as a sentence that says what to do."""
    ordered = next(one for one in contracts_of("layers") if "containers" not in one)
    in_order = set(ordered["layers"])
    containers = {name for one in contracts_of("layers") if one.get("exhaustive") for name in one.get("containers", ())}
    found = []
    for package in packages(root):
        if package not in LINTER["root_packages"] or package not in in_order:
            found.append(f"{package}/: name it in root_packages and in the contract `{ordered['name']}`")
        for one in folders(root, package):
            if not (one / "__init__.py").is_file():
                found.append(f"{one.relative_to(root)}/: no contract sees it, for it has no __init__.py")
            inner = [path.name for path in one.iterdir() if path.is_dir() and any(path.rglob("*.py"))]
            name = ".".join(one.relative_to(root).parts)
            if inner and name not in containers:
                found.append(f"{one.relative_to(root)}/ has folders ({', '.join(sorted(inner))}): it needs a contract "
                             f"with `containers = [\"{name}\"]` and `exhaustive = true`")
    return found


def test_every_folder_stands_in_a_contract() -> None:
    found = without_a_contract(ROOT)
    assert not found, "\n".join(found)


def test_every_package_is_installed_typed_and_free_of_circles() -> None:
    ours = set(packages(ROOT))
    assert {pattern.rstrip(".*") for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]} == ours
    assert ours <= set(PROJECT["tool"]["mypy"]["files"])
    assert {name for name in PROJECT["tool"]["setuptools"]["package-data"] if "." not in name} == ours
    assert all((ROOT / name / "py.typed").is_file() for name in ours)
    assert {name for one in contracts_of("acyclic_siblings") for name in one["ancestors"]} == ours


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("helpers/words.py", "helpers/: name it in root_packages and in the contract `The program calls the library`"),
        ("rmqtx/verdicts/shadows/shade.py", "rmqtx/verdicts/shadows/: no contract sees it, for it has no __init__.py"),
        (
            "rmqtx/verdicts/ends/names/__init__.py",
            'rmqtx/verdicts/ends/ has folders (names): it needs a contract with `containers = ["rmqtx.verdicts.ends"]`'
            " and `exhaustive = true`",
        ),
    ],
)
def test_a_folder_that_no_contract_sees_is_named(tmp_path: Path, file: str, sentence: str) -> None:
    for package in packages(ROOT):
        for folder in folders(ROOT, package):
            copy = tmp_path / folder.relative_to(ROOT)
            copy.mkdir(parents=True)
            (copy / "__init__.py").touch()
    assert sentence not in without_a_contract(tmp_path)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    assert sentence in without_a_contract(tmp_path)
