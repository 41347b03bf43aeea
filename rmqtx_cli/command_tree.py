"""What all commands share in how they take their words: nothing empty or beyond counting; help for bare groups."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from readers.errors import BadRequest
from rmqtx_cli import exit_status, say

#: Names the store that commands read where none is given; commands that act want it said each time.
STORE_VARIABLE = "RMQTX_STORE"
_JSON = ["--format", "json"]
_COUNT_MAX = (1 << 63) - 1


class HelpfulGroup(TyperGroup):
    """A group of commands; typed alone it prints its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left of the words after the group's own options; the help text where there are no words at all."""
        # Typer would raise an error that holds the help text, and an error is one line. Neither the class of that error
        # nor where it lives is the same with and without click installed, so that it is best never raised.
        if not args and not ctx.resilient_parsing:
            say.lines(ctx.get_help())
            raise typer.Exit(exit_status.USAGE)
        return super().parse_args(ctx, args)


class CheckedCommand(TyperCommand):
    """A command that refuses words of which nothing sensible can be made."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left of the words.

        Raises: BadRequest for an argument or the value of an option that is empty, and for a number that no table or
                file can count to. A script whose variable is unset passes an empty one; taken for "not given" it would
                widen what a command acts on.
        """
        args = self._with_store(self._with_format(args))
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        for parameter in self.params:
            value = given.get(parameter.name)
            values = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(one, str) and not one.strip() for one in values):
                is_option = parameter.param_type_name == "option"
                what = parameter.opts[0] if is_option else str(parameter.metavar or parameter.name).strip("[]")
                raise BadRequest(f"{what} is empty", advice="is a variable of your script not set?")
        args = self._with_own_store(args, given)
        left = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, int) and abs(value) > _COUNT_MAX:
                raise BadRequest(f"{parameter.opts[0]} {value} is too large", advice=f"at most {_COUNT_MAX}")
        return left

    def _with_format(self, args: list[str]) -> list[str]:
        """The words with `--json` as `--format json`, which is what people type first."""
        if not any("--format" in parameter.opts for parameter in self.params):
            return args
        end = args.index("--") if "--" in args else len(args)
        written = [word for one in args[:end] for word in (_JSON if one == "--json" else [one])]
        return [*written, *args[end:]]


    def _with_store(self, args: list[str]) -> list[str]:
        """The words with `--store X` as X where a store is an argument: people need not know which it is where."""
        if not self._takes_store or any("--store" in parameter.opts for parameter in self.params):
            return args
        kept, stores, words = [], [], iter(args)
        for word in words:
            if word == "--":
                kept += [word, *words]
            elif word == "--store":
                stores.append(next(words, ""))
            elif word.startswith("--store="):
                stores.append(word.partition("=")[2])
            else:
                kept.append(word)
        return [*kept, *stores]

    @property
    def _takes_store(self) -> bool:
        return any(one.param_type_name == "argument" and one.name in ("store", "paths") for one in self.params)

    def _with_own_store(self, args: list[str], given: dict[str, Any]) -> list[str]:
        """The words with the store that RMQTX_STORE names, for a command that only reads and that none is named to."""
        store = os.environ.get(STORE_VARIABLE, "").strip()
        is_named = any(given.get(name) for name in ("store", "paths", "more", "namesrv", "broker"))
        if not store or is_named or not (self._takes_store or self.name == "show"):
            return args
        return [*args, store] if self._takes_store else ["--store", store, *args]


class CommandTree(typer.Typer):
    """A group of commands whose every command and group is of the classes above."""

    def __init__(self, **named: Any) -> None:
        # rich costs a quarter of the start-up budget and changes nothing that matters
        super().__init__(**{"cls": HelpfulGroup, "rich_markup_mode": None, **named})

    def command(self, name: str | None = None, **named: Any) -> Callable[[Any], Any]:
        """See `typer.Typer.command`."""
        return super().command(name, **{"cls": CheckedCommand, **named})
