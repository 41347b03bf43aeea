"""Settings of a broker that a cause needs: known and fitting, known and different, or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
_FLUSHES = ("ASYNC_FLUSH", "SYNC_FLUSH")
_OFF = ("false", "true")
#: Settings that a cause may need: the values that brokers accept, the default first. Source: common/BrokerConfig.java,
#: store/config/MessageStoreConfig.java.
VALUES: dict[str, tuple[str, ...]] = {
    "brokerRole": _ROLES,
    "enableLmq": _OFF,
    "enableMultiDispatch": _OFF,
    "enableSlaveActingMaster": _OFF,
    "flushDiskType": _FLUSHES,
    "transRocksDBEnable": _OFF,
    "transientStorePoolEnable": _OFF,
}


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
