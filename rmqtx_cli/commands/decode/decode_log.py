"""`rmqtx decode KIND` for the records of the commit log: all of them, half copies, op messages, message traces."""

from __future__ import annotations

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import RECORDS, TRACES
from rmqtx.readers.store.store import TRACE_TOPIC, Store
from rmqtx.readers.traces import last_decisions, scan_traces
from rmqtx.verdicts.claims.records_read import with_lost_records
from rmqtx_cli.commands.declared.decode import DecodeCommitlog, DecodeHalf, DecodeOp, DecodeTrace, RowsOptions
from rmqtx_cli.commands.decode.shared import Asked, RowsForm, asked_of, bounds_of, list_readings, list_rows
from rmqtx_cli.options.bodies import text_schema, with_text_bodies
from rmqtx_cli.options.filters import all_of
from rmqtx_cli.options.options import BodyForm, StoreOptions
from rmqtx_cli.sources.source import AskedSource, SourceOpener, chosen_opener


def commitlog(options: DecodeCommitlog) -> int:
    """Print every record; return the exit status."""
    bounds = bounds_of(options.within, options.voice)
    queue = None if options.queue is None else f"queue_id = {options.queue}"
    where = all_of((options.where, queue))
    rows = RowsOptions(where, options.limit, options.coverage, options.findings, options.output)
    asked = asked_of(rows, options.store, options.voice, options.commit_log)
    fields = options.output.fields or ""
    with_body = options.contents.body is not BodyForm.NONE or options.contents.decompress or "body" in fields
    with_crc = options.contents.check_crc or "body_crc_matches" in fields

    def read(one: Store, columns: list[str]) -> Reading:
        reading = scan_records(
            one, bounds, columns=columns, topic=options.topic, with_body=with_body,
            decompress=options.contents.decompress, check_crc=with_crc,
        )
        return with_lost_records(reading, [one], bounds.to_offset)

    is_text = options.contents.body is BodyForm.TEXT
    return list_rows(
        asked, "records", read, topic=options.topic, schema=text_schema() if is_text else RECORDS,
        form=RowsForm(
            with_text_bodies if is_text else None,
            [*(["body"] if with_body else []), *(["body_crc_matches"] if with_crc else [])],
            {
                **({} if with_body else {"body": "--body text, and --decompress for compressed bodies"}),
                **({} if with_crc else {"body_crc_matches": "--check-crc"}),
            },
        ),
    )


def half(options: DecodeHalf) -> int:
    """Print the half copies of transactions; return the exit status."""
    asked, bounds = asked_of(options.rows, options.store or [], options.voice), bounds_of(options.within, options.voice)
    named = {"--topic": ("real_topic", options.topic), "--group": ("producer_group", options.group)}
    with _opener(options, asked).tables(asked.output.output) as tables:
        return list_readings(asked, "halves", lambda: tables.halves(bounds), named=named)


def op(options: DecodeOp) -> int:
    """Print the op messages that settle half copies; return the exit status."""
    asked, bounds = asked_of(options.rows, options.store or [], options.voice), bounds_of(options.within, options.voice)
    with _opener(options, asked).tables(asked.output.output) as tables:
        return list_readings(asked, "ops", lambda: tables.ops(bounds))


def _opener(options: DecodeHalf | DecodeOp, asked: Asked) -> SourceOpener:
    command = f"rmqtx decode {options.NAME}"
    return chosen_opener(
        AskedSource(asked.stores, options.live, StoreOptions(options.commit_log), options.rate), options.voice,
        f"{command} STORE, or {command} -n HOST:PORT", {"--coverage": options.rows.coverage},
    )


def trace(options: DecodeTrace) -> int:
    """Print what producers wrote about their transactions; return the exit status."""
    bounds = bounds_of(options.within, options.voice)

    def read(one: Store, _columns: list[str]) -> Reading:
        found = with_lost_records(
            scan_traces(one, options.trace_topic or TRACE_TOPIC, bounds), [one], bounds.to_offset
        )
        return last_decisions(found) if options.last else found

    return list_rows(
        asked_of(options.rows, options.store, options.voice, options.commit_log), "traces", read, schema=TRACES,
        named={"--topic": ("topic", options.topic), "--group": ("producer_group", options.group)},
    )
