"""Transcripts: a file of commands and what they print, run again and compared; `--rewrite` writes them anew.

    # what this shows; the first line that begins with "store:" names the store of the corpus
    $ rmqtx pending store
    ...stdout, then stderr with "2> " before each line, then the exit status where it is not 0...

Commands run in a directory where the store is `store`. What changes with the clock is masked before comparing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent.parent / "transcripts"
_PROMPT = "$ "
#: Ages, which are measured from now. Durations that follow a sign, as in timelines, do not change.
_AGE = re.compile(r"(?<![+\-\w.:;=])\d+(?:\.\d+)?(?:ms|[smhdw])(?:\d+(?:ms|[smhd]))?(?![\w-])")

#: When a transaction is discarded if the broker starts now.
_DISCARD_TIME = re.compile(r'(?:(?<=^discard )|(?<=, at ))\S+Z|(?<="discard_at_ms":)\d+|(?<="discard_at":")[^"]+', re.M)
#: A deadline that has come: tests read their stores at one moment, and that moment may be long ago.
_DISCARD_SOON = re.compile(r"\bnow(?=(?: or a round later)?, (?:at TIME|if the broker starts now))")


@dataclass(slots=True)
class Step:
    """One command and what it printed."""

    command: str
    output: str


def parse(text: str) -> tuple[list[str], list[Step]]:
    """The lines before the first command, and the steps."""
    head: list[str] = []
    steps: list[Step] = []
    for line in text.splitlines():
        if line.startswith(_PROMPT):
            steps.append(Step(line.removeprefix(_PROMPT), ""))
        elif steps:
            steps[-1].output += f"{line}\n"
        else:
            head.append(line)
    return head, steps


def text_of(head: list[str], steps: list[Step]) -> str:
    """The file's text."""
    return "".join([*(f"{line}\n" for line in head), *(f"{_PROMPT}{s.command}\n{s.output}" for s in steps)])


def masked(text: str) -> str:
    """The text without what depends on the clock: ages, and the blanks that align them."""
    text = _DISCARD_TIME.sub("TIME", text)
    text = _DISCARD_SOON.sub("in AGE", text)
    return "\n".join(re.sub(r" +", " ", _AGE.sub("AGE", line)).rstrip() for line in text.splitlines())


def printed(command: str, run: Callable[..., tuple[int, str, str]]) -> str:
    """What a command line prints, as a transcript shows it."""
    words = shlex.split(command, comments=True)
    assert words[0] == "rmqtx", command
    status, out, err = run(*words[1:])
    lines = [*out.splitlines(), *(f"2> {line}" for line in err.splitlines())]
    return "".join(f"{line}\n" for line in [*lines, *([f"[exit {status}]"] if status else [])])


def files() -> list[Path]:
    """Every transcript."""
    return sorted(DIRECTORY.glob("*.txt"))


def store_of(head: list[str]) -> str:
    """The corpus store that a transcript names."""
    for line in head:
        if match := re.match(r"# store: ([\w.-]+)", line):
            return match[1]
    raise AssertionError("no store is named")
