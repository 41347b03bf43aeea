"""A cause of unusual transactions, as a value: releases and settings that have it, its rule, its rivals, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.releases import ALWAYS, LAST_OF_LINES, Change, Version, dotted, release_text
from rmqtx.readers.store.broker_conf import WORDS
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.model.group_habits import Members
from rmqtx.verdicts.model.store_evidence import FILES, StoreEvidence
from rmqtx.verdicts.model.verdict_words import Strength

_OFF = ("false", "true")
#: Settings that a cause may need: the values that brokers accept, the default first. Source: common/BrokerConfig.java,
#: store/config/MessageStoreConfig.java.
VALUES: dict[str, tuple[str, ...]] = {
    **WORDS,
    "enableLmq": _OFF,
    "enableMultiDispatch": _OFF,
    "enableSlaveActingMaster": _OFF,
    "transRocksDBEnable": _OFF,
    "transientStorePoolEnable": _OFF,
}
#: How far the records of each transaction support a cause: NONE, FITS or PROVES.
Support = npt.NDArray[np.int8]
NONE, FITS, PROVES = 0, 1, 2

STRENGTHS: dict[Strength, str] = {
    Strength.EXPLAINS: "the records show it, the release of the broker is known to behave so, and no other cause "
    "leaves the same records",
    Strength.COULD_EXPLAIN: "the records fit, and something is unknown: the release, a setting, or which of several "
    "causes it was; would_decide names what decides it",
    Strength.RULED_OUT: "the records would fit, but this release of the broker, or its configuration, does not behave "
    "so",
}
#: The command that asks the application.
RECONCILE = "rmqtx reconcile STORE --ledger FILE --match 'keys = NAME' --done EXPR --not-done EXPR"
#: What an advice to upgrade to OP_THREAD_SPINS adds.
OP_THREAD_NOTE = (
    "from 5.5.0 on the thread for op messages uses a whole core after the first decision (upstream issue #10966, open "
    "in 5.5.1)"
)
#: What an advice to upgrade to SLAVE_REFUSES_TYPES or SLAVE_DELETES_TOPICS adds.
SLAVE_NOTE = (
    "for slaves 5.5.0 or later: those of 5.3.2 and 5.3.3 refuse topics with attributes, those of 5.3.4 and 5.4.0 "
    "delete their topics at each synchronisation"
)


@dataclass(frozen=True, slots=True)
class Need:
    """A setting that a cause needs, with the values that fit."""

    key: str
    fitting: tuple[str, ...]

    @property
    def default(self) -> str:
        """The value without a line in broker.conf."""
        return VALUES[self.key][0]

    @property
    def text(self) -> str:
        """The setting as text: "transientStorePoolEnable true (default: false)"."""
        return f"{self.key} {' or '.join(self.fitting)} (default: {self.default})"

    def holds(self, conf: Mapping[str, str] | None) -> bool | None:
        """Whether a configuration fits; None if the configuration is unknown.

        Source: common/MixAll.java properties2Object; a switch other than `true` is off, another unknown word leaves the
        default.
        """
        if conf is None:
            return None
        value = conf.get(self.key, self.default)
        if VALUES[self.key] is _OFF:
            value = "true" if value.lower() == "true" else "false"
        return (value if value in VALUES[self.key] else self.default) in self.fitting


def need(key: str, *fitting: str) -> Need:
    """Return a need; without values the switch must be on."""
    return Need(key, fitting or ("true",))


def all_hold(needs: Iterable[Need], conf: Mapping[str, str] | None) -> bool | None:
    """Whether a configuration fits all needs; None if that is unknown."""
    found = [one.holds(conf) for one in needs]
    return False if False in found else None if None in found else True


@dataclass(frozen=True, slots=True)
class Cause:
    """Why transactions are unusual.

    Shape: `word`: stable name. `affected`: the releases that behave so, each range with its source. `rule`: for each
           transaction, how far its records support the cause. `decides`: what would turn a fitting rule into a proof,
           where the rule leaves something open. `needs`: settings without which the broker does not behave so.
           `fits_uneventful`: whether the rule may fit transactions of `Evidence.is_uneventful`; the other rules are
           applied to the rest only.
           `shows_in`: where it shows, of SOURCES; if none of them was read, the cause only could explain.
           `contradicted`: for a cause of whole producer groups, which only could explain, the transactions that exclude
           it for their group; `of_group`: whether what is known of all producers of a group allows it, instead of a
           number of transactions. `rivals`: causes that, if they fit the same transaction, leave open which it was.
           `act`: what to do now. `change`: what to configure or upgrade. `shown_by`: stores of the corpus whose history
           has it.
    """

    word: str
    title: str
    affected: tuple[Change, ...]
    rule: Callable[[Evidence], Support]
    consequence: str
    act: str
    change: str
    shown_by: tuple[str, ...]
    decides: str = ""
    needs: tuple[Need, ...] = ()
    shows_in: tuple[str, ...] = (FILES,)
    contradicted: Callable[[Evidence], Bools] | None = None
    of_group: Callable[[Members], bool] | None = None
    rivals: tuple[str, ...] = ()
    fits_uneventful: bool = False

    @property
    def releases(self) -> str:
        """The affected releases as text: "4.3.0 to 4.5.1"."""
        return "; ".join(map(releases_text, self.affected))

    def affects(self, low: Version | None, high: Version | None) -> bool | None:
        """Whether the releases within bounds behave so; None if some do and others do not, or if no bound is known."""
        if all(one.since == ALWAYS and one.until is None and not one.but for one in self.affected):
            return True
        if low is None and high is None:
            return None
        found = [one.between(low, high) for one in self.affected]
        return True if True in found else None if None in found else False

    def applies(self, facts: StoreEvidence) -> bool | None:
        """Whether a broker behaves so, by its release and its configuration; None if that is unknown."""
        found = (self.affects(facts.version_low, facts.version_high), all_hold(self.needs, facts.conf))
        return False if False in found else None if None in found else True

    def unknown_settings(self, facts: StoreEvidence) -> list[str]:
        """Return the settings that it needs and that are unknown."""
        return [one.key for one in self.needs if one.holds(facts.conf) is None]

    def is_seen(self, facts: StoreEvidence) -> bool:
        """Whether a place where it shows was read."""
        return not facts.read.isdisjoint(self.shows_in)


def proves(rows: Bools) -> Support:
    """Return PROVES for the chosen transactions."""
    return np.where(rows, PROVES, NONE).astype(np.int8)


def fits(rows: Bools, proven: Bools | None = None) -> Support:
    """Return FITS for the chosen transactions, PROVES for the proven ones."""
    found = np.where(rows, FITS, NONE).astype(np.int8)
    if proven is not None:
        found[proven] = PROVES
    return found


def releases_text(affected: Change) -> str:
    """Return the releases with a behaviour as text.

    A release in between that does not have it is named: "5.0.0 and later, not 5.1.0".
    """
    begin = None if affected.since == ALWAYS else dotted(affected.since)
    end = None if affected.until is None else release_text(_last_before(affected.until))
    if begin is None:
        text = "all releases" if end is None else f"up to {end}"
    elif begin == end:
        text = begin
    else:
        text = f"{begin} and later" if end is None else f"{begin} to {end}"
    return f"{text}, not {', '.join(map(dotted, affected.but))}" if affected.but else text


def _last_before(version: Version) -> Version:
    """Return the last known release before another one."""
    line = [last for last in LAST_OF_LINES if last[:2] == version[:2]]
    if line and version[2]:
        return version[0], version[1], version[2] - 1
    return max(last for last in LAST_OF_LINES if last < version)
