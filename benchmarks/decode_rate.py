"""Decode a commit log in this process, pass after pass, and print the times of each as a line of JSON.

    python -m benchmarks.decode_rate STORE --passes 5 --work audit

The work is the full decode of the targets: every header column, the topic and six properties of every record as Arrow
(text), or what an audit needs of every record (audit): integers, topics and groups as codes, the id as a view.
Processor time is that of all threads of this process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.commit_log import record_columns, scan_records, scan_segments
from rmqtx.readers.log.kernels import is_accelerator_installed, use_accelerator
from rmqtx.readers.log.properties import CHECK_TIMES, PRODUCER_GROUP, REAL_TOPIC, UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.store.store import HALF_TOPIC, open_store

HEADER = (
    "length_bytes",
    "commit_log_offset",
    "queue_id",
    "queue_offset",
    "born_time_ms",
    "store_time_ms",
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_length_bytes",
    "body_crc",
    "born_host",
    "store_host",
    "topic",
)
SIX_PROPERTIES = ("transaction_id", "keys", "tags", "producer_group", "real_topic", "checks")


#: The integers that an audit needs of a record.
NINE_NUMBERS = [
    "length_bytes", "commit_log_offset", "queue_id", "queue_offset", "born_time_ms", "store_time_ms", "sys_flag",
    "prepared_transaction_offset", "body_length_bytes",
]


def engines() -> list[str]:
    """Return the decoders of this installation."""
    return ["reference", "fast"] if is_accelerator_installed() else ["reference"]


def decode(store: Path) -> dict[str, float]:
    """Decode the log once, every column as text or number; return records, bytes of log, and seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    records = log_bytes = 0
    for batch in scan_records(open_store(store), columns=[*HEADER, *SIX_PROPERTIES]):
        records += batch.num_rows
        log_bytes += pc.sum(batch["length_bytes"]).as_py()
    return {"records": records, "bytes": log_bytes} | _seconds_since(wall, cpu)


def decode_for_audit(store: Path) -> dict[str, float]:
    """Decode once what an audit needs of every record; return records, half records, bytes of log, and seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    records = halves = log_bytes = 0
    opened = open_store(store)
    for block in scan_segments(opened, [], []):
        batch = audit_columns(block, opened.root)
        records += batch.num_rows
        log_bytes += pc.sum(batch["length_bytes"]).as_py()
        topics = batch["topic"]
        half = pc.index(topics.dictionary, HALF_TOPIC.encode()).as_py()
        halves += pc.sum(pc.equal(topics.indices, half)).as_py() or 0
    return {"records": records, "halves": halves, "bytes": log_bytes} | _seconds_since(wall, cpu)


def audit_columns(block: Block, root: str) -> pa.RecordBatch:
    """Return what an audit needs of the records of a block."""
    columns = dict(zip(NINE_NUMBERS, record_columns(block, root, NINE_NUMBERS), strict=True))
    areas = block.properties
    columns |= {"topic": block.coded_topics(), "real_topic": areas.coded(REAL_TOPIC)}
    columns |= {"producer_group": areas.coded(PRODUCER_GROUP), "transaction_id": areas.value(UNIQ_KEY)}
    columns["checks"] = areas.value(CHECK_TIMES)
    return pa.RecordBatch.from_pydict(columns)


def _seconds_since(wall: float, cpu: float) -> dict[str, float]:
    return {"wall_s": time.perf_counter() - wall, "process_cpu_s": time.process_time() - cpu}


def main(words: Sequence[str] | None = None) -> int:
    """The command line: one line of JSON a pass."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode_rate")
    parser.add_argument("store", type=Path, nargs="?")
    parser.add_argument("--engine", choices=engines(), default="reference")
    parser.add_argument("--work", choices=("text", "audit"), default="text")
    parser.add_argument("--engines", action="store_true", help="list the ways to decode that there are")
    parser.add_argument("--passes", type=int, default=5)
    arguments = parser.parse_args(words)
    if arguments.engines:
        print(*engines())
        return 0
    if arguments.store is None:
        parser.error("a store is needed")
    use_accelerator(arguments.engine == "fast")
    work = decode if arguments.work == "text" else decode_for_audit
    for number in range(arguments.passes):
        print(json.dumps({"pass": number + 1, **work(arguments.store)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
