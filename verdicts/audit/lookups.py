"""Lookups: the pending transactions, and single transactions. By the derived files, else by a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.commit_log import log_bytes, written_end
from rmqtx.readers.model.errors import SourceError, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import (
    SHORT_ID_LENGTH_MIN,
    NameForms,
    are_short_for,
    is_named,
    keys_of,
    keys_of_cell,
    named_place,
    offset_of,
)
from rmqtx.readers.model.reading import Note, NoteKind
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import HALF_TOPIC, Store, is_bundle
from rmqtx.verdicts.audit.log_copies import with_log_copies
from rmqtx.verdicts.audit.message_ids import not_found, stores_of_message_id
from rmqtx.verdicts.audit.place_search import PlaceSearch
from rmqtx.verdicts.causes.judging import Judging
from rmqtx.verdicts.check.check_rules import supposed_version
from rmqtx.verdicts.evidence.copied_ranges import views_of
from rmqtx.verdicts.evidence.derived_trust import (
    Untrusted,
    require_own_slots,
    require_sound_bodies,
    require_sound_words,
    sound_blocks,
)
from rmqtx.verdicts.evidence.indexed_lookup import DerivedFiles
from rmqtx.verdicts.evidence.store_facts import SettingsOf, StoreFacts, facts_of, future_findings
from rmqtx.verdicts.missing.check_queue_findings import half_queue_findings
from rmqtx.verdicts.model.predicted import is_open_row, open_rows
from rmqtx.verdicts.model.reading import VerdictReading, undecidable_words
from rmqtx.verdicts.model.verdict_words import NextEvent, State
from rmqtx.verdicts.model.witnesses import Witnesses
from rmqtx.verdicts.startup.log_cut import entries_cut, read_from
from rmqtx.verdicts.startup.rules import possible_rules
from rmqtx.verdicts.transactions.judge import chosen_schema

if TYPE_CHECKING:
    from rmqtx.readers.jobs.workers import Progress

_Named = dict[str, str | None]
#: The most bytes of a log that are read only to find damage: for one transaction (takes about 1 s), and for all open
#: ones (about 12 ms).
_SHOWN_BYTES_MAX = 256 << 20
_OPEN_BYTES_MAX = 4 << 20
_SHORT_IDS_MAX = 3
#: The reason of rows whose first records have left the log; all later ones are known.
_BEGINS_LATER = "log_begins_later"
#: The newest bytes of logs of one broker that are compared without a scan.
_COMPARED_BYTES = 64 << 20


def pending(
    stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None, scan: bool = False,
    progress: Progress | None = None, with_causes: bool = True,
) -> VerdictReading:
    """Return the transactions that the check will still reach: PENDING, and decided or discarded ones.

    Shape:  rows of TRANSACTIONS, the same as `audit` gives for them; without `causes` if these are not needed.
    Order:  first half copy.
    Damage: if derived files cannot be trusted, the log is scanned, with a note. `scan` and `at_ms` always scan.
    """
    is_scan = scan or at_ms is not None
    facts = {} if is_scan else facts_of(stores, settings_of, with_records=True, by_samples=True)
    unread = _unread(facts)
    reading = VerdictReading(_judged_schema(with_causes=with_causes), [])
    table = None if is_scan else _by_derived_files(reading, facts, _open_ones, _OPEN_BYTES_MAX)
    if table is None:
        reading.batches = _scanned(reading, stores, settings_of, open_rows, unread, at_ms, progress)
    else:
        _return_memory()
        reading.undecidable = undecidable_of(table)
        reading.findings.extend(undecidable_findings(reading.undecidable))
        batches = _completed(open_rows(table), reading, facts).to_batches()
        reading.batches = list(with_log_copies(iter(batches), stores, reading, _COMPARED_BYTES))
    return reading


#: Findings of a verification, which predicts the start itself.
_OF_START = ("start-refused", "start-leaves-out", "start-cuts-queue", "start-skips", "start-shifts")


def open_transactions(
    stores: list[Store], settings_of: SettingsOf, scanned_bytes_max: int | None, findings: list[Finding]
) -> pa.Table | None:
    """Return the rows of `pending` for stores whose logs were read and are sound; `discard_at_ms` is not needed.

    `findings`: gets what is wrong with the future of the stores.
    Damage: if the derived files cannot be trusted, the logs are scanned; None if they are longer than
            `scanned_bytes_max`.
    """
    facts = facts_of(stores, settings_of, by_samples=True)
    unread = _unread(facts)
    for store in stores:
        wrong = future_findings(store, facts[store.root].predicted)
        findings += [one for one in wrong if one.code not in _OF_START]
    reading = VerdictReading(_judged_schema(with_causes=False), [])
    table = _by_derived_files(reading, facts, _open_ones, None)
    if table is not None:
        return open_rows(table)
    if scanned_bytes_max is not None and sum(log_bytes(store.commit_log) for store in stores) > scanned_bytes_max:
        return None
    batches = _scanned(reading, stores, settings_of, open_rows, unread)
    return pa.Table.from_batches(batches, reading.schema)


def _judged_schema(*, with_causes: bool) -> pa.Schema:
    """Return the schema of rows with or without causes, which take long."""
    return chosen_schema({*TRANSACTIONS.names} - (set() if with_causes else {"causes"}))


def _open_ones(files: list[DerivedFiles]) -> _Named:
    named: _Named = {}
    for part in files:
        named.update(part.open_transactions())
    return named


@dataclass(frozen=True, slots=True)
class Scan:
    """The whole log is read; with `at_ms`, for the state at a past time."""

    at_ms: int | None = None

    @classmethod
    def asked(cls, at_ms: int | None, *, scan: bool) -> Scan | None:
        """Return the scan that two options ask for; None: queues and index are enough."""
        return cls(at_ms) if scan or at_ms is not None else None


def show(
    stores: list[Store], settings_of: SettingsOf, identity: str, *, scan: Scan | None = None,
    forms: NameForms = NameForms.EXACT, progress: Progress | None = None, with_causes: bool = True,
) -> VerdictReading:
    """Return the transactions for an id, the message id of any of their records, or a business key.

    `forms`: what may name them; a short id adds a note.
    Shape:  rows of TRANSACTIONS; without `causes` if these are not needed.
    Order:  first half copy.
    Raises: NoSuchTransaction if nothing in the stores has that name; EvidenceMissing if parts could not be read.
    """
    is_scan, at_ms = scan is not None, None if scan is None else scan.at_ms
    place = named_place(identity) if forms >= NameForms.PLACES else None
    facts = facts_of(stores, settings_of, by_samples=True) if not is_scan or place is not None else {}
    unread = {} if at_ms is not None else _unread(facts)
    reading = VerdictReading(_judged_schema(with_causes=with_causes), [])
    search = None if place is None else PlaceSearch(list(facts.values()), place)
    cell = keys_of_cell(identity) if forms >= NameForms.PLACES else ()

    def by_name(files: list[DerivedFiles]) -> _Named:
        words = list(cell) or [identity, *(() if search is None else search.message_ids())]
        found: dict[str, _Named] = {word: {} for word in words}
        for part in files:
            for word, named in part.transactions_of(words).items():
                found[word].update(named)
        shared = set.intersection(*map(set, found.values())) if cell else set().union(*found.values())
        if not shared or (search is not None and not any(found[word] for word in search.message_ids())):
            raise Untrusted(f"{identity} is not in the index")
        return {name: named[name] for named in found.values() for name in named if name in shared}

    if search is not None and not is_scan and (why := search.why_scanned):
        reading.notes.append(_scanned_for(why))
        is_scan = True
    table = None if is_scan else _by_derived_files(reading, facts, by_name, _SHOWN_BYTES_MAX, has_lost=True)
    shortened: list[pa.Table] = []
    similar: dict[str, None] = {}
    if table is not None:
        table = _completed(table, reading, facts)
    else:
        def chosen(rows: pa.Table) -> pa.Table:
            if forms >= NameForms.SHORT and len(identity) >= SHORT_ID_LENGTH_MIN:
                shortened.append(rows.filter(are_short_for(identity, rows["transaction_id"])))
                similar.update(dict.fromkeys(_keys_that_begin(rows, identity)))
            if cell:
                return rows.filter(_have_all_keys(rows, cell))
            named = _is_named(rows, identity, with_message_id)
            return rows.filter(named if search is None else pc.or_(named, search.are_at(rows)))

        with_message_id = stores_of_message_id(stores, identity)
        batches = _scanned(reading, stores, settings_of, chosen, unread, at_ms, progress)
        table = pa.Table.from_batches(batches, reading.schema)
    if not table.num_rows and shortened:
        table = pa.concat_tables(shortened)
        reading.notes.append(short_note(identity, table["transaction_id"].to_pylist()))
    if not table.num_rows:
        raise not_found(stores, identity, reading, list(similar), at_ms, search)
    if search is not None:
        reading.notes += search.notes(table, identity)
    reading.batches = table.to_batches()
    return reading


def _have_all_keys(rows: pa.Table, keys: Collection[str]) -> pa.Array:
    return pa.array([set(keys) <= set(keys_of(own)) for own in rows["keys"].to_pylist()], pa.bool_())


def lookup(
    stores: list[Store], settings_of: SettingsOf, transaction_ids: Sequence[str], *, scan: bool = False
) -> VerdictReading:
    """Return some transactions by their ids.

    Shape:  rows of TRANSACTIONS; nothing for an id without records. `scan`: by the whole log, with its findings, and
            without `causes`, which no act needs.
    Order:  first half copy.
    """
    facts = facts_of(stores, settings_of, by_samples=True)
    unread = _unread(facts)
    reading = VerdictReading(_judged_schema(with_causes=not scan), [])
    wanted = pa.array(list(dict.fromkeys(transaction_ids)), pa.string())

    def by_name(files: list[DerivedFiles]) -> _Named:
        named: _Named = {}
        for part in files:
            for identity, found in part.transactions_of(wanted.to_pylist()).items():
                if identity in found:
                    named[identity] = found[identity]
        unknown = [identity for identity in wanted.to_pylist() if identity not in named]
        if unknown:
            raise Untrusted(f"{unknown[0]} is not in the index")
        return named

    def chosen(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.is_in(rows["transaction_id"], wanted))

    table = None if scan else _by_derived_files(reading, facts, by_name, _SHOWN_BYTES_MAX, has_lost=True)
    if table is None:
        reading.batches = _scanned(reading, stores, settings_of, chosen, unread)
    else:
        reading.batches = _completed(chosen(table), reading, facts).to_batches()
    return reading


def _completed(rows: pa.Table, reading: VerdictReading, facts: dict[str, StoreFacts]) -> pa.Table:
    """Add the causes to rows that have the column; the futures of stores with open rows go into the reading."""
    open_ones = rows.filter(is_open_row(rows))
    copies = pc.list_flatten(open_ones["half_copies"])  # copies of one log: the broker of any of them may discard it
    roots = {*open_ones["store"].to_pylist(), *pc.struct_field(copies, "store").to_pylist()}
    judging = Judging({}, tuple(rows.schema.names)).informed(facts)  # the rows are judged
    shown = {root: one for root, one in judging.predicted.items() if root in roots or one.passed_count}
    replace(judging, predicted=shown).report(reading)
    rows = judging.with_causes(rows)
    reading.add_trace_findings()
    return rows


def _depends_on_assumed_check_max(rows: pa.Table, facts: dict[str, StoreFacts]) -> bool:
    """Whether a row is DISCARDED instead of LOST if its number of checks is the broker's maximum.

    If a version writes no discard copies and transactionCheckMax was not given, the highest number of checks in the
    whole log is used for it, and derived files show only some copies.
    """
    silent = [
        root for root, fact in facts.items()
        if fact.settings.checks_show_limit
    ]
    lost = rows.filter(pc.and_(pc.equal(rows["state"], State.LOST), pc.greater(rows["checks_count"], 0)))
    return bool(set(lost["store"].to_pylist()) & set(silent))


def _search_damage_after(
    rows: pa.Table, reading: VerdictReading, facts: dict[str, StoreFacts], bytes_max: int
) -> bool:
    """Read the log after the first copy of transactions whose states depend on absent records; return if it is damaged.

    If the log that the next start reads is not much longer, this is read: the start cuts off what lies after damage.
    Queues and index do not show damage in the log. A range of more than `bytes_max` is not read, and becomes a note.
    """
    # What is committed and has no event depends on nothing that comes later, but for a copy that the check still reads.
    is_settled = pc.and_(pc.equal(rows["state"], State.COMMITTED), pc.equal(rows["next_event"], NextEvent.NONE))
    is_settled = pc.fill_null(is_settled, False)
    copies, settled = (pc.list_flatten(rows.filter(one)["half_copies"]) for one in (pc.invert(is_settled), is_settled))
    stores, offsets = pc.struct_field(copies, "store"), pc.struct_field(copies, "commit_log_offset")
    for root, fact in facts.items():
        begin = pc.min(offsets.filter(pc.equal(stores, root))).as_py()
        end = written_end(fact.store).offset
        is_open, start = begin is not None, _recovery_begin(fact, end - bytes_max)
        limit = bytes_max
        nearby = None if start is None or end - start > bytes_max else start
        if is_open:
            begin = _half_before(fact.store, begin)
            begin = begin if nearby is None else min(begin, nearby)
        elif start is not None:
            begin = start  # behind damage, the start cuts off what settled them, or the half queue before the cursor
            limit = bytes_max if _are_read(settled, fact) else _OPEN_BYTES_MAX
        else:
            continue
        length = end - begin
        if fact.store.is_remote or length > limit:
            part = "after the first open copy" if is_open else "which the next start reads"
            reading.notes.append(Note(
                NoteKind.HOW,
                f"the log {part} ({length} bytes) was not read completely: damage in the middle "
                "of a file is not found; add --scan to read it",
            ))
            continue
        try:
            end = _require_sound_rest(fact, begin, start)
            if fact.store.is_dledger and start is not None and not is_bundle(fact.store):
                _require_sound_entries(fact, end)
            if start is not None and begin <= start:
                fact.has_read_log(None)
        except (Untrusted, UnreadableFile) as reason:
            reading.notes.append(_scanned_for(reason.message))
            return True
    return False


def _are_read(copies: pa.Array, fact: StoreFacts) -> bool:
    """Whether the check of a store reads some of these half copies."""
    are_here = pc.equal(pc.struct_field(copies, "store"), fact.store.root)
    numbers = pc.struct_field(copies, "queue_offset").filter(are_here)
    return bool(pc.any(pc.greater_equal(numbers, (fact.cursors.half or {}).get(0, 0))).as_py())


def _recovery_begin(fact: StoreFacts, nearest: int) -> int | None:
    """Return the place from which the next start reads the log; None if it is not known, or the store is remote.

    If several releases are possible, the earliest of their places that is not before `nearest`.
    """
    if fact.store.is_remote:
        return None
    conf = fact.settings.given or {}
    try:
        begin = read_from(fact.store, supposed_version(fact.settings, fact.check_stops)[0], conf)
        if begin is None:
            return None
        others = (read_from(fact.store, rules.version, conf) for rules in possible_rules(fact.settings, conf))
        return min([begin, *(other for other in others if other is not None and other >= nearest)])
    except SourceError:
        return None  # reported by the reader of the file


def _half_before(store: Store, offset: int) -> int:
    """Return the place of the half message before one, by the half queue, if that is near; else the given place.

    Another half message with the same number, but without a slot, may lie in between.
    """
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            place = queue.place_at(queue.offset_of(offset) - 1)
    except UnreadableFile:
        return offset
    return place if place is not None and 0 <= offset - place <= _OPEN_BYTES_MAX else offset


def _require_sound_rest(fact: StoreFacts, begin: int, start: int | None) -> int:
    """Require that the log is sound from an offset on, and that the half queue has each half message there.

    `start`: the place from which the next start reads the log; from there on each body must match its CRC, too.
    Units:  returns the commit-log offset past the last record.
    Raises: Untrusted; UnreadableFile, FileChanged.
    """
    empty = np.empty(0, np.int64)
    numbers, offsets, end = [empty], [empty], begin
    for block in sound_blocks(fact, begin, None):
        if start is not None:
            require_sound_bodies(block, start)
        require_sound_words(block)
        end = max(end, int((block.commit_log_offsets + block.lengths).max(initial=0)))
        halves = block.take(block.topic_is(HALF_TOPIC))
        numbers.append(halves.header("queue_offset").astype(np.int64))
        offsets.append(halves.commit_log_offsets)
    with open_queue(fact.store, HALF_TOPIC, 0) as queue:
        require_own_slots(fact.store, queue, np.concatenate(numbers), np.concatenate(offsets))
    return end


def _require_sound_entries(fact: StoreFacts, sound_end: int) -> None:
    """Require that the headers of a DLedger log's entries are sound: the next start ends the log at another one."""
    cut = entries_cut(fact.store, sound_end)
    if cut is not None:
        raise Untrusted(f"the next start ends the DLedger log at commit-log offset {cut}")


