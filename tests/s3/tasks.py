"""What worker processes run in these tests."""

from __future__ import annotations

import os
import time

from rmqtx.readers.log.splits import Split


def records_of(split: Split) -> tuple[int, list[int]]:
    """The process, and the commit-log offsets of the records that begin in a split."""
    time.sleep(0.2)  # so that no process takes all
    return os.getpid(), [offset for block in split.scan() for offset in block.commit_log_offsets.tolist()]
