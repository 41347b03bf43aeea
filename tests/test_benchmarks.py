"""The benchmarks' own machinery: a wrong answer or a failure is reported, and requests are counted."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench import rmqtx
from benchmarks.measure import Command, CommandFailed, in_turns, ratio
from benchmarks.object_server import BUCKET, serving
from benchmarks.page_cache import drop_page_cache, fill_page_cache
from benchmarks.section import NOT_MEASURED, Section, times
from tests.forge.stores import copy_of

PASS = [sys.executable, "-c", "pass"]


def refuse(_: str) -> None:
    raise CommandFailed("not the truth")


def test_a_wrong_answer_has_no_figures_and_misses_its_targets() -> None:
    commands = [Command("wrong", PASS, refuse), Command("right", PASS)]
    wrong, right = in_turns(commands, 2, warm_up=0, patience_s=0, retries=0)
    assert (wrong.runs, wrong.failure, len(right.runs)) == ((), "not the truth", 2)
    assert math.isnan(ratio(wrong, right))
    section = Section("title", "intro")
    section.add_processes([wrong, right])
    section.at_most("ratio", ratio(wrong, right), 1, times)
    assert section.rows[0][:2] == ("wrong", "failed")
    assert section.notes == ["**wrong failed:** not the truth."]
    assert [(target.value, target.kept) for target in section.targets] == [(NOT_MEASURED, False)]


def test_a_command_that_takes_too_long_fails() -> None:
    sleep = Command("sleep", [sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.3)
    (measured,) = in_turns([sleep], 1, warm_up=0, patience_s=0)
    assert "not finished" in measured.failure


def test_pending_from_the_counting_server_is_pending_from_disk(tmp_path: Path) -> None:
    store = copy_of("common-5.3.3", tmp_path)

    def answer(place: str, environment: dict[str, str]) -> list[str]:
        words = [*rmqtx(), "pending", place, "--format", "jsonl"]
        result = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
        return [json.loads(line)["transaction_id"] for line in result.stdout.splitlines()]

    with serving(store) as server:
        found = answer(f"s3://{BUCKET}", server.environment)
        assert (server.requests > 10, server.sent_bytes > 1000) == (True, True)
        server.reset(0.0)
        assert (server.requests, server.sent_bytes) == (0, 0)
    assert found
    assert found == answer(str(store), {})


@pytest.mark.skipif(sys.platform != "linux", reason="the page cache is controlled by Linux system calls")
def test_a_dropped_directory_is_not_in_the_page_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    file_system = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if file_system.stdout.strip() == "tmpfs":
        pytest.skip("a file system in memory keeps all")
    assert fill_page_cache(tmp_path) == 1 << 20
    assert drop_page_cache(tmp_path) == 0
