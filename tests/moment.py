"""The moment at which tests read stores. It imports no test tool: each program that a test starts loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store

#: The moment of reading, where it is defined, and where else it is asked for.
MOMENT = "rmqtx.verdicts.evidence.store_facts.moment_ms"
MOMENTS = (MOMENT, "rmqtx.spark_tasks.jobs.audit.moment_ms", "rmqtx.verdicts.verify.verify.moment_ms")
#: When the stores of the corpus are read. What is pending nears fileReservedTime as they grow old, and is discarded.
READ_AT_MS = 1_795_388_400_000


def moment_of(store: Store) -> int:
    """Return when a test reads a store: soon after the corpus was written, or when the test says, which lies before."""
    return min(store.taken_time_ms, READ_AT_MS)
