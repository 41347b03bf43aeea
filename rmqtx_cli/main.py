"""The command `rmqtx`: its tree of commands, and the only place where an error becomes an exit status.

Results go to stdout, everything else to stderr. A closed pipe is not an error. An unexpected exception is a bug: one
line, how to get the traceback, status 70.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.main

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.own_process import begin_loading, begin_own_process
from rmqtx.repairs.receipts.act_words import PLANNED
from rmqtx_cli.commands.by_name import CommandsByName
from rmqtx_cli.options.command_tree import CommandTree, HelpfulGroup
from rmqtx_cli.output.streams import end_of_stdout, leave_stdout, own_standard_streams
from rmqtx_cli.words import log_json, say
from rmqtx_cli.words.check_unknown import names_json, unknown
from rmqtx_cli.words.command_names import LINES, MOST_USED, SECTIONS


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


app = CommandTree(name="rmqtx", cls=SectionedGroup, pretty_exceptions_enable=False)


def _own_version() -> str:
    from importlib.metadata import version

    return version("rmqtx")


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"rmqtx {_own_version()}\n")
        raise typer.Exit


@app.callback()
def rmqtx(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """Find, explain and settle the transactional messages of Apache RocketMQ, in a broker's files or on live brokers.

    STORE is the directory that contains commitlog/; -n HOST:PORT reads live brokers instead. Only --in-place and undo
    change a store; only the commands under "Settle" decide transactions (probe sends and decides its own). Examples:
    `rmqtx COMMAND --help`; words of the output: `rmqtx explain WORD`.
    """


#: Commands that print one line for a monitoring system, not rows.
_WITHOUT_ROWS = ("check", "probe")


def run() -> None:
    """The console script."""
    begin_own_process()
    begin_loading()
    # Else numpy starts a thread for each core, to multiply matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own allocators keep freed memory: an audit needs 100 MiB more, and an eighth more system time.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    own_standard_streams()
    sys.exit(ended(sys.argv[1:], lambda: _arrived(status_of(sys.argv[1:]))))


def ended(arguments: list[str], run_command: Callable[[], int]) -> int:
    """Run a command line; with --log-json, write its log and end it with the status, which is returned."""
    with log_json.begun(arguments, _own_version) as log:
        try:
            status = run_command()
        except KeyboardInterrupt:
            if log is None:
                raise
            status = exit_status.INTERRUPTED
        if log is not None:
            word, meaning = exit_status.worded(status, is_check=_is_check(arguments))
            log.object("exit", status=status, word=word, meaning=meaning)
    return status


def _arrived(status: int) -> int:
    """The exit status of a run, after its last byte was written: a run whose output is not complete fails."""
    try:
        end_of_stdout()
    except BrokenPipeError:
        leave_stdout()
    except (OSError, ValueError) as error:
        if _is_check(sys.argv[1:]):
            say.error(_os_message(error))
            return exit_status.INCOMPLETE
        if status != exit_status.UNREADABLE:  # else the line is printed
            say.error(_os_message(error))
        if status in (exit_status.DONE, exit_status.FINDINGS, exit_status.INCOMPLETE):
            return exit_status.UNREADABLE
    return status


def _is_check(arguments: list[str]) -> bool:
    """Whether the command has the four statuses of Nagios."""
    return next((word for word in arguments if not word.startswith("-")), None) in _WITHOUT_ROWS


def _os_message(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return f"cannot write the results: {error}"
    return f"{error.strerror or error}: {error.filename or 'the output'}"


def status_of(arguments: list[str]) -> int:
    """Run a command line; return its exit status."""
    cause: BaseException
    try:
        return _invoke(arguments)
    except KeyboardInterrupt as error:
        status, message, cause = exit_status.INTERRUPTED, "interrupted", error
    except typer.TyperException as error:
        status, message, cause = exit_status.USAGE, _usage_line(error, arguments), error
    except RmqtxError as error:
        status, message, cause = error.status, str(error), error
    except BrokenPipeError:
        leave_stdout()
        return exit_status.DONE
    except OSError as error:
        status, message, cause = exit_status.UNREADABLE, _os_message(error), error
    except Exception as error:
        if os.environ.get("RMQTX_DEBUG") and log_json.current() is None:
            raise
        cause = error
        status = exit_status.BUG
        message = f"a bug: {type(error).__name__}: {error} (report it with the traceback, which RMQTX_DEBUG=1 prints)"
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps one that comes while a class is made
            status, message = exit_status.INTERRUPTED, "interrupted"
    if _is_check(arguments):  # Nagios reads one line on stdout and four statuses
        return unknown(message, is_json=names_json(arguments))
    say.error(message, cause)
    return status


def _invoke(arguments: list[str]) -> int:
    if "_RMQTX_COMPLETE" in os.environ:  # a shell asks for completions
        app(prog_name="rmqtx")
    try:
        status = _commands()(arguments, prog_name="rmqtx", standalone_mode=False)
    except SystemExit:  # Typer exits by itself only on a closed pipe
        leave_stdout()
        return exit_status.DONE
    if status == exit_status.INTERRUPTED:
        raise KeyboardInterrupt
    return int(status or exit_status.DONE)


@functools.cache
def _commands() -> Any:
    """Return the commands as Typer builds them; once, for a program that runs several command lines in one process."""
    return typer.main.get_command(app)


#: The options with which `rmqtx plan` selects transactions.
_OF_PLANS = ("--all", "--where", "--topic", "--older-than", "--limit")


#: Options that `rmqtx audit` no longer has → the command that has them.
_MOVED = {
    **dict.fromkeys(("--follow", "--until-idle", "--interval"), "rmqtx follow STORE"),
    "--into": "rmqtx table STORE --into TABLE",
    "--checkpoint": "rmqtx follow STORE, or rmqtx table STORE --into TABLE",
}


def _usage_line(error: typer.TyperException, arguments: list[str]) -> str:
    context = getattr(error, "ctx", None)
    before = list(itertools.takewhile(lambda word: word.startswith("-"), arguments))
    command = arguments[len(before)] if len(before) < len(arguments) else None
    if before and command in LINES and context is not None and context.command_path == "rmqtx":
        return f"{error.format_message().rstrip('.')} - options go after the command: rmqtx {command} {before[0]}"
    action = arguments[0] if arguments else ""
    option = getattr(error, "option_name", None)
    if option in _OF_PLANS and action in PLANNED:
        return f"No such option: {option} - for many transactions: rmqtx plan {action} {option}"
    if action == "audit" and option in _MOVED:
        return f"No such option: {option} - use {_MOVED[option]}"
    if action == "follow" and option in ("-o", "--output"):
        return f"No such option: {option} - redirect the rows: >> FILE"
    hint = f" - see {context.command_path} --help" if context is not None else ""
    return " ".join(error.format_message().split()).replace(": Value error, ", ": ").rstrip(".") + hint


if __name__ == "__main__":
    run()
