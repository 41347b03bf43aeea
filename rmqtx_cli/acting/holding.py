"""Shared code of `hold`, `drain` and `release`: the text before the question, the question, receipts, exit status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.findings import few
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.repairs.holds.after_a_round import discarded_meanwhile, round_wait_ms
from rmqtx.repairs.holds.changes import CheckedChange, change_settings
from rmqtx.repairs.holds.guards import ABSOLUTE_HOLD_GUARDS, HOLD_GUARD_NAMES
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.receipts import RECEIPTS, status_of, table
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.next_commands import with_places
from rmqtx_cli.options.options import ReceiptOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import settings_view
from rmqtx_cli.pages.headlines import in_text
from rmqtx_cli.words import say
from rmqtx_cli.words.near import did_you_mean
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, size
from rmqtx_cli.words.times import duration_text, time_text

if TYPE_CHECKING:
    from rmqtx.repairs.receipts.journal import Journal


def check_overrides(override: Sequence[str] | None, reason: str | None) -> tuple[str, ...]:
    """Return the guards to override. Raises: BadRequest for an unknown guard, one without an override, or no reason."""
    for name in override or ():
        if name not in HOLD_GUARD_NAMES:
            raise BadRequest(f"no guard {name!r} here", advice=did_you_mean(name, list(HOLD_GUARD_NAMES)))
        if name in ABSOLUTE_HOLD_GUARDS:
            raise BadRequest(f"guard {name} cannot be overridden", advice="leave that broker out: --broker")
    if override and not (reason or "").strip():
        raise BadRequest("--override needs --reason TEXT")
    return tuple(dict.fromkeys(override or ()))


def settings_listing(output: ReceiptOptions, voice: Voice) -> Listing:
    """The listing of receipts of holds, drains and releases."""
    return Listing(RECEIPTS, settings_view(), output.rows, voice=voice)


def print_change(one: CheckedChange, now_ms: int, voice: Voice) -> None:
    """Print what will be done to one broker and what follows, or why it will not be done."""
    root, found = one.root, one.preview
    for refusal in one.refusals:
        say.error(f"{root}: refused by {with_places(str(refusal))}")
    if one.error is not None:
        say.error(f"{root}: {one.error}")
    if one.is_needless and one.action == ActKind.DRAIN:
        voice.note(
            f"{root}: it refuses half messages already, and the journal has no drain of it: nothing to change; rmqtx "
            "release does not end that"
        )
    elif one.is_needless:
        voice.note(
            f"{root}: its limits are higher already: nothing to change; the journal has no hold of it, so another "
            "operator may put the limits back"
        )
    if not one.is_allowed:
        return
    for change in one.changes:
        is_there = change.before == change.after
        voice.note(f"{root}: {f'{change.setting} stays {change.after}' if is_there else change.words}")
    for line in _LINES[one.action](one, now_ms):
        voice.note(f"{root}: {line}")
    if one.sent:
        voice.note(
            f"{root}: the broker writes all its settings into the file that was given with -c: without comments, with "
            "each default as a line; the file of before is kept beside it as .bak"
        )
    if found.unknown is not None:
        voice.note(f"{root}: unknown which half messages are open: {found.unknown}")


def _hold_lines(one: CheckedChange, now_ms: int) -> list[str]:
    found = one.preview
    lines = []
    if found.unknown is None:
        first = ""
        if found.open_ids and (one.hold is None or one.hold.until_ms is None):
            first = "; the check would discard none of them"
            if found.first_discard_ms is not None:
                when = f"{time_text(found.first_discard_ms)}, {in_text(found.first_discard_ms, now_ms)}"
                first = f"; without the hold the check discards the first at {when}"
        lines.append(f"{count(len(found.open_ids), 'open half message')}{first}")
    written = "" if found.bytes_an_hour is None else f", at most {size(found.bytes_an_hour)} an hour"
    lines.append(f"the checks go on: each one writes a copy of each open half message{written}")
    if any(change.setting == "fileReservedTime" for change in one.changes):
        lines.append(
            "half messages near fileReservedTime would be discarded unasked; with a longer one old files stay on the "
            "disk until the release: watch its free space"
        )
    if late := found.late:
        named = few([half.transaction_id for half in late])
        lines.append(
            f"may be too late for {count(len(late), 'half message')}, which the next round of the check discards "
            f"without the hold: {named}"
        )
    if unseen := len(found.unseen_ids):
        lines.append(
            f"{count(unseen, 'half message')} without a decision in RocksDB: how many of their checks are used is "
            "unknown, so the hold may be too late for some; their slaves check and drop them too: hold these with "
            "--broker HOST:PORT"
        )
    if found.stop is not None:
        lines.append(f"the check is stopped at {found.stop}: it asks and discards nothing behind that")
    return lines


def _drain_lines(one: CheckedChange, now_ms: int) -> list[str]:
    found = one.preview
    lines = []
    if not any(change.setting == "rejectTransactionMessage" for change in one.changes):
        lines.append(
            "it refuses half messages already, and the journal has no drain of it: rmqtx release does not end that"
        )
    lines.append(
        "producers that send a transaction get response 16 (sending transaction message is forbidden) and run no local "
        "transaction; ordinary messages, decisions and checks go on"
    )
    if any(change.setting == "transactionOpBatchInterval" and change.before != change.after for change in one.changes):
        lines.append("the broker writes op messages within a fraction of a second, so that a stop loses none")
    if found.unknown is None:
        first = ""
        if found.first_discard_ms is not None:
            when = f"{time_text(found.first_discard_ms)}, {in_text(found.first_discard_ms, now_ms)}"
            first = f"; the check discards the first at {when}, if no producer answers (rmqtx hold keeps it)"
        lines.append(f"{count(len(found.open_ids), 'open half message')}{first}")
    if unseen := len(found.unseen_ids):
        lines.append(f"{count(unseen, 'half message')} without a decision in RocksDB: decide those that it has dropped")
    if found.stop is not None:
        lines.append(f"the check is stopped at {found.stop}: it asks nothing behind that, so decide these transactions")
    return lines


def _release_lines(one: CheckedChange, _now_ms: int) -> list[str]:
    found = one.preview
    if not one.sent:
        return ["the settings are those of before: nothing is sent, and the hold or the drain ends"]
    lines = ["the broker accepts transactions again"] if one.sent.get("rejectTransactionMessage") == "false" else []
    if one.sent_limits and found.unknown is None:
        lines.append(f"{count(len(found.open_ids), 'open half message')} after the release")
    return lines


_LINES: dict[ActKind, Callable[[CheckedChange, int], list[str]]] = {
    ActKind.HOLD: _hold_lines, ActKind.DRAIN: _drain_lines, ActKind.RELEASE: _release_lines,
}


@dataclass(frozen=True, slots=True)
class ChangeOrders:
    """How settings are changed: why, against which guards, whether it is only shown, whether it is confirmed.

    `wait`: also wait for a round of the check after a hold, and record what was discarded before it.
    """

    reason: str | None
    overrides: Sequence[str] = ()
    dry_run: bool = False
    yes: bool = False
    wait: bool = False


def carry_out_changes(
    changes: Sequence[CheckedChange], journal: Journal, orders: ChangeOrders, question: str, listing: Listing,
    then: Callable[[], Mapping[str, int]] = dict,
) -> int:
    """Ask for confirmation, change the settings, print the receipts; returns the exit status.

    `then`: called after the changes, before the receipts are printed; returns the status of brokers, instead of that of
    their changes.
    Raises: BadRequest without a terminal to ask on; UnwritableFile if no receipt can be written.
    """
    voice, allowed = listing.voice, [one for one in changes if one.is_allowed]
    if orders.dry_run:
        voice.note(f"nothing was done: --dry-run ({count(len(allowed), 'broker')} would be changed)")
        return exit_status.combined(map(_status_before, changes))
    if allowed and not orders.yes and not agreed(f"{question} of {count(len(allowed), 'broker')}"):
        say.line("rmqtx: nothing was done")
        return exit_status.REFUSED_BY_GUARD
    receipts = change_settings(changes, journal, orders.reason, orders.overrides)
    if orders.wait and (wait_ms := round_wait_ms(changes)):
        voice.note(
            f"set and read back; waiting {duration_text(wait_ms)} for a round of the check (an interrupt does not end "
            "the hold)"
        )
        discarded_meanwhile(changes, journal, wait_ms, voice.note)
    waited = then()
    try:
        listing.write(iter(table(receipts).to_batches()))
    finally:  # also if the receipts cannot be printed: what was done is done
        for receipt in (one.receipt for one in allowed if one.receipt is not None):  # others are printed before
            if receipt.outcome != ActOutcome.PROVED:
                say.error(f"{receipt.store}: {receipt.outcome}: {'; '.join(receipt.notes)}")
        voice.note(f"receipts are in {journal.path}")
    if exit_status.INTERRUPTED in waited.values():
        return exit_status.INTERRUPTED
    needless = [waited.get(one.root, exit_status.DONE) for one in changes if one.is_needless]
    of_receipts = (waited.get(one.store) or status_of([one], is_proof_wanted=True) for one in receipts)
    return exit_status.combined([*needless, *of_receipts])


def _status_before(one: CheckedChange) -> int:
    if one.error is not None:
        return exit_status.REFUSED_BY_BROKER if isinstance(one.error, Refused) else exit_status.UNREACHABLE
    return exit_status.REFUSED_BY_GUARD if one.refusals else exit_status.DONE
