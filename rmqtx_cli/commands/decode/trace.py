"""`rmqtx decode trace`: what producers wrote about their transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RangeOptions, RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    CommitLogOption,
    GroupOption,
    StoreArguments,
    TopicOption,
    TraceTopicOption,
    VoiceOptions,
)

if TYPE_CHECKING:
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.store.store import Store

NAME = "trace"
SHORT = "what producers wrote about their transactions (client 4.9.0+)"
EXAMPLES = (
    Example("rmqtx decode trace STORE", "all lines"),
    Example("rmqtx decode trace STORE --last -o decisions.csv", "the last decision of each, for rmqtx reconcile"),
    Example("rmqtx decode trace STORE --trace-topic AuditTrace --group pay_tx", "from a topic of your own, one group"),
)

LastOption = Annotated[
    bool,
    typer.Option("--last", help="Only the last decision of each transaction, as a ledger for rmqtx reconcile"),
]


@with_option_groups
def command(
    store: StoreArguments,
    *,
    within: RangeOptions,
    trace_topic: TraceTopicOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    last: LastOption = False,
    rows: RowsOptions,
    commit_log: CommitLogOption = None,
    voice: VoiceOptions,
) -> int:
    """Decode message traces: one row per half message that a producer sent, and per decision.

    A producer with trace writes the decision before it sends the request to the broker, so a decision can be here
    that never arrived. That a line is missing shows nothing: the trace is off by default, may be lost, and no gRPC
    client writes one.
    """
    from rmqtx.readers.model.tables import TRACES
    from rmqtx.readers.store.store import TRACE_TOPIC
    from rmqtx.readers.traces.trace_scan import last_decisions, scan_traces

    bounds = within.bounds(voice)

    def read(one: Store, _columns: list[str]) -> Reading:
        found = scan_traces(
            one, trace_topic or TRACE_TOPIC, from_offset=bounds.from_offset, to_offset=bounds.to_offset,
            from_time_ms=bounds.from_time_ms, to_time_ms=bounds.to_time_ms,
        )
        return last_decisions(found) if last else found

    return list_rows(
        rows.of(store, voice, commit_log), "traces", read, schema=TRACES,
        named={"--topic": ("topic", topic), "--group": ("producer_group", group)},
    )
