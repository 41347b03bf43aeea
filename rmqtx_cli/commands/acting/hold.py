"""`rmqtx hold`: raise the limits by which brokers discard open transactions, for a time."""

from __future__ import annotations

import time

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.holds.changes import CheckedChange, checked_hold
from rmqtx.repairs.holds.standing_holds import standing_holds
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.acting.holding import carry_out_changes, print_change, settings_listing
from rmqtx_cli.acting.holding_files import print_lines
from rmqtx_cli.commands.declared.settle import HoldCommand
from rmqtx_cli.sources.live_brokers import open_live
from rmqtx_cli.sources.source import refuse_file_options
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.times import time_text


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
            changes, journal, options.reason, (), "change the settings", listing,
            dry_run=options.dry_run, yes=options.yes, wait=options.wait,
        )
