"""What the producer of a transaction wrote about it into a message trace, as events of its timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqtx.readers.store.store import TRACE_TOPIC
from rmqtx.readers.traces.trace_lines import TraceKind


def traced_events(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return an event for each decision and each answer to a check among rows of TRACES.

    A record that several copies of a log have counts once.

    Units: times of the producer's clock.
    """
    events: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if row["kind"] != TraceKind.DECIDED:
            continue
        event = "answered" if row["is_check_answer"] else "decided"
        key = (row["time_ms"], event, row["commit_log_offset"], row["line_number"])
        events.setdefault(key, {
            "time_ms": row["time_ms"], "event": event, "store": row["store"], "topic": TRACE_TOPIC,
            "commit_log_offset": row["commit_log_offset"],
            "detail": f"{row['decision']}, by the trace of its producer, written before the request is sent",
        })  # fmt: skip
    return list(events.values())
