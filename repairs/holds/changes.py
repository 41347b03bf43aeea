"""Holds, drains and releases of brokers: plan → guard → ask → set → read back, with a receipt for each broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.store.broker_settings import BrokerSettings, reserved_time_ms
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.errors import NoAnswer, Refused, RemotingError, Unreachable
from rmqtx.repairs.acts.guards import Refusal
from rmqtx.repairs.holds.guards import SettingsSituation, hold_refusals
from rmqtx.repairs.holds.open_halves import Forecast, OpenHalf, OpenHalves, read_open_halves
from rmqtx.repairs.holds.standing_holds import (
    CHECK_MAX,
    DRAINED_OP_BATCH_MS,
    HELD_CHECK_MAX,
    OP_BATCH,
    REJECT,
    RESERVED_HOURS,
    Hold,
    looks_held,
)
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt, SettingChange
from rmqtx.verdicts.check.check_rules import is_expired

#: How long the held values last after the end of a hold, for a late release.
SPARE_MS = 24 * HOUR_MS
_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known about a broker before its settings are changed.

    Shape: `open_ids`: the transactions of the open half messages. `interval_ms`: between two rounds of the check.
           `first_discard_ms`: when the check discards the first half message with the settings as they are; None if it
           discards none. `late`: half messages that the next round discards. `unknown`: why half messages may be
           missing here. `unseen_ids`: see `OpenHalves`. `bytes_an_hour`: None if unknown.
    """

    open_ids: tuple[str, ...] = ()
    first_discard_ms: int | None = None
    late: tuple[OpenHalf, ...] = ()
    bytes_an_hour: int | None = None
    unknown: str | None = None
    unseen_ids: tuple[str, ...] = ()
    stop: str | None = None
    interval_ms: int = 0