def _by_derived_files(
    reading: VerdictReading, facts: dict[str, StoreFacts], name: Callable[[list[DerivedFiles]], _Named],
    bytes_max: int | None, *, has_lost: bool = False,
) -> pa.Table | None:
    """Return verdicts by the derived files of all stores; None, with a note, if they cannot be trusted.

    `bytes_max`: of the log that is read to find damage; None: it was read. `has_lost`: LOST rows are asked for too.
    """
    found: list[Witnesses] = []
    try:
        found.append(_witnesses_of(facts, name))
    except (Untrusted, UnreadableFile) as reason:
        if isinstance(reason, UnreadableFile) and any(fact.store.is_remote for fact in facts.values()):
            raise  # a scan would read the same remote place
        reading.notes.append(_scanned_for(reason.message))
        return None
    reading.notes.append(Note(NoteKind.HOW, "read by cursors, queues and index"))
    for fact in facts.values():
        reading.findings.extend([*fact.findings, *_cursor_findings(fact)])
        reading.check_stops.extend(fact.check_stops)
    judging = Judging(views_of(facts), tuple(reading.schema.names))
    _return_memory()
    # Nothing else holds the witnesses: their memory is free once they are grouped.
    rows = judging.judged(found.pop())
    if has_lost and _depends_on_assumed_check_max(rows, facts):
        reading.notes.append(_scanned_for("the result depends on the highest number of checks of any half copy"))
        return None
    return None if bytes_max is not None and _search_damage_after(rows, reading, facts, bytes_max) else rows


