"""`rmqtx watch`: a live screen of the pending transactions."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import OptionalStoreArguments, RateOption, StoreOptions
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import escaped, of_group

if TYPE_CHECKING:
    from rmqtx_cli.sources.source import SourceOpener
    from rmqtx_cli.watching.model import Model

NAME = "watch"
EXAMPLES = (
    Example("rmqtx watch -n 10.0.0.1:9876", "live brokers"),
    Example("rmqtx watch STORE --interval 10s", "the files of a store, read every 10 seconds"),
    Example("rmqtx watch STORE --plain >> changes.log", "one line for each change, for logs and screen readers"),
)
_INTERVAL_MS_MIN = 500

IntervalOption = Annotated[
    str, typer.Option("--interval", metavar="DURATION", help="Time from the start of one reading to the next")
]
PlainOption = Annotated[
    bool, typer.Option("--plain", help="Print one line for each change; the default if stdout is not a terminal")
]


@with_option_groups
def command(
    context: typer.Context,
    store: OptionalStoreArguments = None,
    *,
    interval: IntervalOption = "5s",
    plain: PlainOption = False,
    files: StoreOptions,
    rate: RateOption = None,
    live: LiveOptions,
) -> int:
    """Show pending transactions live: by producer group, with ages, deadlines, rates, changes and causes.

    Keys: arrows move, Return opens a group and then the timeline of a transaction, Esc goes back, s changes the order,
    / filters, t starts rmqtx triage for the group, q quits. Reads what pending reads, every few seconds, and changes
    nothing. Changes are of transactions that are pending for 10 seconds or longer.
    """
    from rmqtx_cli.sources.source import chosen_opener
    from rmqtx_cli.watching.model import Model

    interval_ms = parse_duration_ms(interval)
    if interval_ms < _INTERVAL_MS_MIN:
        raise BadRequest(f"--interval must be at least {_INTERVAL_MS_MIN}ms")
    advice = "rmqtx watch STORE, or rmqtx watch -n HOST:PORT"
    opener = chosen_opener(store or [], live, files, Voice(quiet=True), advice, rate=rate)
    with opener.opened() as source:  # what cannot be read is an error before the screen is taken
        title = escaped(", ".join(name.removeprefix("rocketmq://") for name in source.names))
        for line in source.conf_lines():  # above the screen, where they stand when it ends
            Voice().note(line)
    if plain or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _print_plain(opener, title, Model(), interval_ms / 1000)
        return 0
    from rmqtx_cli.watching.loop import watch

    chosen = watch(opener, title, Model(), interval_ms / 1000)
    return exit_status.DONE if chosen is None else _triage(context, store or [], opener, *chosen)


def _triage(context: typer.Context, stores: Sequence[str], opener: SourceOpener, group: str, topic: str) -> int:
    """Ask for a plan file and a reason, and start `rmqtx triage` for a producer group and topic."""
    from rmqtx.readers.model.shell_words import quoted
    from rmqtx_cli.options.asking import typed
    from rmqtx_cli.options.next_commands import carried
    from rmqtx_cli.words import say

    say.line(f"rmqtx: triage of {of_group(group, topic)}")
    file = typed("plan file to write (Return: triage.json): ")
    reason = None if file is None else typed("reason for plan and receipts (Return: none, and nothing is done): ")
    if not reason:
        return exit_status.DONE
    place = opener.live or " ".join(map(quoted, stores))
    chosen = f"--group {quoted(group)}" if group else ""
    chosen += f" --topic {quoted(topic)}" if topic else ""
    line = carried(f"rmqtx triage {place} {chosen} -o {quoted(file or 'triage.json')} --reason {quoted(reason)}")
    say.line(f"rmqtx: next: {line}")
    status: int = context.find_root().command(shlex.split(line)[1:], prog_name="rmqtx", standalone_mode=False)
    return status


def _print_plain(opener: SourceOpener, title: str, model: Model, interval_seconds: float) -> None:
    from rmqtx_cli.watching.loop import print_changes

    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    print_changes(opener, title, model, interval_seconds, say, ended)
