#!/usr/bin/env python3
"""Make a release candidate from a clean clone of the commit that is checked out, and check it. Nothing is published.

    python3 deploy/release/candidate.py VERSION DIRECTORY        for example 1.0.0rc1 /tmp/candidate

The version is set in the clone only. DIRECTORY gets the files of deploy/release/build.py, which builds twice, compares
and runs `twine check`, licences.tsv (each package of the bill of materials with its licence), and the files of `make
onefile deb rpm image chart`, which are built in two clones and compared. The wheelhouse is installed into an empty
environment without an index, and the session of README.md is run there and by the one file.

Status 0: every check at the end is ok. 1: one is not, or could not be made. 2: a command line that cannot be used.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/orders-5.3.3.tar.xz"
PACKAGES = ("onefile", "deb", "rpm", "image", "chart")
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class Failed(Exception):
    """A check that is not ok."""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return what a command printed on both outputs, without the variables that would let it find another rmqtx."""
    left_out = ("PYTHONPATH", "PIP_FIND_LINKS", "RMQTX_STORE", "RMQTX_CONFIG", "NAMESRV_ADDR")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        command, cwd=cwd, env={**inherited, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


class Candidate:
    """A clone with the version of the candidate, the directory with its files, and an environment that has it."""

    def __init__(self, version: str, target: Path, scratch: Path) -> None:
        self.version, self.target, self.scratch = version, target, scratch
        self.clone, self.environment = scratch / "clone", scratch / "environment"

    def is_clean(self) -> str:
        """Nothing is left uncommitted in the tree from which the clone is made."""
        left = run("git", "status", "--porcelain", cwd=ROOT)
        if left:
            raise Failed(f"changes that are not committed would be missing:\n{left}")
        return run("git", "log", "-1", "--format=%h %cs %s", cwd=ROOT).strip()

    def make_clone(self) -> str:
        """Clone, set the version, commit it in the clone at the time of the cloned commit."""
        run("git", "clone", "--quiet", "--no-local", ROOT, self.clone, cwd=self.scratch)
        project = self.clone / "pyproject.toml"
        before = re.search(r'^version = "(.*)"$', project.read_text("utf-8"), re.MULTILINE)
        if before is None:
            raise Failed("pyproject.toml has no version")
        names = re.compile(rf"(rmqtx[-:]|^version = \"){re.escape(before[1])}(?![\w.]\d)", re.MULTILINE)
        changed = []
        for name in run("git", "ls-files", "pyproject.toml", "docs", "deploy", cwd=self.clone).splitlines():
            file = self.clone / name
            text = file.read_text("utf-8") if file.suffix in {".toml", ".md", ".yaml", ""} else ""
            if names.search(text):
                file.write_text(names.sub(rf"\g<1>{self.version}", text), "utf-8")
                changed.append(name)
        when = run("git", "log", "-1", "--format=%cI", cwd=self.clone).strip()
        who = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
               for part, value in (("NAME", "release"), ("EMAIL", "release@localhost"), ("DATE", when))}
        run("git", "commit", "--quiet", "--all", "--message", f"version {self.version}", cwd=self.clone, **who)
        return f"{before[1]} → {self.version} in {', '.join(changed)}"

    def build(self) -> str:
        """Build twice from clones of the clone, compare, and run twine check."""
        run(sys.executable, "deploy/release/build.py", self.target, "--wheelhouse", cwd=self.clone)
        return f"{len([*self.target.iterdir()])} files, equal in both builds, twine check is clean"

    def sums(self) -> str:
        """SHA256SUMS has each file with its digest."""
        lines = (self.target / "SHA256SUMS").read_text().splitlines()
        listed = dict(reversed(line.split("  ")) for line in lines)
        found = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in self.target.iterdir()}
        found.pop("SHA256SUMS")
        if listed != found:
            raise Failed(f"SHA256SUMS differs for {sorted(set(listed.items()) ^ set(found.items()))}")
        return f"{len(found)} digests"

    def bill(self) -> str:
        """The bill of materials in the wheel is the one beside it, and names packages with versions and licences."""
        file = self.target / "rmqtx.cdx.json"
        wheel = self._one("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            inside = [name for name in archive.namelist() if name.endswith("/sboms/rmqtx.cdx.json")]
            if [archive.read(name) for name in inside] != [file.read_bytes()]:
                raise Failed("the wheel has another bill of materials")
        rows = []
        for one in json.loads(file.read_text("utf-8"))["components"]:
            words = sorted({item.get("expression") or item["license"].get("id") or item["license"].get("name", "")
                            for item in one.get("licenses", ())})
            licence = " OR ".join(word.split(" :: ")[-1].splitlines()[0][:80] for word in words if word)
            rows.append((one["name"], one.get("version", ""), licence))
        nameless = [f"{name} {version}" for name, version, licence in rows if not (version and licence)]
        (self.target / "licences.tsv").write_text("".join("\t".join(row) + "\n" for row in sorted(rows)), "utf-8")
        self._list("licences.tsv")
        if not rows or nameless:
            raise Failed(f"without a version or a licence: {', '.join(nameless) or 'no package is listed'}")
        return f"{len(rows)} packages, each with a licence (licences.tsv)"

    def install(self) -> str:
        """Install from the wheelhouse into an empty environment, without an index."""
        with tarfile.open(self._one("*-wheelhouse-*.tar.gz")) as archive:
            archive.extractall(self.scratch, filter="data")
        venv.create(self.environment, with_pip=True)
        house, binaries = self.scratch / "wheelhouse", self.environment / "bin"
        run(binaries / "pip", "install", "--quiet", "--no-index", "--find-links", house,
            f"rmqtx[exporter,rocksdb]=={self.version}", cwd=self.scratch)
        run(binaries / "pip", "check", cwd=self.scratch)
        printed = run(binaries / "rmqtx", "--version", cwd=self.scratch).strip()
        if self.version not in printed:
            raise Failed(f"rmqtx --version prints {printed}")
        return f"{len([*house.glob('*.whl')])} wheels, {printed}, pip check is clean"

    def doctor(self) -> str:
        """`rmqtx doctor` finds no problem."""
        run(self.environment / "bin/rmqtx", "doctor", cwd=self.scratch, XDG_STATE_HOME=str(self.scratch / "state"))
        return "no problem"

    def demo(self) -> str:
        """The session of README.md, which has a time of its own, prints what the page shows."""
        return self._session(self.environment / "bin/rmqtx")

    def packages(self) -> str:
        """One file, Debian package, RPM, image and chart have the same bytes from two clones."""
        made = []
        for number in range(2):
            clone = self.scratch / f"packages{number}"
            run("git", "clone", "--quiet", "--no-local", self.clone, clone, cwd=self.scratch)
            shutil.copytree(self.target, clone / "dist", copy_function=shutil.copyfile)  # newer than the commit
            run("make", f"PYTHON={sys.executable}", *PACKAGES, cwd=clone)
            made.append({one.name: one for one in (clone / "dist").iterdir() if not (self.target / one.name).exists()})
        unlike = [name for name, one in made[0].items() if not filecmp.cmp(one, made[1][name], shallow=False)]
        for name, one in sorted(made[0].items()):
            shutil.copy2(one, self.target)
            self._list(name)
        if unlike or len(made[0]) != len(PACKAGES):
            raise Failed(f"two builds differ: {', '.join(unlike)}; built: {', '.join(made[0])}")
        return f"{', '.join(sorted(made[0]))}: equal in both builds"

    def one_file(self) -> str:
        """The session of README.md prints the same by the one file."""
        return self._session(self._one("*-linux-x86_64"), RMQTX_UNPACKED=str(self.scratch / "unpacked"))

    def _list(self, name: str) -> None:
        """Add a file to the digests."""
        digest = hashlib.sha256((self.target / name).read_bytes()).hexdigest()
        with (self.target / "SHA256SUMS").open("a") as sums:
            sums.write(f"{digest}  {name}\n")

    def _session(self, program: Path, **environment: str) -> str:
        place = Path(tempfile.mkdtemp(dir=self.scratch))
        with tarfile.open(self.clone / EXAMPLE) as archive:
            archive.extractall(place, filter="data")
        page = (self.clone / "README.md").read_text("utf-8")
        steps = re.findall(r"^```console\n\$ rmqtx (.*)\n((?:.*\n)*?)```$", page, re.MULTILINE)
        environment["XDG_STATE_HOME"] = str(self.scratch / "state")
        for command, shown in steps:
            printed = run(program, *command.split(), cwd=place, **environment)
            if [one.rstrip() for one in printed.splitlines()] != [one.rstrip() for one in shown.splitlines()]:
                raise Failed(f"rmqtx {command} prints another text than README.md:\n{printed}")
        if not steps:
            raise Failed("README.md shows no session")
        return f"{len(steps)} commands of README.md print what the page shows"

    def sdist(self) -> str:
        """The wheel that is built from the sdist has the modules of the clone, and no tests."""
        with zipfile.ZipFile(self._one("*.whl")) as archive:
            found = {one for one in archive.namelist() if one.endswith(".py")}
        wanted = {f"rmqtx/{name}" if not name.startswith(("rmqtx", "pyspark")) else name for name in run(
            "git", "ls-files", "*.py", cwd=self.clone).splitlines()
            if not name.startswith(("tests/", "benchmarks/", "deploy/", "examples/"))}
        if found != wanted:
            raise Failed(f"modules differ: {sorted(found ^ wanted)[:10]}")
        return f"{len(found)} modules, those of the commit"

    def notes(self) -> str:
        """CHANGELOG.md has changes for this version."""
        text = (self.clone / "CHANGELOG.md").read_text("utf-8").partition("## [Unreleased]")[2].partition("\n## ")[0]
        count = len(re.findall("^- ", text, re.MULTILINE))
        if not count:
            raise Failed("nothing is below [Unreleased]")
        return f"{count} lines below [Unreleased]"

    def _one(self, pattern: str) -> Path:
        found = [*self.target.glob(pattern)]
        if len(found) != 1:
            raise Failed(f"{len(found)} files are named {pattern}")
        return found[0]


def main() -> int:
    """Make the candidate, print each check, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="for example 1.0.0rc1")
    parser.add_argument("directory", type=Path, help="a directory that does not exist yet")
    options = parser.parse_args()
    if not _VERSION.fullmatch(options.version):
        parser.error(f"{options.version} is not a version such as 1.0.0rc1")
    if options.directory.exists():
        parser.error(f"{options.directory} exists; name a new directory")
    with tempfile.TemporaryDirectory() as scratch:
        one = Candidate(options.version, options.directory.resolve(), Path(scratch))
        checks: list[tuple[str, Callable[[], str]]] = [
            ("clean tree", one.is_clean), ("version in a clone", one.make_clone), ("changes", one.notes),
            ("two builds", one.build), ("digests", one.sums), ("modules", one.sdist), ("bill of materials", one.bill),
            ("wheelhouse", one.install), ("doctor", one.doctor), ("demo", one.demo), ("packages", one.packages),
            ("demo of one file", one.one_file), ("all digests", one.sums),
        ]
        results = []
        for name, check in checks:
            print(f"candidate: {name} ...", file=sys.stderr)
            try:
                results.append(("ok", name, check()))
            except (Failed, OSError, ValueError) as failure:
                results.append(("FAILED", name, str(failure)))
                if check in (one.is_clean, one.make_clone, one.build, one.install, one.packages):
                    break  # what follows needs it
    for status, name, text in results:
        print(f"{status:<6}  {name:<18}  {text}")
    for name, _ in checks[len(results) :]:
        print(f"{'not run':<6}  {name}")
    is_good = len(results) == len(checks) and all(status == "ok" for status, _, _ in results)
    verdict = "every check is ok" if is_good else "NOT a candidate"
    print(f"rmqtx {options.version} in {options.directory}: {verdict}; nothing was published")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
