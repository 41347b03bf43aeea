"""The store of a world that ended: the files that its broker would leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqtx.readers.log.record_layout import COMMIT
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import FIRST_MS, Message
from tests.model.rules import PAUSE, Commit, Disk, Half, Op, Record, Release, Settings, born, halves, ops

ROUND_MS, PAUSE_MS = 100_000, 80 * 3_600_000
#: How long after its last step a store is read; the next round begins 30 s later.
READ_AFTER_MS = 60_000
GROUP, TOPIC, QUEUE = "shop", "orders", 1
_SEGMENT_BYTES = 16_384


def name_of(tx: int, stem: int = 0) -> str:
    """The id of a transaction."""
    return f"{stem:024X}{tx:08X}"


def time_ms(now: int) -> int:
    """The time of a step."""
    return FIRST_MS + now // PAUSE * PAUSE_MS + now % PAUSE * ROUND_MS


def immunity_seconds(rounds: int) -> int:
    """The immunity time of a half message that is immune in so many rounds."""
    return (rounds * ROUND_MS + ROUND_MS // 2) // 1_000


def conf(settings: Settings) -> dict[str, str]:
    """The configuration of the broker."""
    return {
        "transactionTimeOut": "6000", "transactionCheckMax": str(settings.check_max),
        "transactionCheckInterval": "30000", "fileReservedTime": "72",
    }


def messages(
    log: tuple[Record, ...], release: Release, settings: Settings, places: list[int], stem: int = 0
) -> Iterator[Message]:
    """The messages of the records; `places` has those before, and grows meanwhile. `stem`: a part of all ids."""
    for record in log:
        if isinstance(record, Op):
            separator = "," if release.has_batches else ""
            text = "".join(f"{number}{separator}" for number, _ in record.settled)
            yield Message(
                topic=OP_TOPIC, body=text.encode(), properties=(("WAIT", "true"), ("TAGS", "d")),
                born_time_ms=time_ms(record.when),
            )
        elif isinstance(record, Half):
            yield _half(HALF_TOPIC, log, record.tx, settings, (record.checks, record.prepared), stem)
        elif isinstance(record, Commit):
            named = log[record.named]
            assert isinstance(named, Half)
            half = _half(HALF_TOPIC, log, record.tx, settings, (named.checks, named.prepared), stem)
            yield Message(
                topic=TOPIC, queue_id=QUEUE, body=half.body, properties=half.properties, sys_flag=COMMIT,
                prepared_transaction_offset=places[record.named], born_time_ms=half.born_time_ms,
            )
        else:
            yield _half(DISCARD_TOPIC, log, record.tx, settings, (record.checks, None), stem)


def _half(
    topic: str, log: tuple[Record, ...], tx: int, settings: Settings, counts: tuple[int | None, int | None], stem: int
) -> Message:
    """A half message or a copy of it. Shape: `counts`: its checks, and the number that a put-back for immunity adds."""
    words = [("WAIT", "true"), ("TRAN_MSG", "true"), ("PGROUP", GROUP), ("UNIQ_KEY", name_of(tx, stem)),
             ("REAL_TOPIC", TOPIC), ("REAL_QID", str(QUEUE))]
    immune = settings.immune_rounds[tx]
    words += [("CHECK_IMMUNITY_TIME_IN_SECONDS", str(immunity_seconds(immune)))] if immune is not None else []
    for name, value in zip(("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"), counts, strict=True):
        words += [(name, str(value))] if value is not None else []
    return Message(topic=topic, body=f"tx-{tx} ".encode(), properties=tuple(words), born_time_ms=time_ms(born(log, tx)))


def written(root: Path, disk: Disk, release: Release, settings: Settings) -> tuple[Path, list[int]]:
    """Write the files. Shape: the root, and the place of each record of the log in bytes."""
    forge = Forge(root, segment_bytes=_SEGMENT_BYTES, is_closed=not "4.9.1" <= release.version < "5.2.0")
    places: list[int] = []
    log = (*disk.log, *disk.lost)
    for record, message in zip(log, messages(log, release, settings, places), strict=True):
        forge.now_ms = max(forge.now_ms, time_ms(record.when))
        places.append(forge.append(message))
    cursors = disk.cursors or (None, None)
    forge.write(half_cursor=cursors[0], op_cursor=cursors[1])
    if disk.cursors is None:
        (root / "config" / "consumerOffset.json").unlink()
    if disk.lost:
        damage.zero_bytes(damage.log_files(root)[0], places[len(disk.log)], _SEGMENT_BYTES - places[len(disk.log)])
    counts = (len(halves(log)), len(ops(log)))
    for topic, count, slots in zip((HALF_TOPIC, OP_TOPIC), counts, disk.slots, strict=True):
        if slots < count:
            (file,) = damage.queue_files(root, topic)
            damage.zero_bytes(file, slots * SLOT.size_bytes, (count - slots) * SLOT.size_bytes)
    if disk.is_killed:
        (root / "abort").touch()
    return root, places[: len(disk.log)]

