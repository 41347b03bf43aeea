"""`rmqtx decode half`: the half copies of transactions."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RangeOptions, RowsOptions, list_readings
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    CommitLogOption,
    GroupOption,
    OptionalStoreArguments,
    RateOption,
    StoreOptions,
    TopicOption,
    VoiceOptions,
)

NAME = "half"
SHORT = "half copies of transactions"
EXAMPLES = (
    Example("rmqtx decode half STORE --topic orders", "half copies for a topic"),
    Example("rmqtx decode half -n 10.0.0.1:9876 --from @1767322985000", "from live brokers, from a time on"),
    Example("rmqtx decode half STORE --where 'checks_count >= 10' --format jsonl", "copies with 10 checks or more"),
)


@with_option_groups
def command(
    store: OptionalStoreArguments = None,
    *,
    within: RangeOptions,
    topic: TopicOption = None,
    group: GroupOption = None,
    rows: RowsOptions,
    commit_log: CommitLogOption = None,
    rate: RateOption = None,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """Decode the half queue: each half copy that was sent, put back or resumed."""
    from rmqtx_cli.sources.source import chosen_opener

    asked = rows.of(store or [], voice)
    bounds = within.bounds(voice)
    named = {"--topic": ("real_topic", topic), "--group": ("producer_group", group)}
    advice = "rmqtx decode half STORE, or rmqtx decode half -n HOST:PORT"
    opener = chosen_opener(
        asked.stores, live, StoreOptions(commit_log), voice, advice, rate=rate,
        files_only={"--coverage": rows.coverage},
    )
    with opener.tables(asked.output.output) as tables:
        return list_readings(asked, "halves", lambda: tables.halves(bounds), named=named)
