"""The settings and the version of a store's broker, from the store and from the operator; the rest are defaults.

A broker's configuration is not in its store. The operator can give it (broker.conf, or the output of mqadmin
getBrokerConfig); other settings have the default of the version. The version is given, or bounded by files that only
some versions write. The origin of every value is kept, because verdicts depend on some of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.model.releases import (
    ALWAYS,
    DEFAULTS,
    DISCARD_COPY,
    HALF_TOPIC_DESIGN,
    LAST_BEFORE_OP_LISTS,
    OP_LISTS,
    Change,
    Version,
    dotted,
    parse_version,
    release_before,
)
from rmqtx.readers.store.store import Store
from rmqtx.readers.store.version_signs import RUST, at_least, at_most, rewritten_since, rust_mark, set_back

_Bounds = tuple[Version | None, Version | None, dict[str, str]]
#: A given version; whether there are op messages with lists; whether the discard topic has a record.
_Asked = tuple[str | None, bool | None, bool | None]

FROM_CONF = "broker.conf"
FROM_BROKER = "from the broker"


@dataclass(frozen=True, slots=True)
class _Setting:
    """A key of the configuration, and the number of bits of its value."""

    key: str
    bits: int = 32

    @property
    def defaults(self) -> tuple[tuple[Version, int], ...]:
        """The defaults of the setting, each with its first release, oldest first."""
        return DEFAULTS[self.key]


#: Field of BrokerSettings → its key in the configuration. Source: docs/formats/store.md#segments,
#: docs/formats/cursors.md#settings.
_SETTINGS: dict[str, _Setting] = {
    "transaction_time_out_ms": _Setting("transactionTimeOut", 64),
    "transaction_check_max": _Setting("transactionCheckMax"),
    "transaction_check_interval_ms": _Setting("transactionCheckInterval", 64),
    "transaction_op_batch_interval_ms": _Setting("transactionOpBatchInterval"),
    "file_reserved_time_hours": _Setting("fileReservedTime"),
    "max_hash_slots": _Setting("maxHashSlotNum"),
    "max_index_entries": _Setting("maxIndexNum"),
}


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The configuration and version of a store's broker; None is unknown.

    Shape: `origin` has the origin of the value of every other field; `defaults` lists the fields that were not given
           and have the same default in every possible release. `given`: the whole configuration as given or reported;
           None if unknown. `batches_ops`: the broker holds op messages in memory for up to
           transaction_op_batch_interval_ms (5.1.0+). `writes_discard_copy`: the broker writes a copy to the
           discard topic when it discards a half message (4.5.2+).
    Units: as the names say; versions are (5, 1, 4).
    """

    version_low: Version | None
    version_high: Version | None
    transaction_time_out_ms: int
    transaction_check_max: int
    transaction_check_interval_ms: int
    transaction_op_batch_interval_ms: int
    file_reserved_time_hours: int
    max_hash_slots: int
    max_index_entries: int
    broker_role: str
    writes_discard_copy: bool | None
    batches_ops: bool | None
    origin: Mapping[str, str] = field(default_factory=dict, hash=False)
    defaults: tuple[str, ...] = ()
    given: Mapping[str, str] | None = field(default=None, hash=False)

    @property
    def file_reserved_time_ms(self) -> int:
        """How long files, and half messages in the half topic, are kept."""
        return reserved_time_ms(self.file_reserved_time_hours)

    @property
    def check_max_is_configured(self) -> bool:
        """Whether transaction_check_max was given, not assumed."""
        return self.origin.get("transaction_check_max") in (FROM_CONF, FROM_BROKER)

    @property
    def checks_show_limit(self) -> bool:
        """Whether the most checks of a half copy can be the limit: it was not given, and no discard copy shows it."""
        return self.writes_discard_copy is not True and not self.check_max_is_configured

    @property
    def known_version(self) -> Version | None:
        """The version, if only one is possible."""
        return self.version_low if self.version_low == self.version_high else None

    def is_default(self, name: str) -> bool:
        """Whether the value of a field is a default and was not given."""
        return self.origin.get(name, FROM_CONF) not in (FROM_CONF, FROM_BROKER)

    @property
    def version(self) -> str:
        """The version as text, or its known bounds."""
        low, high = self.version_low, self.version_high
        if self.known_version is not None:
            return dotted(self.known_version)
        parts = [] if low is None else [f"{dotted(low)} or later"]
        parts += [] if high is None else [f"{dotted(high)} or earlier"]
        return " and ".join(parts) or "of an unknown version"

    @property
    def broker(self) -> str:
        """The version as text, or its known bounds; for rocketmq-rust, the releases by whose rules it is read."""
        return self.version if self.rust_mark is None else f"{RUST}, read as {self.version}"

    @property
    def rust_mark(self) -> str | None:
        """The file that shows that rocketmq-rust ran on the store; None if no file does."""
        return self.origin.get("rust")

    def describe(self) -> str:
        """Return one line: the version and its origin, then every setting that verdicts depend on with its origin.

        The check's settings are left out where the broker is older than the check (4.3.0).
        """
        return "; ".join([self._broker(), *self._settings()])

    @property
    def version_with_reasons(self) -> str:
        """The version or its known bounds, and what shows them: "5.1.0 or later (op messages with lists)"."""
        reasons = dict.fromkeys(self.origin[name] for name in ("version_low", "version_high") if name in self.origin)
        return f"{self.version} ({', '.join(reasons)})" if reasons else self.version

    def describe_briefly(self) -> str:
        """Return the version, and how many settings are assumed."""
        assumed = sum(self.is_default(name) for name in self._shown() if name not in self.defaults)
        broker = self._broker(with_origin=False)
        return f"{broker}; {assumed} setting{'s' if assumed > 1 else ''} assumed (--verbose)" if assumed else broker

    def _broker(self, *, with_origin: bool = True) -> str:
        names = [name for name in ("rust", "version_low", "version_high") if with_origin and name in self.origin]
        causes = dict.fromkeys(self.origin[name] for name in names)
        known = f"broker {self.broker}" + (f" ({', '.join(causes)})" if causes else "")
        return known + (f", previously {self.origin['once']}" if "once" in self.origin else "")

    def _shown(self) -> list[str]:
        has_check = self.version_high is None or HALF_TOPIC_DESIGN.holds(self.version_high)
        return list(_SETTINGS)[:5] if has_check else ["file_reserved_time_hours"]

    def _settings(self) -> list[str]:
        groups: dict[str, list[str]] = {}
        for name in self._shown():
            groups.setdefault(self.origin.get(name, "given"), []).append(f"{_SETTINGS[name].key} {getattr(self, name)}")
        return [f"{origin}: {', '.join(values)}" for origin, values in groups.items()]


