"""Many stores judged at once, without their files: their records are one log, and each store is a part of it.

What the next start of a broker makes of its files is not tested here: only stores with all their slots and cursors are
judged in this way (`judging.is_whole`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.op_messages import marks_of
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.log.transaction_records import witnesses_of
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.check.check_rules import check_rules
from rmqtx.verdicts.check.state import CheckState
from rmqtx.verdicts.check.state import Op as StoredOp
from rmqtx.verdicts.check.stored_records import StoredHalves, StoredOps, halves_of_records, ops_of_records
from rmqtx.verdicts.check.window import CheckWindow
from rmqtx.verdicts.deadlines.predicting import predict_window
from rmqtx.verdicts.model.predicted import Prediction
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.model.witnesses import Witnesses
from rmqtx.verdicts.transactions.judge import judge
from tests.model.forging import READ_AFTER_MS, conf, messages, time_ms
from tests.model.judging import Row
from tests.model.rules import Disk, Half, Op, Release, Settings

_COLUMNS = (
    "transaction_id", "state", "advice", "reason_code", "checks_count", "half_copies", "op_marks", "final_records",
    "discard_copies", "next_event", "answer_effect", "deliveries_count",
)


def judged_together(root: Path, disks: Sequence[Disk], release: Release, settings: Settings) -> list[dict[str, Row]]:
    """The rows of each store, by the transaction id that it has in a store of its own. `root`: an empty folder."""
    data, begins = _log(disks, release, settings)
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(data + bytes(256))
    store = open_store(root)
    known = broker_settings(store, conf=conf(settings), version=release.version)
    (block,) = SegmentScan(store.commit_log[0], window_bytes=1 << 30)
    owners = np.searchsorted(begins, block.commit_log_offsets, side="right") - 1
    found = witnesses_of(block, "")
    found |= {"marks": marks_of(found["ops"])} if "ops" in found else {}
    parts = {name: [_named(found[name], begins)] if name in found else [] for name in
             ("halves", "marks", "finals", "discards")}
    assert known.version_low is not None
    rules = check_rules(known.version_low)
    is_half, is_op = block.topic_is(HALF_TOPIC), block.topic_is(OP_TOPIC)
    numbers = np.arange(len(block))
    halves = halves_of_records([(block.take(is_half), numbers[: is_half.sum()])], rules, 0, int(is_half.sum()))
    ops = ops_of_records([(block.take(is_op), numbers[: is_op.sum()])], rules, 0, int(is_op.sum()), 0)
    half_rows, op_rows = (np.searchsorted(owners[chosen], np.arange(len(disks) + 1)) for chosen in (is_half, is_op))
    views = {
        str(number): _view(
            number, disk, known,
            _future(disk, known, halves, half_rows[number : number + 2], ops.ops[slice(*op_rows[number : number + 2])]),
        )
        for number, disk in enumerate(disks)
    }
    rows: list[dict[str, Row]] = [{} for _ in disks]
    for row in judge(Witnesses.of(**parts), views, _COLUMNS).to_pylist():
        name = row["transaction_id"]
        rows[int(name[:24], 16)]["0" * 24 + name[24:]] = row
    return rows


def _log(disks: Sequence[Disk], release: Release, settings: Settings) -> tuple[bytes, Int64s]:
    """The bytes of one log with the records of all stores, and where each begins."""
    data, begins = bytearray(), []
    is_closed = not "4.9.1" <= release.version < "5.2.0"
    for stem, disk in enumerate(disks):
        begins.append(len(data))
        places: list[int] = []
        count = 0
        for turn, (record, message) in enumerate(
            zip(disk.log, messages(disk.log, release, settings, places, stem), strict=True)
        ):
            number = record.number if isinstance(record, Half) else count if isinstance(record, Op) else 0
            count += isinstance(record, Op)
            message = replace(
                message, queue_offset=number, store_time_ms=time_ms(record.when) + turn + 1, is_closed=is_closed
            )
            places.append(len(data))
            data += message.record(len(data))
    return bytes(data), np.array(begins, np.int64)


def _named(rows: pa.RecordBatch, begins: Int64s) -> pa.RecordBatch:
    """Rows with the name of the store that each belongs to."""
    owners = np.searchsorted(begins, np.asarray(rows["commit_log_offset"]), side="right") - 1
    names = pa.array(owners.astype(str).tolist(), pa.string())
    return rows.set_column(rows.schema.get_field_index("store"), rows.schema.field("store"), names)


def _future(
    disk: Disk, settings: BrokerSettings, halves: StoredHalves, rows: Int64s, ops: list[StoredOp | None]
) -> Prediction:
    """What the check does. Shape: `rows`: the first half copy of the store among `halves`, and the one after it."""
    assert disk.cursors is not None
    assert settings.version_low is not None
    half_cursor, op_cursor = (cursor or 0 for cursor in disk.cursors)
    own = replace(halves, begin=half_cursor, rows=np.arange(rows[0] + half_cursor, rows[1]))
    count = int(rows[1] - rows[0])
    least = [
        None if op is None else op._replace(numbers=tuple(one for one in op.numbers if one >= half_cursor))
        for op in ops[op_cursor:]
    ]
    state = CheckState(
        0, half_cursor, 0, count, op_cursor, 0, len(ops), _alone(own, half_cursor), StoredOps(op_cursor, least)
    )
    window = CheckWindow(state, _stored(state).words)
    rules = check_rules(settings.version_low)
    return predict_window("", window, rules, settings, time_ms(disk.now) + READ_AFTER_MS, is_running=False)


def _stored(state: CheckState) -> StoredHalves:
    assert isinstance(state.halves, StoredHalves)
    return state.halves


def _alone(halves: StoredHalves, begin: int) -> StoredHalves:
    """The half copies of one store only."""
    rows = halves.rows
    numbers = {name: values[rows] for name, values in halves.numbers.items()}
    return StoredHalves(begin, np.arange(len(rows)), numbers, halves.words.take(pa.array(rows)), 0,
                        np.zeros(len(rows), np.bool_))


def _view(number: int, disk: Disk, settings: BrokerSettings, future: Prediction) -> StoreView:
    assert disk.cursors is not None
    half_cursor, op_cursor = (cursor or 0 for cursor in disk.cursors)
    end_ms = time_ms(disk.log[-1].when) + len(disk.log)
    return StoreView(
        store=str(number), settings=settings, half_cursors={0: half_cursor}, op_cursors={0: op_cursor},
        log_begin_offset=0, reference_time_ms=end_ms, now_ms=time_ms(disk.now) + READ_AFTER_MS,
        checks_seen_max=max((one.checks or 0 for one in disk.log if isinstance(one, Half)), default=0),
        is_interrupted=disk.is_killed, killed_time_ms=end_ms if disk.is_killed else None, future=future,
    )
