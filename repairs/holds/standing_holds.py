"""The holds and drains that a journal has, by broker, and as a table.

They have what was set, what was there before, since and until when; the table also has whether the brokers still have
the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import pyarrow as pa

from rmqtx.readers.model.tables import column
from rmqtx.repairs.receipts.act_words import NOTHING_SENT, ActKind, ActOutcome
from rmqtx.repairs.receipts.receipts import Receipt, SettingChange

#: The settings that a hold raises.
CHECK_MAX, RESERVED_HOURS = "transactionCheckMax", "fileReservedTime"
#: A hold sets at least this transactionCheckMax: 347 days of checks every 30 s.
HELD_CHECK_MAX = 1_000_000
#: A limit of this or more was set on purpose, and is not a hold's: so that monitoring recognises one by its setting.
_HELD_BELOW = 10 * HELD_CHECK_MAX
#: The settings of a drain: half messages are refused, and op messages are written after a short time.
REJECT, OP_BATCH = "rejectTransactionMessage", "transactionOpBatchInterval"
#: With a drain op messages are written every 100 ms. Never 0: the broker's thread that writes them would not rest.
DRAINED_OP_BATCH_MS = 100
#: Outcomes after which the settings were set: `contradicted` is a hold before which something was discarded.
_READ_BACK = (ActOutcome.PROVED, ActOutcome.CONTRADICTED)


@dataclass(frozen=True, slots=True)
class Hold:
    """What holds or drains one broker and was not released, of one or more receipts.

    Shape: `settings`: the value to put back, and the one that the last receipt set. `is_sure`: the settings of each of
           its acts were read back; else one may have been changed or not.
    Units: epoch milliseconds.
    """

    store: str
    settings: tuple[SettingChange, ...]
    since_ms: int
    until_ms: int | None
    held_by: str
    reason: str | None
    receipt_ids: tuple[str, ...]
    is_sure: bool

    @property
    def is_drain(self) -> bool:
        """Whether the broker is drained, alone or beside a hold."""
        return self.setting(REJECT) is not None or self.setting(OP_BATCH) is not None

    def setting(self, name: str) -> SettingChange | None:
        """Return the change of a setting; None if the hold does not change it."""
        return next((one for one in self.settings if one.setting == name), None)


def standing_holds(receipts: Iterable[Receipt]) -> dict[str, Hold]:
    """Return the holds and drains that were not released: one for each broker, with the settings of both.

    `receipts`: all of a journal, oldest first. A release that is not proved ends no hold.
    """
    found: dict[str, Hold] = {}
    for receipt in receipts:
        if receipt.action in (ActKind.HOLD, ActKind.DRAIN) and receipt.outcome not in NOTHING_SENT:
            found[receipt.store] = _with(found.get(receipt.store), receipt)
        elif receipt.action == ActKind.RELEASE and receipt.outcome == ActOutcome.PROVED:
            found.pop(receipt.store, None)
    return found


def _with(earlier: Hold | None, receipt: Receipt) -> Hold:
    """Return a hold with one more receipt; the value before is that before the first one, or what was set since."""
    settings = {} if earlier is None else {one.setting: one for one in earlier.settings}
    for one in receipt.settings:
        known = settings.get(one.setting)
        before = one.before if known is None or one.before != known.after else known.before
        settings[one.setting] = SettingChange(one.setting, before, one.after)
    until_ms, reason = receipt.until_time_ms, receipt.reason
    if receipt.action == ActKind.DRAIN and earlier is not None:  # a drain has no end of its own, and may have no reason
        until_ms, reason = earlier.until_ms, reason or earlier.reason
    return Hold(
        receipt.store, tuple(settings.values()),
        receipt.begun_time_ms if earlier is None else earlier.since_ms, until_ms, receipt.who, reason,
        (*(() if earlier is None else earlier.receipt_ids), receipt.receipt_id),
        receipt.outcome in _READ_BACK and (earlier is None or earlier.is_sure),
    )


def looks_held(conf: Mapping[str, str]) -> bool:
    """Whether a configuration has a transactionCheckMax as a hold sets it."""
    value = conf.get(CHECK_MAX, "")
    return value.isdecimal() and HELD_CHECK_MAX <= int(value) < _HELD_BELOW


def looks_drained(conf: Mapping[str, str]) -> bool:
    """Whether a configuration refuses half messages and has a transactionOpBatchInterval as a drain sets it.

    False for a drained broker before 5.1.0, which has no such interval: half messages may be refused there on purpose.
    """
    return conf.get(REJECT) == "true" and conf.get(OP_BATCH) == str(DRAINED_OP_BATCH_MS)


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
