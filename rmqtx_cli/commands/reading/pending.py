"""`rmqtx pending`: the transactions that hang."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.live import LiveOptions, with_live_options
from rmqtx_cli.options.options import (
    AtOption,
    BrokerConfOption,
    BrokerVersionOption,
    CommitLogOption,
    FailOnOption,
    FieldsOption,
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
from rmqtx_cli.sources.transaction_tables import DatabaseOptions, with_database_options, with_entries
from rmqtx_cli.words.durations import parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "pending"
SHORT = "transactions that hang, oldest first"
_DEADLINE_NAMES = frozenset({"deadline", "discard_in", "discard_in_ms", "discard_at", "discard_at_ms"})
EXAMPLES = (
    Example("rmqtx pending STORE", "what hangs, oldest first"),
    Example("rmqtx pending STORE --older-than 10m --group shop --sort checks", "only what should be over by now"),
    Example("rmqtx pending STORE --deadline-within 10m --sort deadline", "what the broker discards next"),
    Example("rmqtx pending STORE --format jsonl | jq -r .transaction_id", "the ids, for a script"),
    Example("rmqtx pending -n 10.0.0.1:9876 --older-than 10m", "live brokers, asked over the wire"),
    Example("rmqtx pending BROKER_A BROKER_B --all-open", "two brokers, and what is decided but asked again"),
)

OlderThanOption = Annotated[
    str | None, typer.Option("--older-than", metavar="DURATION", help="Only those whose first copy is older: 10m, 2h.")
]
DeadlineWithinOption = Annotated[
    str | None,
    typer.Option(
        "--deadline-within", metavar="DURATION", help="Only those that the broker will have discarded by then: 10m, 2h."
    ),
]
AllOpenOption = Annotated[
    bool, typer.Option("--all-open", help="Also those that are decided, but that the broker will ask again.")
]
ScanOption = Annotated[bool, typer.Option("--scan", help="Read the whole log instead of following queues and index.")]


@with_live_options
@with_database_options
def command(
    context: typer.Context,
    store: OptionalStoreArguments = None,
    older_than: OlderThanOption = None,
    group: GroupOption = None,
    topic: TopicOption = None,
    where: WhereOption = None,
    deadline_within: DeadlineWithinOption = None,
    limit: LimitOption = None,
    all_open: AllOpenOption = False,
    at: AtOption = None,
    scan: ScanOption = False,
    fail_on: FailOnOption = None,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    commit_log: CommitLogOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    rate: RateOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    *,
    live: LiveOptions,
    database: DatabaseOptions,
) -> int:
    """List the transactions that hang: the broker still has them before it.

    Each row carries the offsets that prove it. The cost grows with what is open, not with the log. Live brokers are
    also asked whether a producer of the group is connected, which would answer their checks.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from readers.model.tables import LIVE_TRANSACTIONS, TRANSACTIONS
    from readers.storage.file_systems import expand
    from rmqtx_cli.options.row_options import SORT
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.ordering import names_of, oldest_first
    from rmqtx_cli.output.views import transactions_view
    from rmqtx_cli.pages.check_alive import never_asked_counts
    from rmqtx_cli.pages.headlines import pending_lines
    from rmqtx_cli.pages.summary import Summary
    from rmqtx_cli.sources.live_reading import (
        arguments,
        live_source,
        refuse_with_live,
        refuse_without_live,
        say_producers,
    )
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header
    from rmqtx_cli.sources.provenance import carry_custody
    from rmqtx_cli.words.progress import shown
    from rmqtx_cli.words.unknown_names import say_unknown_names
    from verdicts.audit.lookups import pending

    voice = Voice(verbose, quiet)
    at_ms = asked_time_ms("--at", at, voice)
    now_ms = at_ms if at_ms is not None else time.time_ns() // 1_000_000
    within_ms = None if deadline_within is None else parse_duration_ms(deadline_within)
    with_deadline = within_ms is not None or not _DEADLINE_NAMES.isdisjoint(names_of(SORT.get()))
    if with_deadline and at_ms is not None:
        raise BadRequest("a deadline is foretold from now on: --at goes with neither --deadline-within nor its order")
    is_live = live.instead_of(store or [], "rmqtx pending STORE, or rmqtx pending -n HOST:PORT")
    age_ms = None if older_than is None else parse_duration_ms(older_than)
    if is_live:
        refuse_with_live({
            "--at": at, "--scan": scan, "--commitlog": commit_log, "--broker-conf": broker_conf,
            "--broker-version": broker_version, "--transaction-table": database.address,
        })
        view = transactions_view(
            now_ms, with_state=all_open, with_store=True, with_producers=True, with_deadline=with_deadline
        )
        listing = Listing(
            LIVE_TRANSACTIONS, view, output_format, output, fields, where, fail_on, limit, voice, now_ms=now_ms
        )
        with live_source(live, voice, rate) as source:
            reading = source.pending()
            rows = reading.table()
    else:
        refuse_without_live(rate)
        places = expand(store or [])
        view = transactions_view(
            now_ms, with_state=all_open, with_store=len(places) > 1, with_deadline=with_deadline
        )
        listing = Listing(
            TRANSACTIONS, view, output_format, output, fields, where, fail_on, limit, voice, now_ms=now_ms
        )
        opened = open_stores(places, commit_log, broker_conf, broker_version)
        refuse_inside(output, opened.stores)
        say_header(opened, voice)
        carry_custody(context, listing, opened.stores)
        table = database.read(opened.stores)
        with shown("reading", voice) as progress:
            reading = pending(opened.stores, opened.settings_of, at_ms=at_ms, scan=scan, progress=progress)
            rows = reading.table()
        if table is not None:
            rows = pa.Table.from_batches(with_entries(rows.to_batches(), table), rows.schema)
    chosen = _chosen(
        rows, all_open=all_open, group=group, topic=topic, stored_before_ms=_before(now_ms, age_ms),
        discarded_by_ms=None if within_ms is None else now_ms + within_ms,
    )
    say_unknown_names(rows, {"--topic": ("topic", topic), "--group": ("producer_group", group)}, voice)
    chosen = oldest_first(listing.fulfilling(chosen))
    counted = Summary.of(chosen)
    where_to_look = arguments(live) if is_live else opened.arguments
    for line in pending_lines(
        chosen, pc.sum(pc.equal(rows["state"], "PENDING")).as_py() or 0, reading.check_stops,
        functools.partial(never_asked_counts, rows), reading.foretold, now_ms, arguments(live) if is_live else None,
        f"next: {counted.next_command(where_to_look)}" if chosen.num_rows and at_ms is None else None,
        is_one_store=not is_live and len(opened.stores) == 1,
    ):
        voice.note(line)
    listing.write(iter(chosen.to_batches()), to_the_end=True)
    listing.say_limit("transaction")
    if not all_open:
        _say_hidden(rows.filter(pc.not_equal(rows["state"], "PENDING")), voice)
    if is_live:
        say_producers(chosen, voice)
    return listing.conclude(reading)


