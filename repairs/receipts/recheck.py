"""A second look at what receipts say was done: does the effect stand, and did anything else decide the transaction?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from readers.old_tables.beside_log import STATE_TABLE
from remoting.protocol.codes import COMMIT
from repairs.receipts.journal import Journal
from repairs.receipts.planner import PLACE
from repairs.receipts.receipts import CURSOR_SET, SET_CURSOR, TABLE_CHANGE, Receipt, whoever

Row = Mapping[str, Any]
Cursors = Mapping[str, int]
#: Outcomes after which nothing of ours can be in a store.
_NOTHING_SENT = ("refused_by_guard", "not_sent", "refused_by_broker")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a look says of a receipt: one of STANDINGS, and why."""

    word: str
    reason: str


def rechecked(
    receipts: Sequence[Receipt], look: Callable[[list[str]], Iterable[Row]],
    cursors: Callable[[], Cursors | None] | None = None,
) -> Iterator[tuple[Receipt, Standing]]:
    """Each receipt with what its transaction says of it now.

    `look`: gives fresh rows of TRANSACTIONS for some ids; it is asked once, for all that were acted on. `cursors`: the
    check's cursors of queue 0 by topic, None where they are not known.
    """
    acted_on = [one.transaction_id for one in receipts if one.outcome not in _NOTHING_SENT]
    ids = list(dict.fromkeys(one for one in acted_on if one is not None))
    rows: dict[str, list[Row]] = {}
    for row in look(ids) if ids else ():
        rows.setdefault(row["transaction_id"], []).append(row)
    for receipt in receipts:
        if receipt.action == CURSOR_SET:
            yield receipt, cursor_standing(receipt, None if cursors is None else cursors())
        elif receipt.action == TABLE_CHANGE:
            yield receipt, table_standing(receipt)
        else:
            yield receipt, standing_of(receipt, _row_of(receipt, rows.get(receipt.transaction_id or "", [])))


def write_down(journal: Journal, receipt: Receipt, standing: Standing) -> None:
    """Have the journal say what a look showed; the outcome of the act stays what was known then.

    Raises: UnwritableFile.
    """
    look = {
        "rechecked_time_ms": time.time_ns() // 1_000_000, "who": whoever(), "standing": standing.word,
        "standing_reason": standing.reason,
    }  # fmt: skip
    journal.recheck(receipt.receipt_id, look)
    receipt.rechecks.append(look)


def _row_of(receipt: Receipt, rows: list[Row]) -> Row | None:
    """The row that the receipt is about: ids are those of clients, and two groups may have the same."""
    mine = [row for row in rows if (row["producer_group"], row["topic"]) == (receipt.producer_group, receipt.topic)]
    return next(iter(mine or rows), None)


def standing_of(receipt: Receipt, row: Row | None) -> Standing:
    """What the transaction says of a receipt; `row` is None where it is not found."""
    if receipt.outcome in _NOTHING_SENT:
        return Standing("nothing_done", f"nothing was done ({receipt.outcome})")
    if row is None:
        return Standing("expired", "no record of the transaction is there: expired, or kept by another broker")
    if receipt.is_undone:  # what looks like its effect is that of another act since
        return Standing("undone", f"rmqtx undo took it back; it is {row['state']} now")
    effect = _effect_of(receipt)
    fresh = _fresh(row, receipt, "final_records", "final_record")
    if (contradiction := _contradiction(receipt, row, effect, fresh)) is not None:
        return Standing("contradicted", contradiction)
    if effect == "commit":
        return _committed(receipt, row, fresh)
    return _resumed(receipt, row) if effect == "resume" else _ended(receipt, row)


def cursor_standing(receipt: Receipt, cursors: Cursors | None) -> Standing:
    """What the check's cursors say of a receipt that set them; they go on by themselves once a broker runs."""
    if receipt.outcome in _NOTHING_SENT:
        return Standing("nothing_done", f"nothing was done ({receipt.outcome})")
    if cursors is None:
        return Standing("untold", "where the check stands is not known here: look into the store's files")
    told, words = [], []
    for request in receipt.requests:
        if request["request"] != SET_CURSOR:
            continue
        topic, after = request["fields"]["topic"], int(request["fields"]["after"])
        now = cursors.get(topic)
        word = "not_seen" if now is None else "stands" if now == after else "settled_otherwise"
        words.append(word)
        told.append(f"the cursor of {topic} was set to {after} and is {'not there' if now is None else now}")
    if receipt.is_undone:
        return Standing("undone", f"rmqtx undo took it back; {'; '.join(told)}")
    if all(word == "stands" for word in words):
        return Standing("stands", "; ".join(told))
    return Standing("settled_otherwise", f"{'; '.join(told)}: a broker went on from there, or somebody set it again")


