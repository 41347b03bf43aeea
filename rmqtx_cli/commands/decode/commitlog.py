"""`rmqtx decode commitlog`: every record of the commit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import (
    Asked,
    CoverageOption,
    FromOption,
    QueueOption,
    ToOption,
    list_rows,
    parse_bounds,
)
from rmqtx_cli.options.options import (
    BodyForm,
    CommitLogOption,
    FieldsOption,
    FindingsOption,
    FormatOption,
    LimitOption,
    OutputOption,
    QuietOption,
    StoreArguments,
    TopicOption,
    VerboseOption,
    WhereOption,
)
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from readers.model.reading import Reading
    from readers.store.store import Store

NAME = "commitlog"
SHORT = "every record of the commit log"
EXAMPLES = (
    Example("rmqtx decode commitlog STORE --limit 20", "the first records"),
    Example("rmqtx decode commitlog STORE --topic orders --body text", "one topic's messages, readable"),
    Example("rmqtx decode commitlog STORE --from 2026-01-02T03:00:00Z --where 'keys ~ ^A42'", "a key, from a time on"),
    Example("rmqtx decode commitlog STORE --coverage", "what became of every byte"),
    Example("rmqtx decode commitlog STORE -o records.parquet", "all of it, for other tools"),
)

BodyOption = Annotated[
    BodyForm, typer.Option("--body", help="Bodies as bytes (base64 in JSON, hexadecimal in tables), or as text.")
]
DecompressOption = Annotated[bool, typer.Option("--decompress", help="Inflate bodies that the producer compressed.")]
CheckCrcOption = Annotated[bool, typer.Option("--check-crc", help="Compute each body's CRC and compare.")]


def command(
    store: StoreArguments,
    begin: FromOption = None,
    end: ToOption = None,
    topic: TopicOption = None,
    queue: QueueOption = None,
    where: WhereOption = None,
    limit: LimitOption = None,
    body: BodyOption = BodyForm.NONE,
    decompress: DecompressOption = False,
    check_crc: CheckCrcOption = False,
    coverage: CoverageOption = False,
    findings: FindingsOption = False,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    commit_log: CommitLogOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Decode the records of the commit log, damage stepped over and named."""
    from readers.log.commit_log import scan_records
    from readers.model.tables import RECORDS
    from rmqtx_cli.options.bodies import text_schema, with_text_bodies

    bounds = parse_bounds(begin, end, Voice(verbose, quiet))
    asked = Asked(
        store, commit_log, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )
    with_body = body is not BodyForm.NONE or decompress or "body" in (fields or "")
    with_crc = check_crc or "body_crc_matches" in (fields or "")

    def read(one: Store, columns: list[str]) -> Reading:
        return scan_records(
            one, columns=columns, from_offset=bounds.from_offset, to_offset=bounds.to_offset,
            from_time_ms=bounds.from_time_ms, to_time_ms=bounds.to_time_ms, topic=topic,
            with_body=with_body, decompress=decompress, check_crc=with_crc,
        )

    is_text = body is BodyForm.TEXT
    return list_rows(
        asked, "records", read,
        conditions=(None if queue is None else f"queue_id = {queue}",),
        topic=topic, adapt=with_text_bodies if is_text else None,
        schema=text_schema() if is_text else RECORDS,
        extra=[*(["body"] if with_body else []), *(["body_crc_matches"] if with_crc else [])],
    )
