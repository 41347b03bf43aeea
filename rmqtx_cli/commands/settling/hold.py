"""`rmqtx hold`: raise the limits by which brokers discard open transactions, for a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, dotted
from rmqtx.repairs.holds.changes import CheckedChange, checked_hold, settings_to_write
from rmqtx.repairs.holds.standing_holds import standing_holds
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.acting.holding import ChangeOrders, carry_out_changes, print_change, settings_listing
from rmqtx_cli.commands.declared.holds import HoldCommand
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.options.source_options import DatabaseOptions
from rmqtx_cli.output.listing import concluded
from rmqtx_cli.pages.headlines import deadline_lines
from rmqtx_cli.sources.files import FileOpener
from rmqtx_cli.sources.live_brokers import open_live
from rmqtx_cli.sources.source import refuse_file_options
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import parse_duration_ms, time_text


def run(options: HoldCommand) -> int:
    """Run the command; return its exit status."""
    duration_ms = parse_duration_ms(options.duration)
    if duration_ms <= 0:
        raise BadRequest("--for must be more than 0", advice="for example --for 4h")
    if options.store is not None:
        options.live.instead_of([options.store], "leave one out")
        unfit = {
            "--yes": options.yes, "--no-wait": not options.wait,
            "--output": options.output.output, "--fields": options.output.fields,
            "--format": options.output.output_format,
        }
        return print_lines(options.store, options.files, unfit, duration_ms, options.voice)
    refuse_file_options(options.files)
    if not (options.reason or "").strip():
        raise BadRequest("--reason is missing", advice="give the ticket or the incident")
    journal, listing = Journal(), settings_listing(options.output, options.voice)
    holds = standing_holds(journal.read().receipts)
    with open_live(options.live, without_lost=True) as found:
        now_ms = time.time_ns() // 1_000_000
        until_ms = now_ms + duration_ms
        changes = [checked_hold(broker, holds.get(broker.root), now_ms, until_ms) for broker in found.brokers]
        changes += [CheckedChange(one.root, None, ActKind.HOLD, error=one.error) for one in found.lost]
        for one in changes:
            print_change(one, now_ms, options.voice)
        if any(one.is_allowed for one in changes):
            options.voice.note(f"until {time_text(until_ms)}: then rmqtx release puts back what was there")
        return carry_out_changes(
            changes, journal, ChangeOrders(options.reason, (), options.dry_run, options.yes, options.wait),
            "change the settings", listing,
        )


def print_lines(store: str, files: StoreOptions, unfit: Mapping[str, Any], duration_ms: int, voice: Voice) -> int:
    """Print the lines for the broker's configuration file; nothing is written. Returns the exit status.

    `unfit`: values of the options that are for live brokers, by option name.
    Raises: BadRequest for one of these; NotAStore, UnreadableFile.
    """
    for name, value in unfit.items():
        if value not in (None, False, [], ()):
            raise BadRequest(f"{name} is for live brokers, not for --store", advice="leave one of them out")
    now_ms = time.time_ns() // 1_000_000
    with FileOpener([store], files, DatabaseOptions(), voice).opened() as source:
        if len(source.stores) != 1:
            raise BadRequest("--store is for one store, and several are given")
        (opened,) = source.stores
        settings = source.opened.settings_of(opened)
        if opened.in_use:
            say.error(f"{opened.root}: its broker runs: hold it live with -n or --broker; nothing was written")
            return exit_status.STORE_IN_USE
        high = settings.version_high
        if high is not None and not HALF_TOPIC_DESIGN.holds(high):
            say.error(f"{opened.root}: broker {dotted(high)} discards no transaction: it is older than 4.3.0")
            return exit_status.REFUSED_BY_GUARD
        reading = source.pending(at_ms=None)
    rows = reading.table()
    changes = settings_to_write(settings, rows, now_ms, now_ms + duration_ms)
    voice.note(f"{count(rows.num_rows, 'open transaction')}")
    for line in deadline_lines(rows, reading.predicted, now_ms):
        voice.note(line)
    for change in changes:
        sys.stdout.write(f"{change.setting}={change.after}\n")
    if not settings.given:
        voice.note(
            f"assumed: transactionCheckMax {settings.transaction_check_max} and fileReservedTime "
            f"{settings.file_reserved_time_hours}, the defaults; give the broker's file: --broker-conf FILE"
        )
    if changes:
        before = ", ".join(f"{change.setting}={change.before}" for change in changes)
        voice.note(
            f"nothing was written: put {'this line' if len(changes) == 1 else 'these lines'} into the broker's "
            f"configuration file before its start, until {time_text(now_ms + duration_ms)}; before: {before}"
        )
    else:
        voice.note("nothing to change: its limits are higher already")
    return concluded(reading, voice, has_undecidable=reading.undecidable_count > 0)
