"""The library is one package: no module is loaded under two names, and no source uses a folder as a package's name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT, linked_folders
from tests.forge.stores import unpacked

_EITHER = "|".join(folder.name for folder in linked_folders())
_DOTTED = re.compile(rf"(?<![\w./\\-])({_EITHER})\.(\w+)")
_IMPORT = re.compile(rf"(?:^|[\"'; ])(?:from|import) ({_EITHER})(?: import |[\"';,]|$)", re.MULTILINE)
#: What a process loads after some statements: the names that are not modules' own, and the number of all of them.
_LOADED = """
import importlib, json, pkgutil, sys
{statements}
from tests.conftest import other_names
names = [name for name in sys.modules if name.partition(".")[0] == "rmqtx"]
print(json.dumps([other_names(), len(names)]))
"""
_ALL = """
for package in ("rmqtx", "rmqtx_cli"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            assert error.name.partition(".")[0] not in ("rmqtx", "rmqtx_cli"), error  # an extra that is not here
"""


def loaded(statements: str) -> tuple[dict[str, str], int]:
    """What a new process loads; the root of the repository is on its path, and with it the old names."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED.format(statements=statements)], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names, count = json.loads(done.stdout)
    return names, count


def test_the_links_are_relative_and_lead_to_folders_beside_the_library() -> None:
    links = {path.name: str(path.readlink()) for path in (ROOT / "rmqtx").iterdir() if path.is_symlink()}
    assert links == {name: f"../{name}" for name in links}
    assert {f"rmqtx.{name}" for name in links} == set(linked_folders().values())
    assert len(links) == 5


def test_no_module_has_two_names() -> None:
    """All modules of the library and of the program are imported."""
    names, count = loaded(_ALL)
    assert names == {}
    assert count > 400


def test_a_second_name_is_noticed() -> None:
    names, _ = loaded("import rmqtx.readers.model.errors, readers.model.errors")
    assert names == {
        name: f"rmqtx.{name}" for name in ("readers", "readers.model", "readers.model.errors")
    }


def test_no_source_uses_a_folder_as_the_name_of_a_package() -> None:
    found = []
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        path = ROOT / name
        is_text = path.suffix in (".py", ".md", ".toml", ".sh", ".yml") or path.name == "Makefile"
        if not is_text or not path.is_file() or path == Path(__file__) or name.startswith("tests/corpus/"):
            continue
        text = path.read_text("utf-8")
        dotted = [
            one[0] for one in _DOTTED.finditer(text)
            if (ROOT / one[1] / one[2]).is_dir() or (ROOT / one[1] / f"{one[2]}.py").is_file()
        ]
        imported = [one[0].strip() for one in _IMPORT.finditer(text)] if path.suffix == ".py" else []
        found += [f"{name}: {words}: write rmqtx. before it" for words in dotted + imported]
    assert found == []


def test_packages_of_others_with_these_names_do_no_harm(tmp_path: Path) -> None:
    for folder in linked_folders():
        (tmp_path / folder.name).mkdir()
        (tmp_path / folder.name / "__init__.py").write_text("raise ImportError('of others')\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rmqtx_cli.main", "pending", unpacked("common-5.3.3"), "--format", "csv"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}, cwd=tmp_path, capture_output=True, text=True,
        check=False,
    )
    assert (done.returncode, "PENDING" in done.stdout) == (0, True), done.stderr
