"""An operator's shell answers at once: nothing heavy is loaded before it is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = {"pyarrow", "numpy", "pyspark", "pandas", "numba", "rich", "tabulate", "multiprocessing"}


def modules_after(statements: str) -> set[str]:
    """The modules that a new interpreter has loaded after some statements."""
    program = f"import sys\ntry:\n {statements}\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def modules_after_command(*arguments: str) -> set[str]:
    """The modules that `rmqtx` with some arguments has loaded when it ends with status 0."""
    return modules_after(f"from rmqtx_cli.main import status_of; assert status_of({list(arguments)!r}) == 0")


@pytest.mark.parametrize("arguments", [["--help"], ["pending", "--help"], ["decode", "commitlog", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert not modules_after_command(*arguments) & HEAVY


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not modules_after("import rmqtx_cli.main") & HEAVY


def test_pyarrow_does_not_load_pandas(corpus_store: Callable[[str], Path]) -> None:
    """pyarrow imports pandas at its first conversion if it is installed, which takes longer than all other imports."""
    root = str(corpus_store("common-5.3.3"))
    loaded = modules_after(f"sys.argv = ['rmqtx', 'pending', {root!r}]; from rmqtx_cli.main import run; run()")
    assert loaded & {"pandas", "pyarrow"} == {"pyarrow"}


@pytest.mark.parametrize("command", ["pending", "show", "check", "stores", "explain"])
def test_a_command_imports_no_other(command: str) -> None:
    loaded = modules_after_command(command, "--help")
    names = {name.split(".")[3] for name in loaded if name.startswith("rmqtx_cli.commands.") and name.count(".") == 3}
    assert names == {command}


def test_the_help_of_rmqtx_imports_no_command() -> None:
    commands = {name for name in modules_after_command("--help") if name.startswith("rmqtx_cli.commands.")}
    assert commands == {"rmqtx_cli.commands.by_name"}
