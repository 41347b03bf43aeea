"""The sections by the names that `--only` takes, in the order of the report, and the stores that each needs.

Spark's have a report of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.bench import Bench
from benchmarks.section import Section
from benchmarks.sections import audit, cold, decode, large, object_storage, small, spark


class Measurement(NamedTuple):
    """A section of the report: the function that measures it, and the names of its stores."""

    measure: Callable[[Bench], Section]
    stores: tuple[str, ...] = ()


SECTIONS = {
    "help": Measurement(small.start_up),
    "small": Measurement(small.small_store, ("S", "L")),
    "mqadmin": Measurement(small.mqadmin_alone, ("S",)),
    "large": Measurement(large.large_logs, ("M", "L")),
    "recent": Measurement(large.recent, ("R5M",)),
    "flat": Measurement(large.flat, ("F50k", "R5M", "F5M")),
    "objects": Measurement(object_storage.object_storage, ("N", "L")),
    "decode": Measurement(decode.decode, ("M",)),
    "audit": Measurement(audit.audit, ("L",)),
    "api": Measurement(audit.api_audit, ("M", "L")),
    "verify": Measurement(audit.verify_and_one_core, ("L",)),
    # Later than the sections that read L from the page cache, because it drops L from there.
    "cold": Measurement(cold.cold_cache, ("L",)),
}
SPARK_SECTIONS = {
    "spark": Measurement(spark.spark_tasks, ("M", "L")),
    "sparkaudit": Measurement(spark.spark_audit, ("S", "L")),
    "sparkshares": Measurement(spark.spark_shares, ("S", "L", "C")),
}
