#!/usr/bin/env python3
"""Make a directory with Python, rmqtx and its packages: what the one file, the packages and the image contain.

    python3 deploy/release/tree.py DIST TREE

Only wheels of DIST/pylock.host.toml and the wheel of rmqtx in DIST are installed, each with its hash. RMQTX_INTERPRETER
names a directory with a Python that can be moved (bin/, lib/); otherwise uv brings one (python-build-standalone).
The last line names the version of glibc that the files need.

Status 0: built. 1: a step failed, or a file needs a later glibc than its host has to have.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from build import Tools, run

PYTHON = "3.13"
GLIBC = 28
PLATFORM = f"x86_64-manylinux_2_{GLIBC}"
"""numpy, pyarrow and rocksdict have no wheels for older systems (CentOS 8, Debian 10, openEuler 20.03)."""
LEFT_OUT = (
    # Python: what builds, shows windows or tests.
    *(f"lib/python3*/{name}" for name in (
        "config-3*", "ensurepip", "idlelib", "lib2to3", "test", "tkinter", "turtle*", "pydoc_data",
        "*-packages/pip*", "lib-dynload/_tkinter*", "lib-dynload/_test*", "lib-dynload/_xxtest*", "lib-dynload/xx*",
    )),
    "bin/*", "include", "share", "lib/pkgconfig", "lib/*.a",
    "lib/python3*/*-packages/**/*.pyi", "lib/python3*/*-packages/bin", "lib/python3*/*-packages/.lock",
    # Lexers of rich's syntax highlighting: rmqtx has none.
    "lib/python3*/*-packages/pygments/lexers/[!_]*",
    *(f"lib/{name}*" for name in ("tcl", "tk", "libtcl", "libtk", "itcl", "thread")),
    # numpy and pyarrow: tests, headers, and libraries that no command loads.
    *(f"lib/python3*/*-packages/numpy/{name}" for name in (
        "**/tests", "f2py", "_core/include", "_core/lib", "random/lib",
    )),
    *(f"lib/python3*/*-packages/pyarrow/{name}" for name in (
        "tests", "include", "src", "includes", "**/*.p[yx][xdi]", "*_flight*", "_substrait*", "*_cpp_tests*",
        "libarrow*.so", "libparquet*.so", "*.so.*.*.*",
    )),
)
START = """#!/bin/sh
'''exec' "$(dirname "$(readlink -f "$0")")/python3" -I "$0" "$@"
' '''
import sys
from rmqtx_cli.entry import run
sys.exit(run())
"""


def record_what_is_left(tree: Path) -> None:
    """Take files that were left out, and what names the place of this build, from the lists of the packages."""
    for record in tree.glob("lib/python3*/*-packages/*.dist-info/RECORD"):
        for name in ("direct_url.json", "uv_cache.json"):
            (record.parent / name).unlink(missing_ok=True)
        lines = record.read_text("utf-8").splitlines(keepends=True)
        packages = record.parent.parent
        record.write_text("".join(line for line in lines if (packages / next(csv.reader([line]))[0]).exists()), "utf-8")


def strip(tree: Path) -> dict[int, list[str]]:
    """Take the symbols out of programs and libraries; return them by the minor version of glibc 2 that they need."""
    found: dict[int, list[str]] = {}
    for file in sorted(tree.rglob("*")):
        if file.is_file() and not file.is_symlink() and file.open("rb").read(4) == b"\x7fELF":
            if not file.parent.name.endswith(".libs"):  # what auditwheel has changed may not survive it
                run("strip", "--strip-unneeded", file)
            if versions := re.findall(rb"\0GLIBC_2\.(\d+)", file.read_bytes()):
                found.setdefault(max(map(int, versions)), []).append(str(file.relative_to(tree)))
    return found


def main() -> int:
    """Make the tree and return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="what `make dist` wrote")
    parser.add_argument("tree", type=Path, help="a directory that is replaced")
    options = parser.parse_args()
    tree: Path = options.tree.resolve()
    epoch = int(run("git", "log", "-1", "--format=%ct"))
    shutil.rmtree(tree, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        tools = Tools(Path(scratch) / "tools", epoch, "uv>=0.9")
        given = os.environ.get("RMQTX_INTERPRETER")
        if not given:
            tools("uv", "python", "install", "--quiet", "--no-bin", "--install-dir", scratch, PYTHON)
            given = str(next(Path(scratch).glob("cpython-*")).resolve())
        shutil.copytree(given, tree, symlinks=True, ignore=shutil.ignore_patterns("site-packages", "*.a"))
        python = next((tree / "bin").glob("python3.[0-9]*[0-9]"))
        (tree / "lib" / python.name / "EXTERNALLY-MANAGED").unlink(missing_ok=True)
        # Debian's Python looks for packages in dist-packages, and would install them below local/.
        packages = run(python, "-Ic", "import site; print(site.getsitepackages()[-1])").strip()
        common = (
            "--quiet", "--python", python, "--target", packages, "--python-platform", PLATFORM, "--no-deps",
            "--only-binary", ":all:",
        )
        tools("uv", "pip", "install", *common, "--require-hashes", "-r", options.dist.resolve() / "pylock.host.toml")
        tools("uv", "pip", "install", *common, next(options.dist.resolve().glob("rmqtx-*.whl")))
    kept = python.rename(tree / python.name)
    for pattern in LEFT_OUT:
        for found in [*tree.glob(pattern)]:
            shutil.rmtree(found) if found.is_dir() and not found.is_symlink() else found.unlink()
    for cache in [*tree.rglob("__pycache__")]:
        shutil.rmtree(cache)
    kept.rename(tree / "bin/python3")
    needed = strip(tree)
    record_what_is_left(tree)
    # A cache that is never compared with its source: the same bytes at any time and in any place.
    run(
        tree / "bin/python3", "-IB", "-m", "compileall", "-q", "-f", "-j0", "--invalidation-mode", "unchecked-hash",
        "-s", tree, tree / "lib",
    )
    start = tree / "bin/rmqtx"
    start.write_text(START)
    start.chmod(0o755)
    for file in [*tree.rglob("*"), tree]:
        if not file.is_symlink():
            file.chmod(0o755 if file.is_dir() or file.stat().st_mode & 0o100 else 0o644)
        os.utime(file, (epoch, epoch), follow_symlinks=False)
    latest = max(needed)
    print(f"{options.tree}: needs glibc 2.{latest}: {', '.join(needed[latest][:3])}")
    return 1 if latest > GLIBC else 0


if __name__ == "__main__":
    sys.exit(main())
