"""`rmqtx decode commitlog`: every record of the commit log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import CoverageOption, QueueOption, RangeOptions, RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    BodyForm,
    CommitLogOption,
    FindingsOption,
    LimitOption,
    OutputOptions,
    StoreArguments,
    TopicOption,
    VoiceOptions,
    WhereOption,
)

if TYPE_CHECKING:
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.store.store import Store

NAME = "commitlog"
SHORT = "records of the commit log"
EXAMPLES = (
    Example("rmqtx decode commitlog STORE --limit 20", "the first records"),
    Example("rmqtx decode commitlog STORE --topic orders --body text", "messages of a topic, bodies as text"),
    Example("rmqtx decode commitlog STORE --from 2026-01-02T03:00:00Z --where 'keys ~ ^A42'", "by key, from a time on"),
    Example("rmqtx decode commitlog STORE --coverage", "decoded, filler, damaged and unread bytes of each file"),
    Example("rmqtx decode commitlog STORE -o records.parquet", "all records, for other tools"),
)

BodyOption = Annotated[
    BodyForm, typer.Option("--body", help="Print bodies as bytes (base64 in JSON, hexadecimal in tables) or as text")
]
DecompressOption = Annotated[bool, typer.Option("--decompress", help="Decompress bodies")]
CheckCrcOption = Annotated[bool, typer.Option("--check-crc", help="Compute and compare the CRC of each body")]


@dataclass(frozen=True, slots=True)
class ContentsOptions:
    """How bodies are read."""

    body: BodyOption = BodyForm.NONE
    decompress: DecompressOption = False
    check_crc: CheckCrcOption = False


@with_option_groups
def command(
    store: StoreArguments,
    *,
    within: RangeOptions,
    topic: TopicOption = None,
    queue: QueueOption = None,
    where: WhereOption = None,
    limit: LimitOption = None,
    contents: ContentsOptions,
    coverage: CoverageOption = False,
    findings: FindingsOption = False,
    output: OutputOptions,
    commit_log: CommitLogOption = None,
    voice: VoiceOptions,
) -> int:
    """Decode the records of the commit log; damaged parts are skipped and reported."""
    from rmqtx.readers.log.commit_log import scan_records
    from rmqtx.readers.model.tables import RECORDS
    from rmqtx_cli.options.bodies import text_schema, with_text_bodies

    bounds = within.bounds(voice)
    asked = RowsOptions(where, limit, coverage, findings, output).of(store, voice, commit_log)
    fields = output.fields or ""
    with_body = contents.body is not BodyForm.NONE or contents.decompress or "body" in fields
    with_crc = contents.check_crc or "body_crc_matches" in fields

    def read(one: Store, columns: list[str]) -> Reading:
        return scan_records(
            one, columns=columns, from_offset=bounds.from_offset, to_offset=bounds.to_offset,
            from_time_ms=bounds.from_time_ms, to_time_ms=bounds.to_time_ms, topic=topic,
            with_body=with_body, decompress=contents.decompress, check_crc=with_crc,
        )

    is_text = contents.body is BodyForm.TEXT
    return list_rows(
        asked, "records", read,
        conditions=(None if queue is None else f"queue_id = {queue}",),
        topic=topic, adapt=with_text_bodies if is_text else None,
        schema=text_schema() if is_text else RECORDS,
        extra=[*(["body"] if with_body else []), *(["body_crc_matches"] if with_crc else [])],
        unread={
            **({} if with_body else {"body": "--body text, and --decompress for compressed bodies"}),
            **({} if with_crc else {"body_crc_matches": "--check-crc"}),
        },
    )
