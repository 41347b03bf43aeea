"""Rechecks of receipts: is the effect still there, and did anything else decide the transaction?"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import TypeVar

from rmqtx.readers.model import clock
from rmqtx.readers.old_tables.beside_log import STATE_TABLE
from rmqtx.remoting.protocol.codes import COMMIT
from rmqtx.repairs.receipts.act_words import NOTHING_SENT, OF_SETTINGS, ActKind, StandingWord
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_rows import PLACE
from rmqtx.repairs.receipts.receipts import SEND, SET_CURSOR, Receipt, Recheck, whoever
from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.transaction import Copy, OpMark, Transaction
from rmqtx.verdicts.model.verdict_words import State

_Kind = TypeVar("_Kind", Copy, OpMark, FinalRecord)
Cursors = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """The result of a recheck: one of STANDINGS, and why."""

    word: StandingWord
    reason: str


def rechecked(
    receipts: Sequence[Receipt], look: Callable[[list[str]], Iterable[Transaction]],
    cursors: Callable[[], Cursors | None] | None = None, places: Callable[[], Collection[str]] = tuple,
    settings: Callable[[str], Mapping[str, str] | None] = lambda _: None,
) -> Iterator[tuple[Receipt, Standing]]:
    """Yield each receipt with its present standing.

    `look`: returns some transactions as they are now, by their ids; called once, for all that were acted on.
    `cursors`: returns the check's cursors of queue 0 by topic, None where they are unknown. `places`: returns the
    directories of the stores that are read; none for live brokers. `settings`: returns the present configuration of a
    broker; None if it was not read.
    """
    acted_on = [one.transaction_id for one in receipts if one.outcome not in NOTHING_SENT]
    ids = list(dict.fromkeys(one for one in acted_on if one is not None))
    rows: dict[str, list[Transaction]] = {}
    for row in look(ids) if ids else ():
        rows.setdefault(row.transaction_id, []).append(row)
    for receipt in receipts:
        if receipt.action in OF_SETTINGS:
            yield receipt, settings_standing(receipt, settings)
        elif receipt.action == ActKind.CURSOR_SET:
            other = receipt.outcome not in NOTHING_SENT and _is_elsewhere(receipt.store, places())
            yield receipt, (
                Standing(StandingWord.OTHER_STORE, f"the cursors of {receipt.store} were set, which was not read")
                if other else cursor_standing(receipt, None if cursors is None else cursors())
            )
        else:
            found = _row_of(receipt, rows.get(receipt.transaction_id or "", []))
            other = found is None and receipt.outcome not in NOTHING_SENT and _is_elsewhere(receipt.store, places())
            yield receipt, _elsewhere(receipt) if other else standing_of(receipt, found)


def _is_elsewhere(store: str, places: Collection[str]) -> bool:
    """Whether an act was on another directory than those that are read; what a live broker wrote may be in them."""
    return bool(places) and Path(store).is_absolute() and realpath(store) not in {realpath(place) for place in places}


def _elsewhere(receipt: Receipt) -> Standing:
    why = f"the act was on {receipt.store}, and what was read has no record of the transaction"
    return Standing(StandingWord.OTHER_STORE, why)


def record_recheck(journal: Journal, receipt: Receipt, standing: Standing) -> None:
    """Append the result of a recheck to the journal; the outcome of the act stays as recorded.

    Raises: UnwritableFile.
    """
    look = Recheck(clock.now_ms(), whoever(), standing.word, standing.reason)
    journal.recheck(receipt.receipt_id, look)
    receipt.rechecks.append(look)


def _row_of(receipt: Receipt, rows: list[Transaction]) -> Transaction | None:
    """The row of the receipt's transaction: clients make the ids, and two groups may have the same id."""
    mine = [row for row in rows if (row.producer_group, row.topic) == (receipt.producer_group, receipt.topic)]
    return next(iter(mine or rows), None)


def standing_of(receipt: Receipt, row: Transaction | None) -> Standing:
    """Return the standing of a receipt by its transaction; `row` is None where the transaction is not found."""
    if receipt.outcome in NOTHING_SENT:
        return Standing(StandingWord.NOTHING_DONE, f"nothing was done ({receipt.outcome})")
    if row is None:
        why = "there is no record of the transaction: it has expired, or is on another broker"
        return Standing(StandingWord.EXPIRED, why)
    if receipt.is_undone:  # an effect that is visible now is that of a later act
        return Standing(StandingWord.UNDONE, f"rmqtx undo reverted it; the state is now {row.state}")
    if any(request.request == SEND for request in receipt.requests):
        why = "a copy was sent, and a recheck reads no copies: search for the id in the store of the broker"
        return Standing(StandingWord.UNTOLD, why)
    effect = _effect_of(receipt)
    fresh = _fresh(receipt, row.final_records, "final_record")
    if (contradiction := _contradiction(receipt, row, effect, fresh)) is not None:
        return Standing(StandingWord.CONTRADICTED, contradiction)
    if effect == ActKind.COMMIT:
        return _committed(receipt, row, fresh)
    return _resumed(receipt, row) if effect == ActKind.RESUME else _ended(receipt, row)


