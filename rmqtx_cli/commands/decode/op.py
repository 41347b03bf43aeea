"""`rmqtx decode op`: the op messages that settle half copies."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RangeOptions, RowsOptions, list_readings
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import CommitLogOption, OptionalStoreArguments, RateOption, StoreOptions, VoiceOptions

NAME = "op"
SHORT = "op messages, and the half copies that they settle"
EXAMPLES = (
    Example("rmqtx decode op STORE", "all op messages"),
    Example("rmqtx decode op -n 10.0.0.1:9876", "from live brokers"),
    Example("rmqtx decode op STORE --where 'half_queue_offsets = 17'", "op messages of half queue offset 17"),
)


@with_option_groups
def command(
    store: OptionalStoreArguments = None,
    *,
    within: RangeOptions,
    rows: RowsOptions,
    commit_log: CommitLogOption = None,
    rate: RateOption = None,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """Decode the op queue: the half queue offsets that each op message settles."""
    from rmqtx_cli.sources.source import chosen_opener

    asked = rows.of(store or [], voice)
    bounds = within.bounds(voice)
    advice = "rmqtx decode op STORE, or rmqtx decode op -n HOST:PORT"
    opener = chosen_opener(
        asked.stores, live, StoreOptions(commit_log), voice, advice, rate=rate,
        files_only={"--coverage": rows.coverage},
    )
    with opener.tables(asked.output.output) as tables:
        return list_readings(asked, "ops", lambda: tables.ops(bounds))
