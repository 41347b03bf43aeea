"""Read the configuration of a broker (a broker.conf, or the output of `mqadmin getBrokerConfig`) or of a proxy."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.storage.places import naming_unreadable
from rmqtx.readers.store.broker_keys import INTS, KEYS, LONGS, SWITCHES
from rmqtx.readers.store.broker_settings import BrokerSettings, java_integer, setting_in_force
from rmqtx.readers.store.fastjson import parse, read_text

_BY_LOWER = {key.lower(): key for key in sorted(KEYS)}
#: The values that brokers accept, the default first. Source: store/config/MessageStoreConfig.java.
WORDS = {"brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"), "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH")}
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
_CONF_BYTES_MAX = 4 << 20
#: Another file has more keys that no broker has, and none that one has.
_UNKNOWN_KEYS_MAX = 2
_LOWER_KEYS = frozenset(key.lower() for key in KEYS)
_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: The topic that each proxy of a cluster creates on brokers, for the heartbeats of its clients.
#: Source: proxy/config/ProxyConfig.java heartbeatSyncerTopicName, proxy/service/sysmessage/HeartbeatSyncer.java; seen
#: on 5.3.3.
PROXY_TOPIC = "DefaultHeartBeatSyncerTopic"
EXPIRE_KEY = "transactionDataExpireMillis"
#: How long a proxy keeps the place of a half message after the send, and after each check.
#: Source: proxy/config/ProxyConfig.java 5.0.0 to 5.5.0.
EXPIRE_MS_DEFAULT = 30_000


def read_broker_conf(path: str | Path) -> dict[str, str]:
    """Return the keys and values of a broker.conf, or of the output of `mqadmin getBrokerConfig`.

    Raises: UnreadableFile, BadText.
    Source: java.util.Properties.load.
    """
    file = as_text(Path(path))
    with naming_unreadable(file):
        if not Path(path).is_file():
            raise UnreadableFile(f"{file} is not a file", file=file, advice="give the path of the broker's broker.conf")
        with open(path, "rb") as opened:
            data = opened.read(_CONF_BYTES_MAX + 1)
    if len(data) > _CONF_BYTES_MAX or b"\0" in data:
        position = data.find(b"\0") if b"\0" in data else _CONF_BYTES_MAX
        raise BadText(f"{file} is not a broker configuration", file=file, position_bytes=position)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    pairs = (_pair(line) for line in _logical_lines(text))
    found = {key: value for key, value in pairs if key}  # mqadmin's lines of ==== have no key
    if len(found) > _UNKNOWN_KEYS_MAX and _LOWER_KEYS.isdisjoint(key.lower() for key in found):
        raise BadText(
            f"{file} is not a broker configuration: brokers have none of its {len(found)} settings", file=file,
            advice="give the path of the broker's broker.conf",
        )
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments; a line that ends in a backslash is joined with the next."""
    pending = ""
    for part in re.split(r"\r\n|\n|\r", text):
        line = part.lstrip(_SPACE)
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _pair(line: str) -> tuple[str, str]:
    match = re.match(r"((?:[^\\ \t\f=:]|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+", line, re.DOTALL)
    assert match is not None  # every part of the pattern can be empty
    return _unescaped(match[1]), _unescaped(line[match.end() :])


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", plain, text, flags=re.DOTALL)


def read_expire_ms(path: str | Path) -> int:
    """Return how long a proxy with this configuration keeps the place of a half message.

    Units:  milliseconds.
    Raises: UnreadableFile, BadText.
    Source: proxy/config/Configuration.java, which reads the file with fastjson.
    """
    file = as_text(Path(path))
    if not Path(path).is_file():
        raise UnreadableFile(f"{file} is not a file", file=file, advice="give the path of the proxy's rmq-proxy.json")
    conf = parse(read_text(path) or "", file)
    if not isinstance(conf, dict):
        raise BadText(f"{file} is not a proxy configuration: no JSON object", file=file, position_bytes=0)
    value = conf.get(EXPIRE_KEY, EXPIRE_MS_DEFAULT)
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        text = f"{file}: {EXPIRE_KEY} is not a number of milliseconds: {value}"
        raise BadText(text, file=file, position_bytes=0) from error


# What brokers do not take from a configuration: keys that they do not have, and values that they cannot parse.
#
# A broker reports neither: it keeps its default. Each of these is one note, with the value in force. Source:
# common/MixAll.java properties2Object; seen on 4.9.7, 5.3.3 and 5.5.0.


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
        elif key in WORDS and value not in WORDS[key]:
            default = f"{key} {WORDS[key][0]} (default)"
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
