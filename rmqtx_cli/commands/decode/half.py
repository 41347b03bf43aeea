"""`rmqtx decode half`: the half copies of transactions."""

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
    GroupOption,
    LimitOption,
    OptionalStoreArguments,
    OutputOption,
    QuietOption,
    RateOption,
    TopicOption,
    VerboseOption,
    WhereOption,
)
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from readers.model.reading import Reading
    from readers.store.store import Store

NAME = "half"
SHORT = "every half copy, as its transaction's"
EXAMPLES = (
    Example("rmqtx decode half STORE --topic orders", "the half copies that would go to a topic"),
    Example("rmqtx decode half -n 10.0.0.1:9876 --from @1767322985000", "of live brokers, from a time on"),
    Example("rmqtx decode half STORE --where 'checks_count >= 10' --format jsonl", "copies that were checked often"),
)


@with_live_options
def command(
    store: OptionalStoreArguments = None,
    begin: FromOption = None,
    end: ToOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
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
    """Decode the half queue: each copy of each transaction that was prepared, put back or resumed."""
    from readers.log.half_and_op_tables import scan_halves
    from rmqtx_cli.sources.live_reading import live_tables_source, refuse_with_live, refuse_without_live

    asked = Asked(
        store or [], commit_log, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )
    bounds = parse_bounds(begin, end, asked.voice)

    def read(one: Store, _columns: list[str]) -> Reading:
        return scan_halves(
            one, from_offset=bounds.from_offset, to_offset=bounds.to_offset,
            from_time_ms=bounds.from_time_ms, to_time_ms=bounds.to_time_ms,
        )

    named = {"--topic": ("real_topic", topic), "--group": ("producer_group", group)}
    if live.instead_of(asked.stores, "rmqtx decode half STORE, or rmqtx decode half -n HOST:PORT"):
        refuse_with_live({"--commitlog": commit_log, "--coverage": coverage})
        with live_tables_source(live, rate) as source:
            given = source.halves(bounds, asked.voice)
            return list_rows(asked, "halves", read, named=named, given=given)
    refuse_without_live(rate)
    return list_rows(asked, "halves", read, named=named)
