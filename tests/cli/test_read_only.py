"""No verb changes anything in a store, not even a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run

VERBS = [
    ["stores"],
    ["pending"],
    ["pending", "--scan", "--all-open"],
    ["pending", "--at", "2026-01-02T03:04:05Z"],
    ["audit"],
    ["check"],
    ["simulate"],
    ["simulate", "--show", "transactions", "--with", "transactionCheckMax=30"],
    ["show", "ORDER-1", "--store"],
    ["decode", "commitlog", "--check-crc", "--decompress"],
    ["decode", "commitlog", "--coverage"],
    *(["decode", kind] for kind in ("consumequeue", "half", "op", "index", "checkpoint", "cursors")),
]


def fingerprint(store: Path) -> dict[str, object]:
    """Everything about a store's files but when they were last read."""
    found: dict[str, object] = {}
    for path in sorted([store, *store.rglob("*")]):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        found[str(path)] = (content, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


@pytest.mark.parametrize("name", ["fifteen-5.3.3", "killed-5.1.4", "common-4.3.0"])
def test_the_source_is_untouched(rmqtx: Run, corpus_store: Callable[[str], Path], name: str, tmp_path: Path) -> None:
    store = corpus_store(name)
    before = fingerprint(store)
    for verb in VERBS:
        rmqtx(*verb, store)
        assert fingerprint(store) == before, verb
    for number, verb in enumerate((["salvage"], ["rebuild", "all"])):
        rmqtx(*verb, store, "--to", tmp_path / str(number))
        assert (tmp_path / str(number) / "commitlog").is_dir()
        assert fingerprint(store) == before, verb