def _say_hidden(rows: pa.Table, voice: Voice) -> None:
    perhaps = rows["reason_code"].to_pylist().count("commit_record_table_unread")
    never = sum("never_asked" in flags for flags in rows["flags"].to_pylist())
    if surely := rows.num_rows - perhaps - never:
        voice.note(f"{surely} more are decided, but the broker will ask again (--all-open)")
    if never:
        voice.note(f"{never} more are decided, and the stopped check does not come to them: the broker will ask for "
                   "them again only when it goes on (--all-open)")
    if perhaps:
        what = "only the RocksDB table, which was not read, tells whether the broker will ask again"
        voice.note(f"{perhaps} more are decided, and {what} (--all-open)")


def _before(now_ms: int, age_ms: int | None) -> int | None:
    return None if age_ms is None else now_ms - age_ms


def _chosen(
    rows: pa.Table, *, all_open: bool, group: str | None, topic: str | None, stored_before_ms: int | None,
    discarded_by_ms: int | None,
) -> pa.Table:
    import pyarrow.compute as pc

    from readers.model.columns import rows_where

    if not all_open:
        rows = rows_where(rows, pc.equal(rows["state"], "PENDING"))
    if group is not None:
        rows = rows.filter(pc.equal(rows["producer_group"], group))
    if topic is not None:
        rows = rows.filter(pc.equal(rows["topic"], topic))
    if stored_before_ms is not None:
        rows = rows.filter(pc.less_equal(rows["half_store_time_ms"], stored_before_ms))
    if discarded_by_ms is not None:
        rows = rows.filter(pc.less_equal(rows["discard_at_ms"], discarded_by_ms))
    return rows
