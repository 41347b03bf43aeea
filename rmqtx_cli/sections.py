"""`rmqtx --help`: the most used commands first, then all of them by sections."""

from __future__ import annotations

from typing import Any

from rmqtx_cli.commands.by_name import CommandsByName
from rmqtx_cli.options.command_tree import HelpfulGroup
from rmqtx_cli.words.command_names import MOST_USED, SECTIONS


class SectionedGroup(HelpfulGroup):
    """The tree of commands; its help lists them by sections, and `help CMD` is `CMD --help`."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.commands = CommandsByName()  # type: ignore[assignment]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments after the options of all commands."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the most used commands, then the sections with all commands."""
        with formatter.section("Most used"):
            formatter.write_dl(list(MOST_USED.items()))
        width = max(map(len, self.commands))
        for title, lines in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])
