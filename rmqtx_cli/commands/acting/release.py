"""`rmqtx release`: put back the settings of brokers that were held or drained."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acting import DryRunOption, ReasonOption, YesOption
from rmqtx_cli.acting.holding import (
    HoldOverrideOption,
    carry_out_changes,
    check_overrides,
    print_change,
    settings_listing,
)
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions, open_live
from rmqtx_cli.options.options import ReceiptOptions, VoiceOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqtx.remoting.connections.broker import Broker
    from rmqtx.repairs.holds.standing_holds import Hold
    from rmqtx_cli.options.live import Live
    from rmqtx_cli.words.say import Voice

NAME = ActKind.RELEASE
EXAMPLES = (
    Example("rmqtx release -n 10.0.0.1:9876 --dry-run", "what would change, and what the check would then discard"),
    Example("rmqtx release -n 10.0.0.1:9876", "put back the settings of all held and drained brokers"),
    Example(
        "rmqtx release -n 10.0.0.1:9876 --override discards-pending --reason 'orders were cancelled'",
        "although the next check discards open transactions",
    ),
)


@with_option_groups
def command(
    reason: ReasonOption = None,
    override: HoldOverrideOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    output: ReceiptOptions,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """Release held or drained brokers: put back the values that their settings had before.

    The values are those in the journal of rmqtx hold and rmqtx drain; both end. Refused where a setting has neither the
    value that was set nor the one of before, and where the next round of the check would then discard open
    transactions: decide them first. Each setting is read back.
    """
    from rmqtx.repairs.holds.changes import CheckedChange, checked_release
    from rmqtx.repairs.holds.standing_holds import standing_holds
    from rmqtx.repairs.receipts.journal import Journal

    overrides = check_overrides(override, reason)
    journal, listing = Journal(), settings_listing(output, voice)
    holds = standing_holds(journal.read().receipts)
    with open_live(live, without_lost=True) as found:
        now_ms = time.time_ns() // 1_000_000
        brokers = found.brokers if live.broker else _held(found, holds, voice)
        changes = [checked_release(broker, holds, overrides) for broker in brokers]
        changes += [
            CheckedChange(one.root, None, ActKind.RELEASE, hold=holds.get(one.root), error=one.error)
            for one in found.lost if live.broker or one.root in holds
        ]
        for one in changes:
            print_change(one, now_ms, voice)
        return carry_out_changes(
            changes, journal, reason, overrides, "put back the settings", listing, dry_run=dry_run, yes=yes
        )


def _held(live: Live, holds: Mapping[str, Hold], voice: Voice) -> Sequence[Broker]:
    """Return the brokers that the journal holds; all if it holds none, so that a guard refuses them."""
    brokers = live.brokers
    held = [broker for broker in brokers if broker.root in holds]
    for broker in brokers if held else ():
        if broker.root not in holds and (words := _other_hold(broker)):
            voice.note(f"{broker.root}: {words}")
    roots = {broker.root for broker in brokers} | {lost.root for lost in live.lost}
    for lost in live.lost:
        if lost.root not in holds:
            voice.note(f"{lost.root}: unknown whether another operator holds it: {lost.error.message}")
    for root in holds:
        if root not in roots:
            voice.note(f"{root} is held too and is not one of these: rmqtx release --broker {root.partition('@')[2]}")
    return held or brokers


def _other_hold(broker: Broker) -> str | None:
    """Return a clause about a broker that the journal does not hold and that may be held or drained, else None."""
    from rmqtx.remoting.protocol.errors import RemotingError
    from rmqtx.repairs.holds.standing_holds import looks_drained, looks_held

    try:
        conf = broker.config()
    except RemotingError as error:
        return f"unknown whether another operator holds it: {error.message}"
    if looks_held(conf):
        return "its limit is as a hold sets it, and the journal has no hold of it"
    return "it refuses transactions as a drain, and the journal has no drain of it" if looks_drained(conf) else None
