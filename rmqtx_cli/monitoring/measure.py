"""Measures what `rmqtx check` judges: pending transactions and their ages, cursors, ends of log and half queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.model.columns import rows_in_order
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb_queues import joined_bounds, queue_bounds
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.causes.strengths import cause_counts
from rmqtx.verdicts.model.predicted import deadline_of
from rmqtx.verdicts.model.reading import VerdictReading, undecidable_words
from rmqtx.verdicts.model.store_evidence import OP_WRITE_MS, op_hold_ms
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.reason_codes import WITHOUT_CHECK
from rmqtx_cli.monitoring.numbers import PENDING, WITHOUT_OP, Causes, GroupNumbers, Numbers, Place, StoreNumbers
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.pages.headlines import passed_sentences, refused_sentences, stopped_sentence
from rmqtx_cli.pages.order_of_harm import Harms
from rmqtx_cli.sources.files import FileSource
from rmqtx_cli.words.text import of_group

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.store.broker_settings import BrokerSettings
    from rmqtx.remoting.live.store_facts import LiveStore
    from rmqtx.verdicts.model.predicted import Prediction
    from rmqtx_cli.sources.source import Source

#: Only transactions pending for this time are remembered until the next run; the producer may still decide others.
REMEMBERED_AGE_MS = 60_000
REMEMBERED_MAX = 1_000


def _queue_numbers(source: Source, now_ms: int) -> list[StoreNumbers]:
    """Cursors and the ends of log and queues of each store or broker."""
    if isinstance(source, FileSource):
        return [_numbers_of_store(store, source.opened.settings_of) for store in source.stores]
    from rmqtx_cli.monitoring.held import held_sentences  # both have connections: files need none
    from rmqtx_cli.sources.brokers import BrokerSource

    if isinstance(source, BrokerSource):
        held = held_sentences(source.facts, now_ms)
        return [_numbers_of_broker(fact, *held.get(fact.root, (None, False))) for fact in source.facts]
    raise TypeError(f"check reads stores in files and live brokers, not a {type(source).__name__}")


def _numbers_of_broker(fact: LiveStore, held: str | None, is_hold_over: bool) -> StoreNumbers:
    return StoreNumbers(
        fact.root, is_in_use=True, half_next_offset=fact.half_cursor, half_max_offset=fact.half_end,
        discard_max_offset=max(0, fact.broker.max_offset(DISCARD_TOPIC)),
        check_interval_ms=fact.settings.transaction_check_interval_ms,
        op_next_offset=fact.op_cursor, op_max_offset=max(0, fact.broker.max_offset(OP_TOPIC)),
        cluster=fact.broker.cluster, broker_name=fact.broker.name, op_hold_ms=_op_hold_ms(fact.settings),
        held=held, is_hold_over=is_hold_over,
    )


def _op_hold_ms(settings: BrokerSettings) -> int:
    if settings.batches_ops is False:
        return OP_WRITE_MS
    return op_hold_ms(settings.version_low, settings.version_high, settings.transaction_op_batch_interval_ms)


def measure(source: Source, now_ms: int) -> Numbers:
    """The numbers of stores or brokers, without reading whole logs.

    Raises: SourceError if a store cannot be read; Unreachable, NoAnswer, Refused.
    """
    return measured_rows(source, now_ms)[0]


def measured_rows(source: Source, now_ms: int) -> tuple[Numbers, pa.Table]:
    """The same, and the rows of the transactions that were counted. Raises: the same."""
    return _measured(_queue_numbers(source, now_ms), source.pending(), now_ms, source.live)


def _measured(
    stores: list[StoreNumbers], reading: VerdictReading, now_ms: int, live: str | None = None
) -> tuple[Numbers, pa.Table]:
    """The numbers, with pending transactions counted into those of their stores.

    `live`: the options that connect to the same brokers, None for files.
    """
    numbers = Numbers(now_ms, stores)
    by_root = {one.store: one for one in stores}
    rows = rows_in_order(reading.table(), ["half_store_time_ms"])
    columns = [
        "store", "transaction_id", "state", "advice", "flags", "half_store_time_ms", "discard_at_ms", "producer_group",
        "topic", "next_event", "answer_effect", "reason_code",
    ]
    for number, row in enumerate(rows.select(columns).to_pylist()):
        one = by_root[row["store"]]
        is_asked = row["next_event"] is None or row["answer_effect"] is not None
        records = _Records(rows, number)
        if "commit_without_op" in row["flags"] and is_asked:
            one.commit_without_op_count += not _is_op_held(records.of("final_records"), one, now_ms)
        if row["state"] != State.PENDING:
            continue
        one.pending_count += 1
        one.never_asked_count += "never_asked" in row["flags"] or row["reason_code"] in WITHOUT_CHECK
        age = now_ms - row["half_store_time_ms"]
        one.oldest_pending_ms = max(one.oldest_pending_ms or age, age)
        _count_group(numbers, row, age)
        if numbers.oldest_id is None:
            numbers.oldest_id = row["transaction_id"]
            numbers.oldest_of = of_group(row["producer_group"], row["topic"])
            numbers.oldest_of += f", store {one.store}" if len(stores) > 1 else ""
        numbers.pending_ids.add(row["transaction_id"])
        _count_deadline(numbers, one, row, records, reading.predicted)
        _add_hanging(numbers, row, records, age)
    for stop in reading.check_stops:
        one = by_root[stop.store]
        sentence = stopped_sentence(stop, (one.never_asked_count, one.pending_count))
        whose = f"{one.store}: " if len(stores) > 1 else ""
        # Pagers cut a long line: `pending` prints the cause and the commands.
        one.check_stopped = f"{whose}{sentence}; {next_line(f'rmqtx pending {live or quoted(one.store)}')}"
    for root, evidence in reading.evidence.items():
        by_root[root].is_traced = evidence.traces is not None and evidence.traces.exist
    numbers.causes_of = _causes(rows)
    harms = Harms(now_ms)
    for batch in rows.to_batches():
        harms.add(batch)
    numbers.soon = list(harms.soon_sentences(reading.predicted))
    predicted = reading.predicted
    numbers.unreached = [*refused_sentences(predicted), *harms.start_sentences(), *passed_sentences(predicted)]
    lacking = [one for one in reading.findings if one.code == "copy-lacks-pending"]
    numbers.copies_lacking = {one.store: one.actual or "" for one in lacking}
    reasons: Counter[str] = Counter()
    for (root, reason), undecidable_count in reading.undecidable.items():
        by_root[root].undecidable_count += undecidable_count
        reasons[reason] += undecidable_count
    numbers.evidence_missing = sorted({f.code for f in reading.findings if f.is_error})
    if reasons:
        numbers.undecidable = undecidable_words(reasons, " UNDECIDABLE")
        numbers.evidence_missing = sorted({*numbers.evidence_missing, "undecidable"})
    return numbers, rows


class _Records(NamedTuple):
    """The records of one transaction, which few transactions need: as objects they are most of a row."""

    rows: pa.Table
    number: int

    def of(self, name: str) -> list[dict[str, Any]]:
        """The records of a column."""
        found: list[dict[str, Any]] = self.rows[name][self.number].as_py()
        return found


def _is_op_held(finals: list[dict[str, Any]], one: StoreNumbers, now_ms: int) -> bool:
    """Whether the op message of the newest of some COMMIT records may still be in the memory of a running broker."""
    newest_ms = max((final["store_time_ms"] for final in finals), default=0)
    return one.is_in_use and newest_ms > now_ms - one.op_hold_ms


def _causes(rows: pa.Table) -> dict[str, Causes]:
    """The causes of the transactions that an alert counts, by what it counts; of the others none."""
    flags = rows["flags"].to_pylist()
    states = rows["state"].to_pylist()
    chosen = {
        PENDING: [state == State.PENDING for state in states],
        WITHOUT_OP: ["commit_without_op" in of for of in flags],
    }
    return {kind: cause_counts(rows.filter(mask)) for kind, mask in chosen.items() if any(mask)}


def _count_group(numbers: Numbers, row: dict[str, Any], age_ms: int) -> None:
    key = (row["store"], row["topic"] or "", row["producer_group"] or "")
    group = numbers.groups.setdefault(key, GroupNumbers(*key))
    group.pending_count += 1
    group.oldest_ms = max(group.oldest_ms, age_ms)


def _add_hanging(numbers: Numbers, row: dict[str, Any], records: _Records, age_ms: int) -> None:
    """Add a transaction to those that the next run looks up, with the place of its newest half copy."""
    if age_ms < REMEMBERED_AGE_MS or len(numbers.hanging) >= REMEMBERED_MAX:
        return
    numbers.hanging.append(row["transaction_id"])
    if copies := records.of("half_copies"):
        newest = max(copies, key=lambda copy: copy["commit_log_offset"])
        place = Place(store=newest["store"], commit_log_offset=newest["commit_log_offset"])
        numbers.places[row["transaction_id"]] = place


def _count_deadline(
    numbers: Numbers, one: StoreNumbers, row: dict[str, Any], records: _Records, predicted: Mapping[str, Prediction]
) -> None:
    time_ms = row["discard_at_ms"]
    if time_ms is None:
        deadline = deadline_of({**row, "half_copies": records.of("half_copies")}, predicted)
        if deadline is not None and deadline.why is not None and not deadline.why.is_known:
            one.unforetold_count += 1
            numbers.unforetold_why = numbers.unforetold_why or deadline.why.text
        return
    first = numbers.first_discard
    if first is None or first.first_discard_ms is None or time_ms < first.first_discard_ms:
        numbers.first_discard_id = row["transaction_id"]
    one.first_discard_ms = min(one.first_discard_ms or time_ms, time_ms)


def _numbers_of_store(store: Store, settings_of: Callable[[Store], BrokerSettings]) -> StoreNumbers:
    settings = settings_of(store)
    given = settings.given or {}
    one = StoreNumbers(
        store.root, store.in_use, check_interval_ms=settings.transaction_check_interval_ms,
        cluster=given.get("brokerClusterName"), broker_name=given.get("brokerName"),
        op_hold_ms=_op_hold_ms(settings) if store.in_use else 0,
    )
    cursors = check_cursors(store)
    one.half_next_offset = None if cursors.half is None else cursors.half.get(0)
    one.op_next_offset = None if cursors.op is None else cursors.op.get(0)
    one.log_begin_offset = store.log_begin_offset
    one.log_end_offset = _log_end_offset(store)
    ends = {HALF_TOPIC: "half_max_offset", OP_TOPIC: "op_max_offset", DISCARD_TOPIC: "discard_max_offset"}
    in_rocksdb = queue_bounds(store, []) if store.has_rocksdb_queues else {}
    for topic, name in ends.items():
        try:
            with open_queue(store, topic, 0) as queue:
                in_files = (queue.min_offset, queue.max_offset) if queue.exists else None
                bounds = joined_bounds(in_files, in_rocksdb.get((topic, 0)))
                if bounds is not None or not store.has_rocksdb_queues:
                    setattr(one, name, 0 if bounds is None else bounds[1])
                if topic == HALF_TOPIC:
                    # Without a stored cursor the check begins at the queue's first entry.
                    begin = None if bounds is None else bounds[0]
                    one.half_next_offset = None if cursors.half is None else cursors.half.get(0, begin)
                    last = queue.last_place()
                    is_last = bounds is not None and bounds[1] == queue.max_offset
                    one.half_last_commit_log_offset = last if is_last else None
        except SourceError:
            continue  # the reading of pending transactions names what cannot be read
    return one


def _log_end_offset(store: Store) -> int:
    last = written_end(store).last_base
    return next((segment.end_offset for segment in store.commit_log if segment.base_offset == last), 0)
