"""`rmqtx holds`: list the brokers that are held or drained, and whether they still have the values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.reading import Reading
from rmqtx.remoting.protocol.errors import RemotingError
from rmqtx.repairs.holds.standing_holds import (
    HOLDS,
    Hold,
    HoldRow,
    HoldState,
    hold_rows,
    holds_table,
    is_over,
    standing_holds,
)
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.commands.declared.holds import HoldsCommand
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import ALWAYS, View, plain
from rmqtx_cli.sources.live_brokers import open_live
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import duration_text, time_text


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
    now_ms = time.time_ns() // 1_000_000
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
    )  # fmt: skip
