"""Commands that hold brokers: `rmqtx hold` raises the limits by which they discard; `release` and `holds`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, dotted
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.errors import RemotingError
from rmqtx.repairs.holds.changes import CheckedChange, checked_hold, checked_release, settings_to_write
from rmqtx.repairs.holds.standing_holds import (
    HOLDS,
    Hold,
    HoldRow,
    HoldState,
    hold_rows,
    holds_table,
    is_over,
    looks_drained,
    looks_held,
    standing_holds,
)
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.acting.holding import ChangeOrders, carry_out_changes, check_overrides, print_change, settings_listing
from rmqtx_cli.commands.declared.holds import HoldCommand, HoldsCommand, ReleaseCommand
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.options.source_options import DatabaseOptions
from rmqtx_cli.output.listing import Listing, concluded
from rmqtx_cli.output.views import ALWAYS, View, plain
from rmqtx_cli.pages.headlines import deadline_lines
from rmqtx_cli.sources.files import FileOpener
from rmqtx_cli.sources.live_brokers import Live, open_live
from rmqtx_cli.sources.source import refuse_file_options
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import duration_text, parse_duration_ms, time_text


def run_hold(options: HoldCommand) -> int:
    """Run `rmqtx hold`; return its exit status."""
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
        now_ms = clock.now_ms()
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
    now_ms = clock.now_ms()
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


def run_release(options: ReleaseCommand) -> int:
    """Run `rmqtx release`; return its exit status."""
    overrides = check_overrides(options.override, options.reason)
    journal, listing = Journal(), settings_listing(options.output, options.voice)
    holds = standing_holds(journal.read().receipts)
    with open_live(options.live, without_lost=True) as found:
        now_ms = clock.now_ms()
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


def run(options: HoldsCommand) -> int:
    """Run the command; return its exit status."""
    book = Journal(options.journal)
    listing = Listing(
        HOLDS, view(f"no holds and no drains in {book.path}"), options.output, options.where, options.fail_on,
        options.limit, options.voice,
    )
    found = book.read()
    holds = standing_holds(found.receipts)
    present = _present(options.live) if options.live.is_asked else {}
    now_ms = clock.now_ms()
    rows = hold_rows(holds, present, now_ms)
    listing.write(iter(holds_table(rows).to_batches()))
    _say_holds(holds, rows, now_ms, options.voice)
    status = listing.conclude(Reading(HOLDS, [], findings=found.findings))
    return exit_status.INCOMPLETE if None in present.values() else status


def _present(live: LiveOptions) -> dict[str, Mapping[str, str] | None]:
    """Return the configuration of each broker; None, after a line about the error, where it cannot be read."""
    found: dict[str, Mapping[str, str] | None] = {}
    with open_live(live, without_lost=True) as opened:
        for lost in opened.lost:
            say.error(f"{lost.root}: {lost.error}")
            found[lost.root] = None
        for broker in opened.brokers:
            try:
                found[broker.root] = broker.config()
            except RemotingError as error:
                say.error(f"{broker.root}: {error}")
                found[broker.root] = None
    return found


def _say_holds(
    holds: Mapping[str, Hold], rows: Sequence[HoldRow], now_ms: int, voice: Voice
) -> None:
    for hold in holds.values():
        if hold.is_drain:
            voice.note(f"{hold.store}: drained since {time_text(hold.since_ms)} or later; rmqtx release ends the drain")
        if not hold.is_sure:
            action = "drain" if hold.is_drain else "hold"
            voice.note(f"{hold.store}: an act on it has no proved outcome; see rmqtx receipts --action {action}")
        if hold.until_ms is None:
            continue
        left = duration_text(abs(hold.until_ms - now_ms))
        when = f"is over since {left}: release it" if is_over(hold, now_ms) else f"ends in {left}"
        voice.note(f"{hold.store}: the time of the hold {when}")
    others = len({row.store for row in rows if row.hold_state == HoldState.UNRECORDED})
    if others:
        voice.note(f"{count(others, 'broker')} with a value as a hold or a drain sets it, not by this journal")


def view(nothing: str = "no holds and no drains") -> View:
    """Return the view of holds. `nothing`: the line instead of an empty table."""
    return View(
        (
            plain("store", ALWAYS), plain("hold_state", ALWAYS), plain("setting", ALWAYS), plain("before", 2),
            plain("after", 3), plain("now", ALWAYS), plain("since_time_ms", 5), plain("until_time_ms", 1),
            plain("held_by", 6, may_be_cut=True), plain("reason", 4, may_be_cut=True),
        ),
        nothing,
    )
