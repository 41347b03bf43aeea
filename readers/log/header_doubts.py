"""Find impossible headers of witnesses of the designs before 4.3: no checksum covers headers.

A prepared record names no other record. A record with its flag that names another one is a COMMIT record with a damaged
flag, or a prepared record with a damaged name. A record without UNIQ_KEY is identified by broker address and place, so
an impossible port gives a wrong id.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.header_rules import PORT_MAX, STATE_RULES, broken_rules, has_port
from rmqtx.readers.log.prepared_records import CLUSTER, in_later_topics, is_prepared
from rmqtx.readers.log.properties import HALF_MARK, REAL_TOPIC, UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import PREPARED, TRANSACTION_MASK
from rmqtx.readers.log.transaction_records import are_damaged_finals
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.findings import Finding

#: By kind of witness, the column that is set if the id comes from the header.
_LONE = {"halves": "lone_message_id", "finals": "lone_prepared_id", "offset_marks": "lone_prepared_id"}


def contradict_prepared_flag(block: Block) -> Bools:
    """Return records with the flag of a prepared record that name another record or have properties of a COMMIT record.

    These are the properties of 4.3 and later. The log's first record is named by 0, which also stands for no name.
    """
    rows: Bools = block.sys_flag & TRANSACTION_MASK == PREPARED
    if not rows.any():
        return rows
    later: Bools = block.properties.locate(REAL_TOPIC)[2] | block.properties.locate(CLUSTER)[2]
    doubtful: Bools = is_prepared(block) & rows & (later | (block.header("prepared_transaction_offset") != 0))
    return doubtful


def header_findings(block: Block, witnesses: dict[str, pa.RecordBatch], store: str) -> list[Finding]:
    """Return findings for impossible headers of witnesses.

    `witnesses`: the witnesses among the records of the block, by kind.
    Order: kind of finding, then of the block.
    Damage: words-contradict, record-header.
    """
    found = [*broken_rules(block, store, STATE_RULES), *_prepared_findings(block, store)]
    if "halves" in witnesses:
        both = block.take(contradict_prepared_flag(block))
        for row, named in enumerate(both.header("prepared_transaction_offset").tolist()):
            found.append(_finding(
                store, both, row, "words-contradict", "a prepared record (by its flag), which names no other record",
                f"names commit-log offset {named}" if named else "properties of a COMMIT record of 4.3 or later",
            ))
    lost = block.take(are_damaged_finals(block))
    for row in range(len(lost)):
        real_topic = lost.properties.text(REAL_TOPIC)[row].as_py() or "of its own"  # 5.5.0 does not write it
        deliveries = int(lost.header("reconsume_times")[row])
        found.append(_finding(
            store, lost, row, "words-contradict", f"a COMMIT record (by its flag and properties), topic {real_topic}",
            f"topic {lost.topic_texts()[row].as_py()}, {deliveries} failed deliveries",
        ))
    lone = [
        np.asarray(rows["commit_log_offset"].filter(pc.is_valid(rows[_LONE[name]])))
        for name, rows in witnesses.items() if name in _LONE and rows[_LONE[name]].null_count < len(rows)
    ]
    places = np.concatenate([np.empty(0, np.int64), *lone])
    if not len(places):
        return found
    known = block.take(np.isin(block.commit_log_offsets, places))
    ports = known.header("store_port")
    for row in np.flatnonzero(~has_port(known.store_host_numbers())).tolist():
        found.append(_finding(
            store, known, row, "record-header", f"a port from 0 to {PORT_MAX}", f"store_port {ports[row]}"
        ))
    return found


def _prepared_findings(block: Block, store: str) -> Iterator[Finding]:
    """Yield findings for damaged flags in a block with prepared records, where flag and properties disagree.

    An ordinary message has no TRAN_MSG: clients of these designs set the flag of a prepared record with it. The COMMIT
    record of the log's first record has its id and born time, and like a prepared record it names 0.
    """
    kinds = block.sys_flag & TRANSACTION_MASK
    prepared: Bools = kinds == PREPARED
    if not prepared.any():
        return
    rows = np.flatnonzero((kinds == 0) & (block.body_lengths > 0) & ~in_later_topics(block))
    rows = rows[block.take(rows).properties.locate(HALF_MARK)[2]] if len(rows) else rows
    for row in rows.tolist():
        yield _finding(
            store, block, row, "words-contradict", "a prepared record (by its property TRAN_MSG)",
            "flag of an ordinary message",
        )
    prepared &= block.header("prepared_transaction_offset") == 0
    if block.commit_log_offsets[0] or not prepared[0]:
        return
    rows = np.flatnonzero(prepared & (block.header("born_time_ms") == block.header("born_time_ms")[0]))
    names = block.take(rows).properties.text(UNIQ_KEY)
    for row in rows[np.asarray(pc.fill_null(pc.equal(names, names[0]), False))][1:].tolist():
        yield _finding(
            store, block, row, "words-contradict", "a COMMIT record (by id and born time of the log's first record)",
            "flag of a prepared record",
        )


def _finding(store: str, block: Block, row: int, code: str, expected: str, actual: str) -> Finding:
    return Finding(
        store, code, block.file, int(block.positions[row]), int(block.lengths[row]),
        commit_log_offset=int(block.commit_log_offsets[row]), expected=expected, actual=actual,
    )
