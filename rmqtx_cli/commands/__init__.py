"""One module per command: its options, one call into `readers`, one hand-over to the output."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """A command line and what it is good for; help texts and manual pages show it, a test parses it."""

    line: str
    says: str


def epilog(examples: tuple[Example, ...]) -> str:
    """The examples as the end of a help text, unwrapped."""
    wide = max(len(example.line) for example in examples)
    lines = [
        f"  {example.line:{wide}}   {example.says}" if wide + len(example.says) < 74
        else f"  {example.line}\n      {example.says}"
        for example in examples
    ]
    return "\n".join(["\b", "Examples:", *lines])
