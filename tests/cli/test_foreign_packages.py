"""Another package with the name of one of ours, before it on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["readers", "verdicts", "repairs", "remoting"])
def test_a_foreign_package_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rmqtx_cli.main", "--version"], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"the Python package {name} is another's: {tmp_path / name / '__init__.py'}" in done.stderr
