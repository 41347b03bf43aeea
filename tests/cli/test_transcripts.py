"""The command line's words, reviewed as diffs: transcripts and the README's session are run again."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.corpus import unpack_archive
from tests.cli import transcripts
from tests.cli.conftest import Run
from tests.conftest import MOMENT, READ_AT_MS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "orders-5.3.3.tar.xz"
pytestmark = pytest.mark.usefixtures("read_soon_after_they_were_written")


@pytest.fixture
def shell(rmqtx: Run) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        result = rmqtx(*arguments)
        return result.status, result.out, result.err

    return run


@pytest.mark.parametrize("file", transcripts.files(), ids=lambda path: path.stem)
def test_transcript(
    file: Path, shell: Callable[..., tuple[int, str, str]], corpus_store: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest,
) -> None:
    head, steps = transcripts.parse(file.read_text("utf-8"))
    monkeypatch.chdir(corpus_store(transcripts.store_of(head)).parent)
    now = [transcripts.Step(step.command, transcripts.printed(step.command, shell)) for step in steps]
    check(file, transcripts.text_of(head, steps), transcripts.text_of(head, now), request)


@pytest.mark.parametrize("days", [0, 400])
def test_the_readme_tells_what_happens(
    shell: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest, days: int,
) -> None:
    """Blocks marked `console` are sessions in the example's directory; only `rmqtx` commands are run.

    `days`: the clock is so much ahead: the session has the times of `--at`, and stays true.
    """
    monkeypatch.setattr(MOMENT, lambda _: READ_AT_MS + days * 86_400_000)
    unpack_archive(EXAMPLE, tmp_path)
    monkeypatch.chdir(tmp_path)
    file = ROOT / "README.md"
    before = file.read_text("utf-8")
    parts = before.split("```")
    for number, part in enumerate(parts):
        if number % 2 and part.startswith("console\n"):
            head, steps = transcripts.parse(part.removeprefix("console\n"))
            for step in steps:
                if step.command.startswith("rmqtx "):
                    with contextlib.redirect_stderr(sys.stdout):  # in the order in which a terminal shows it
                        status, out, _ = shell(*shlex.split(step.command, comments=True)[1:])
                    step.output = out + (f"[exit {status}]\n" if status else "")
                    step.output += "\n" if step is not steps[-1] else ""
            parts[number] = "console\n" + transcripts.text_of(head, steps)
    check(file, before, "```".join(parts), request)


def check(file: Path, before: str, now: str, request: pytest.FixtureRequest) -> None:
    """The same but for the clock; or with `--rewrite` written again."""
    if transcripts.masked(before) == transcripts.masked(now):
        return
    if request.config.getoption("--rewrite"):
        file.write_text(now, "utf-8")
        return
    assert transcripts.masked(now) == transcripts.masked(before), f"{file.name}: review, then make rewrite"
