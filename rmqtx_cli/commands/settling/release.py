"""`rmqtx release`: put back the settings of brokers that were held or drained."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.errors import RemotingError
from rmqtx.repairs.holds.changes import CheckedChange, checked_release
from rmqtx.repairs.holds.standing_holds import Hold, looks_drained, looks_held, standing_holds
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.acting.holding import (
    ChangeOrders,
    carry_out_changes,
    check_overrides,
    print_change,
    settings_listing,
)
from rmqtx_cli.commands.declared.holds import ReleaseCommand
from rmqtx_cli.sources.live_brokers import Live, open_live
from rmqtx_cli.words.say import Voice


def run(options: ReleaseCommand) -> int:
    """Run the command; return its exit status."""
    overrides = check_overrides(options.override, options.reason)
    journal, listing = Journal(), settings_listing(options.output, options.voice)
    holds = standing_holds(journal.read().receipts)
    with open_live(options.live, without_lost=True) as found:
        now_ms = time.time_ns() // 1_000_000
        brokers = found.brokers if options.live.broker else _held(found, holds, options.voice)
        changes = [checked_release(broker, holds, overrides) for broker in brokers]
        changes += [
            CheckedChange(one.root, None, ActKind.RELEASE, hold=holds.get(one.root), error=one.error)
            for one in found.lost if options.live.broker or one.root in holds
        ]
        for one in changes:
            print_change(one, now_ms, options.voice)
        return carry_out_changes(
            changes, journal, ChangeOrders(options.reason, overrides, options.dry_run, options.yes),
            "put back the settings", listing,
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
    try:
        conf = broker.config()
    except RemotingError as error:
        return f"unknown whether another operator holds it: {error.message}"
    if looks_held(conf):
        return "its limit is as a hold sets it, and the journal has no hold of it"
    return "it refuses transactions as a drain, and the journal has no drain of it" if looks_drained(conf) else None
