"""A broker made of a store's files, for tests: answers the reads of the remoting protocol as a real one that serves it.

That real brokers answer so is what tests/brokers/test_live_source.py shows; this one needs no Java.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_conf import PROXY_TOPIC
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.fastjson import read_config
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, SCHEDULE_TOPIC, Store, open_store
from rmqtx.remoting.protocol.answers import PROXY_PRODUCER
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.frames import Frame
from tests.brokers import corpus
from tests.remoting.fake import FakeServer, response

_AT_ONCE = 32


class StoreBroker:
    """`__call__` answers a request; `booted_ms` is when it says that it started."""

    def __init__(self, store: Store, settings: BrokerSettings, version: str, booted_ms: int = 0) -> None:
        self.store, self.settings, self.version, self.booted_ms = store, settings, version, booted_ms
        self.name = "broker-a"
        self.more_conf: dict[str, str] = {}
        self.producers: set[str] = set()
        self.proxied: set[str] = set()
        """Groups of which a proxy is registered."""
        self.refuses_settings: ResponseCode | None = None
        """With which code it refuses new settings; SUCCESS: it answers 0 and ignores them."""
        self.lacks_topics: set[str] = set()
        """Topics without a configuration: their records cannot be pulled."""
        self.behind_bytes = 0
        """How far the dispatch is behind the end of the log."""
        self.counts: dict[RequestCode, int] = {}
        self._answers: dict[RequestCode, Callable[[Frame], Frame]] = {
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.UPDATE_BROKER_CONFIG: self._update,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.QUERY_CONSUMER_OFFSET: self._cursor,
            RequestCode.GET_MIN_OFFSET: lambda request: self._ends(request, 0),
            RequestCode.GET_MAX_OFFSET: lambda request: self._ends(request, 1),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._offset_at,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_CONSUME_QUEUE: self._slots,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._cursors,
        }

    def __call__(self, request: Frame) -> Frame:
        """The response to a request."""
        code = RequestCode(request.code)
        self.counts[code] = self.counts.get(code, 0) + 1
        return self._answers[code](request)

    def _config(self, request: Frame) -> Frame:
        settings = self.settings
        values = {
            "transactionTimeOut": settings.transaction_time_out_ms,
            "transactionCheckMax": settings.transaction_check_max,
            "transactionCheckInterval": settings.transaction_check_interval_ms,
            "transactionOpBatchInterval": settings.transaction_op_batch_interval_ms,
            "fileReservedTime": settings.file_reserved_time_hours, "brokerRole": "ASYNC_MASTER",
            "brokerName": self.name, "brokerClusterName": "c", "brokerId": 0,
            "transRocksDBEnable": "true" if self.store.has("consumequeue", ROCKSDB_HALF_TOPIC) else "false",
            **self.more_conf,
        }
        return response(request, body="".join(f"{name}={value}\n" for name, value in values.items()).encode())

    def _update(self, request: Frame) -> Frame:
        if self.refuses_settings is not None:
            return response(request, self.refuses_settings, "refused by the test" if self.refuses_settings else None)
        self.more_conf |= dict(line.split("=", 1) for line in request.body.decode().splitlines())
        return response(request)

    def _runtime(self, request: Frame) -> Frame:
        table = {
            "brokerVersionDesc": "V" + self.version.replace(".", "_"), "bootTimestamp": str(self.booted_ms),
            "commitLogMinOffset": str(self.store.log_begin_offset), "dispatchBehindBytes": str(self.behind_bytes),
            "commitLogMaxOffset": str(self.store.commit_log[-1].end_offset),
        }
        delays = read_config(self.store, "delayOffset.json").value
        for level, cursor in ((delays or {}).get("offsetTable") or {}).items():
            with open_queue(self.store, SCHEDULE_TOPIC, int(level) - 1) as queue:
                table[f"scheduleMessageOffset_{level}"] = f"{cursor},{queue.max_offset}"
        return response(request, body=json.dumps({"table": table}).encode())

    def _cursor(self, request: Frame) -> Frame:
        cursors = check_cursors(self.store)
        by_queue = {HALF_TOPIC: cursors.half, OP_TOPIC: cursors.op}[request.fields["topic"]] or {}
        if 0 not in by_queue:
            return response(request, ResponseCode.QUERY_NOT_FOUND)
        return response(request, offset=str(by_queue[0]))

    def _cursors(self, request: Frame) -> Frame:
        return response(request, body=json.dumps(read_config(self.store, "consumerOffset.json").value).encode())

    def _range(self, request: Frame) -> tuple[int, int]:
        with open_queue(self.store, request.fields["topic"], int(request.fields["queueId"])) as queue:
            return (queue.min_offset, queue.max_offset) if queue.exists else (0, 0)

    def _ends(self, request: Frame, which: int) -> Frame:
        return response(request, offset=str(self._range(request)[which]))

    def _places(self, request: Frame, begin: int, end: int) -> list[int]:
        with open_queue(self.store, request.fields["topic"], int(request.fields["queueId"])) as queue:
            return [int(offset) for offset in queue.read(begin, end)[1].tolist()]

    def _records(self, offsets: list[int]) -> list[tuple[int, bytes]]:
        """Store time and bytes of the records at some offsets."""
        with closing(self.store.log()) as log:
            blocks = [block_at(log, offset) for offset in offsets]
        return [
            (int(block.header("store_time_ms")[0]), block.raw[: int(block.lengths[0])])
            for block in blocks
            if block is not None
        ]

    def _offset_at(self, request: Frame) -> Frame:
        low, high = self._range(request)
        times = [time_ms for time_ms, _ in self._records(self._places(request, low, high))]
        wanted = int(request.fields["timestamp"])
        return response(request, offset=str(low + sum(1 for time_ms in times if time_ms < wanted)))

    def _pull(self, request: Frame) -> Frame:
        topic = request.fields["topic"]
        lacks = topic in self.lacks_topics or (topic == OP_TOPIC and self.version.startswith("4."))
        if lacks or (topic == PROXY_TOPIC and not self._is_proxied()):
            return response(request, ResponseCode.TOPIC_NOT_EXIST)
        begin, count = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
        low, high = self._range(request)
        end = min(high, begin + min(count, _AT_ONCE))
        body = b"".join(data for _, data in self._records(self._places(request, begin, end)))
        code = ResponseCode.SUCCESS if body else ResponseCode.PULL_NOT_FOUND
        return response(
            request, code, body=body, nextBeginOffset=str(max(begin, end)), minOffset=str(low), maxOffset=str(high)
        )

    def _is_proxied(self) -> bool:
        config = read_config(self.store, "topics.json").value
        return isinstance(config, dict) and PROXY_TOPIC in config.get("topicConfigTable", {})

    def _slots(self, request: Frame) -> Frame:
        begin, count = int(request.fields["index"]), int(request.fields["count"])
        low, high = self._range(request)
        with open_queue(self.store, request.fields["topic"], int(request.fields["queueId"])) as queue:
            places = zip(*(one.tolist() for one in queue.places(begin, min(high, begin + count))), strict=True)
        data = [{"physicOffset": offset, "physicSize": size, "tagsCode": 0} for offset, size in places]
        value = {"queueData": data, "minQueueIndex": low, "maxQueueIndex": high}
        return response(request, body=json.dumps(value).encode())

    def _view(self, request: Frame) -> Frame:
        found = self._records([int(request.fields["offset"])])
        return response(request, body=found[0][1]) if found else response(
            request, ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {request.fields['offset']}"
        )

    def _query(self, request: Frame) -> Frame:
        key = f"{request.fields['topic']}#{request.fields['key']}".encode()
        index = open_index(self.store, self.settings.max_hash_slots)
        offsets = sorted({int(offset) for offset in index.find([key])[1].tolist()})
        end_ms = int(request.fields["endTimestamp"])
        found = [data for time_ms, data in self._records(offsets) if time_ms <= end_ms][-_AT_ONCE:]
        return response(request, 0 if found else ResponseCode.QUERY_NOT_FOUND, body=b"".join(found))

    def _topics(self, request: Frame) -> Frame:
        table: dict[str, dict[str, str]] = {topic: {} for topic, _ in self.store.queues()}
        return response(request, body=json.dumps({"topicConfigTable": table}).encode())

    def _ids(self, group: str) -> list[str]:
        return ["10.0.0.9@1"] * (group in self.producers) + [PROXY_PRODUCER] * (group in self.proxied)

    def _all_producers(self, request: Frame) -> Frame:
        """The answer of brokers from 4.9.4 on; before, there is none at all."""
        assert tuple(map(int, self.version.split("."))) >= (4, 9, 4)
        one = {"remoteIP": "/10.0.0.9:1", "language": "JAVA", "version": 479, "lastUpdateTimestamp": 1795790423149}
        groups = {
            group: [{"clientId": name, **one} for name in self._ids(group)] for group in self.producers | self.proxied
        }
        inner = [{"clientId": "10.0.0.9@1", **one}]
        return response(request, body=json.dumps({"data": {**groups, "CLIENT_INNER_PRODUCER": inner}}).encode())

    def _producers(self, request: Frame) -> Frame:
        group = request.fields["producerGroup"]
        ids = self._ids(group)
        if not ids:
            remark = f"the producer group[{group}] not exist"
            return response(request, ResponseCode.SYSTEM_ERROR, remark)
        found = [{"clientId": one, "clientAddr": "10.0.0.9:1", "language": "JAVA", "version": 479} for one in ids]
        return response(request, body=json.dumps({"connectionSet": found}).encode())


class Served:
    """Brokers of 5.3.3 that serve one store, each with a server, and the options that name them.

    `more_conf`: their settings beside those with which the corpus was written.
    """

    def __init__(self, store: Path, stack: ExitStack, more_conf: Mapping[str, str], count: int = 1) -> None:
        opened = open_store(store)
        settings = broker_settings(opened, conf=corpus.recipe("common-5.3.3")["broker_conf"], version="5.3.3")
        self.brokers = [StoreBroker(opened, settings, "5.3.3") for _ in range(count)]
        for broker, letter in zip(self.brokers, "abc", strict=False):
            broker.name, broker.more_conf = f"broker-{letter}", dict(more_conf)
        self.servers = [stack.enter_context(FakeServer(broker)) for broker in self.brokers]
        self.options = [word for server in self.servers for word in ("--broker", server.address)]
