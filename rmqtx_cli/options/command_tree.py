"""What all commands share: how arguments are checked and converted, where a store or format comes from, the help page.

Typer loads pydantic to convert any value: 0.1 s. Values that Typer certainly accepts are converted here without it; all
others go to Typer, whose messages describe what is wrong with them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest, SourceError
from rmqtx_cli.options.configuration import configuration, environment_store, own_store
from rmqtx_cli.options.help_page import argument, sections, write_help
from rmqtx_cli.options.nearby_store import is_typed
from rmqtx_cli.options.next_commands import CURRENT, OWN_FORMAT
from rmqtx_cli.words import say

#: Settings of each command, not only of `rmqtx`: a command that is built by itself keeps the help option it has then.
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_JSON = ["--format", "json"]
#: Options that name the one store of an act, and the one place of its result.
_ONE_PLACE = ("--store", "--to")
_COUNT_MAX = (1 << 63) - 1
#: Names of the parameters that hold stores.
_STORES = ("store", "paths", "more", "sides", "files")
#: Where a store that was not typed came from, in a context's `meta`.
_ORIGIN = "rmqtx.store_origin"
_INTEGER, _DECIMAL = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


class HelpfulGroup(TyperGroup):
    """A group of commands; without arguments it prints its help."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the parts of the usage line after the group's name."""
        return ["COMMAND", "[OPTIONS]", "[ARGUMENTS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, then the options."""
        self.format_commands(ctx, formatter)
        for title, rows in sections(self, ctx).items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments after the group's own options; without any, `pending` of an own store, else the help."""
        # Typer would raise an error that holds the help text, but an error of rmqtx is one line. The class of Typer's
        # error and its module differ with and without click installed, so it is not raised at all.
        if not args and ctx.parent is None and not ctx.resilient_parsing and is_typed():
            own = own_store()
            if own is not None:
                args = ["pending"]
                if own.origin is not None:
                    say.line(f"rmqtx: {own.place}: the store of {own.origin}, as none was given")
        if not args and not ctx.resilient_parsing:
            say.lines(ctx.get_help())
            raise typer.Exit(exit_status.USAGE)
        use_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)


def _refuse_second_places(order: list[Any]) -> None:
    """Refuse a second store to act on, or a second place for the result: the last one would count, and the act on the
    first would be left out without a word. `order`: the parameters as given.

    Raises: BadRequest.
    """
    for parameter in order:
        name = next((one for one in parameter.opts if one in _ONE_PLACE), None)
        if name is not None and not parameter.multiple and order.count(parameter) > 1:
            raise BadRequest(f"{name} is given {order.count(parameter)} times", advice="run the command once for each")


class OwnStore(Enum):
    """How a command that is given no store gets that of RMQTX_STORE, of the configuration file, or a nearby one."""

    AS_ARGUMENT = "it is added to the arguments of a command that takes stores as arguments"
    AS_OPTION = "it is added as --store"
    OF_ENVIRONMENT = "as an argument, and only that of RMQTX_STORE"


