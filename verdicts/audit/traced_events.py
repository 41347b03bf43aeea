"""What the producer of a transaction wrote about it into a message trace, as events of its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import TRACE_TOPIC, Store
from rmqtx.readers.traces.trace_lines import TraceKind
from rmqtx.readers.traces.trace_scan import traces_of


def traced_rows(store: Store, transaction_id: str) -> list[dict[str, Any]]:
    """Return the lines about a transaction in the traces of a store, as rows of TRACES.

    The index finds them: a trace record has the ids of all its lines as keys. It finds none without a trace topic, or
    before it begins: a missing line shows nothing (docs/formats/traces.md#meaning).

    Order:  commit-log offset, then line.
    Damage: a record that cannot be read is left out.
    """
    if not store.index_files or TRACE_TOPIC not in store.topics():
        return []
    found: list[Block] = []
    log = store.log()
    try:
        _, offsets = open_index(store).find([f"{TRACE_TOPIC}#{transaction_id}".encode()])
        for offset in np.unique(offsets).tolist():
            block = block_at(log, offset)
            if block is not None and block.topic_is(TRACE_TOPIC)[0]:
                found.append(block)
    finally:
        log.close()
    return rows_about(found, store.root, transaction_id)


def rows_about(blocks: Iterable[Block], store: str, transaction_id: str) -> list[dict[str, Any]]:
    """Return the lines about a transaction in trace records, as rows of TRACES. Order: as given."""
    findings: list[Finding] = []  # what cannot be read is the finding of `decode trace`
    return [
        row
        for block in blocks
        for row in traces_of(block, store, findings).to_pylist()
        if row["transaction_id"] == transaction_id
    ]


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
