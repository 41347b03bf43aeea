"""`rmqtx drain`: empty a live broker before a planned stop.

It prints progress while it waits, and has an exit status for each broker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.repairs.holds.after_a_round import discarded_words
from rmqtx.repairs.holds.changes import CheckedChange, checked_drain
from rmqtx.repairs.holds.draining import Drain, DrainEnd, WaitingHalf, wait_until_drained
from rmqtx.repairs.holds.standing_holds import standing_holds
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.acting.holding import ChangeOrders, carry_out_changes, print_change, settings_listing
from rmqtx_cli.commands.declared.holds import DrainCommand
from rmqtx_cli.pages.headlines import in_text
from rmqtx_cli.sources.interrupting import asked_to_end
from rmqtx_cli.sources.live_brokers import open_live
from rmqtx_cli.words import say
from rmqtx_cli.words.text import count, escaped
from rmqtx_cli.words.times import duration_text, parse_duration_ms, time_text

if TYPE_CHECKING:
    from rmqtx_cli.words.say import Voice

#: Half messages that a table lists, those that are discarded first.
_LISTED_MAX = 10
#: A table is printed again when it has changed, and at most this often.
_AGAIN_SECONDS = 10.0
#: Exit status by the end of the wait.
STATUS = {
    DrainEnd.SAFE: exit_status.DONE, DrainEnd.TIME_OVER: exit_status.FINDINGS,
    DrainEnd.UNKNOWN: exit_status.INCOMPLETE, DrainEnd.CHANGED: exit_status.UNKNOWN_OUTCOME,
    DrainEnd.LOST: exit_status.UNREACHABLE, DrainEnd.INTERRUPTED: exit_status.INTERRUPTED,
}
_NEVER = 1 << 62


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
        now_ms = clock.now_ms()
        for one in changes:
            print_change(one, now_ms, options.voice)

        def wait() -> Mapping[str, int]:
            options.voice.note(
                f"waiting up to {duration_text(for_ms)} until no transaction is open (an interrupt ends the wait, not "
                "the drain)"
            )
            progress = DrainProgress(options.voice, clock.now_ms() + for_ms)
            with asked_to_end() as asked:
                return say_ends(wait_until_drained(changes, journal, for_ms, asked, progress))

        return carry_out_changes(
            changes, journal, ChangeOrders(options.reason, (), options.dry_run, options.yes),
            "refuse new transactions", listing, wait,
        )


class DrainProgress:
    """Prints the half messages that are waited for, with their deadlines, when they have changed."""

    def __init__(self, voice: Voice, end_ms: int) -> None:
        """`end_ms`: when the wait ends."""
        self._voice = voice
        self._end_ms = end_ms
        self._printed: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._warned: set[str] = set()

    def __call__(self, drain: Drain) -> None:
        """Print a reading of a broker."""
        if drain.end is not None:
            return
        lines = tuple(_progress_lines(drain))
        at, before = self._printed.get(drain.root, (-_AGAIN_SECONDS, ()))
        now = time.monotonic()
        if lines == before or now - at < _AGAIN_SECONDS:
            return
        self._printed[drain.root] = now, lines
        for line in lines:
            self._voice.note(f"{drain.root}: {line}")
        first = drain.first_discard_ms
        if first is not None and first < self._end_ms and drain.root not in self._warned:
            self._warned.add(drain.root)
            address = drain.root.partition("@")[2]
            self._voice.note(
                f"{drain.root}: the check discards the first before this wait ends; to keep it: rmqtx hold --broker "
                f"{address} --for 4h --reason TEXT"
            )


def _progress_lines(drain: Drain) -> list[str]:
    if drain.error is not None:
        return [f"could not be read, trying again: {drain.error}"]
    waiting = drain.waiting or ()
    if drain.unknown is not None:
        return [f"unknown whether a transaction is open: {drain.unknown}"]
    if not waiting:
        return ["no half message without an op message; reading again"]
    listed = sorted(waiting, key=lambda one: one.discard_ms or _NEVER)[:_LISTED_MAX]
    more = f", the first {_LISTED_MAX} to be discarded" if len(waiting) > _LISTED_MAX else ""
    stop = f"; the check is stopped at {drain.stop} and asks nothing behind that" if drain.stop is not None else ""
    head = f"{count(len(waiting), 'half message')} without an op message{more}{stop}:"
    return [head, *(f"  {_half_line(one)}" for one in listed)]


def _half_line(one: WaitingHalf) -> str:
    half = one.half
    when = "no discard predicted" if one.discard_ms is None else f"discarded at {time_text(one.discard_ms)}"
    return f"{half.transaction_id}  group {half.producer_group or '?'}  topic {half.topic or '?'}  {when}"


def say_ends(drains: Sequence[Drain]) -> dict[str, int]:
    """Print how the wait for each broker ended and what to do next; return the exit status of each."""
    now_ms = clock.now_ms()
    for drain in drains:
        assert drain.end is not None
        address = drain.root.partition("@")[2]
        release = f"rmqtx release --broker {address}"
        if drain.lost:
            say.error(f"{drain.root}: {discarded_words(drain.lost, 'by the check meanwhile')}")
        if drain.lost_unknown is not None:
            say.error(f"{drain.root}: unknown whether a half message was discarded meanwhile: {drain.lost_unknown}")
        if drain.end == DrainEnd.SAFE:
            say.line(f"rmqtx: {drain.root}: safe to stop now: {drain.words()}")
            if drain.change.is_needless:
                continue
            say.line(f"rmqtx: {drain.root}: stop it with SIGTERM (mqshutdown broker); after its start: {release}")
            continue
        say.error(f"{drain.root}: not safe to stop: {drain.words()}")
        first = drain.first_discard_ms
        if first is not None:
            say.error(f"{drain.root}: the check discards the first at {time_text(first)}, {in_text(first, now_ms)}")
        kept = [escaped(f"{name} {value}") for name, value in drain.set_values.items()]
        if kept:
            say.error(f"{drain.root}: what is set stays set ({', '.join(kept)}); drain again to wait on, or: {release}")
    return {drain.root: _status(drain) for drain in drains}


def _status(drain: Drain) -> int:
    assert drain.end is not None
    is_refused = drain.end == DrainEnd.LOST and isinstance(drain.error, Refused)
    return exit_status.REFUSED_BY_BROKER if is_refused else STATUS[drain.end]
