"""Holds and drains as a table: what is set, where, since and until when, and whether the brokers still have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import pyarrow as pa

from rmqtx.readers.model.tables import column
from rmqtx.repairs.holds.standing_holds import CHECK_MAX, REJECT, Hold, looks_drained, looks_held
from rmqtx.repairs.receipts.receipts import SettingChange


class HoldState(StrEnum):
    """Whether a hold is in force; its value is the text in tables."""

    HELD = "held"
    OVERDUE = "overdue"
    PUT_BACK = "put_back"
    CHANGED = "changed"
    UNREAD = "unread"
    UNRECORDED = "unrecorded"


#: The meaning of each.
HOLD_STATES: dict[str, str] = {
    HoldState.HELD: "the broker has the value of the hold or the drain, and the time of a hold is not over",
    HoldState.OVERDUE: "the broker has the value of the hold, and the time of the hold is over: release it",
    HoldState.PUT_BACK: "the broker has the value of before, although it was not released with this journal",
    HoldState.CHANGED: "the broker has another value than the hold or the drain set, and another than before",
    HoldState.UNREAD: "unknown: the broker was not read",
    HoldState.UNRECORDED: "the broker has a value as a hold or a drain sets it, and this journal has neither of it",
}
#: One setting of one broker that is held or drained.
HOLDS = pa.schema(
    [
        column("store", pa.string(), "the broker: NAME@HOST:PORT"),
        column("hold_state", pa.string(), f"one of {', '.join(HOLD_STATES)}", values=HOLD_STATES),
        column("setting", pa.string(), "its name in the broker's configuration"),
        column("before", pa.string(), "the value that a release puts back"),
        column("after", pa.string(), "the value that the hold or the drain set"),
        column("now", pa.string(), "the broker's present value; null if it was not read"),
        column("since_time_ms", pa.int64(), "when the hold or the drain began"),
        column("until_time_ms", pa.int64(), "when the hold should be released; null for a drain"),
        column("held_by", pa.string(), "user and host"),
        column("reason", pa.string(), "why, in the operator's words"),
        column("receipt_ids", pa.list_(pa.string()), "the receipts of the hold and the drain, oldest first"),
    ]
)


@dataclass(frozen=True, slots=True)
class HoldRow:
    """A row of HOLDS; of a value that no hold of this journal set, only the first four columns are known."""

    store: str
    hold_state: HoldState
    setting: str
    now: str | None
    before: str | None = None
    after: str | None = None
    since_time_ms: int | None = None
    until_time_ms: int | None = None
    held_by: str | None = None
    reason: str | None = None
    receipt_ids: tuple[str, ...] | None = None


def hold_rows(
    holds: Mapping[str, Hold], present: Mapping[str, Mapping[str, str] | None], now_ms: int
) -> list[HoldRow]:
    """Return the rows of HOLDS.

    `present`: the configuration of each broker that was asked; None if it could not be read.
    Order: brokers by name, settings as they were held.
    """
    rows: list[HoldRow] = []
    for root in sorted({*holds, *present}):
        hold, conf = holds.get(root), present.get(root)
        if hold is not None:
            rows += [_row(hold, one, conf, now_ms) for one in hold.settings]
        elif conf is not None:
            named = [name for name, looks in ((CHECK_MAX, looks_held), (REJECT, looks_drained)) if looks(conf)]
            rows += [HoldRow(root, HoldState.UNRECORDED, name, conf[name]) for name in named]
    return rows


def _row(hold: Hold, one: SettingChange, conf: Mapping[str, str] | None, now_ms: int) -> HoldRow:
    now = None if conf is None else conf.get(one.setting)
    return HoldRow(
        hold.store, _state(hold, one, now, now_ms), one.setting, now, one.before, one.after, hold.since_ms,
        hold.until_ms, hold.held_by, hold.reason, tuple(hold.receipt_ids),
    )


def _state(hold: Hold, one: SettingChange, now: str | None, now_ms: int) -> HoldState:
    if now is None:
        return HoldState.UNREAD
    if now == one.after:
        return HoldState.OVERDUE if is_over(hold, now_ms) else HoldState.HELD
    return HoldState.PUT_BACK if now == one.before else HoldState.CHANGED


def is_over(hold: Hold, now_ms: int) -> bool:
    """Whether the time of a hold is over."""
    return hold.until_ms is not None and now_ms > hold.until_ms


def holds_table(rows: Sequence[HoldRow]) -> pa.Table:
    """Return rows as a table. Shape: HOLDS."""
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=HOLDS)
