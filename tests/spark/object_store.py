"""Audits and queries of stores on the S3 server, in a process whose environment holds the credentials from its start.

Python workers inherit the environment that the JVM was started with, as they do on an operator's machine.
Arguments: the root here and the URI of a store. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import Store, open_store
from rmqtx.spark_tasks.jobs import audit as spark_audit
from rmqtx.spark_tasks.session.session import session
from tests.forge.stores import settings_of
from tests.s3.server import S3Server
from tests.spark.conftest import CONF

SPLIT_BYTES = 64 << 10


def main(name: str, local: str, uri: str, temporary: str) -> dict[str, Any]:
    server = S3Server(os.environ["AWS_ENDPOINT_URL"])
    with session("local[2]", conf=CONF, temporary_directory=temporary) as spark:

        def judged(store: Store) -> Reading:
            return spark_audit.audit(spark, [store], settings_of(name), work=WorkDivision(SPLIT_BYTES))

        rows = judged(open_store(uri)).table().to_pylist()
        server.requests()
        frame = spark.read.format("rmqtx").option("table", "records").load(uri.replace(name, name[:-3] + "*"))
        offsets = sorted(row.commit_log_offset for row in frame.select("commit_log_offset").collect())
        requests = server.requests()
        store = open_store(server.upload(Path(local), "evidence/lost-one/store"))
        server.delete(store.commit_log[2].file.removeprefix("s3://"))
        reading = judged(store)
        left = reading.table().to_pylist()
    return {
        "rows": rows,
        "offsets": offsets,
        "requests": requests,
        "left": {row["transaction_id"]: row["state"] for row in left},
        "findings": [finding.line() for finding in reading.findings],
        "lost": store.commit_log[2].file,
    }


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
