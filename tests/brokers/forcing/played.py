"""How many tests of a run of `make test-forcing` passed, by version and file: a part of docs/forcing.md."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

CACHE = Path(__file__).resolve().parents[3] / ".cache" / "forcing"
"""Where figures are stored between runs."""
OUTCOMES = ("passed", "failed", "error", "skipped")
PART = "tests"
_NODE = re.compile(r"(?P<file>test_\w+)\.py::(?P<test>\w+)(\[(?P<version>\d+\.\d+\.\d+))?")
_OWN_VERSION = {"test_resume_unanswered": "4.4.0", "test_rocksdb_transactions": "5.5.0"}
"""Tests that start a broker of one version only."""


def commit() -> str:
    """The commit of this checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write(ended: Mapping[str, Iterable[str]], results: Path = CACHE) -> None:
    """Store the outcomes of tests (their node ids by outcome); a new outcome replaces the stored one."""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for outcome, nodes in ended.items():
        for node in nodes:
            found = _NODE.search(node)
            version = found and (found["version"] or _OWN_VERSION.get(found["test"]))
            if found and version and (found["version"] or outcome != "skipped"):  # skipped: its version was not chosen
                counted.setdefault((version, found["file"]), Counter())[outcome] += 1
    results.mkdir(parents=True, exist_ok=True)
    for (version, file), counts in counted.items():
        row = {"file": file.removeprefix("test_")} | {outcome: counts[outcome] for outcome in OUTCOMES}
        kept = {
            "part": PART, "version": version, "commit": commit(), "date": time.strftime("%Y-%m-%d"), "rows": [row],
        }
        (results / f"{version}-{file}.json").write_text(json.dumps(kept, indent=1) + "\n")
