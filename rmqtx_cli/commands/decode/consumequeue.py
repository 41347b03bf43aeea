"""`rmqtx decode consumequeue`: the entries of consume queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import (
    Asked,
    CoverageOption,
    FromOffsetOption,
    QueueOption,
    ToOffsetOption,
    list_rows,
)
from rmqtx_cli.options.options import (
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

NAME = "consumequeue"
SHORT = "every entry of the consume queues"
EXAMPLES = (
    Example("rmqtx decode consumequeue STORE --topic orders --queue 0", "one queue"),
    Example("rmqtx decode consumequeue STORE --topic RMQ_SYS_TRANS_HALF_TOPIC --from 1000", "halves from 1000 on"),
)


def command(
    store: StoreArguments,
    begin: FromOffsetOption = None,
    end: ToOffsetOption = None,
    topic: TopicOption = None,
    queue: QueueOption = None,
    where: WhereOption = None,
    limit: LimitOption = None,
    coverage: CoverageOption = False,
    findings: FindingsOption = False,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    commit_log: CommitLogOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Decode consume queues: simple, batch, and those in RocksDB (which need the extra rocksdb)."""
    from readers.rocksdb.rocksdb_queue_scan import scan_all_slots

    asked = Asked(
        store, commit_log, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )

    def read(one: Store, _columns: list[str]) -> Reading:
        return scan_all_slots(one, topic=topic, queue_id=queue, from_queue_offset=begin, to_queue_offset=end)

    return list_rows(asked, "queue_slots", read, topic=topic)