def broker_settings(
    store: Store, *, conf: Mapping[str, str] | None = None, version: str | None = None,
    has_op_lists: bool | None = None, is_next: bool = False,
) -> BrokerSettings:
    """Return the settings of a store's broker. Reads small files of the store only, never its log.

    `conf`: keys and values of its configuration. `version`: its version; with `is_next` the one that starts next on the
    store, which any version may. `has_op_lists`: whether there are op messages with lists of numbers; False: there are
    op messages, and none has a list.
    Raises: BadRequest if `version` is not a version.
    """
    low, high, origin = _bounds(store, None if is_next else version, has_op_lists)
    if is_next and version is not None:
        low = high = known_version(version)
        origin = {"version_low": "given", "version_high": "given", **_rust(store)}
    return _settings(conf or {}, low, high, dict(origin))


def settings_of_conf(conf: Mapping[str, str], version: str | None = None) -> BrokerSettings:
    """Return the settings of a broker with this configuration, without a store. `version`: its version.

    Raises: BadRequest if `version` is not a version.
    """
    exact = None if version is None else parse_version(version)
    return _settings(conf, exact, exact, {})


def settings_of_broker(conf: Mapping[str, str], version: str) -> BrokerSettings:
    """Return the settings of a live broker from the configuration and version that it reported.

    Raises: BadRequest if `version` is not a version.
    """
    exact = parse_version(version)
    settings = _settings(conf, exact, exact, {"version_low": FROM_BROKER, "version_high": FROM_BROKER})
    origin = {name: FROM_BROKER if cause == FROM_CONF else cause for name, cause in settings.origin.items()}
    return replace(settings, origin=origin)


def _settings(
    conf: Mapping[str, str], low: Version | None, high: Version | None, origin: dict[str, str]
) -> BrokerSettings:
    values: dict[str, Any] = {}
    for name, setting in _SETTINGS.items():
        values[name], origin[name] = _value(setting, conf, low, high)
    defaults = tuple(
        name for name, setting in _SETTINGS.items()
        if setting.key not in conf and len(_possible_defaults(setting, low, high)) == 1
    )
    batches, batches_why = _since(OP_LISTS, low, high)
    if batches is False:  # a broker of this version ignores the key
        values["transaction_op_batch_interval_ms"] = 0
        origin["transaction_op_batch_interval_ms"] = f"brokers before {dotted(OP_LISTS.since)} write ops immediately"
    copies, copies_why = _since(DISCARD_COPY, low, high)
    origin |= {"batches_ops": batches_why, "writes_discard_copy": copies_why}
    role = conf.get("brokerRole", "")
    is_given = role in ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
    origin["broker_role"] = FROM_CONF if is_given else "default"
    return BrokerSettings(
        version_low=low,
        version_high=high,
        broker_role=role if is_given else "ASYNC_MASTER",
        writes_discard_copy=copies,
        batches_ops=batches,
        origin=origin,
        defaults=defaults,
        given=conf or None,
        **values,
    )


def known_version(text: str) -> Version:
    """Return the known release that a version is, or the one before it.

    Raises: BadRequest if the text is not a version, or is older than all releases.
    """
    exact = parse_version(text)
    known = release_before(exact)
    if known is None:
        raise BadRequest(f"broker version {dotted(exact)} is not known", advice="give a version like 5.1.4")
    return known


