"""An operator's shell answers at once: nothing heavy is loaded before it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status

HEAVY = {"pyarrow", "numpy", "pyspark", "pandas", "numba", "rich", "pydantic", "multiprocessing"}


def modules_after(statements: str, *, prints: bool = False, **environment: str) -> set[str]:
    """The modules that a new interpreter has loaded after some statements."""
    program = f"import sys\ntry:\n {statements}\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert bool(done.stdout) == prints, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def modules_after_command(*arguments: str, **environment: str) -> set[str]:
    """The modules that a command line of rmqtx has loaded when it ends."""
    start = f"from rmqtx_cli.main import run; sys.argv = {['rmqtx', *arguments]!r}; run()"
    return modules_after(start, prints=True, **environment)


@pytest.mark.parametrize("arguments", [["--help"], ["pending", "--help"], ["decode", "commitlog", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert not modules_after_command(*arguments) & HEAVY


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not modules_after("import rmqtx_cli.main") & HEAVY


#: What pyarrow and the standard library have for other commands: files in other places, databases, processes.
NEEDLESS = (
    "pandas", "pyarrow.dataset", "pyarrow.acero", "pyarrow.parquet", "pyarrow.fs", "pydantic", "sqlite3", "numba",
    "pyspark", "rich", "multiprocessing",
)
#: What only damage, object storage, databases and other commands need.
RARELY_NEEDED = (
    "ssl", "concurrent.futures", "rmqtx.readers.old_tables.transaction_table",
    "rmqtx.verdicts.missing.missing_ranges", "rmqtx_cli.commands.declared.survey",
)


@pytest.mark.parametrize(
    ("command", "also"),
    [
        ("pending STORE", RARELY_NEEDED), ("check STORE", RARELY_NEEDED), ("show ID --store STORE", RARELY_NEEDED),
        ("stores STORE", ("ssl",)), ("explain PENDING", ()), ("audit STORE", ("ssl",)),
    ],
)
def test_a_command_loads_only_what_it_needs(
    command: str, also: tuple[str, ...], corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    identity = "FD0000000000000000000000000000021A584E0E2F2A683849CD0081"
    words = {"STORE": str(corpus_store("common-5.3.3")), "ID": identity}
    arguments = [words.get(word, word) for word in command.split()]
    loaded = modules_after_command(*arguments, RMQTX_STATE_DIR=str(tmp_path))
    assert not loaded & {*NEEDLESS, *also}


def test_no_import_converts_with_pyarrow() -> None:
    """Pyarrow looks for pandas at its first conversion, which takes longer than all other imports together."""
    program = (
        "import importlib, pkgutil, sys\n"
        "class Found:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pandas': raise SystemExit('pandas is looked for')\n"
        "sys.meta_path.insert(0, Found())\n"
        "for package in ('rmqtx.readers', 'rmqtx.verdicts', 'rmqtx_cli'):\n"
        "    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + '.'):\n"
        "        try: importlib.import_module(module.name)\n"
        "        except SystemExit as found: sys.exit(f'{module.name}: {found}')\n"
        "        except ModuleNotFoundError as lacking:\n"
        "            if lacking.name not in ('pyspark', 'py4j'): raise\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["pending", "show", "check", "stores", "explain", "commit"])
def test_the_help_of_a_command_imports_no_module_that_runs_one(command: str) -> None:
    loaded = modules_after_command(command, "--help")
    assert {name.split(".")[2] for name in loaded if name.startswith("rmqtx_cli.commands.")} == {"by_name", "declared"}


@pytest.mark.parametrize("command", ["pending", "check", "stores", "explain"])
def test_a_command_imports_no_other(command: str, corpus_store: Callable[[str], Path], tmp_path: Path) -> None:
    arguments = ["PENDING"] if command == "explain" else [str(corpus_store("common-5.3.3"))]
    loaded = modules_after_command(command, *arguments, RMQTX_STATE_DIR=str(tmp_path))
    running = {name for name in loaded if name.startswith("rmqtx_cli.commands.reading.")}
    assert running == {f"rmqtx_cli.commands.reading.{command}"}


def test_the_help_of_rmqtx_imports_no_command() -> None:
    commands = {name for name in modules_after_command("--help") if name.startswith("rmqtx_cli.commands.")}
    assert commands == {"rmqtx_cli.commands.by_name"}


def test_completion_of_an_option_loads_nothing_heavy() -> None:
    environment = {"_RMQTX_COMPLETE": "complete_bash", "COMP_WORDS": "rmqtx pending --old", "COMP_CWORD": "2"}
    loaded = modules_after_command(**environment)
    assert not loaded & HEAVY
    assert "rmqtx_cli.commands.declared.look" in loaded


def test_an_interrupt_while_the_program_loads_ends_it_as_a_later_one_does() -> None:
    """SIGINT that arrives during the imports, here of Typer."""
    program = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from rmqtx_cli.entry import run
run()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (exit_status.INTERRUPTED, "", "rmqtx: interrupted\n")