@dataclass(slots=True)
class CheckedChange:
    """The change of one broker's settings, with the refusals of the guards.

    Shape: `changes`: the settings to set; a value that is there already is not sent. `error`: why the broker could not
           be read; then nothing is changed. `broker`: None without a connection.
    """

    root: str
    broker: Broker | None
    action: ActKind
    changes: tuple[SettingChange, ...] = ()
    refusals: list[Refusal] = field(default_factory=list)
    preview: Preview = field(default_factory=Preview)
    until_ms: int | None = None
    hold: Hold | None = None
    error: RmqtxError | None = None
    receipt: Receipt | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether the settings will be changed, or the hold recorded."""
        return self.error is None and not self.refusals and not self.is_needless

    @property
    def is_needless(self) -> bool:
        """Whether it is a hold or a drain of a broker with settings that suffice, and without one in this journal."""
        return self.error is None and not self.refusals and self.action != ActKind.RELEASE and not self.changes

    @property
    def sent(self) -> dict[str, str]:
        """The values that must be sent."""
        return {one.setting: one.after for one in self.changes if one.before != one.after}

    @property
    def sent_limits(self) -> dict[str, str]:
        """Those of them that change what the check discards."""
        return {name: value for name, value in self.sent.items() if name in (CHECK_MAX, RESERVED_HOURS)}


# -- planning ---------------------------------------------------------------------------------------------------------


def checked_hold(broker: Broker, hold: Hold | None, now_ms: int, until_ms: int) -> CheckedChange:
    """Plan the hold of one broker. `hold`: the one that the journal has; it is extended."""
    found = CheckedChange(broker.root, broker, ActKind.HOLD, until_ms=until_ms, hold=hold)
    try:
        halves = read_open_halves(broker)
        found.refusals = list(hold_refusals(_situation(found, halves)))
        if found.refusals:
            return found
        # With the settings before a hold the forecast is short, and the check reaches the same half messages.
        forecast = halves.forecast({} if hold is None else {one.setting: one.before for one in hold.settings})
        found.changes = held_settings(halves.facts.settings, halves.conf, forecast, hold, now_ms, until_ms)
        found.preview = _preview(halves, forecast, found)
    except RemotingError as error:
        found.error = error
    return found


def held_settings(
    settings: BrokerSettings, conf: Mapping[str, str], forecast: Forecast, hold: Hold | None, now_ms: int, until_ms: int
) -> tuple[SettingChange, ...]:
    """Return the settings with which the check discards nothing until a time, and those that a hold has set already."""
    rounds = -(-(until_ms + SPARE_MS - now_ms) // max(1, settings.transaction_check_interval_ms))
    most = max((half.checks_count for half in forecast.halves), default=0)
    wanted = {CHECK_MAX: max(HELD_CHECK_MAX, min(_INT_MAX, most + rounds + 1))}
    oldest_ms = min([now_ms, *(half.born_ms for half in forecast.halves)])
    if is_expired(until_ms - oldest_ms, settings.file_reserved_time_ms):
        hours = -(-(until_ms + SPARE_MS - oldest_ms) // reserved_time_ms(1))
        wanted[RESERVED_HOURS] = min(_INT_MAX, hours)
    found = []
    for name, present in ((CHECK_MAX, settings.transaction_check_max),
                          (RESERVED_HOURS, settings.file_reserved_time_hours)):
        is_held = hold is not None and hold.setting(name) is not None
        value = max(present, wanted.get(name, present))
        if name in conf and (is_held or value != present):
            found.append(SettingChange(name, conf[name], conf[name] if value == present else str(value)))
    return tuple(found)


def _preview(halves: OpenHalves, forecast: Forecast, found: CheckedChange) -> Preview:
    times = [half.discard_ms for half in forecast.halves if half.discard_ms is not None]
    stop = next(iter(halves.facts.check_stops), None)
    return Preview(
        _ids(forecast), min(times, default=None),
        () if looks_held(halves.conf) else tuple(half for half in forecast.halves if half.is_at_once),
        None if forecast.unknown else halves.bytes_an_hour(
            {one.setting: one.after for one in found.changes}, forecast.begin_ms
        ),
        forecast.unknown, halves.unseen_ids, None if stop is None else stop.place,
        halves.facts.settings.transaction_check_interval_ms,
    )


def _ids(forecast: Forecast) -> tuple[str, ...]:
    return tuple(dict.fromkeys(half.transaction_id for half in forecast.halves))


def checked_drain(broker: Broker, hold: Hold | None) -> CheckedChange:
    """Plan the drain of one broker. `hold`: the hold or drain that the journal has."""
    found = CheckedChange(broker.root, broker, ActKind.DRAIN, hold=hold)
    try:
        halves = read_open_halves(broker)
        found.refusals = list(hold_refusals(_situation(found, halves)))
        if found.refusals:
            return found
        found.changes = drain_settings(halves.facts.settings, halves.conf, hold)
        forecast = halves.forecast({})
        found.preview = replace(_preview(halves, forecast, found), late=(), bytes_an_hour=None)
    except RemotingError as error:
        found.error = error
    return found


def drain_settings(
    settings: BrokerSettings, conf: Mapping[str, str], hold: Hold | None
) -> tuple[SettingChange, ...]:
    """Return the settings with which a broker refuses half messages and soon writes its op messages.

    With those that a drain has set already.
    """
    wanted = {REJECT: "true"}
    if settings.batches_ops is not False and settings.transaction_op_batch_interval_ms > DRAINED_OP_BATCH_MS:
        wanted[OP_BATCH] = str(DRAINED_OP_BATCH_MS)
    found = []
    for name in (REJECT, OP_BATCH):
        is_drained = hold is not None and hold.setting(name) is not None
        value = wanted.get(name, conf.get(name))
        if name in conf and value is not None and (is_drained or value != conf[name]):
            found.append(SettingChange(name, conf[name], value))
    return tuple(found)


def checked_release(broker: Broker, holds: Mapping[str, Hold], overrides: Sequence[str] = ()) -> CheckedChange:
    """Plan the release of one broker: the values before the hold or the drain.

    `holds`: those of the journal, by broker.
    """
    hold = holds.get(broker.root)
    found = CheckedChange(broker.root, broker, ActKind.RELEASE, hold=hold)
    try:
        halves = read_open_halves(broker)
        if hold is not None:
            found.changes = tuple(
                SettingChange(one.setting, halves.conf.get(one.setting, ""), one.before) for one in hold.settings
            )
        forecast = halves.forecast(found.sent_limits) if found.sent_limits else Forecast()
        found.preview = Preview(
            _ids(forecast), min((half.discard_ms for half in forecast.halves if half.discard_ms), default=None),
            unknown=forecast.unknown,
        )
        situation = _situation(found, halves, forecast)
        if hold is None:
            named = tuple(root for root in holds if root.partition("@")[0] == broker.name)
            situation = replace(situation, same_name=named)
        found.refusals = list(hold_refusals(situation, overrides))
    except RemotingError as error:
        found.error = error
    return found


def _situation(found: CheckedChange, halves: OpenHalves, forecast: Forecast | None = None) -> SettingsSituation:
    facts, unknown = halves.facts, None if forecast is None else forecast.unknown
    if found.sent_limits and halves.unseen_ids and unknown is None:
        unknown = (
            f"{len(halves.unseen_ids)} in RocksDB without a decision, and the number of their checks is in a table "
            "that no request reads"
        )
    at_once = () if forecast is None else tuple(half.transaction_id for half in forecast.halves if half.is_at_once)
    return SettingsSituation(
        found.action, facts.root, halves.conf, facts.settings.version_low, facts.is_slave,
        halves.conf.get("transRocksDBEnable") == "true" or facts.rocksdb_end > facts.rocksdb_begin,
        found.hold, at_once, unknown,
    )


# -- carrying out -----------------------------------------------------------------------------------------------------


def change_settings(
    changes: Sequence[CheckedChange], journal: Journal, reason: str | None, overrides: Sequence[str] = ()
) -> list[Receipt]:
    """Change the settings of some brokers and read them back; every change has its receipt afterwards.

    The receipts of all brokers are begun before the first is changed, so that a crash in between is visible.
    Order: that of the changes. Raises: UnwritableFile before anything is done, if no receipt can be written.
    """
    journal.prepare()
    changes = [one for one in changes if not one.is_needless]
    for one in changes:
        one.receipt = Receipt(
            one.action, None, one.root, reason=reason, overrides=list(overrides), settings=list(one.changes),
            until_time_ms=one.until_ms,
        )
        if one.action == ActKind.RELEASE and one.hold is not None:
            what = f"the {'drain' if one.hold.is_drain else 'hold'}"
            one.receipt.notes.append(f"ends {what} of {', '.join(one.hold.receipt_ids)}")
    for one in changes:
        if one.is_allowed:
            journal.begin(_receipt(one))
        elif one.refusals:
            _end(one, journal, ActOutcome.REFUSED_BY_GUARD, *(str(refusal) for refusal in one.refusals))
        else:
            is_refused = isinstance(one.error, Refused)
            outcome = ActOutcome.REFUSED_BY_BROKER if is_refused else ActOutcome.NOT_SENT
            _end(one, journal, outcome, f"nothing was sent: {one.error}")
    for one in changes:
        if one.is_allowed:
            _change(one, journal)
    return [_receipt(one) for one in changes]


def _change(one: CheckedChange, journal: Journal) -> None:
    receipt, broker = _receipt(one), one.broker
    assert broker is not None
    try:
        conf = broker.config()
    except RemotingError as error:
        _end(one, journal, ActOutcome.NOT_SENT, f"nothing was sent: {error}")
        return
    moved = [
        f"{each.setting} is {conf.get(each.setting, 'not reported')}, and was {each.before} when it was shown"
        for each in one.changes if conf.get(each.setting) != each.before
    ]
    if moved:
        _end(one, journal, ActOutcome.REFUSED_BY_GUARD, f"changed-since: {'; '.join(moved)} - run the command again")
        return
    if not one.sent:
        _end(one, journal, ActOutcome.PROVED, "the broker has these values: nothing was sent")
        return
    entry = receipt.asked(RequestCode.UPDATE_BROKER_CONFIG.name, one.sent)
    try:
        answer = broker.update_config(one.sent)
        entry.answered(answer.code, answer.remark)
    except Unreachable as error:
        _end(one, journal, ActOutcome.NOT_SENT, f"nothing was sent: {error}")
        return
    except NoAnswer as error:
        receipt.notes.append(f"{error.message}; the broker may have received the request")
        answer = None
    try:
        conf = broker.config()
    except RemotingError as error:
        _end(one, journal, ActOutcome.UNKNOWN, f"the settings were not read back: {error}")
        return
    kept = [each for each in one.changes if conf.get(each.setting) != each.after]
    if not kept:
        _end(one, journal, ActOutcome.PROVED)
    elif answer is not None and len(kept) == len(one.sent) and all(
        conf.get(each.setting) == each.before for each in kept
    ):
        why = f"code {answer.code}: {answer.remark or 'no remark'}"
        if answer.is_success:
            why = f"the broker answered 0 and kept the values: {_present(kept, conf)}"
        _end(one, journal, ActOutcome.REFUSED_BY_BROKER, why)
    else:
        _end(one, journal, ActOutcome.UNKNOWN, f"read back: {_present(kept, conf)}")


def _present(changes: Sequence[SettingChange], conf: Mapping[str, str]) -> str:
    return ", ".join(f"{one.setting} is {conf.get(one.setting, 'not reported')}" for one in changes)


def _receipt(one: CheckedChange) -> Receipt:
    assert one.receipt is not None
    return one.receipt


def _end(one: CheckedChange, journal: Journal, outcome: ActOutcome, *notes: str) -> None:
    receipt = _receipt(one)
    receipt.outcome = outcome
    receipt.notes += notes
    journal.end(receipt)


def settings_to_write(
    settings: BrokerSettings, rows: pa.Table, now_ms: int, until_ms: int
) -> tuple[SettingChange, ...]:
    """Return the settings with which the check discards nothing until a time, with the values of before.

    `rows`: the open transactions of the store, of TRANSACTIONS. None if the settings suffice.
    """
    names = ["transaction_id", "checks_count", "born_time_ms", "discard_at_ms"]
    halves = tuple(
        OpenHalf(
            row["transaction_id"], row["checks_count"] or 0, now_ms if row["born_time_ms"] is None else
            row["born_time_ms"], row["discard_at_ms"], is_at_once=False,
        ) for row in rows.select(names).to_pylist()
    )
    present = {
        CHECK_MAX: str(settings.transaction_check_max), RESERVED_HOURS: str(settings.file_reserved_time_hours),
    }
    return held_settings(settings, present, Forecast(halves), None, now_ms, until_ms)
