"""`rmqtx decode trace`: what producers wrote about their transactions."""

from __future__ import annotations

from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import TRACES
from rmqtx.readers.store.store import TRACE_TOPIC, Store
from rmqtx.readers.traces.trace_scan import last_decisions, scan_traces
from rmqtx_cli.commands.declared.decode import DecodeTrace
from rmqtx_cli.commands.decode.shared import asked_of, bounds_of, list_rows


def run(options: DecodeTrace) -> int:
    """Run the command; return its exit status."""
    bounds = bounds_of(options.within, options.voice)

    def read(one: Store, _columns: list[str]) -> Reading:
        found = scan_traces(one, options.trace_topic or TRACE_TOPIC, bounds)
        return last_decisions(found) if options.last else found

    return list_rows(
        asked_of(options.rows, options.store, options.voice, options.commit_log), "traces", read, schema=TRACES,
        named={"--topic": ("topic", options.topic), "--group": ("producer_group", options.group)},
    )
