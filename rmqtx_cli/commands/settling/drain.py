"""`rmqtx drain`: empty a live broker before a planned stop."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.holds.changes import CheckedChange, checked_drain
from rmqtx.repairs.holds.draining import wait_until_drained
from rmqtx.repairs.holds.standing_holds import standing_holds
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.acting.draining import DrainProgress, say_ends
from rmqtx_cli.acting.holding import ChangeOrders, carry_out_changes, print_change, settings_listing
from rmqtx_cli.commands.declared.holds import DrainCommand
from rmqtx_cli.sources.interrupting import interruptible
from rmqtx_cli.sources.live_brokers import open_live
from rmqtx_cli.words.times import duration_text, parse_duration_ms


def run(options: DrainCommand) -> int:
    """Run the command; return its exit status."""
    for_ms = parse_duration_ms(options.duration)
    if for_ms <= 0:
        raise BadRequest("--for must be more than 0", advice="for example --for 10m")
    if not options.live.broker:
        raise BadRequest("name the broker to drain", advice="--broker NAME, or --broker HOST:PORT; repeatable")
    journal, listing = Journal(), settings_listing(options.output, options.voice)
    holds = standing_holds(journal.read().receipts)
    with open_live(options.live, without_lost=True) as found:
        changes = [checked_drain(broker, holds.get(broker.root)) for broker in found.brokers]
        changes += [CheckedChange(one.root, None, ActKind.DRAIN, error=one.error) for one in found.lost]
        now_ms = time.time_ns() // 1_000_000
        for one in changes:
            print_change(one, now_ms, options.voice)

        def wait() -> Mapping[str, int]:
            options.voice.note(
                f"waiting up to {duration_text(for_ms)} until no transaction is open (an interrupt ends the wait, not "
                "the drain)"
            )
            progress = DrainProgress(options.voice, time.time_ns() // 1_000_000 + for_ms)
            with interruptible() as asked:
                return say_ends(wait_until_drained(changes, journal, for_ms, asked, progress))

        return carry_out_changes(
            changes, journal, ChangeOrders(options.reason, (), options.dry_run, options.yes),
            "refuse new transactions", listing, wait,
        )
