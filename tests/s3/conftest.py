"""The S3 server that these tests share, and stores of the corpus that were copied to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run, rmqtx
from tests.forge.stores import copy_of
from tests.s3.server import S3Server, serving

__all__ = ["Run", "rmqtx"]

#: A store of the corpus by name: its root here, and its URI there.
Copied = Callable[[str], tuple[Path, str]]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for all tests that need one."""
    with serving() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with what an operator's environment would hold."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    s3_server.requests()
    return s3_server


@pytest.fixture(scope="session")
def copied(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Copied:
    """Copies a store of the corpus to the server, once; for reading only."""
    found: dict[str, tuple[Path, str]] = {}

    def copy(name: str) -> tuple[Path, str]:
        if name not in found:
            local = copy_of(name, tmp_path_factory.mktemp(name))
            found[name] = local, s3_server.upload(local, f"evidence/{name}/store")
        return found[name]

    return copy
