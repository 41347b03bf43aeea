"""Spark reads a store on an S3-compatible server in place, and says so when a part of it vanishes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.stores import settings_of
from tests.s3.conftest import Copied, copied, s3, s3_server
from tests.s3.server import S3Server

__all__ = ["copied", "s3", "s3_server"]

NAME = "killed-4.4.0"


@pytest.mark.slow
@pytest.mark.usefixtures("at_the_real_moment")
def test_the_same_rows_and_a_word_for_what_vanished(s3: S3Server, copied: Copied, tmp_path: Path) -> None:
    local, uri = copied(NAME)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.object_store", NAME, str(local), uri, str(tmp_path)],
        env={**os.environ, **s3.environment}, cwd=Path(__file__).parents[2], capture_output=True, text=True,
        timeout=300, check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    here = audit([open_store(local)], settings_of(NAME)).table().to_pylist()
    states = {row["transaction_id"]: row["state"] for row in here}

    def plain(rows: object) -> list[str]:
        assert isinstance(rows, list)
        other_moment = {"discard_at_ms": None, "next_event_at_ms": None}
        texts = (json.dumps(row | other_moment, sort_keys=True) for row in rows)
        return sorted(text.replace(uri, "STORE").replace(str(local), "STORE") for text in texts)

    assert plain(found["rows"]) == plain(here)
    assert found["offsets"] == scan_records(open_store(local)).table()["commit_log_offset"].to_pylist()
    reads = [request for request in found["requests"] if "/commitlog/" in request and request.startswith("GET")]
    assert len(reads) >= len(open_store(local).commit_log) - 1
    assert any(found["lost"] in line and "unreadable-file" in line for line in found["findings"])
    changed = {name for name, state in found["left"].items() if state != states[name]}
    assert {found["left"][name] for name in changed} <= {"UNDECIDABLE"}
    assert found["left"]
