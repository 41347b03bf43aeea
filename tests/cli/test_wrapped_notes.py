"""Notes on stderr: wrapped between words on a terminal, one line each elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.cli.terminal import on_terminal


def test_notes_are_wrapped_between_words_on_a_terminal_only(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    store, rows = corpus_store("common-5.3.3"), tmp_path / "rows.jsonl"
    words = ["simulate", str(store), "--rounds", "2", "--at", "2026-11-22T00:00:00Z", "-o", str(rows)]
    piped = rmqtx(*words).err
    assert max(map(len, piped.splitlines())) > 100
    assert all(line.startswith("rmqtx: ") for line in piped.splitlines())
    _, shown = on_terminal([*WARM, *words], COLUMNS="72")
    assert max(map(len, shown.splitlines())) <= 72
    assert shown.split() == piped.split()
    assert next(line for line in shown.splitlines() if not line.startswith("rmqtx: ")).startswith("  ")


def test_a_command_to_copy_is_not_wrapped(corpus_store: Callable[[str], Path]) -> None:
    store = corpus_store("common-5.3.3")
    _, shown = on_terminal([*WARM, "pending", str(store)], COLUMNS="72")
    command = next(line for line in shown.splitlines() if "next: " in line)
    assert command.endswith(f" --store {store}   # PENDING, discarded first")
