"""The commands that a result names to type next, with the options of this run that change the answer.

A command without them would read another log, or judge by the defaults of another release, and contradict the result
that names it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from typing import Any

from rmqtx.readers.model.shell_words import quoted
from rmqtx.repairs.receipts.act_words import PLANNED
from rmqtx_cli.words.times import known_time_ms, time_text

#: The parsed command line of this run, as Typer has it; None in a program that calls no command. The only way past the
#: arguments of functions: results name further commands in many places, and each has the options of the whole run.
CURRENT: ContextVar[Any] = ContextVar("current_command", default=None)
#: Format of rows in this run, if neither an option nor a suffix gives it, in the `meta` of the command line.
OWN_FORMAT = "rmqtx.own_format"
#: Parameters that change what is read, or by which rules and settings it is judged.
CARRIED = (
    "commit_log", "broker_conf", "broker_version", "transaction_table", "table", "offset_column", "group_column",
    "broker_logs", "log_zone", "proxy_conf", "trace_topic",
)
#: Parameters that name the store or the brokers on which a command acts.
PLACES = (
    "store", "namesrv", "broker", "cluster", "namespace", "credentials", "tls", "tls_ca", "tls_cert", "tls_key",
    "tls_server_name", "tls_insecure",
)
#: Commands on one transaction, as the sentences of guards name them: without a place, unless it is a running broker.
_IN_PROSE = re.compile(r"\brmqtx (show|commit|rollback|resume|close|discard|redeliver) ([^\s;,)]++)(?! -n )")
#: Of these commands --at is the time of the state; of `simulate` it is the clock.
_WITH_PAST_STATES = ("show", "pending", "audit", "diagnose")
#: In the place of a version that the reader must add.
_VERSION_TO_ADD = "X.Y.Z"
_COMMENT = "   # "


def own_format() -> str | None:
    """Return the format of rows in the configuration file, for the command of this run; None if it has none."""
    context = CURRENT.get()
    return None if context is None else context.meta.get(OWN_FORMAT)


def next_line(command: str, comment: str = "", at_ms: int | None = None) -> str:
    """Return the line that names a command to type next, with the options of this run.

    `at_ms`: the clock of this run, if the states of the store are the same at that time.
    """
    if at_ms is not None and command.startswith(tuple(f"rmqtx {name} " for name in _WITH_PAST_STATES)):
        command += f" --at {time_text(at_ms)}"
    return f"next: {carried(command)}{_COMMENT + comment if comment else ''}"


def next_lines(text: str) -> Iterator[str]:
    """Yield the line of `next_line` for each line of a text: commands, each with or without a comment."""
    for line in text.splitlines():
        command, found, comment = line.rpartition(_COMMENT)
        yield next_line(command, comment) if found else next_line(line)


def with_places(text: str) -> str:
    """Return a sentence in which each command on one transaction acts where this run does, with its options."""
    return _IN_PROSE.sub(lambda found: _placed(found[1], found[2]), text)


def _placed(name: str, identity: str) -> str:
    placed = carried(f"rmqtx {name} {quoted(identity)}", (*PLACES, *CARRIED))
    if name not in PLANNED or " --store " not in placed:
        return placed
    version = "" if " --broker-version " in placed else f" --broker-version {_VERSION_TO_ADD}"
    return f"{placed} --to DIR{version}"


def carried(command: str, names: Collection[str] = CARRIED) -> str:
    """Return a command with the options of this run that it takes too and does not have yet.

    `names`: the parameters of these options. Only for commands of rmqtx; other text stays as it is.
    """
    context = CURRENT.get()
    words = _words(command)
    given = [] if context is None or words[:1] != ["rmqtx"] else list(_given(context, names))
    taken = _options_of(context, words[1:]) if given else frozenset()
    for option, value in given:
        if option == "--at" and not {context.info_name, words[1]} <= {*_WITH_PAST_STATES}:
            continue
        if option == "--broker-version" and _VERSION_TO_ADD in words:
            command = command.replace(f"{option} {_VERSION_TO_ADD}", f"{option} {quoted(value or '')}")
        elif option in taken and option not in words:
            command += f" {option} {quoted(value)}" if value is not None else f" {option}"
    return command


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # the id of a transaction that another module did not quote
        return command.split()


def _given(context: Any, names: Collection[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the options of a run that change the answer, with their values as text; a switch has none."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        if value in (None, False, [], ()) or parameter.param_type_name != "option":
            continue
        if parameter.name == "at":
            yield "--at", time_text(known_time_ms(str(value)))
        elif parameter.name in names and value is True:
            yield _longest(parameter.opts), None
        elif parameter.name in names:
            values = value if isinstance(value, list | tuple) else [value]
            yield from ((_longest(parameter.opts), str(one)) for one in values)


def _options_of(context: Any, words: list[str]) -> frozenset[str]:
    """Return the options that a command takes; none for a command that does not exist."""
    command = context.find_root().command
    for word in words:
        if not hasattr(command, "get_command"):
            break
        command = command.get_command(context, word)
    return frozenset(option for parameter in getattr(command, "params", ()) for option in parameter.opts)


def _longest(names: list[str]) -> str:
    return max(names, key=len)
