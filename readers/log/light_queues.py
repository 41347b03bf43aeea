"""Light queues: additional queues of a record, named in its properties (4.9.3+, enableMultiDispatch)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rmqtx.readers.log.properties import MULTI_DISPATCH
from rmqtx.readers.log.record_block import Block

PREFIX = "%LMQ%"
_OFFSETS = "INNER_MULTI_QUEUE_OFFSET"


def further_slots(rows: Block) -> Iterator[tuple[int, str, int, int]]:
    """Return the slots of records in queues other than their own: row, topic, queue number, queue offset.

    Order: that of the rows, then the property's.
    Damage: values that are not numbers are left out.
    Source: store/MultiDispatch.java, LmqDispatch.java; queues without the prefix have the record's queue number.
    """
    if not rows.properties.locate(MULTI_DISPATCH)[2].any():
        return
    names = rows.properties.text(MULTI_DISPATCH).to_pylist()
    places = rows.properties.text(_OFFSETS).to_pylist()
    for row, (queues, offsets) in enumerate(zip(names, places, strict=True)):
        if not queues or not offsets:
            continue
        for queue, offset in zip(queues.split(","), offsets.split(","), strict=False):
            if re.fullmatch(r"\d{1,18}", offset):
                queue_id = 0 if queue.startswith(PREFIX) else int(rows.header("queue_id")[row])
                yield row, queue, queue_id, int(offset)
