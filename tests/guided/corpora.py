"""The inputs that are kept, an archive for each target, and the first ones: parts of stores that real brokers wrote."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.rocksdb.rocksdb_transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.remoting.protocol.frames import Encoding, Frame, encoded
from tests.forge.stores import unpacked
from tests.repairs.test_plan_file import STEP, plan

CORPORA = Path(__file__).parent / "corpora"
_STORES = ("common-4.3.0", "common-4.9.7", "common-5.3.3")
_EACH = 12


def kept(target: str) -> dict[str, bytes]:
    """The inputs that are kept for a target, by name."""
    archive = CORPORA / f"{target}.tar.xz"
    if not archive.exists():
        return {}
    with tarfile.open(archive, "r:xz") as tar:
        return {one.name: stream.read() for one in tar if (stream := tar.extractfile(one)) is not None}


def keep(target: str, inputs: Iterable[bytes]) -> int:
    """Write the archive of a target; return the number of its inputs. Equal inputs give equal bytes."""
    named = {hashlib.sha256(data).hexdigest()[:16]: data for data in inputs}
    CORPORA.mkdir(exist_ok=True)
    with tarfile.open(CORPORA / f"{target}.tar.xz", "w:xz", preset=9) as tar:
        for name in sorted(named):
            member = tarfile.TarInfo(name)
            member.size = len(named[name])
            tar.addfile(member, io.BytesIO(named[name]))
    return len(named)


def first_inputs(target: str) -> Iterator[bytes]:
    """Yield inputs for a target that has none yet."""
    yield from FIRST[target]()


def _records() -> Iterator[bytes]:
    """Half messages, op messages and finals of real stores, moved to the begin of a log."""
    for name in _STORES:
        for data in _of_store(unpacked(name)):
            yield data[:28] + bytes(8) + data[36:]


def _of_store(root: Path) -> Iterator[bytes]:
    table = scan_records(open_store(str(root)), with_body=True).table()
    topics = table.column("topic").to_pylist()
    chosen = [row for row, topic in enumerate(topics) if topic in (HALF_TOPIC, OP_TOPIC)][:_EACH]
    chosen += [row for row, topic in enumerate(topics) if topic not in (HALF_TOPIC, OP_TOPIC)][:_EACH]
    for row in chosen:
        one = {name: table.column(name)[row].as_py() for name in ("file", "position_bytes", "length_bytes")}
        with Path(one["file"]).open("rb") as stream:
            stream.seek(one["position_bytes"])
            yield stream.read(one["length_bytes"])


def _runs() -> Iterator[bytes]:
    one_after_another = list(_records())
    yield from one_after_another
    yield b"".join(one_after_another[:4])


def _properties() -> Iterator[bytes]:
    for data in _records():
        begin = data.find(b"\1")
        yield data[max(0, data.rfind(b"\0", 0, begin) + 1) :]


def _op_bodies() -> Iterator[bytes]:
    yield from (b"1\n2\n30", b"1,2,3,\n4,", b"12345678,87654321,\n123456789012345678", b",\n\n1a\n,1,,2", b"1" * 19)


def _configuration() -> Iterator[bytes]:
    for name in _STORES:
        for path in sorted((unpacked(name) / "config").glob("*.json")):
            yield path.read_bytes()[:2000]
    yield from (b'{0:1,"a":{-3:"\\"",4:[1,2]}}', b'{"a":1}')


def _frames() -> Iterator[bytes]:
    for encoding in Encoding:
        for fields in ({}, {"topic": HALF_TOPIC, "queueId": "0"}):
            yield encoded(Frame(code=11, opaque=1, fields=fields, body=b"body", encoding=encoding))
    yield b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911"}}}}'


def _credentials() -> Iterator[bytes]:
    yield b"accessKey: rocketmq\nsecretKey: '12345678'\n"
    yield b"accessKey: [1234567]\nsecretKey: {a: 12345678}\n"
    yield b'# comment\n"accessKey": "x"\nsecretKey: |\n  12345678\n'


def _undo() -> Iterator[bytes]:
    print_ = [{"path": "commitlog/0", "size_bytes": 1, "modified_ns": 1}]
    head: dict[str, object] = {
        "undo_id": "0123456789abcdef", "root": "/store", "first_record": None, "about": [], "made_by": "rmqtx",
        "who": "a", "made_time_ms": 1, "receipts": [], "has_new_lock": False,
    }
    edit = {
        "kind": "write", "path": "commitlog/0", "group": 0, "position_bytes": 0, "before_bytes": 4, "after_bytes": 4,
        "attributes": {"mode": 420, "user": 0, "group": 0, "modified_ns": 1},
    }
    for value in (print_, head, edit):
        yield json.dumps(value).encode()


def _plans() -> Iterator[bytes]:
    yield plan(STEP).text().encode()


def _broker_logs() -> Iterator[bytes]:
    logs = Path(__file__).resolve().parents[1] / "broker_logs"
    for path in sorted(logs.rglob("*.log"))[:_EACH]:
        yield path.read_bytes()[:2000]
    yield b"2026-11-21 08:15:00,123 INFO TransactionalMessageCheckService - begin to check prepare message\n"


def _rocksdb() -> Iterator[bytes]:
    value = TRANSACTION_VALUE.pack(**{field.name: 1 for field in TRANSACTION_VALUE.fields})
    key = TRANSACTION_KEY.pack(**{field.name: 1 for field in TRANSACTION_KEY.fields})
    yield value + key + b"@orders@ID"
    yield value + key


def _traces() -> Iterator[bytes]:
    head = "1700000000000 region group topic id tags keys 10.0.0.1:10911"
    for line in (
        f"Pub {head} 12 3 1 7F0000012A9F0000000000000001 true",
        f"EndTransaction {head} 2 transaction COMMIT_MESSAGE false",
    ):
        yield line.replace(" ", "\1").encode() + b"\2"


FIRST = {
    "record": _runs, "wire-records": _runs, "properties": _properties, "op-bodies": _op_bodies,
    "fastjson": _configuration, "frames": _frames, "credentials": _credentials, "undo": _undo, "plan": _plans,
    "broker-log": _broker_logs, "rocksdb": _rocksdb, "trace": _traces,
}
