"""What brokers do not take from a configuration: keys that they do not have, and values that they cannot parse.

A broker reports neither: it keeps its default. Each of these is one note, with the value in force.
Source: common/MixAll.java properties2Object; seen on 4.9.7, 5.3.3 and 5.5.0.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from rmqtx.readers.store.broker_keys import INTS, KEYS, LONGS, SWITCHES
from rmqtx.readers.store.broker_settings import BrokerSettings, java_integer, setting_in_force

_BY_LOWER = {key.lower(): key for key in sorted(KEYS)}
_ROLES = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")
_WORDS = {"brokerRole": _ROLES, "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH")}
_TEXT_MAX = 60
#: Fields of the brokers' own classes (4.9.7 to 5.5.0) whose methods `set...` have other names. A running broker reports
#: its fields; in a file these keys have no effect.
_FIELDS = frozenset({
    "isBrokerContainer", "isEnableBatchPush", "isInBrokerContainer", "isScanAvailableNameSrv", "timerCheckMetricsWhen",
    "timerEnableDisruptor", "timerStopDequeue", "timerWarmEnable",
})
#: A file with more known keys was written by a broker, with all its fields: it does so after a change of a setting.
_OF_PEOPLE_MAX = 100
#: A key that differs in more letters is another word.
_ALIKE_MIN = 0.85


def conf_notes(settings: BrokerSettings, *, is_reported: bool = False) -> list[str]:
    """Return a sentence for each line of the configuration that the broker does not take as written.

    `is_reported`: the configuration is what a running broker reports: what was given to it, and all its own fields.
    Order: that of the configuration.
    """
    return list(_notes(settings, is_reported=is_reported))


def _notes(settings: BrokerSettings, *, is_reported: bool) -> Iterator[str]:
    given = settings.given or {}
    has_fields = is_reported or sum(key in KEYS for key in given) > _OF_PEOPLE_MAX
    for key, value in given.items():
        if has_fields and key in _FIELDS:
            continue
        if key not in KEYS:
            yield _unknown(key, settings)
        elif key in INTS or key in LONGS:
            if java_integer(value, 32 if key in INTS else 64) is None:
                found = f"brokers cannot parse {value[:_TEXT_MAX]!r}"
                yield f"broker.conf: {found}: in force is {_in_force(key, settings)}"
        elif key in SWITCHES:
            if value.lower() not in ("true", "false"):
                yield f"broker.conf: brokers take {value[:_TEXT_MAX]!r} as false: in force is {key} false"
        elif key in _WORDS and value not in _WORDS[key]:
            default = f"{key} {_WORDS[key][0]} (default)"
            yield f"broker.conf: brokers do not have {value[:_TEXT_MAX]!r}: in force is {default}"


def _unknown(key: str, settings: BrokerSettings) -> str:
    """Return the sentence about a key that brokers do not have."""
    meant = _BY_LOWER.get(key.strip().lower())
    if meant is None:
        alike = difflib.get_close_matches(key.lower(), _BY_LOWER, 1, _ALIKE_MIN)
        meant = _BY_LOWER[alike[0]] if alike else None
    if meant is None:
        return f"broker.conf: brokers do not have the setting {_quoted(key)}, and ignore it"
    return (
        f"broker.conf: brokers do not have the setting {_quoted(key)}, and ignore it; its name is {meant}: in force is "
        f"{_in_force(meant, settings)}"
    )


def _in_force(key: str, settings: BrokerSettings) -> str:
    known = setting_in_force(settings, key)
    if known is None:
        given = (settings.given or {}).get(key)
        return f"the default of {key}" if given is None or not _is_taken(key, given) else f"{key} as given"
    value, origin = known
    return f"{key} {value} ({origin})"


def _is_taken(key: str, value: str) -> bool:
    return not (key in INTS or key in LONGS) or java_integer(value, 32 if key in INTS else 64) is not None


def _quoted(text: str) -> str:
    return text if re.fullmatch(rf"[\w.-]{{1,{_TEXT_MAX}}}", text, re.ASCII) else repr(text[:_TEXT_MAX])
