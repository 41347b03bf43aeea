"""An operator's shell answers at once: nothing heavy is loaded before it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = ("pyarrow", "numpy", "pyspark", "pandas", "numba", "rich", "pydantic", "multiprocessing")


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


#: What pyarrow and the standard library have for other commands: files in other places, databases, processes.
NEEDLESS = (
    "pandas", "pyarrow.dataset", "pyarrow.acero", "pyarrow.parquet", "pyarrow.fs", "pydantic", "sqlite3", "numba",
    "pyspark", "rich", "multiprocessing", "email", "zipfile",
)


@pytest.mark.parametrize(
    ("command", "also"),
    [
        ("pending STORE", ("ssl",)), ("check STORE", ("ssl",)), ("show ID --store STORE", ("ssl",)),
        ("stores STORE", ("ssl",)), ("explain PENDING", ()),
    ],
)  # fmt: skip
def test_a_command_loads_only_what_it_needs(
    command: str, also: tuple[str, ...], corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    identity = "FD0000000000000000000000000000021A584E0E2F2A683849CD0081"
    words = {"STORE": str(corpus_store("common-5.3.3")), "ID": identity}
    program = (
        "import sys; from rmqtx_cli.main import run\n"
        f"sys.argv = {['rmqtx', *(words.get(word, word) for word in command.split())]!r}\n"
        "try: run()\n"
        f"finally: print('loaded', *(set({(*NEEDLESS, *also)!r}) & sys.modules.keys()), file=sys.stderr)"
    )
    environment = {**os.environ, "RMQTX_STATE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout, done.stderr
    assert done.stderr.splitlines()[-1] == "loaded"


def test_no_import_converts_with_pyarrow() -> None:
    """Pyarrow looks for pandas at its first conversion, which takes longer than all other imports together."""
    program = (
        "import importlib, pkgutil, sys\n"
        "class Found:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pandas': raise SystemExit('pandas is looked for')\n"
        "sys.meta_path.insert(0, Found())\n"
        "for package in ('readers', 'verdicts', 'rmqtx_cli'):\n"
        "    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + '.'):\n"
        "        try: importlib.import_module(module.name)\n"
        "        except SystemExit as found: sys.exit(f'{module.name}: {found}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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