def _cursor_findings(fact: StoreFacts) -> list[Finding]:
    """Return the faults of the check cursor that an audit reports too, as far as queues and files show them."""
    if fact.store.is_remote or fact.past_ms is not None:
        return []
    return half_queue_findings(fact.store, fact.cursors.half, has_halves=False)


def _return_memory() -> None:
    """Return memory that is free to the system: the next step needs it in other pieces."""
    pa.default_memory_pool().release_unused()


def _witnesses_of(facts: dict[str, StoreFacts], name: Callable[[list[DerivedFiles]], _Named]) -> Witnesses:
    """Return the witnesses of the transactions in the derived files of all stores. Raises: Untrusted; SourceError."""
    with ExitStack() as stack:
        files = [stack.enter_context(DerivedFiles(fact)) for fact in facts.values()]
        named = name(files)
        return Witnesses.joined([part.witnesses(named) for part in files])


def _unread(facts: dict[str, StoreFacts]) -> dict[str, StoreFacts]:
    """Return the facts as they are before records are read, for a scan: what derived files add to them is left out."""
    return {root: fact.unread() for root, fact in facts.items()}


def _scanned(
    reading: VerdictReading, stores: list[Store], settings_of: SettingsOf, choose: Callable[[pa.Table], pa.Table],
    unread: dict[str, StoreFacts], at_ms: int | None = None, progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the chosen rows of an audit; its findings and coverage are added to the reading.

    `unread`: the facts of the stores, if they were read already, as of now.
    """
    from rmqtx.verdicts.audit.local_audit import audit, audit_of

    columns = reading.schema.names
    if unread:
        whole = audit_of(unread, columns, progress)
    else:
        whole = audit(stores, settings_of, at_ms=at_ms, progress=progress, columns=columns)
    reading.findings, reading.coverage, reading.missing = whole.findings, whole.coverage, whole.missing
    reading.check_stops = whole.check_stops
    reading.predicted, whole.evidence = whole.predicted, reading.evidence
    for batch in whole:
        rows = pa.Table.from_batches([batch])
        reading.undecidable.update(undecidable_of(rows))
        yield from choose(rows).to_batches()
    reading.notes += [note for note in whole.notes if note.kind is NoteKind.WHY]
    reading.findings.extend(undecidable_findings(reading.undecidable))


def undecidable_of(rows: pa.Table) -> Counter[tuple[str, str]]:
    """Return how many UNDECIDABLE rows may be pending, by store and reason, without what a reason adds about its row.

    What the check has passed is not pending, whatever records have left the log before its first copy.
    """
    is_passed = pc.and_(pc.equal(rows["reason_code"], _BEGINS_LATER), pc.equal(rows["next_event"], NextEvent.NONE))
    may_be = pc.and_not(pc.equal(rows["state"], State.UNDECIDABLE), pc.fill_null(is_passed, False))
    unknown = rows.filter(may_be)
    reasons = [reason.partition("; ")[0] for reason in unknown["reason"].to_pylist()]
    return Counter(zip(unknown["store"].to_pylist(), reasons, strict=True))


def undecidable_findings(undecidable: Counter[tuple[str, str]]) -> list[Finding]:
    """Return a finding for each store with UNDECIDABLE transactions, which are not listed, so that none is overlooked.

    `undecidable`: see `undecidable_of`.
    """
    by_store: dict[str, Counter[str]] = {}
    for (root, reason), count in undecidable.items():
        by_store.setdefault(root, Counter())[reason] += count
    return [Finding(root, "undecidable", actual=undecidable_words(reasons)) for root, reasons in by_store.items()]


def _scanned_for(why: str) -> Note:
    return Note(NoteKind.WHY, f"the log is scanned because {why}")


def short_note(part: str, identities: Sequence[str]) -> Note:
    """Return a note about the ids that a short text was resolved to."""
    ids = ", ".join(identities[:_SHORT_IDS_MAX])
    return Note(NoteKind.WHY, f"nothing is named {part}; it is taken as short for {ids}")


def _keys_that_begin(rows: pa.Table, part: str) -> list[str]:
    """Return the business keys that begin with a text, each once."""
    texts = rows["keys"].filter(pc.match_substring(rows["keys"], part)).to_pylist()
    return sorted({key for text in texts for key in text.split() if key.startswith(part)})


def rows_named(rows: pa.Table, identity: str, with_message_id: Collection[str]) -> pa.Table:
    """Return the rows for an id, the message id of any of their records, or a business key.

    `with_message_id`: the stores of which a record has the identity as its message id (`stores_of_message_id`).
    """
    return rows.filter(_is_named(rows, identity, with_message_id))


def _is_of_one(entry: dict[str, object]) -> bool:
    """Whether a witness belongs to one transaction only: an op message with queue offsets may belong to many."""
    return entry.get("half_queue_offset") is None


def _is_named(rows: pa.Table, identity: str, with_message_id: Collection[str]) -> pa.Array:
    """Which rows have the identity as id, as one of their keys, or as the message id of one of their records."""
    offset = offset_of(identity) if with_message_id else None
    named = []
    for row_id, keys, *lists in zip(
        rows["transaction_id"].to_pylist(),
        rows["keys"].to_pylist(),
        *(rows[name].to_pylist() for name in ("half_copies", "final_records", "discard_copies", "op_marks")),
        strict=True,
    ):
        at_offset = offset is not None and any(
            entry["commit_log_offset"] == offset and entry["store"] in with_message_id
            for entries in lists for entry in entries if _is_of_one(entry)
        )
        named.append(is_named(identity, row_id, keys) or at_offset)
    return pa.array(named, pa.bool_())