def cursor_standing(receipt: Receipt, cursors: Cursors | None) -> Standing:
    """Return the standing of a receipt that set the check's cursors; a running broker moves them on."""
    if receipt.outcome in NOTHING_SENT:
        return Standing(StandingWord.NOTHING_DONE, f"nothing was done ({receipt.outcome})")
    if cursors is None:
        why = "the check's cursors are unknown here: recheck with the files of one store: --store"
        return Standing(StandingWord.UNTOLD, why)
    parts, words = [], []
    for request in receipt.requests:
        if request.request != SET_CURSOR:
            continue
        topic, after = request.fields["topic"], int(request.fields["after"])
        now = cursors.get(topic)
        found = StandingWord.STANDS if now == after else StandingWord.SETTLED_OTHERWISE
        words.append(StandingWord.NOT_SEEN if now is None else found)
        parts.append(f"the cursor of {topic} was set to {after} and is {'missing' if now is None else now}")
    if receipt.is_undone:
        return Standing(StandingWord.UNDONE, f"rmqtx undo reverted it; {'; '.join(parts)}")
    if all(word == StandingWord.STANDS for word in words):
        return Standing(StandingWord.STANDS, "; ".join(parts))
    return Standing(StandingWord.SETTLED_OTHERWISE, f"{'; '.join(parts)}: a broker moved it on, or it was set again")


def settings_standing(receipt: Receipt, settings: Callable[[str], Mapping[str, str] | None]) -> Standing:
    """Return the standing of a receipt that set a broker's settings."""
    if receipt.outcome in NOTHING_SENT:
        return Standing(StandingWord.NOTHING_DONE, f"nothing was done ({receipt.outcome})")
    present = settings(receipt.store)
    if present is None:
        why = f"the settings of {receipt.store} were not read: recheck with -n HOST:PORT or --broker HOST:PORT"
        return Standing(StandingWord.UNTOLD, why)
    parts = [
        f"{one.setting} was set to {one.after} and is {present.get(one.setting, 'not reported')}"
        for one in receipt.settings
    ]
    if all(present.get(one.setting) == one.after for one in receipt.settings):
        return Standing(StandingWord.STANDS, "; ".join(parts))
    return Standing(StandingWord.SETTLED_OTHERWISE, f"{'; '.join(parts)}: it was released, or set again")


def _effect_of(receipt: Receipt) -> ActKind:
    """The effect that the requests have: commit, rollback or resume."""
    if receipt.action in (ActKind.COMMIT, ActKind.RESUME):
        return receipt.action
    if receipt.action == ActKind.REDELIVER:
        return ActKind.COMMIT
    if receipt.action in (ActKind.ROLLBACK, ActKind.DISCARD, ActKind.CLOSE):
        return ActKind.ROLLBACK
    decisions = [entry.fields.get("commitOrRollback") for entry in receipt.requests]
    return ActKind.COMMIT if str(int(COMMIT)) in decisions else ActKind.ROLLBACK


def _contradiction(receipt: Receipt, row: Transaction, effect: ActKind, fresh: Sequence[FinalRecord]) -> str | None:
    finals = row.final_records
    if effect == ActKind.ROLLBACK and fresh:
        return f"{_where(fresh[0])} was written although the act was a rollback: consumers get the message"
    if len(finals) > 1 and fresh:
        places = ", ".join(str(final.commit_log_offset) for final in finals)
        times = len(finals)
        return f"{times} COMMIT records (commit-log offsets {places}): consumers get the message {times} times"
    is_asked_for = receipt.action == ActKind.REDELIVER
    if effect == ActKind.COMMIT and fresh and receipt.state_before == State.ROLLED_BACK and not is_asked_for:
        return f"{_where(fresh[0])} delivers what was rolled back"
    return None


def _committed(receipt: Receipt, row: Transaction, fresh: Sequence[FinalRecord]) -> Standing:
    if fresh:
        final = fresh[0]
        where = f"commit-log offset {final.commit_log_offset} in {final.topic}"
        return _stands(receipt, row, f"the only COMMIT record is at {where}")
    if row.state == State.ROLLED_BACK and receipt.state_before != State.ROLLED_BACK:
        return Standing(StandingWord.SETTLED_OTHERWISE, f"it was rolled back: {row.reason}")
    if (gone := _gone(receipt, row, "final_record", "COMMIT record")) is not None:
        return gone
    return Standing(StandingWord.NOT_SEEN, f"there is no COMMIT record of it; its state is {row.state}")


