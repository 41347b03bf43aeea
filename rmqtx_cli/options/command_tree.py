"""What all commands share in how they take their words: nothing empty or beyond counting; help for bare groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from readers.model.errors import BadRequest
from rmqtx_cli.options.configuration import OWN_FORMAT, configuration, environment_store, own_store
from rmqtx_cli.words import exit_status, say

_JSON = ["--format", "json"]
_COUNT_MAX = (1 << 63) - 1
#: What parameters that name stores are called.
_STORES = ("store", "paths", "more", "sides", "files")


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
        if not ctx.resilient_parsing and not {"-h", "--help"} & set(args):
            args = self._with_own_store(args, given)
        left = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            self._configure(ctx)
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
        is_option = any("--store" in parameter.opts for parameter in self.params)
        if is_option or not self._has_argument("store", "paths", "sides", "files"):
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

    def _has_argument(self, *names: str) -> bool:
        return any(one.param_type_name == "argument" and one.name in names for one in self.params)

    def _with_own_store(self, args: list[str], given: dict[str, Any]) -> list[str]:
        """The words with the store that RMQTX_STORE or the configuration file names, for a command that only reads and
        that none is named to; `stores` lists all that the file names instead.
        """
        is_named = any(given.get(name) for name in ("store", "paths", "more", "namesrv", "broker"))
        takes_store = self._has_argument("store", "paths")
        if is_named or not (takes_store or self.name == "show"):
            return args
        store = environment_store() if self.name == "stores" else own_store()
        if store is None:
            return args
        return [*args, store] if takes_store else ["--store", store, *args]

    def _configure(self, ctx: Any) -> None:
        """Put the place of each store that is given by its name in the configuration file, and the format that the file
        gives; say which file that is.
        """
        OWN_FORMAT.set(None)
        if not any(name in ctx.params for name in (*_STORES, "output_format")):
            return
        known = configuration()
        OWN_FORMAT.set(known.format_of([*ctx.command_path.split(), ""][1]))
        if known.file is not None and ctx.params.get("verbose"):
            say.line(f"rmqtx: configuration: {known.file}")
        for name in _STORES if known.stores else ():
            value = ctx.params.get(name)
            if isinstance(value, list | tuple):
                ctx.params[name] = type(value)(known.place_of(one) if isinstance(one, str) else one for one in value)
            elif isinstance(value, str | Path):
                ctx.params[name] = type(value)(known.place_of(str(value)))


class CommandTree(typer.Typer):
    """A group of commands whose every command and group is of the classes above."""

    def __init__(self, **named: Any) -> None:
        # rich costs a quarter of the start-up budget and changes nothing that matters
        super().__init__(**{"cls": HelpfulGroup, "rich_markup_mode": None, **named})

    def command(self, name: str | None = None, **named: Any) -> Callable[[Any], Any]:
        """See `typer.Typer.command`."""
        return super().command(name, **{"cls": CheckedCommand, **named})
