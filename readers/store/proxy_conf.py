"""Read what the configuration of a proxy (rmq-proxy.json) sets for transactions."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.model.errors import BadText, UnreadableFile
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.store.fastjson import parse, read_text

#: The topic that each proxy of a cluster creates on brokers, for the heartbeats of its clients.
#: Source: proxy/config/ProxyConfig.java heartbeatSyncerTopicName, proxy/service/sysmessage/HeartbeatSyncer.java; seen
#: on 5.3.3.
PROXY_TOPIC = "DefaultHeartBeatSyncerTopic"
EXPIRE_KEY = "transactionDataExpireMillis"
#: How long a proxy keeps the place of a half message after the send, and after each check.
#: Source: proxy/config/ProxyConfig.java 5.0.0 to 5.5.0.
EXPIRE_MS_DEFAULT = 30_000


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