def _ended(receipt: Receipt, row: Transaction) -> Standing:
    marks = _fresh(receipt, row.op_marks, "op_mark")
    if marks:
        if marks[0].half_queue_offset is None:
            return _stands(receipt, row, f"the record at commit-log offset {marks[0].commit_log_offset} settles it")
        return _stands(receipt, row, f"the op message at queue offset {marks[0].queue_offset} settles it")
    if (gone := _gone(receipt, row, "op_mark", "op message")) is not None:
        return gone
    return Standing(StandingWord.NOT_SEEN, f"there is no op message of it; its state is {row.state}")


def _gone(receipt: Receipt, row: Transaction, kind: str, what: str) -> Standing | None:
    """The standing if the witness that proved an act is missing: expired, because logs expire from their begin, or not.

    None if no such witness was recorded.
    """
    places = [one.commit_log_offset for one in receipt.witnesses_after if one.kind == kind]
    if not places:
        return None
    older = [copy.commit_log_offset for copy in row.half_copies if copy.commit_log_offset < max(places)]
    if not older:
        return Standing(StandingWord.EXPIRED, f"the {what} that proved it no longer exists: it has expired")
    return Standing(
        StandingWord.NOT_SEEN,
        f"the {what} that proved it (commit-log offset {max(places)}) is missing, but the older half copy at "
        f"{older[0]} exists: it was undone or cut off, or this is another copy of the store; its state is "
        f"{row.state}",
    )


def _resumed(receipt: Receipt, row: Transaction) -> Standing:
    copies = _fresh(receipt, row.half_copies, "half_copy")
    if copies:
        made = f"half copy {copies[0].queue_offset} was made"
        return Standing(StandingWord.STANDS, f"{made}; the state is now {row.state}")
    return Standing(StandingWord.NOT_SEEN, f"there is no new half copy; its state is {row.state}")


def _stands(receipt: Receipt, row: Transaction, reason: str) -> Standing:
    """The standing of an effect that was found: `reopened` if the broker will check the transaction again."""
    if row.is_open and row.newest_half is not None:
        newest = row.newest_half.queue_offset
        if any(entry.kind == STATE_TABLE for entry in row.state_entries):  # 3.1: a close does not end its checks
            return Standing(StandingWord.REOPENED, f"{reason}, but the broker will check it again: {row.reason}")
        why = (
            f"{reason}, but half copy {newest} is open and the broker will check it again; to stop this: "
            f"rmqtx close {receipt.transaction_id}"
        )
        return Standing(StandingWord.REOPENED, why)
    return Standing(StandingWord.STANDS, reason)


def _fresh(receipt: Receipt, witnesses: Sequence[_Kind], kind: str) -> list[_Kind]:
    """Witnesses that are new since the act; compared without the store's name, so that a copy of the files serves."""
    before = {tuple(getattr(one, name) for name in PLACE[1:]) for one in receipt.witnesses_before if one.kind == kind}
    return [one for one in witnesses if tuple(getattr(one, name) for name in PLACE[1:]) not in before]


def _where(final: FinalRecord) -> str:
    return f"a COMMIT record at commit-log offset {final.commit_log_offset} in {final.topic}"


@dataclass(frozen=True, slots=True)
class UpdatedReceipts:
    """The number of receipts that were updated, and the ids of those that are in another journal."""

    count: int
    missing: tuple[str, ...]


def update_receipts(
    names: Sequence[str], root: str, file: str, journal: Journal, *, is_undone: bool
) -> UpdatedReceipts:
    """Record in the journal that the changes of an undo file were undone, or made again.

    `names`: ids of the undo file's receipts; `root`: its store, since only receipts of that store are updated; `file`:
    its name.
    Raises: UnwritableFile, UnreadableFile.
    """
    standing = (
        Standing(StandingWord.UNDONE, f"rmqtx undo {file} reverted it") if is_undone
        else Standing(StandingWord.STANDS, f"rmqtx undo {file} --resume completed it or made it again")
    )
    if not names:
        return UpdatedReceipts(0, ())
    known = {
        receipt.receipt_id: receipt for receipt in journal.read().receipts
        if receipt.is_of_files and os.path.realpath(receipt.store) == os.path.realpath(root)
    }
    mine = [known[name] for name in names if name in known]
    updated = 0
    for receipt in mine:
        if receipt.rechecks and receipt.rechecks[-1].standing_reason == standing.reason:
            continue  # recorded by the same command before
        record_recheck(journal, receipt, standing)
        updated += 1
    return UpdatedReceipts(updated, tuple(name for name in names if name not in known))