class CheckedCommand(TyperCommand):
    """A command that refuses empty values and numbers that are too large."""

    own_store: ClassVar[OwnStore] = OwnStore.AS_ARGUMENT

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page."""
        write_help(self, ctx, formatter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the command's name."""
        given = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return ["[OPTIONS]", *(argument(one) for one in given)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left.

        Raises: BadRequest for an empty argument or option value, and for a number above 2^63 - 1. A script whose
                variable is unset passes an empty value; if that counted as "not given", the command would act on more
                than the script means.
        """
        args = self._with_store(self._with_format(args))
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        _refuse_second_places(order)
        for parameter in self.params:
            value = given.get(parameter.name)
            values = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(one, str) and not one.strip() for one in values):
                is_option = parameter.param_type_name == "option"
                what = parameter.opts[0] if is_option else str(parameter.metavar or parameter.name).strip("[]")
                raise BadRequest(f"{what} is empty", advice="is a variable of your script not set?")
        if not ctx.resilient_parsing and not {"-h", "--help"} & set(args):
            args = self._with_own_store(ctx, args, given)
        use_plain_values(self.get_params(ctx))
        left = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            self._configure(ctx)
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, int) and abs(value) > _COUNT_MAX:
                raise BadRequest(f"{parameter.opts[0]} {value} is too large", advice=f"at most {_COUNT_MAX}")
        return left

    def _with_format(self, args: list[str]) -> list[str]:
        """Return the arguments with `--json` replaced by `--format json`: people type `--json` first."""
        if not any("--format" in parameter.opts for parameter in self.params):
            return args
        end = args.index("--") if "--" in args else len(args)
        written = [word for one in args[:end] for word in (_JSON if one == "--json" else [one])]
        return [*written, *args[end:]]

    def _with_store(self, args: list[str]) -> list[str]:
        """Return the arguments with `--store X` replaced by X, for a command that takes the store as an argument."""
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

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error about a store that was not typed names where it came from."""
        token = CURRENT.set(ctx)
        try:
            return super().invoke(ctx)
        except SourceError as error:
            if _ORIGIN in ctx.meta and error.file is not None:
                error.message += f" (from {ctx.meta[_ORIGIN]})"
            raise
        finally:
            CURRENT.reset(token)

    def _with_own_store(self, ctx: Any, args: list[str], given: dict[str, object]) -> list[str]:
        """Return the arguments with the store of `own_store` added, where a command that only reads is given none."""
        is_named = any(given.get(name) for name in ("store", "paths", "more", "namesrv", "broker"))
        takes_store = self._has_argument("store", "paths")
        if is_named or not (takes_store or self.own_store is OwnStore.AS_OPTION):
            return args
        if self.own_store is OwnStore.OF_ENVIRONMENT and environment_store() is None:
            return args
        own = own_store()
        if own is None:
            return args
        logs = [] if given.get("commit_log") else [word for one in own.commit_logs for word in ("--commitlog", one)]
        if logs and not any(parameter.name == "commit_log" for parameter in self.params):
            return args  # without this option the command would find an empty store
        if own.origin is not None:
            ctx.meta[_ORIGIN] = own.origin
        elif not given.get("quiet"):
            log = f", its commit log in {', '.join(own.commit_logs)}" if logs else ""
            say.line(f"rmqtx: {own.place}: this store was found {own.where}, as none was given{log}")
        return [*logs, *args, own.place] if takes_store else ["--store", own.place, *logs, *args]

    def _configure(self, ctx: Any) -> None:
        """Replace names of stores by their paths in the configuration file, and set the file's output format.

        With --verbose, print which file that is.
        """
        if not any(name in ctx.params for name in (*_STORES, "output_format")):
            return
        known = configuration()
        ctx.meta[OWN_FORMAT] = known.format_of([*ctx.command_path.split(), ""][1])
        if known.file is not None and ctx.params.get("verbose"):
            say.line(f"rmqtx: configuration: {known.file}")
        for name in _STORES if known.stores else ():
            value = ctx.params.get(name)
            if isinstance(value, list | tuple):
                ctx.params[name] = type(value)(known.place_of(one) if isinstance(one, str) else one for one in value)
            elif isinstance(value, str | Path):
                ctx.params[name] = type(value)(known.place_of(str(value)))


class CommandTree(typer.Typer):
    """A group of commands whose commands and groups are of the classes above."""

    def __init__(self, **named: Any) -> None:
        # Help by rich would take a quarter of the start-up time.
        super().__init__(**{"cls": HelpfulGroup, "rich_markup_mode": None, "context_settings": _CONTEXT, **named})

    def command(
        self, name: str | None = None, own_store: OwnStore = OwnStore.AS_ARGUMENT, **named: Any
    ) -> Callable[[Any], Any]:
        """See `typer.Typer.command`."""
        checked = type("CheckedCommand", (CheckedCommand,), {"own_store": own_store})
        return super().command(name, **{"cls": checked, "context_settings": _CONTEXT, **named})


class _Unusual(Exception):
    """Only Typer can convert this value, or refuse it."""


def use_plain_values(parameters: Iterable[Any]) -> None:
    """Make parameters of a command convert their values here first."""
    for parameter in parameters:
        if hasattr(parameter, "get_runtime_param"):
            parameter.get_runtime_param = PlainValue(parameter).itself


class PlainValue:
    """The conversion of one parameter's values, as Typer calls it."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._info = parameter.type_descriptor.parameter_info
        self._annotation = parameter.type_descriptor.annotation

    def itself(self) -> PlainValue:
        """Return this conversion: Typer calls `get_runtime_param` of a parameter for each value."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a value as its parameter's type; `param` and `ctx` are for Typer.

        Raises: what Typer raises for a wrong value.
        """
        is_many = param.multiple or param.nargs == -1
        if value is None:
            return () if is_many else None
        try:
            return self._many(value) if get_origin(self._annotation) is list else self._one(self._annotation, value)
        except Exception:  # Typer repeats the conversion and raises its own error
            return type(self._parameter).get_runtime_param(self._parameter).coerce(value, param=param, ctx=ctx)

    def _many(self, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _Unusual
        return [self._one(get_args(self._annotation)[0], one) for one in value]

    def _one(self, kind: Any, value: Any) -> Any:
        if not isinstance(value, str):
            if isinstance(value, Enum) and isinstance(value, kind):  # a default
                return value
            raise _Unusual
        parser: Callable[[str], Any] | None = self._info.parser
        if parser is not None:
            return parser(value)
        if kind is str:
            return value
        if kind is Path:
            return self._path(value)
        if kind in (int, float):
            return self._number(kind, value)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {str(choice.value): choice for choice in kind}[value]
        raise _Unusual

    def _path(self, value: str) -> Path:
        info = self._info
        is_plain = info.file_okay and info.dir_okay and not (info.exists or info.writable or info.resolve_path)
        if not value or "\0" in value or not is_plain or info.allow_dash or info.path_type is not None:
            raise _Unusual
        if info.readable and Path(value).exists() and not os.access(value, os.R_OK):
            raise _Unusual
        return Path(value)

    def _number(self, kind: type[int] | type[float], value: str) -> int | float:
        if not (_INTEGER if kind is int else _DECIMAL).fullmatch(value) or self._info.clamp:
            raise _Unusual
        number = kind(value)
        if (self._info.min is not None and number < self._info.min) or (
            self._info.max is not None and number > self._info.max
        ):
            raise _Unusual
        return number
