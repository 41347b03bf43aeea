"""The time of day: the one place that converts it to milliseconds. What waits or measures uses `time.monotonic`."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the present time. Units: epoch milliseconds."""
    return time.time_ns() // 1_000_000
