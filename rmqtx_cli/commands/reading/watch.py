"""`rmqtx watch`: a live screen of the pending transactions."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import typer

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.commands.declared.watch import WatchCommand
from rmqtx_cli.options.asking import typed
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.sources.interrupting import asked_to_end
from rmqtx_cli.sources.source import AskedSource, SourceOpener, chosen_opener
from rmqtx_cli.watching.loop import print_changes, watch
from rmqtx_cli.watching.model import Model
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import escaped, of_group
from rmqtx_cli.words.times import parse_duration_ms

_INTERVAL_MS_MIN = 500


def run(options: WatchCommand) -> int:
    """Run the command; return its exit status."""
    interval_ms = parse_duration_ms(options.interval)
    if interval_ms < _INTERVAL_MS_MIN:
        raise BadRequest(f"--interval must be at least {_INTERVAL_MS_MIN}ms")
    advice = "rmqtx watch STORE, or rmqtx watch -n HOST:PORT"
    asked = AskedSource(options.store or [], options.live, options.files, options.rate)
    opener = chosen_opener(asked, Voice(quiet=True), advice)
    with opener.opened() as source:  # what cannot be read is an error before the screen is taken
        title = escaped(", ".join(name.removeprefix("rocketmq://") for name in source.names))
        for line in source.conf_lines():  # above the screen, where they stand when it ends
            Voice().note(line)
    if options.plain or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _print_plain(opener, title, Model(), interval_ms / 1000)
        return 0
    chosen = watch(opener, title, Model(), interval_ms / 1000)
    return exit_status.DONE if chosen is None else _triage(options.context, options.store or [], opener, *chosen)


def _triage(context: typer.Context, stores: Sequence[str], opener: SourceOpener, group: str, topic: str) -> int:
    """Ask for a plan file and a reason, and start `rmqtx triage` for a producer group and topic."""
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
    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    with asked_to_end() as ended:
        print_changes(opener, title, model, interval_seconds, say, ended)
