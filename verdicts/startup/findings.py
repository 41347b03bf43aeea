"""What the next start of a broker would do with a store: a prediction.

It is made for all versions that the store's broker may have; what only some of them do names these versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import KINDS, Finding
from rmqtx.readers.queues.slot_files import queue_text
from rmqtx.readers.rocksdb.rocksdb_queues import damaged_databases
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.store import Store, is_bundle
from rmqtx.readers.store.version_signs import rust_mark
from rmqtx.verdicts.startup.dledger_log import dledger_findings, entries_begin, log_findings, queues_cut_at
from rmqtx.verdicts.startup.losses import amount, skipped_meaning
from rmqtx.verdicts.startup.queues import QueueFacts, QueueFate
from rmqtx.verdicts.startup.recovery import LogFacts, PredictedStart, dledger_queues, loaded_log, predict_start
from rmqtx.verdicts.startup.refusals import refusals
from rmqtx.verdicts.startup.rules import RecoveryRules, not_predictable, possible_rules

#: The most queues with findings of one kind.
_QUEUES_MAX = 100


def start_findings(
    store: Store, settings: BrokerSettings, conf: Mapping[str, str], log: LogFacts, queues: Sequence[QueueFacts], *,
    with_dispatch: bool = True,
) -> Iterator[Finding]:
    """Return what a start would cut, skip, delete or refuse.

    `conf`: the broker's configuration as far as it is known. `with_dispatch`: also what it dispatches to the queues;
    this requires that records and slots were compared.
    Order: kind of finding, then place.
    Damage: a file that cannot be read is reported elsewhere; what depends on it is not predicted.
    """
    if store.in_use:
        return
    why = not_predictable(store, conf)
    if why is not None:
        yield from [] if is_bundle(store) else damaged_databases(store)
        yield Finding(store.root, "start-unforeseen", actual=why)
        if not is_bundle(store) and rust_mark(store) is None:
            kinds = possible_rules(settings, conf, is_dledger=store.is_dledger)
            yield from _by_kinds(kinds, lambda rules: refusals(store, conf, rules))
        return
    is_dledger = _is_dledger(store, conf)
    if is_dledger and is_bundle(store):
        return  # it has none of the entries between its records
    if is_dledger:
        yield Finding(
            store.root, "start-unforeseen", actual="the log is a DLedger log",
            meaning="only what its own files decide is predicted: the other members of its group may replace the end "
            "of its log",
        )

    def expected(rules: RecoveryRules) -> Iterator[Finding]:
        if is_dledger:
            return _dledger_findings(store, conf, log, queues, rules, with_dispatch=with_dispatch)
        start = predict_start(store, conf, log, queues, rules, with_dispatch=with_dispatch)
        return _findings(store, start, log, with_dispatch=with_dispatch)

    yield from _by_kinds(possible_rules(settings, conf, is_dledger=is_dledger), expected)


def _by_kinds(
    kinds: Sequence[RecoveryRules], expected: Callable[[RecoveryRules], Iterator[Finding]]
) -> Iterator[Finding]:
    """Return the findings of each kind of start; what only some kinds do names these versions."""
    found: dict[Finding, list[str]] = {}
    for rules in kinds:
        try:
            for finding in expected(rules):
                found.setdefault(finding, []).append(rules.name)
        except SourceError:
            return
    order = {code: number for number, code in enumerate(KINDS)}
    for finding, names in sorted(found.items(), key=lambda item: order[item[0].code]):
        yield finding if len(names) == len(kinds) else by_some_versions(finding, names)


def left_out_findings(store: Store, settings: BrokerSettings) -> list[Finding]:
    """Return the files with records that a start of a stopped broker does not load, before the log is read.

    Nothing where the start is not predicted.
    Damage: a file that cannot be read is reported elsewhere.
    """
    conf = settings.given or {}
    if store.in_use or is_bundle(store) or not_predictable(store, conf) is not None:
        return []
    end = written_end(store).offset

    def expected(rules: RecoveryRules) -> Iterator[Finding]:
        segments, name = loaded_log(store, conf, rules)
        return _left_out(store, store.commit_log[len(segments) :] if name else (), name, end)

    return list(_by_kinds(possible_rules(settings, conf, is_dledger=store.is_dledger), expected))


def _left_out(store: Store, segments: Sequence[Segment], name: str, end_offset: int) -> Iterator[Finding]:
    for segment in segments:
        if segment.base_offset < end_offset:
            yield Finding(
                store.root, "start-leaves-out", segment.file, 0, segment.size_bytes, segment.base_offset,
                expected=f"records up to {end_offset}",
                actual=f"the broker does not load {name}, which has another length, nor any later file",
            )


def by_some_versions(finding: Finding, names: Sequence[str]) -> Finding:
    """Return a finding about what only these of the possible versions do."""
    known = finding.meaning or finding.kind.meaning
    some = f"not every version does this, but for example {', '.join(names)}; add --broker-version"
    return replace(finding, meaning=f"{known} ({some})")


def _is_dledger(store: Store, conf: Mapping[str, str]) -> bool:
    return conf.get("enableDLegerCommitLog") == "true" or store.is_dledger or any(
        entry.name.startswith("dledger-") for entry in store.files.entries(store.root)
    )


# --- rows -------------------------------------------------------------------------------------------------------------


def _findings(store: Store, start: PredictedStart, log: LogFacts, *, with_dispatch: bool) -> Iterator[Finding]:
    yield from start.refused
    if start.refused:
        return
    yield from _left_out(store, start.left_out, start.left_out_for, log.end_offset)
    if start.walk is None:
        if start.fates and (start.rules.destroys_queues_without_log or store.aborted):
            yield Finding(store.root, "start-deletes-queues", store.place("consumequeue"),
                          actual=f"{len(start.fates)} consume queues")
        return
    if start.waits_at is not None:
        yield Finding(
            store.root, "start-endless", commit_log_offset=start.waits_at,
            expected=f"a file with commit-log offset {start.waits_at}", actual="none",
        )
    yield from log_findings(store, start.walk, log)
    if store.aborted:
        yield from _index_findings(store, store.commit_log[start.walk.start].base_offset)
    if start.walk.end_offset >= log.end_offset:
        yield from _queue_findings(store, start.fates)
    yield from _hole_findings(store, start.fates)
    if with_dispatch and start.waits_at is None:
        yield from dispatched_findings(store, start.fates)


def _dledger_findings(
    store: Store, conf: Mapping[str, str], log: LogFacts, queues: Sequence[QueueFacts], rules: RecoveryRules, *,
    with_dispatch: bool,
) -> Iterator[Finding]:
    refused = list(refusals(store, conf, rules))
    if refused:
        yield from refused
        return
    if entries_begin(store) is None:  # without entries, a broker recovers as it does without DLedger: 4.9.7, 5.1.4
        start = predict_start(store, conf, log, queues, rules, with_dispatch=with_dispatch)
        yield from _findings(store, start, log, with_dispatch=with_dispatch)
        return
    found = list(dledger_findings(store, conf, log, queues, rules))
    yield from found
    if not with_dispatch or any(one.is_error for one in found) or queues_cut_at(store, conf, rules) is not None:
        return
    yield from dispatched_findings(store, dledger_queues(store, conf, log, queues, rules))


def _index_findings(store: Store, from_offset: int) -> Iterator[Finding]:
    """Index files that a start after a crash deletes, and rebuilds only from the place where recovery begins.

    Source: store/index/IndexService.java load; docs/formats/index.md#damage.
    """
    known_ms = checkpoint_values(store).get("index_msg_time_ms", 0)
    for index in open_index(store).files:
        is_deleted = index.header["end_time_ms"] > known_ms and index.begin_offset < from_offset
        if is_deleted and index.why_incomplete() is None:
            yield Finding(
                store.root, "start-deletes-index", index.segment.file, commit_log_offset=index.begin_offset,
                expected=f"keys from commit-log offset {index.begin_offset} on",
                actual=f"keys from {from_offset} on after the rebuild",
            )


def _queue_findings(store: Store, fates: Sequence[QueueFate]) -> Iterator[Finding]:
    """Queues that are cut because of their own entries; if the log is cut, its finding covers the queues too."""
    yield from islice((found for fate in fates if (found := cut_finding(store, fate)) is not None), _QUEUES_MAX)


def cut_finding(store: Store, fate: QueueFate) -> Finding | None:
    """Return that a start cuts off slots of a queue because of its own entries; None if it does not."""
    size, left = fate.facts.files.layout.size_bytes, fate.left_end
    if not fate.reason or left >= fate.facts.used_end:
        return None
    segment = next((one for one in fate.facts.files.segments if one.base_offset <= left * size < one.end_offset), None)
    return Finding(
        store.root, "start-cuts-queue", None if segment is None else segment.file,
        None if segment is None else left * size - segment.base_offset, (fate.facts.used_end - left) * size,
        expected=f"{fate.facts.used_end} slots in {queue_text(fate.facts.name)}",
        actual=f"{left}: {fate.reason if left == fate.cut_end else f'slot {left} is invalid'}",
    )


def _skips_finding(store: Store, fate: QueueFate) -> Finding | None:
    """Return that a start leaves records of a queue without a slot; None if it does not."""
    if not len(fate.skipped):
        return None
    return _records_finding(
        store, "start-skips", fate.skipped, f"its slot in {queue_text(fate.facts.name)}",
        f"none; the queue continues at {fate.end}", skipped_meaning(store, fate.facts.name, fate.skipped),
    )


def _hole_findings(store: Store, fates: Sequence[QueueFate]) -> Iterator[Finding]:
    """Slots without a record that a start adds to queues."""
    for fate in [fate for fate in fates if fate.holes][:_QUEUES_MAX]:
        size, last = fate.facts.files.layout.size_bytes, fate.last_file
        begin, end = min(fate.holes)[0], max(fate.holes)[1]
        slots = f"slot {begin}" if end == begin + 1 else f"slots {begin} to {end - 1}"
        yield Finding(
            store.root, "start-adds-hole", None if last is None else last.file, 0, (end - begin) * size,
            expected=f"{fate.facts.used_end} slots in {queue_text(fate.facts.name)}",
            actual=f"{max(fate.end, end)}: {slots} without a record",
        )


def dispatched_findings(store: Store, fates: Sequence[QueueFate]) -> Iterator[Finding]:
    """Return the records without a slot that a start leaves without one, gives another slot, or dispatches.

    Order: kind of finding, then queue by queue.
    """
    yield from islice((found for fate in fates if (found := _skips_finding(store, fate)) is not None), _QUEUES_MAX)
    for fate in [fate for fate in fates if len(fate.shifted)][:_QUEUES_MAX]:
        number = int(fate.shifted[0, 2])
        actual = "another slot"
        if fate.kept_from >= 0:
            actual = f"slots {fate.cut_end} to {fate.kept_from - 1}, overwriting those of other records"
        yield _records_finding(
            store, "start-shifts", fate.shifted, f"slot {number} of {queue_text(fate.facts.name)}", actual, None,
        )
    for fate in [fate for fate in fates if len(fate.dispatched)][:_QUEUES_MAX]:
        yield _records_finding(
            store, "start-enters", fate.dispatched, f"its slot in {queue_text(fate.facts.name)}", None, None,
        )


def _records_finding(
    store: Store, code: str, rows: Int64s, expected: str, actual: str | None, meaning: str | None
) -> Finding:
    offset, length, _ = rows[0].tolist()
    more = f", and those of {amount('more record', len(rows) - 1)}" if len(rows) > 1 else ""
    return Finding(
        store.root, code, *store.log().place_of(offset), length, offset,
        expected=expected + more, actual=actual, meaning=meaning,
    )
