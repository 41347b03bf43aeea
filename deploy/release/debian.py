#!/usr/bin/env python3
"""Fetch the files of Debian that a list names with their digests, and no other file.

    python3 deploy/release/debian.py LIST DIRECTORY

Each line of LIST is `SHA256  ARCHIVE/PATH`, with the archive `debian` or `debian-security`; its first line has a time
at which all of them were in Debian. They come from the mirror of RMQTX_MIRROR (http://HOST/debian), else from those
that apt has on this host. A file with another digest is not kept. DIRECTORY may have files already, such as one that
has left the mirrors: Debian's snapshots have it as of that time.

Status 0: DIRECTORY has every file. 1: a file could not be fetched, or has another digest.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

_MINUTES = 5


def mirrors() -> list[str]:
    """Return the addresses of the archives that are tried, each without the name of an archive at its end."""
    if named := os.environ.get("RMQTX_MIRROR", ""):
        found = [named]
    else:
        command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        except OSError:
            found = []
    if not found:
        sys.exit("debian: apt has no mirror on this host; RMQTX_MIRROR=http://HOST/debian names one")
    roots = [address.rstrip("/").removesuffix("-security").removesuffix("/debian") for address in found]
    return list(dict.fromkeys(roots))


def fetch(digest: str, path: str, directory: Path, roots: list[str]) -> str:
    """Write the file unless it is there; return why it could not be written, else an empty text."""
    target = directory / path.rpartition("/")[2]
    if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == digest:
        return ""
    failures = []
    for address in (f"{root}/{path}" for root in roots):
        try:
            with urllib.request.urlopen(address, timeout=60 * _MINUTES) as answer:
                content = answer.read()
        except OSError as failure:
            failures.append(f"{address}: {failure}")
            continue
        found = hashlib.sha256(content).hexdigest()
        if found == digest:
            target.write_bytes(content)
            return ""
        failures.append(f"{address}: SHA-256 is {found}, not {digest}")
    return "\n".join(failures)


def main() -> int:
    """Fetch all files and return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path, help="a file of digests and paths")
    parser.add_argument("directory", type=Path, help="it is made if it does not exist")
    options = parser.parse_args()
    text = options.list.read_text("utf-8")
    [when] = re.findall(r"^# .*\b(\d{8}T\d{6}Z)", text, re.MULTILINE)
    options.directory.mkdir(parents=True, exist_ok=True)
    files = re.findall(r"^([0-9a-f]{64})  (\S+)$", text, re.MULTILINE)
    if not files:
        sys.exit(f"debian: {options.list} names no file")
    roots, failed = mirrors(), 0
    for digest, path in files:
        if why := fetch(digest, path, options.directory, roots):
            print(f"debian: could not fetch {path}, which was in Debian at {when}\n{why}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