def table_standing(receipt: Receipt) -> Standing:
    """What is known of a receipt of changed rows, whose database is not asked here."""
    if receipt.outcome in _NOTHING_SENT:
        return Standing("nothing_done", f"nothing was done ({receipt.outcome})")
    if receipt.is_undone:
        return Standing("undone", receipt.rechecks[-1]["standing_reason"])
    return Standing("untold", "rmqtx verify STORE --transaction-table URL says how table and log stand to each other")


def _effect_of(receipt: Receipt) -> str:
    """commit, rollback or resume: what the requests asked for."""
    if receipt.action in ("commit", "resume"):
        return receipt.action
    if receipt.action in ("rollback", "discard", "close"):
        return "rollback"
    decisions = [entry["fields"].get("commitOrRollback") for entry in receipt.requests]
    return "commit" if str(int(COMMIT)) in decisions else "rollback"


def _contradiction(receipt: Receipt, row: Row, effect: str, fresh: list[Row]) -> str | None:
    finals = row["final_records"]
    if effect == "rollback" and fresh:
        return f"{_where(fresh[0])} was written although it was ended by a rollback: consumers get the message"
    if len(finals) > 1 and fresh:
        places = ", ".join(str(final["commit_log_offset"]) for final in finals)
        return f"{len(finals)} COMMIT records (commit-log offsets {places}): consumers get the message as often"
    if effect == "commit" and fresh and receipt.state_before == "ROLLED_BACK":
        return f"{_where(fresh[0])} delivers what was rolled back"
    return None


def _committed(receipt: Receipt, row: Row, fresh: list[Row]) -> Standing:
    if fresh:
        return _stands(receipt, row, f"{_where(fresh[0])} is there, the only one")
    if row["state"] == "ROLLED_BACK":
        return Standing("settled_otherwise", f"it was rolled back: {row['reason']}")
    if (gone := _gone(receipt, row, "final_record", "COMMIT record")) is not None:
        return gone
    return Standing("not_seen", f"no COMMIT record of it is there; it is {row['state']}")


def _ended(receipt: Receipt, row: Row) -> Standing:
    marks = _fresh(row, receipt, "op_marks", "op_mark")
    if marks:
        if marks[0]["half_queue_offset"] is None:
            return _stands(receipt, row, f"a record at commit-log offset {marks[0]['commit_log_offset']} ended it")
        return _stands(receipt, row, f"an op message at queue offset {marks[0]['queue_offset']} ended it")
    if (gone := _gone(receipt, row, "op_mark", "op message")) is not None:
        return gone
    return Standing("not_seen", f"no op message of it is there; it is {row['state']}")


def _gone(receipt: Receipt, row: Row, kind: str, what: str) -> Standing | None:
    """What it means that a witness which proved an act is not there: logs expire from their begin."""
    places = [one["commit_log_offset"] for one in receipt.witnesses_after if one["kind"] == kind]
    if not places:
        return None
    older = [copy["commit_log_offset"] for copy in row["half_copies"] if copy["commit_log_offset"] < max(places)]
    if not older:
        return Standing("expired", f"the {what} that proved it is not there any more: expired")
    return Standing(
        "not_seen",
        f"the {what} that proved it (commit-log offset {max(places)}) is not there, though the older half copy at "
        f"{older[0]} is: undone, cut off, or another copy of the store; it is {row['state']}",
    )


def _resumed(receipt: Receipt, row: Row) -> Standing:
    copies = _fresh(row, receipt, "half_copies", "half_copy")
    if copies:
        return Standing("stands", f"half copy {copies[0]['queue_offset']} was made; it is {row['state']} now")
    return Standing("not_seen", f"no new half copy is there; it is {row['state']}")


def _stands(receipt: Receipt, row: Row, reason: str) -> Standing:
    """The effect is there; is it over, or will the broker ask again?"""
    if row["state"] == "PENDING" or "open_after_decision" in row["flags"]:
        newest = row["half_copies"][-1]["queue_offset"]
        if any(entry["kind"] == STATE_TABLE for entry in row["state_entries"]):  # of 3.1: no close ends its asking
            return Standing("reopened", f"{reason}, but the broker asks again: {row['reason']}")
        why = f"{reason}, but half copy {newest} is open: the broker asks again (rmqtx close {receipt.transaction_id})"
        return Standing("reopened", why)
    return Standing("stands", reason)


def _fresh(row: Row, receipt: Receipt, column: str, kind: str) -> list[Row]:
    """Witnesses that were not there before; compared without the store, so that a copy of the broker's files serves."""
    before = {_place(one) for one in receipt.witnesses_before if one["kind"] == kind}
    return [entry for entry in row[column] if _place(entry) not in before]


def _place(entry: Row) -> tuple[Any, ...]:
    return tuple(entry[name] for name in PLACE[1:])


def _where(final: Row) -> str:
    return f"a COMMIT record at commit-log offset {final['commit_log_offset']} in {final['topic']}"
