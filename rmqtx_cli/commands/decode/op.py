"""`rmqtx decode op`: the op messages that end half copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import Asked, CoverageOption, FromOption, ToOption, list_rows, parse_bounds
from rmqtx_cli.options.live import LiveOptions, with_live_options
from rmqtx_cli.options.options import (
    CommitLogOption,
    FieldsOption,
    FindingsOption,
    FormatOption,
    LimitOption,
    OptionalStoreArguments,
    OutputOption,
    QuietOption,
    RateOption,
    VerboseOption,
    WhereOption,
)
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from readers.model.reading import Reading
    from readers.store.store import Store

NAME = "op"
SHORT = "every op message, and what it ends"
EXAMPLES = (
    Example("rmqtx decode op STORE", "every op message"),
    Example("rmqtx decode op -n 10.0.0.1:9876", "of live brokers"),
    Example("rmqtx decode op STORE --where 'half_queue_offsets = 17'", "the ops that end half 17"),
)


@with_live_options
def command(
    store: OptionalStoreArguments = None,
    begin: FromOption = None,
    end: ToOption = None,
    where: WhereOption = None,
    limit: LimitOption = None,
    coverage: CoverageOption = False,
    findings: FindingsOption = False,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    commit_log: CommitLogOption = None,
    rate: RateOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    *,
    live: LiveOptions,
) -> int:
    """Decode the op queue: which half queue offsets each op message ends."""
    from readers.log.half_and_op_tables import scan_ops
    from rmqtx_cli.sources.live_reading import live_tables_source, refuse_with_live, refuse_without_live

    asked = Asked(
        store or [], commit_log, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )
    bounds = parse_bounds(begin, end, asked.voice)

    def read(one: Store, _columns: list[str]) -> Reading:
        return scan_ops(
            one, from_offset=bounds.from_offset, to_offset=bounds.to_offset,
            from_time_ms=bounds.from_time_ms, to_time_ms=bounds.to_time_ms,
        )

    if live.instead_of(asked.stores, "rmqtx decode op STORE, or rmqtx decode op -n HOST:PORT"):
        refuse_with_live({"--commitlog": commit_log, "--coverage": coverage})
        with live_tables_source(live, rate) as source:
            return list_rows(asked, "ops", read, given=source.ops(bounds, asked.voice))
    refuse_without_live(rate)
    return list_rows(asked, "ops", read)
