"""The samples of metrics: from the numbers of one reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rmqtx_cli.monitoring.metrics import FLAG_COUNTERS, GROUPS_MAX, OTHER, STATE_COUNTERS, Samples
from rmqtx_cli.monitoring.numbers import GroupNumbers, Memory, Numbers, StoreNumbers, ends_gone

if TYPE_CHECKING:
    from rmqtx_cli.monitoring.remembered import Became


def store_samples(numbers: Numbers) -> Samples:
    """Return the samples of each store; a number that missing evidence may hide has none."""
    found: Samples = {}
    for store in numbers.stores:
        for name, value in _values(numbers, store).items():
            found.setdefault(name, [])
            if value is not None:
                found[name].append((store.labels, value))
    found["rmqtx_transactions_by_cause"] = [
        ({"cause": word, "strength": strength, "store": store}, number)
        for store, word, strength, number in numbers.causes_in_order()
    ]
    for store in numbers.stores:
        lost_count = numbers.counted(numbers.decisions_lost_count(store.store)) if store.is_traced else None
        if lost_count is not None:
            found.setdefault("rmqtx_decisions_lost_transactions", []).append((store.labels, lost_count))
    return found


def _values(numbers: Numbers, store: StoreNumbers) -> dict[str, float | None]:
    oldest_ms = store.oldest_pending_ms if numbers.evidence_missing else store.oldest_pending_ms or 0
    left = None if store.first_discard_ms is None else (store.first_discard_ms - numbers.taken_time_ms) / 1000
    return {
        "rmqtx_pending_transactions": numbers.counted(store.pending_count),
        "rmqtx_oldest_pending_seconds": None if oldest_ms is None else oldest_ms / 1000,
        "rmqtx_commit_without_op_transactions": numbers.counted(store.commit_without_op_count),
        "rmqtx_never_asked_transactions": numbers.counted(store.never_asked_count),
        "rmqtx_undecidable_transactions": numbers.counted(store.undecidable_count),
        "rmqtx_check_stopped": numbers.counted(int(store.check_stopped is not None)),
        "rmqtx_held": int(store.held is not None),
        "rmqtx_half_queue_next_offset": store.half_next_offset,
        "rmqtx_half_queue_max_offset": store.half_max_offset,
        "rmqtx_op_queue_next_offset": store.op_next_offset,
        "rmqtx_op_queue_max_offset": store.op_max_offset,
        "rmqtx_discard_queue_max_offset": store.discard_max_offset,
        "rmqtx_seconds_until_first_discard": None if left is None or not store.is_in_use else left,
        "rmqtx_seconds_from_start_to_first_discard": None if left is None or store.is_in_use else left,
    }


def exported_samples(numbers: Numbers, before: Memory | None) -> Samples:
    """Return the samples of a reading of the exporter. `before`: the numbers of an earlier reading."""
    pending, oldest = _of_groups(numbers)
    return store_samples(numbers) | {
        "rmqtx_group_pending_transactions": pending,
        "rmqtx_group_oldest_pending_seconds": oldest,
        "rmqtx_evidence_missing": [({"code": code}, 1) for code in numbers.evidence_missing],
        "rmqtx_store_shortened": [(store.labels, int(bool(ends_gone(store, before)))) for store in numbers.stores],
    }


def _of_groups(numbers: Numbers) -> tuple[list[tuple[Mapping[str, str], float]], ...]:
    labels = {store.store: store.labels for store in numbers.stores}
    # By number, then by name, so that two readings of the same numbers keep the same pairs.
    ranked = sorted(numbers.groups.values(), key=lambda one: (-one.pending_count, one.key))
    rest: dict[str, list[GroupNumbers]] = {}
    for one in ranked[GROUPS_MAX:]:
        rest.setdefault(one.store, []).append(one)
    rows = [
        ({**labels[one.store], "topic": one.topic, "producer_group": one.group}, [one])
        for one in ranked[:GROUPS_MAX]
    ]
    rows += [({**labels[store], "topic": OTHER, "producer_group": OTHER}, ones) for store, ones in rest.items()]
    return (
        [(names, sum(one.pending_count for one in ones)) for names, ones in rows],
        [(names, max(one.oldest_ms for one in ones) / 1000) for names, ones in rows],
    )


def counted_samples(numbers: Numbers, became: Became) -> Samples:
    """Return by how much the counters grow."""
    names = [*STATE_COUNTERS.values(), *FLAG_COUNTERS.values()]
    found: Samples = {
        name: [(store.labels, became.counts[store.store, name]) for store in numbers.stores] for name in names
    }
    found["rmqtx_vanished_transactions_total"] = [({}, len(became.vanished))]
    found["rmqtx_unanswered_transactions_total"] = [({}, len(became.unanswered))]
    return found


def added(totals: Samples, growth: Samples) -> Samples:
    """Return the counters after they have grown; a counter that is new begins with its growth."""
    result: Samples = {}
    for name in [*totals, *(name for name in growth if name not in totals)]:
        values = {_key(labels): (labels, value) for labels, value in totals.get(name, [])}
        for labels, value in growth.get(name, []):
            values[_key(labels)] = (labels, value + values.get(_key(labels), (labels, 0))[1])
        result[name] = list(values.values())
    return result


def _key(labels: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return tuple(sorted(labels.items()))
