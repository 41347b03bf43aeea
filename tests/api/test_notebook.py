"""The example notebook: its cells run in order, as a kernel runs them, and their last values have a page."""

from __future__ import annotations

import ast
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(code: str, names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last line, if that is an expression."""
    tree = ast.parse(code)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "cell", "exec"), names)
        return None
    tree.body.pop()
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(EXAMPLES / "orders-5.3.3.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "pending.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    shown = [run("".join(cell["source"]), names) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"])
    pages = [one._repr_html_() for one in shown if hasattr(one, "_repr_html_")]
    assert len(pages) == len([names["pending"], names["causes"], names["plan"]])
    assert all(one.startswith("<table>") for one in pages)
    assert names["groups"]
    assert sum(count for _, count in names["groups"]) == names["pending"].to_arrow().num_rows
    assert names["checks"]
    assert len(names["plan"]) == 1
