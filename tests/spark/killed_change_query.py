"""A query of the stream verdict_changes that kills itself and its Spark.

`python -m ... BATCHES DELAY STORE CHECKPOINT SINK OFFSETS`: after that number of batches (or a minute, if there are
fewer) and of seconds. It prints a line for each batch.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from rmqtx.spark_tasks.session.session import session
from tests.spark.conftest import CONF

_WAIT_S = 60


def main(batches: str, delay_s: str, store: str, checkpoint: str, sink: str, offsets: str) -> None:
    with session("local[2]", conf=CONF) as spark:
        query = (
            spark.readStream.format("rmqtx")
            .options(table="verdict_changes", checkpoint=checkpoint, max_rows_per_batch="9")
            .load(store)
            .writeStream.format("parquet")
            .option("checkpointLocation", offsets)
            .start(sink)
        )
        left, last, until = int(batches), None, time.monotonic() + _WAIT_S
        while left and time.monotonic() < until:
            failed = query.exception()
            assert failed is None, str(failed)  # now: it asks the JVM
            progress = query.lastProgress
            if progress is not None and progress.numInputRows and progress.batchId != last:
                last, left = progress.batchId, left - 1
                print("batch", last, flush=True)
            time.sleep(0.02)
        time.sleep(float(delay_s))
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
