"""`rmqtx --help` lists the commands by sections."""

from __future__ import annotations

from typing import Any

from rmqtx_cli.options.command_tree import HelpfulGroup
from rmqtx_cli.words.command_names import SECTIONS


class SectionedGroup(HelpfulGroup):
    """The tree of commands; its help lists them by sections, and `help CMD` is `CMD --help`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left of the words after the options of all commands."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the sections, their columns one below the other."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(formatter.width)) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)
