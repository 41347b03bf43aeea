"""The checks of a release candidate find what is wrong with its files; the whole way is `make candidate`."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "deploy" / "release" / "candidate.py"
NAME = "rmqtx-1.0.0rc1-py3-none-any.whl"


@pytest.fixture
def candidate(tmp_path: Path) -> Any:
    """A candidate with a wheel, its bill of materials and its digests."""
    spec = importlib.util.spec_from_file_location("candidate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    one = module.Candidate("1.0.0rc1", tmp_path, tmp_path / "scratch")
    one.failed = module.Failed
    licence = {"license": {"name": "License :: OSI Approved :: BSD"}}
    _write(tmp_path, {"name": "numpy", "version": "2.0", "licenses": [licence]})
    return one


def _write(target: Path, component: dict[str, Any]) -> None:
    (target / "rmqtx.cdx.json").write_text(json.dumps({"components": [component]}))
    with zipfile.ZipFile(target / NAME, "w") as wheel:
        wheel.write(target / "rmqtx.cdx.json", "rmqtx-1.0.0rc1.dist-info/sboms/rmqtx.cdx.json")
    files = ((name, (target / name).read_bytes()) for name in (NAME, "rmqtx.cdx.json"))
    text = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files)
    (target / "SHA256SUMS").write_text(text)


def test_good_files_pass_and_the_licences_are_listed(candidate: Any, tmp_path: Path) -> None:
    assert (candidate.sums(), candidate.bill()) == ("2 digests", "1 packages, each with a licence (licences.tsv)")
    assert (tmp_path / "licences.tsv").read_text() == "numpy\t2.0\tBSD\n"
    assert candidate.sums() == "3 digests"


def test_a_changed_file_and_another_bill_are_found(candidate: Any, tmp_path: Path) -> None:
    with (tmp_path / "rmqtx.cdx.json").open("a") as file:
        file.write(" ")
    for check, words in ((candidate.sums, "SHA256SUMS differs"), (candidate.bill, "another bill")):
        with pytest.raises(candidate.failed, match=words):
            check()


def test_a_package_without_a_licence_is_found(candidate: Any, tmp_path: Path) -> None:
    _write(tmp_path, {"name": "numpy", "version": "2.0"})
    with pytest.raises(candidate.failed, match=r"numpy 2\.0"):
        candidate.bill()


@pytest.mark.parametrize("is_equal", [True, False])
def test_packages_that_differ_between_two_clones_are_found(candidate: Any, tmp_path: Path, is_equal: bool) -> None:
    candidate.scratch = tmp_path.parent / f"{tmp_path.name}-scratch"
    clone = candidate.clone = candidate.scratch / "clone"
    clone.mkdir(parents=True)
    names = ("chart", "deb", "image", "onefile", "rpm")
    rules = "onefile deb rpm chart:\n\t@echo $@ > dist/new-$@\nimage:\n\t@echo {} > dist/new-$@\n"
    (clone / "Makefile").write_text(rules.format("image" if is_equal else "$$$$"))
    who = ["-c", "user.name=release", "-c", "user.email=release@localhost"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "version"]):
        subprocess.run(["git", *words], cwd=clone, check=True)
    if is_equal:
        assert candidate.packages() == f"{', '.join(f'new-{one}' for one in names)}: equal in both builds"
        assert len((tmp_path / "SHA256SUMS").read_text().splitlines()) == 7
    else:
        with pytest.raises(candidate.failed, match="two builds differ: new-image; built"):
            candidate.packages()


@pytest.mark.parametrize("version", ["1.0", "v1.0.0", "1.0.0rc1 --upload"])
def test_a_version_of_another_form_is_refused(version: str, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), version, str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is not a version" in done.stderr
