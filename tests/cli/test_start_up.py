"""An operator's shell answers at once: nothing heavy is loaded before it is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = ("pyarrow", "numpy", "pyspark", "pandas", "numba", "rich", "tabulate", "multiprocessing")


@pytest.mark.parametrize("arguments", [["--help"], ["pending", "--help"], ["decode", "commitlog", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys; from rmqtx_cli.main import status_of\n"
        f"assert status_of({arguments!r}) == 0\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = f"import sys, rmqtx_cli, rmqtx_cli.main; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pyarrow_does_not_load_pandas(corpus_store: Callable[[str], Path]) -> None:
    """It looks for it at its first conversion, and takes longer to load than all else."""
    root = str(corpus_store("common-5.3.3"))
    program = (
        "import sys; from rmqtx_cli.main import run\n"
        f"sys.argv = ['rmqtx', 'pending', {root!r}]\n"
        "try: run()\n"
        "finally: print({'pandas', 'pyarrow'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "{'pyarrow'}"


@pytest.mark.parametrize("command", ["pending", "show", "check", "stores", "explain"])
def test_a_command_imports_no_other(command: str) -> None:
    program = (
        "import sys; from rmqtx_cli.main import status_of\n"
        f"assert status_of([{command!r}, '--help']) == 0\n"
        "print(*(name.split('.')[3] for name in sys.modules if name.startswith('rmqtx_cli.commands.')\n"
        "        and name.count('.') == 3), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.split() == [command]


def test_the_help_of_rmqtx_imports_no_command() -> None:
    program = (
        "import sys; from rmqtx_cli.main import status_of\n"
        "assert status_of(['--help']) == 0\n"
        "print(sum(name.startswith('rmqtx_cli.commands.') for name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stderr) == 1, "rmqtx_cli.commands.by_name alone"
