"""`rmqtx decode consumequeue`: the entries of consume queues."""

from __future__ import annotations

from rmqtx.readers.model.reading import Reading
from rmqtx.readers.rocksdb.rocksdb_queue_scan import scan_all_slots
from rmqtx.readers.store.store import Store
from rmqtx_cli.commands.declared.decode import DecodeConsumequeue
from rmqtx_cli.commands.decode.shared import asked_of, list_rows


def run(options: DecodeConsumequeue) -> int:
    """Run the command; return its exit status."""
    def read(one: Store, _columns: list[str]) -> Reading:
        return scan_all_slots(
            one, topic=options.topic, queue_id=options.queue, from_queue_offset=options.begin,
            to_queue_offset=options.end,
        )

    return list_rows(
        asked_of(options.rows, options.store, options.voice, options.commit_log), "queue_slots", read,
        topic=options.topic,
    )
