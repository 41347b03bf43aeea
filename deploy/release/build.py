#!/usr/bin/env python3
"""Build the files of a release from the commit that is checked out, twice, and compare them.

    python3 deploy/release/build.py DIRECTORY [--once] [--wheelhouse]

DIRECTORY gets the sdist, the wheel with its bill of materials (CycloneDX), the locks of core, exporter, host and spark
(pylock.toml, resolved as of the time of the commit), with --wheelhouse an archive of wheels for hosts without a
network, and SHA256SUMS. Each file depends on the commit alone: the time in archives is that of the commit, and younger
packages are ignored, also those of the tools that build.

Status 0: built, checked by twine, and equal in both builds. 1: a file differs, or a check failed. 2: not a clean clone.
"""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("build>=1.2", "twine>=6", "uv>=0.9", "cyclonedx-bom>=7")
HOST_EXTRAS = ("exporter", "rocksdb")
"""What the wheelhouse, the one file, the packages and the image bring."""
EXTRAS = {"core": (), "exporter": ("exporter",), "host": HOST_EXTRAS, "spark": ("spark",)}
"""Each lock, and the extras it resolves; core is what `pip install rmqtx` brings."""
OLDEST_PYTHON = "3.11"
WHEEL_TAGS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
"""Wheels that run with glibc 2.28 and later: numpy, pyarrow and rocksdict have none for older systems."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Return what a command printed; a failure ends the program with its last lines."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        printed = (done.stdout + done.stderr)[-2000:]
        sys.exit(f"build: {' '.join(map(str, command))} ended with {done.returncode}\n{printed}")
    return done.stdout


def as_of(epoch: int) -> str:
    """Return the time of the commit as uv reads it."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Tools:
    """The tools of the build as of the time of the commit, in an environment of their own that is made once."""

    def __init__(self, directory: Path, epoch: int, *names: str) -> None:
        for place in (directory / "first", directory):
            venv.create(place, with_pip=True, clear=place == directory / "first")
        self._bin = directory / "bin"
        run(directory / "first/bin/pip", "install", "--quiet", "uv>=0.9")
        run(
            directory / "first/bin/uv", "pip", "install", "--quiet", "--python", self._bin / "python",
            "--exclude-newer", as_of(epoch), *(names or TOOLS),
        )

    def __call__(self, name: str, *arguments: str | Path, cwd: Path = ROOT, **environment: str) -> str:
        """Return what a tool printed."""
        return run(self._bin / name, *arguments, cwd=cwd, **environment)


