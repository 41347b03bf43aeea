"""`rmqtx decode consumequeue`: the entries of consume queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import FromOffsetOption, QueueOption, RowsOptions, ToOffsetOption, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import CommitLogOption, StoreArguments, TopicOption, VoiceOptions

if TYPE_CHECKING:
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.store.store import Store

NAME = "consumequeue"
SHORT = "entries of the consume queues"
EXAMPLES = (
    Example("rmqtx decode consumequeue STORE --topic orders --queue 0", "one queue"),
    Example(
        "rmqtx decode consumequeue STORE --topic RMQ_SYS_TRANS_HALF_TOPIC --from 1000",
        "half messages from 1000 on",
    ),
)


@with_option_groups
def command(
    store: StoreArguments,
    begin: FromOffsetOption = None,
    end: ToOffsetOption = None,
    topic: TopicOption = None,
    queue: QueueOption = None,
    *,
    rows: RowsOptions,
    commit_log: CommitLogOption = None,
    voice: VoiceOptions,
) -> int:
    """Decode the entries of consume queues: in files, batch queues, and in RocksDB (needs the extra rocksdb)."""
    from rmqtx.readers.rocksdb.rocksdb_queue_scan import scan_all_slots

    def read(one: Store, _columns: list[str]) -> Reading:
        return scan_all_slots(one, topic=topic, queue_id=queue, from_queue_offset=begin, to_queue_offset=end)

    return list_rows(rows.of(store, voice, commit_log), "queue_slots", read, topic=topic)
