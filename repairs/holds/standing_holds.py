"""The holds and drains that a journal has, by broker: what was set, what was there before, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.repairs.receipts.act_outcome import ActOutcome
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
#: Outcomes after which no setting was changed.
_NOTHING_SET = (ActOutcome.REFUSED_BY_GUARD, ActOutcome.NOT_SENT, ActOutcome.REFUSED_BY_BROKER)


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
        if receipt.action in (ActKind.HOLD, ActKind.DRAIN) and receipt.outcome not in _NOTHING_SET:
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
