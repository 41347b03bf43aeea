"""Decode a commit log in this process, pass after pass, and print the times of each as a line of JSON.

    python -m benchmarks.decode_rate STORE --passes 5 --columns audit

`--columns text`: every header column, the topic and six properties of every record as text. `--columns audit`: what an
audit reads of every record: offsets, sizes, flags and times, topics and group as numbers in a dictionary, the id as a
view of the log's bytes. All columns are Arrow arrays. Processor time is that of all threads of this process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from readers.log.commit_log import scan_records, scan_segments
from readers.log.kernels import is_accelerator_installed, use_accelerator
from readers.log.properties import CHECK_TIMES, PRODUCER_GROUP, REAL_TOPIC, UNIQ_KEY
from readers.store.store import open_store

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


#: The header columns of `--columns audit`; with them go the properties below.
AUDIT_HEADER = (
    "length_bytes", "queue_id", "queue_offset", "sys_flag", "reconsume_times", "born_time_ms", "store_time_ms",
    "prepared_transaction_offset", "body_length_bytes",
)  # fmt: skip
AUDIT_CODED, AUDIT_VIEWS = (REAL_TOPIC, PRODUCER_GROUP), (UNIQ_KEY, CHECK_TIMES)


def engines() -> list[str]:
    """Return the decoders of this installation."""
    return ["reference", "fast"] if is_accelerator_installed() else ["reference"]


def texts(store: Path) -> Iterator[pa.RecordBatch]:
    """Yield the columns of `--columns text`."""
    yield from scan_records(open_store(store), columns=[*HEADER, *SIX_PROPERTIES])


def audit_columns(store: Path) -> Iterator[pa.RecordBatch]:
    """Yield the columns of `--columns audit`."""
    for block in scan_segments(open_store(store), [], []):
        columns: dict[str, pa.Array] = {name: pa.array(block.header(name)) for name in AUDIT_HEADER}
        columns |= {"commit_log_offset": pa.array(block.commit_log_offsets), "topic": block.coded_topics()}
        columns |= {name: block.properties.coded(name) for name in AUDIT_CODED}
        columns |= {name: block.properties.value(name) for name in AUDIT_VIEWS}
        yield pa.RecordBatch.from_pydict(columns)


COLUMNS = {"text": texts, "audit": audit_columns}


def decode(store: Path, columns: str = "text") -> dict[str, float]:
    """Decode the log once; return records, bytes of log, and seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    records = log_bytes = 0
    for batch in COLUMNS[columns](store):
        records += batch.num_rows
        log_bytes += pc.sum(batch["length_bytes"]).as_py()
    return {
        "records": records,
        "bytes": log_bytes,
        "wall_s": time.perf_counter() - wall,
        "process_cpu_s": time.process_time() - cpu,
    }


def main(words: Sequence[str] | None = None) -> int:
    """The command line: one line of JSON a pass."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode_rate")
    parser.add_argument("store", type=Path, nargs="?")
    parser.add_argument("--engine", choices=engines(), default="reference")
    parser.add_argument("--columns", choices=COLUMNS, default="text")
    parser.add_argument("--engines", action="store_true", help="list the ways to decode that there are")
    parser.add_argument("--passes", type=int, default=5)
    arguments = parser.parse_args(words)
    if arguments.engines:
        print(*engines())
        return 0
    if arguments.store is None:
        parser.error("a store is needed")
    use_accelerator(arguments.engine == "fast")
    for number in range(arguments.passes):
        print(json.dumps({"pass": number + 1, **decode(arguments.store, arguments.columns)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
