"""`rmqtx cursor set`: set the cursors of the transaction check in a stopped broker's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.repairs.changes.change_sets import ChangeSet
from rmqtx.repairs.changes.execution import Destination, carried_out
from rmqtx.repairs.cursors import (
    CURSOR_EFFECTS,
    KINDS,
    UNWANTED,
    Effects,
    Move,
    change_set,
    effects,
    moves,
    receipt_of_moves,
)
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.commands.declared.repair import CursorCommand
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import ALWAYS, View, plain
from rmqtx_cli.pages.headlines import check_sentence
from rmqtx_cli.sources.offline import locked_offline
from rmqtx_cli.words import say
from rmqtx_cli.words.near import did_you_mean
from rmqtx_cli.words.text import count


def run(options: CursorCommand) -> int:
    """Run the command; return its exit status."""
    _check(options.override, options.reason)
    listing = Listing(CURSOR_EFFECTS, view(), options.output.rows, voice=options.voice)
    conf = {} if options.offline.broker_conf is None else read_broker_conf(options.offline.broker_conf)
    with locked_offline(options.offline, options.voice) as (store, settings_of, destination, opened):
        wanted = moves(store, settings_of(store), conf, half=options.half, op=options.op)
        changes = change_set(store, wanted)
        for move in wanted:
            options.voice.note(_way(move))
        found = effects(store, wanted, changes, settings_of, opened)
        rows = found.rows
        listing.write(_batches(rows))
        for stop in found.stops:
            options.voice.note(f"with the new cursors {check_sentence(stop)}")
        if found.lacks:
            options.voice.note(
                f"evidence is missing or damaged ({', '.join(found.lacks)}): more transactions may be affected - "
                f"rmqtx verify {quoted(store.root)}"
            )
        if _is_refused(found, options.override or (), has_conf=options.offline.broker_conf is not None):
            return exit_status.REFUSED_BY_GUARD
        status = exit_status.INCOMPLETE if found.lacks else exit_status.DONE
        if options.dry_run:
            options.voice.note("nothing was done: --dry-run")
            return status
        if not options.yes and not agreed(f"{options.offline.warning}: set the cursors"):
            say.line("rmqtx: nothing was done")
            return exit_status.REFUSED_BY_GUARD
        receipt_id, journal = _carried_out(
            wanted, changes, store, destination, opened, options.reason, options.override or ()
        )
        options.offline.say_where(options.voice)
        options.voice.note(f"receipt {receipt_id} is in {journal}")
    return status


def _carried_out(
    wanted: Sequence[Move], changes: ChangeSet, store: Store, destination: Destination, opened: Callable[..., Store],
    reason: str | None, overrides: Sequence[str],
) -> tuple[str, Path]:
    """Set the cursors, read them back, write the receipt; return its id and its journal."""
    journal = Journal()
    with receipt_of_moves(journal, store, wanted, destination, reason=reason, overrides=overrides) as made:
        about = [f"{_way(move)} (receipt {made.receipt_id})" for move in wanted]
        about += [f"reason: {reason}"] if reason else []
        root, directories = carried_out(changes, store, destination, about, [made.receipt_id])
        made.store = root
        _prove(wanted, check_cursors(opened(root, directories)))
    return made.receipt_id, journal.path


def _check(override: Sequence[str] | None, reason: str | None) -> None:
    for name in override or ():
        if name not in UNWANTED:
            raise BadRequest(f"no effect {name!r}", advice=did_you_mean(name, list(UNWANTED)))
    if override and not (reason or "").strip():
        raise BadRequest("--override needs --reason TEXT")


def _way(move: Move) -> str:
    before = "the begin of the queue" if move.before is None else str(move.before)
    return f"cursor of {move.topic}: from {before} to {move.after}"


def _is_refused(effects: Effects, override: Sequence[str], *, has_conf: bool) -> bool:
    """Print the unwanted effects that are not overridden; return whether there are any.

    `has_conf`: the settings that decide whether the check asks a producer are known, not the defaults.
    """
    rows = effects.rows
    counts = Counter(row["kind"] for row in rows)
    found = [kind for kind in UNWANTED if counts[kind] and kind not in override]
    for kind in found:
        say.error(
            f"refused by {kind}: {count(counts[kind], 'transaction')}: {KINDS[kind]} - choose other cursors, or add "
            f"--override {kind} --reason TEXT"
        )
    is_unread = effects.unread_count > 0 and "abandoned" not in override
    if is_unread:
        say.error(
            f"refused by abandoned: {count(effects.unread_count, 'half slot')} that the cursor passes: no file of the "
            "log has the record, and whether its transaction is decided is unknown - find the missing files in a "
            "backup or on a slave, or add --override abandoned --reason TEXT"
        )
    unasked_count = sum(
        row["kind"] == "discarded-unasked" and row["state_before"] in (State.COMMITTED, State.ROLLED_BACK)
        for row in rows
    )
    is_unsure = unasked_count > 0 and not has_conf and "asked-again" not in override
    if is_unsure:
        say.error(
            f"refused by asked-again: {count(unasked_count, 'transaction')}: decided; by default settings the check "
            "discards them without asking, with a longer fileReservedTime or more checks it asks again: a second "
            "delivery is possible - add --broker-conf FILE, or --override asked-again --reason TEXT"
        )
    return bool(found) or is_unread or is_unsure


def _prove(wanted: Sequence[Move], found: Any) -> None:
    """Compare the cursors in the files with those that were set.

    Raises: AssertionError if they differ, which would be a bug.
    """
    for move in wanted:
        cursors = found.half if move.topic == HALF_TOPIC else found.op
        assert cursors is not None
        assert cursors.get(0) == move.after, _way(move)


def _batches(rows: Sequence[dict[str, object]]) -> Any:
    return iter([pa.RecordBatch.from_pylist(list(rows), schema=CURSOR_EFFECTS)] if rows else [])


def view() -> View:
    """Return the view of affected transactions."""
    return View(
        (
            plain("kind", ALWAYS), plain("transaction_id", ALWAYS), plain("topic", 4),
            plain("keys", 4, may_be_cut=True), plain("state_before", ALWAYS, "before"),
            plain("state_after", ALWAYS, "after"), plain("reason_after", 2, "why", may_be_cut=True),
        ),
        "no transaction is affected",
    )
