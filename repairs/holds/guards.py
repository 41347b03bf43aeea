"""The guards of holds, drains and releases: rules that refuse to change a broker's settings, by name as for acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rmqtx.readers.model.findings import few
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, Version, dotted
from rmqtx.repairs.acts.guards import Refusal
from rmqtx.repairs.holds.standing_holds import CHECK_MAX, OP_BATCH, REJECT, Hold, looks_drained, looks_held
from rmqtx.repairs.receipts.act_words import ActKind

Found = tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class SettingsSituation:
    """One broker as it is now, and the act on its settings.

    Shape: `conf`: its present configuration. `hold`: the hold of the journal. `at_once_ids`: half messages that the
           next round would discard with the settings to put back; `at_once_unknown`: why they may be more. `same_name`:
           the held brokers of the journal with this broker's name and another address.
    """

    action: ActKind
    store: str
    conf: Mapping[str, str]
    version: Version | None = None
    is_slave: bool = False
    has_rocksdb: bool = False
    hold: Hold | None = None
    at_once_ids: tuple[str, ...] = ()
    at_once_unknown: str | None = None
    same_name: tuple[str, ...] = ()

    @property
    def check_max(self) -> str:
        """The present transactionCheckMax as text."""
        return self.conf.get(CHECK_MAX, "not reported")


def _without_check(situation: SettingsSituation) -> Found:
    """The broker discards nothing, or has no half messages of its own."""
    version = situation.version
    if situation.action == ActKind.DRAIN:
        return _without_halves(situation)
    if situation.action != ActKind.HOLD:
        return None
    if version is not None and not HALF_TOPIC_DESIGN.holds(version):
        return f"broker {dotted(version)} discards no transaction: it is older than 4.3.0", "there is nothing to hold"
    if CHECK_MAX not in situation.conf:
        return f"the broker reports no {CHECK_MAX}", "see its configuration: mqadmin getBrokerConfig"
    if situation.is_slave and not situation.has_rocksdb:
        return "the broker is a slave, and its check discards nothing", "select its master with --broker"
    return None


def _without_halves(situation: SettingsSituation) -> Found:
    version = situation.version
    if version is not None and not HALF_TOPIC_DESIGN.holds(version):
        found = f"broker {dotted(version)} is older than 4.3.0: none of its queues shows which transactions are open"
        return found, "stop the producers, wait for their decisions, then stop the broker"
    if situation.is_slave:
        return "the broker is a slave: its master gets the transactions", "select its master with --broker"
    if REJECT not in situation.conf:
        return f"the broker reports no {REJECT}", "see its configuration: mqadmin getBrokerConfig"
    return None


def _not_held(situation: SettingsSituation) -> Found:
    """The journal has no hold of the broker."""
    if situation.action != ActKind.RELEASE or situation.hold is not None:
        return None
    found = (
        f"the journal of this user has no hold of {situation.store}; its {CHECK_MAX} is {situation.check_max}, its "
        f"{REJECT} is {situation.conf.get(REJECT, 'not reported')}"
    )
    if situation.same_name:
        addresses = " or ".join(f"--broker {root.partition('@')[2]}" for root in situation.same_name)
        return f"{found}; it has one of {', '.join(situation.same_name)}", f"if that is the same broker: {addresses}"
    does = "hold" if looks_held(situation.conf) else "drain" if looks_drained(situation.conf) else None
    if does is not None:
        advice = f"another operator may {does} it: release it as that user, or with that journal: RMQTX_STATE_DIR=DIR"
        return found, advice
    return found, "list the holds: rmqtx holds"


def _setter(setting: str) -> str:
    return "the drain" if setting in (REJECT, OP_BATCH) else "the hold"


def _changed_since(situation: SettingsSituation) -> Found:
    """Another hand has changed a setting since the hold."""
    if situation.action != ActKind.RELEASE or situation.hold is None:
        return None
    changed = [
        f"{one.setting} is {situation.conf.get(one.setting, 'not reported')}, expected {one.after} "
        f"({_setter(one.setting)}) or {one.before} (before)"
        for one in situation.hold.settings
        if situation.conf.get(one.setting) not in (one.after, one.before)
    ]
    if not changed:
        return None
    return (
        f"a setting was changed after it was set: {'; '.join(changed)}",
        "ask the other operators for the reason; with an override the value before is set",
    )


def _discards_pending(situation: SettingsSituation) -> Found:
    """With the settings to put back, the next round discards open transactions."""
    if situation.action != ActKind.RELEASE or situation.hold is None:
        return None
    parts = []
    if number := len(situation.at_once_ids):
        what = "half message" if number == 1 else "half messages"
        named = few(situation.at_once_ids)
        parts.append(f"the next round of the check would discard {number} open {what}: {named}")
    if situation.at_once_unknown is not None:
        parts.append(f"unknown which half messages the check would discard: {situation.at_once_unknown}")
    if not parts:
        return None
    return (
        "; ".join(parts), "let their producers answer, or decide them (rmqtx pending lists them), then release again",
    )


@dataclass(frozen=True, slots=True)
class HoldGuard:
    """One guard; `prevents` and `risk` as in `rmqtx.repairs.acts.guards.Guard`."""

    name: str
    prevents: str
    risk: str
    refuses: Callable[[SettingsSituation], Found]
    is_absolute: bool = False


#: In the order in which they are applied.
HOLD_GUARDS: tuple[HoldGuard, ...] = (
    HoldGuard(
        "without-check",
        "a hold of a broker that discards nothing, a drain of one that gets no half messages: a slave, or a release "
        "before 4.3.0",
        "this guard has no override", _without_check, is_absolute=True,
    ),
    HoldGuard(
        "not-held", "a release without a hold or a drain: the values to put back are unknown",
        "this guard has no override", _not_held, is_absolute=True,
    ),
    HoldGuard(
        "changed-since", "overwriting a setting that another operator has changed since the hold or the drain",
        "the value of the other operator is lost", _changed_since,
    ),
    HoldGuard(
        "discards-pending", "a release after which the next round of the check discards open transactions",
        "they are discarded, and no producer is asked", _discards_pending,
    ),
)
HOLD_GUARD_NAMES = tuple(guard.name for guard in HOLD_GUARDS)
#: Guards that cannot be overridden.
ABSOLUTE_HOLD_GUARDS = frozenset(guard.name for guard in HOLD_GUARDS if guard.is_absolute)


def hold_refusals(situation: SettingsSituation, overridden: Iterable[str] = ()) -> Iterator[Refusal]:
    """Yield the refusal of every guard that refuses, except those overridden by name. Order: that of HOLD_GUARDS."""
    passed = set(overridden) - ABSOLUTE_HOLD_GUARDS
    for guard in HOLD_GUARDS:
        if guard.name not in passed and (found := guard.refuses(situation)) is not None:
            yield Refusal(guard.name, *found)