def normal_tar(source: Path, target: Path, epoch: int) -> None:
    """Write a tar.gz file again: members by name, one time, no user, no name of the compressed file."""
    with (
        tarfile.open(source) as read,
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch, compresslevel=9) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(read.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            written.addfile(member, read.extractfile(member) if member.isfile() else None)


def with_file(wheel: Path, name: str, content: bytes) -> None:
    """Add a file to the dist-info of a wheel, and to its RECORD."""
    with zipfile.ZipFile(wheel) as read:
        record = next(one for one in read.namelist() if one.endswith(".dist-info/RECORD"))
        added = f"{record.removesuffix('RECORD')}{name}"
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows = [*csv.reader(read.read(record).decode().splitlines())]
        rows.insert(-1, [added, f"sha256={digest}", str(len(content))])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        when = read.getinfo(record).date_time
        fresh = wheel.with_suffix(".new")
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as written:
            for item in read.infolist():
                if item.filename != record:
                    written.writestr(item, read.read(item), zipfile.ZIP_DEFLATED)
            for file, data in ((added, content), (record, text.getvalue().encode())):
                info = zipfile.ZipInfo(file, when)
                info.external_attr = 0o644 << 16
                written.writestr(info, data, zipfile.ZIP_DEFLATED)
    fresh.replace(wheel)


def lock(tools: Tools, name: str, extras: tuple[str, ...], epoch: int, target: Path, form: str) -> Path:
    """Resolve the dependencies as of the time of the commit, with a hash for each file."""
    chosen = [part for extra in extras for part in ("--extra", extra)]
    file = target / (f"pylock.{name}.toml" if form == "pylock.toml" else f"requirements.{name}.txt")
    tools(
        "uv", "pip", "compile", "pyproject.toml", *chosen, "--universal", "--python-version", OLDEST_PYTHON,
        "--no-header", "--exclude-newer", as_of(epoch), "--generate-hashes", "--format", form, "--quiet",
        "--output-file", file,
    )
    return file


def bill(tools: Tools, wheel: Path, requirements: Path, epoch: int, directory: Path) -> bytes:
    """Return the bill of materials of an environment with the wheel and its locked dependencies."""
    environment = directory / "environment"
    tools("uv", "venv", "--quiet", "--python", sys.executable, environment)
    python = environment / "bin/python"
    tools("uv", "pip", "sync", "--quiet", "--require-hashes", "--python", python, requirements)
    tools("uv", "pip", "install", "--quiet", "--no-deps", "--python", python, wheel)
    file = directory / "rmqtx.cdx.json"
    tools(
        "cyclonedx-py", "environment", python, "--pyproject", ROOT / "pyproject.toml", "--output-reproducible",
        "--output-format", "JSON", "--output-file", file, SOURCE_DATE_EPOCH=str(epoch),
    )
    return file.read_bytes()


def wheelhouse(tools: Tools, wheel: Path, requirements: Path, epoch: int, target: Path) -> None:
    """Pack rmqtx and all wheels it needs for this Python, for `pip install --no-index`."""
    with tempfile.TemporaryDirectory() as scratch:
        house = Path(scratch) / "wheelhouse"
        tags = [part for tag in WHEEL_TAGS for part in ("--platform", f"{tag}_{os.uname().machine}")]
        tools(
            "pip", "download", "--quiet", "--require-hashes", "--only-binary", ":all:", *tags,
            "-r", requirements, "-d", house,
        )
        shutil.copy(wheel, house)
        shutil.copy(requirements, house / "requirements.txt")
        plain = Path(scratch) / "plain.tar"
        with tarfile.open(plain, "w") as archive:
            archive.add(house, "wheelhouse")
        host = f"cp{sys.version_info.major}{sys.version_info.minor}-{os.uname().machine}"
        normal_tar(plain, target / f"{wheel.name.split('-py3')[0]}-wheelhouse-{host}.tar.gz", epoch)


def build(tools: Tools, source: Path, target: Path, epoch: int, *, with_wheelhouse: bool) -> None:
    """Write all files of the release from a clone."""
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "raw"
        common = ("-m", "build", "--installer", "uv", "--outdir")
        when = {"SOURCE_DATE_EPOCH": str(epoch), "UV_EXCLUDE_NEWER": as_of(epoch)}
        tools("python", *common, raw, "--sdist", source, **when)
        sdist = target / next(raw.iterdir()).name
        normal_tar(next(raw.iterdir()), sdist, epoch)
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = Path(scratch) / sdist.name.removesuffix(".tar.gz")
        tools("python", *common, target, "--wheel", unpacked, **when)
        wheel = next(target.glob("*.whl"))
        for name, extras in EXTRAS.items():
            lock(tools, name, extras, epoch, target, "pylock.toml")
        requirements = lock(tools, "host", HOST_EXTRAS, epoch, target, "requirements.txt")
        content = bill(tools, wheel, requirements, epoch, Path(scratch))
        (target / "rmqtx.cdx.json").write_bytes(content)
        with_file(wheel, "sboms/rmqtx.cdx.json", content)
        if with_wheelhouse:
            wheelhouse(tools, wheel, requirements, epoch, target)
    tools("twine", "check", "--strict", sdist, wheel)


def digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its name."""
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(directory.iterdir())}


def main() -> int:
    """Build, compare, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="a directory that does not exist yet")
    parser.add_argument("--once", action="store_true", help="do not build a second time")
    parser.add_argument("--wheelhouse", action="store_true", help="also pack all wheels (for this Python)")
    options = parser.parse_args()
    if options.directory.exists():
        parser.error(f"{options.directory} exists; name a new directory")
    if run("git", "status", "--porcelain"):
        parser.error("there are changes that are not committed; commit them, or build from a clean clone")
    epoch = int(run("git", "log", "-1", "--format=%ct"))
    os.umask(0o022)  # setuptools writes the modes of its files into the wheel
    with tempfile.TemporaryDirectory() as scratch:
        tools = Tools(Path(scratch) / "tools", epoch)
        builds = [options.directory.resolve(), *([] if options.once else [Path(scratch) / "second"])]
        for number, target in enumerate(builds):
            clone = Path(scratch) / f"clone{number}"
            run("git", "clone", "--quiet", "--no-local", ROOT, clone)
            build(tools, clone, target, epoch, with_wheelhouse=options.wheelhouse)
        found = [digests(target) for target in builds]
    unlike = sorted(name for name in found[0] if any(one.get(name) != found[0][name] for one in found))
    (options.directory / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in found[0].items()))
    for name in found[0]:
        size = (options.directory / name).stat().st_size
        print(f"{size:>12,}  {name}{'  DIFFERS in the second build' if name in unlike else ''}")
    return 1 if unlike else 0


if __name__ == "__main__":
    sys.exit(main())
