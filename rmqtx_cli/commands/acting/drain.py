"""`rmqtx drain`: empty a live broker before a planned stop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acting import DryRunOption, ReasonOption, YesOption
from rmqtx_cli.acting.holding import carry_out_changes, print_change, settings_listing
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions, open_live
from rmqtx_cli.options.options import ReceiptOptions, VoiceOptions
from rmqtx_cli.words.durations import duration_text, parse_duration_ms

NAME = ActKind.DRAIN
EXAMPLES = (
    Example("rmqtx drain -n 10.0.0.1:9876 --broker broker-a --dry-run", "what would change, and what is open"),
    Example("rmqtx drain -n 10.0.0.1:9876 --broker broker-a --reason 'kernel update'", "wait until it can be stopped"),
    Example("rmqtx drain --broker 10.0.0.2:10911 --for 30m --yes", "wait longer, without a name server"),
    Example("rmqtx release --broker 10.0.0.2:10911", "after its start: accept transactions again"),
)

ForOption = Annotated[
    str, typer.Option("--for", metavar="DURATION", help="How long to wait until no transaction is open")
]


@with_option_groups
def command(
    duration: ForOption = "10m",
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    output: ReceiptOptions,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """Drain live brokers before a planned stop: wait until a stop loses no decision and no transaction is open.

    The broker refuses new transactions (rejectTransactionMessage) and writes its op messages at once
    (transactionOpBatchInterval 100, from 5.1.0 on). Then the command waits until each half message has an op message
    that can be read, lists the others with their deadlines, and prints that the broker is safe to stop now. If the time
    of --for is over before, the exit status is 1. What is set stays set, also after the start of the broker and after
    an interrupt: rmqtx release puts back the values of before.
    """
    from rmqtx.repairs.holds.changes import CheckedChange, checked_drain
    from rmqtx.repairs.holds.draining import wait_until_drained
    from rmqtx.repairs.holds.standing_holds import standing_holds
    from rmqtx.repairs.receipts.journal import Journal
    from rmqtx_cli.acting.draining import DrainProgress, say_ends
    from rmqtx_cli.sources.interrupting import interruptible

    for_ms = parse_duration_ms(duration)
    if for_ms <= 0:
        raise BadRequest("--for must be more than 0", advice="for example --for 10m")
    if not live.broker:
        raise BadRequest("name the broker to drain", advice="--broker NAME, or --broker HOST:PORT; repeatable")
    journal, listing = Journal(), settings_listing(output, voice)
    holds = standing_holds(journal.read().receipts)
    with open_live(live, without_lost=True) as found:
        changes = [checked_drain(broker, holds.get(broker.root)) for broker in found.brokers]
        changes += [CheckedChange(one.root, None, ActKind.DRAIN, error=one.error) for one in found.lost]
        now_ms = time.time_ns() // 1_000_000
        for one in changes:
            print_change(one, now_ms, voice)

        def wait() -> Mapping[str, int]:
            voice.note(
                f"waiting up to {duration_text(for_ms)} until no transaction is open (an interrupt ends the wait, not "
                "the drain)"
            )
            progress = DrainProgress(voice, time.time_ns() // 1_000_000 + for_ms)
            with interruptible() as asked:
                return say_ends(wait_until_drained(changes, journal, for_ms, asked, progress))

        return carry_out_changes(
            changes, journal, reason, (), "refuse new transactions", listing, dry_run=dry_run, yes=yes, then=wait
        )
