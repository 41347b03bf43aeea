"""`rmqtx decode commitlog`: every record of the commit log."""

from __future__ import annotations

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import RECORDS
from rmqtx.readers.store.store import Store
from rmqtx_cli.commands.declared.decode import DecodeCommitlog, RowsOptions
from rmqtx_cli.commands.decode.shared import RowsForm, asked_of, bounds_of, list_rows
from rmqtx_cli.options.bodies import text_schema, with_text_bodies
from rmqtx_cli.options.filters import all_of
from rmqtx_cli.options.options import BodyForm


def run(options: DecodeCommitlog) -> int:
    """Run the command; return its exit status."""
    bounds = bounds_of(options.within, options.voice)
    queue = None if options.queue is None else f"queue_id = {options.queue}"
    where = all_of((options.where, queue))
    rows = RowsOptions(where, options.limit, options.coverage, options.findings, options.output)
    asked = asked_of(rows, options.store, options.voice, options.commit_log)
    fields = options.output.fields or ""
    with_body = options.contents.body is not BodyForm.NONE or options.contents.decompress or "body" in fields
    with_crc = options.contents.check_crc or "body_crc_matches" in fields

    def read(one: Store, columns: list[str]) -> Reading:
        return scan_records(
            one, bounds, columns=columns, topic=options.topic, with_body=with_body,
            decompress=options.contents.decompress, check_crc=with_crc,
        )

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