def given_version(store: Store, text: str) -> tuple[Version, str]:
    """Return the version that an operator gives, and a text on its origin.

    An unknown release is treated as the known release before it. A version that is older or newer than the files
    indicate is accepted: a broker may have been downgraded, or may be upgraded next.
    Raises: BadRequest if the text is not a version, or is older than the broker that wrote the store last.
    """
    exact, known = parse_version(text), known_version(text)
    written = list(rewritten_since(store))
    if written and known < max(written)[0]:
        since, name = max(written)
        raise BadRequest(
            f"--broker-version {text.strip()} contradicts {store.root}: {name} was written by a broker "
            f"{dotted(since)} or later",
            advice="omit --broker-version, or give the version that wrote the store last",
        )
    origins = ["given"] if known == exact else [f"given as {dotted(exact)}, which rmqtx does not know"]
    low, high, origin = _bounds(store, None, None)
    if "once" in origin:
        origins.append(f"previously {origin['once']}")
    elif low is not None and known < low:
        origins.append(f"previously {dotted(low)} or later: {origin['version_low']}")
    if high is not None and known > high:
        origins.append(f"the last broker was {dotted(high)} or earlier: {origin['version_high']}")
    return known, ", ".join(origins)


# --- version ---------------------------------------------------------------------------------------------------------


def _bounds(store: Store, version: str | None, has_op_lists: bool | None) -> _Bounds:
    if version is not None:
        exact, why = given_version(store, version)
        return exact, exact, {"version_low": why, "version_high": why, **_rust(store)}
    least = list(at_least(store))
    most = list(at_most(store))
    if has_op_lists:
        least.append((OP_LISTS.since, "op messages with lists"))
    elif has_op_lists is False:
        most.append((LAST_BEFORE_OP_LISTS, "op messages without lists"))
    origin: dict[str, str] = {}
    low = high = None
    if least:
        low, origin["version_low"] = max(least, key=lambda found: found[0])
    back = None if low is None else set_back(store, low)
    if low is not None and back is not None:
        origin = {"once": f"{dotted(low)} or later ({origin['version_low']})"}
        low, most = None, [back, *most]
        if written := list(rewritten_since(store)):
            low, origin["version_low"] = max(written, key=lambda found: found[0])
    # files that an older broker left behind do not bound the version of the broker that ran last
    most = [found for found in most if low is None or found[0] >= low]
    if most:
        high, origin["version_high"] = min(most, key=lambda found: found[0])
    return low, high, {**origin, **_rust(store)}


def _rust(store: Store) -> dict[str, str]:
    mark = rust_mark(store)
    return {} if mark is None else {"rust": mark}


def _since(change: Change, low: Version | None, high: Version | None) -> tuple[bool | None, str]:
    """Whether the broker has a behaviour, and the reason as text."""
    known = change.between(low, high)
    words = "unknown: introduced in" if known is None else "brokers from" if known else "brokers before"
    return known, f"{words} {dotted(change.since)}"


# --- values ----------------------------------------------------------------------------------------------------------


def _value(
    setting: _Setting, conf: Mapping[str, str], low: Version | None, high: Version | None
) -> tuple[int, str]:
    given = conf.get(setting.key)
    if given is not None:
        number = java_integer(given, setting.bits)
        if number is not None:
            return number, FROM_CONF
    number, origin = _default(setting, low, high)
    if given is not None:
        origin += f", because brokers cannot parse {given[:40]!r}"
    return number, origin


def _default(setting: _Setting, low: Version | None, high: Version | None) -> tuple[int, str]:
    """Return the default and its origin; if the version allows several defaults, the newest one."""
    possible = _possible_defaults(setting, low, high)
    since, value = possible[-1]
    if len(setting.defaults) == 1:
        return value, "default"
    if len(possible) > 1:
        return value, f"assumed, default of {dotted(since)} or later ({possible[0][1]} before)"
    if since == ALWAYS:
        return value, f"default before {dotted(setting.defaults[1][0])}"
    return value, f"default of {dotted(since)} or later"


def _possible_defaults(setting: _Setting, low: Version | None, high: Version | None) -> list[tuple[Version, int]]:
    return [
        (since, value)
        for number, (since, value) in enumerate(setting.defaults)
        if (high is None or since <= high)
        and (low is None or number + 1 == len(setting.defaults) or low < setting.defaults[number + 1][0])
    ]


def setting_in_force(settings: BrokerSettings, key: str) -> tuple[int, str] | None:
    """Return the value of a setting, and its origin without the reason; None for a setting without a field."""
    name = next((name for name, setting in _SETTINGS.items() if setting.key == key), None)
    if name is None:
        return None
    return int(getattr(settings, name)), settings.origin.get(name, "given").partition(", because ")[0]


def reserved_time_ms(hours: int) -> int:
    """Return a fileReservedTime in milliseconds."""
    return hours * HOUR_MS


def conf_integer(conf: Mapping[str, str], key: str, default: int, bits: int) -> int:
    """Return a number of the configuration as a broker parses it, or the default."""
    number = java_integer(conf.get(key, ""), bits)
    return default if number is None else number


def java_integer(text: str, bits: int) -> int | None:
    """Return the result of Integer.parseInt or Long.parseLong; None if they fail and the broker keeps its default.

    Source: common/MixAll.java properties2Object.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None
