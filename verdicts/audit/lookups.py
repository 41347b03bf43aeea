"""The small questions: what is pending, and what became of one transaction. By the derived files, else by a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from readers.jobs.workers import Progress
from readers.log.commit_log import written_end_offset
from readers.model.columns import rows_where
from readers.model.errors import UnreadableFile
from readers.model.findings import Finding
from readers.model.reading import Note, NoteKind
from readers.model.tables import TRANSACTIONS
from readers.store.store import Store
from verdicts.audit.local_audit import audit
from verdicts.audit.not_found import not_found
from verdicts.deadlines.discard_times import is_open_row, with_discard_times
from verdicts.deadlines.predicting import predict_from_files
from verdicts.evidence.derived_trust import Untrusted, sound_blocks
from verdicts.evidence.indexed_lookup import DerivedFiles, offset_of
from verdicts.evidence.store_facts import SettingsOf, StoreFacts, moment_ms, store_facts
from verdicts.model.reading import VerdictReading
from verdicts.model.witnesses import Witnesses
from verdicts.transactions.judge import judge

_Named = dict[str, str | None]
#: Up to so much of a log is read for damage alone: for one transaction, in about a second; for all open ones, in 12 ms.
_SHOWN_BYTES_MAX = 256 << 20
_OPEN_BYTES_MAX = 4 << 20
#: Ids of one process begin alike, and end in a counter: less would be a guess.
SHORT_ID_LENGTH_MIN = 4
_SHORT_IDS_TOLD_MAX = 3


def pending(
    stores: list[Store],
    settings_of: SettingsOf,
    *,
    at_ms: int | None = None,
    scan: bool = False,
    progress: Progress | None = None,
) -> VerdictReading:
    """The transactions that the broker still has before it: PENDING, and decided ones that it will ask again.

    Shape:  rows of TRANSACTIONS, the same as `audit` gives for them. Rows that are not PENDING have the advice `close`.
    Order:  first half copy.
    Damage: where derived files cannot be trusted the log is scanned, and a note says so. `scan` and `at_ms` always do.
    """
    facts = {store.root: store_facts(store, settings_of) for store in stores}
    reading = VerdictReading(TRANSACTIONS, [])

    def by_queues(files: list[DerivedFiles]) -> _Named:
        named: _Named = {}
        for part in files:
            named.update(part.open_transactions())
        return named

    table = None if scan or at_ms is not None else _by_derived_files(reading, facts, by_queues)
    if table is not None and _is_damaged_behind(table, reading, facts, _OPEN_BYTES_MAX):
        table = None
    if table is None:
        reading.batches = _scanned(reading, stores, settings_of, at_ms, progress, open_rows)
    else:
        reading.batches = _with_discard_times(open_rows(table), reading, facts).to_batches()
    return reading


def show(
    stores: list[Store],
    settings_of: SettingsOf,
    identity: str,
    *,
    at_ms: int | None = None,
    scan: bool = False,
    short: bool = False,
    progress: Progress | None = None,
) -> VerdictReading:
    """The transactions that an id, the message id of any of their records, or a business key names.

    `short`: where nothing has the name, those whose id begins or ends with it; a note says so.
    Shape:  rows of TRANSACTIONS.
    Order:  first half copy.
    Raises: NoSuchTransaction if nothing in the stores has that name; EvidenceMissing if not all that may was read.
    """
    facts = {store.root: store_facts(store, settings_of) for store in stores}
    reading = VerdictReading(TRANSACTIONS, [])

    def by_name(files: list[DerivedFiles]) -> _Named:
        named: _Named = {}
        for part in files:
            named.update(part.transactions_of([identity]).get(identity, {}))
        if not named:
            raise Untrusted(f"the index does not know {identity}")
        return named

    table = None if scan or at_ms is not None else _by_derived_files(reading, facts, by_name)
    if table is not None and _rests_on_most_checks(table, facts):
        reading.notes.append(_scanned_for("the most checks that any half copy shows decide it"))
        table = None
    if table is not None and _is_damaged_behind(table, reading, facts, _SHOWN_BYTES_MAX):
        table = None
    shortened: list[pa.Table] = []
    if table is not None:
        table = _with_discard_times(table, reading, facts)
    else:
        def chosen(rows: pa.Table) -> pa.Table:
            if short and len(identity) >= SHORT_ID_LENGTH_MIN:
                shortened.append(_rows_of_short_id(rows, identity))
            return rows_named(rows, identity)

        table = pa.Table.from_batches(_scanned(reading, stores, settings_of, at_ms, progress, chosen), TRANSACTIONS)
    if not table.num_rows and shortened:
        table = pa.concat_tables(shortened)
        reading.notes.append(short_note(identity, table["transaction_id"].to_pylist()))
    if not table.num_rows:
        raise not_found(stores, identity, reading)
    reading.batches = table.to_batches()
    return reading


def lookup(
    stores: list[Store], settings_of: SettingsOf, transaction_ids: Sequence[str], *, scan: bool = False
) -> VerdictReading:
    """Some transactions by their ids.

    Shape:  rows of TRANSACTIONS; nothing for an id that no record bears. `scan`: by the whole log, with its findings.
    Order:  first half copy.
    """
    facts = {store.root: store_facts(store, settings_of) for store in stores}
    reading = VerdictReading(TRANSACTIONS, [])
    wanted = pa.array(list(dict.fromkeys(transaction_ids)), pa.string())

    def by_name(files: list[DerivedFiles]) -> _Named:
        named: _Named = {}
        for part in files:
            for identity, found in part.transactions_of(wanted.to_pylist()).items():
                if identity in found:
                    named[identity] = found[identity]
        unknown = [identity for identity in wanted.to_pylist() if identity not in named]
        if unknown:
            raise Untrusted(f"the index does not know {unknown[0]}")
        return named

    def chosen(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.is_in(rows["transaction_id"], wanted))

    table = None if scan else _by_derived_files(reading, facts, by_name)
    if table is not None and _is_damaged_behind(table, reading, facts, _SHOWN_BYTES_MAX):
        table = None
    if table is None:
        reading.batches = _scanned(reading, stores, settings_of, None, None, chosen)
    else:
        reading.batches = _with_discard_times(chosen(table), reading, facts).to_batches()
    return reading


def _with_discard_times(rows: pa.Table, reading: VerdictReading, facts: dict[str, StoreFacts]) -> pa.Table:
    """Rows with the time of their discard: the check is played only where something is open."""
    are_open = is_open_row(rows)
    roots = pc.unique(rows["store"].filter(are_open)).to_pylist()
    for root, fact in facts.items():
        if root in roots:
            reading.predicted[root] = predict_from_files(
                fact.store, fact.settings, fact.cursors, moment_ms(fact.store), windows=fact.windows
            )
    return with_discard_times(rows, reading.predicted)


def _rests_on_most_checks(rows: pa.Table, facts: dict[str, StoreFacts]) -> bool:
    """Whether a row would be DISCARDED, not LOST, if its checks are the most that the broker makes.

    Where a version writes no discard copy and transactionCheckMax was not given, the most checks in the whole log stand
    for it, and derived files lead to some copies only.
    """
    silent = [
        root for root, fact in facts.items()
        if fact.settings.writes_discard_copy is not True and not fact.settings.check_max_is_configured
    ]
    lost = rows.filter(pc.and_(pc.equal(rows["state"], "LOST"), pc.greater(rows["checks_count"], 0)))
    return bool(set(lost["store"].to_pylist()) & set(silent))


def _is_damaged_behind(rows: pa.Table, reading: VerdictReading, facts: dict[str, StoreFacts], bytes_max: int) -> bool:
    """Whether the log is damaged behind the first copy of transactions whose states rest on what is not there.

    Queues and index do not show damage in the log. A stretch of more than `bytes_max` is left, and a note says so.
    """
    for root, fact in facts.items():
        mine = rows.filter(pc.and_(pc.equal(rows["store"], root), pc.not_equal(rows["state"], "COMMITTED")))
        copies = [copy["commit_log_offset"] for copies in mine["half_copies"].to_pylist() for copy in copies]
        if not copies:
            continue
        begin = min(copies)
        length = written_end_offset(fact.store.commit_log) - begin
        if fact.store.is_remote or length > bytes_max:
            reading.notes.append(Note(
                NoteKind.HOW,
                f"the log behind the first open copy ({length} bytes) was not read from end to end: damage in the "
                "middle of a file does not show; --scan reads it",
            ))
            continue
        try:
            for _ in sound_blocks(fact, begin, None):
                pass
        except (Untrusted, UnreadableFile) as reason:
            reading.notes.append(_scanned_for(reason.message))
            return True
    return False


def _by_derived_files(
    reading: VerdictReading, facts: dict[str, StoreFacts], name: Callable[[list[DerivedFiles]], _Named]
) -> pa.Table | None:
    """Verdicts by the derived files of all stores; None, with a note, where they cannot be trusted."""
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(DerivedFiles(fact)) for fact in facts.values()]
            named = name(files)
            parts = [part.witnesses(named) for part in files]
    except (Untrusted, UnreadableFile) as reason:
        if isinstance(reason, UnreadableFile) and any(fact.store.is_remote for fact in facts.values()):
            raise  # the scan would ask the same place for all of it
        reading.notes.append(_scanned_for(reason.message))
        return None
    witnesses = Witnesses(
        *(
            pa.concat_tables([getattr(part, kind) for part in parts])
            for kind in ("halves", "marks", "finals", "discards", "offset_marks")
        )
    )
    reading.notes.append(Note(NoteKind.HOW, "read by cursors, queues and index"))
    for fact in facts.values():
        reading.findings.extend(fact.findings)
        reading.check_stops.extend(fact.check_stops)
    return judge(witnesses, {root: fact.view(None) for root, fact in facts.items()})


def _scanned(
    reading: VerdictReading,
    stores: list[Store],
    settings_of: SettingsOf,
    at_ms: int | None,
    progress: Progress | None,
    choose: Callable[[pa.Table], pa.Table],
) -> Iterator[pa.RecordBatch]:
    """The chosen rows of an audit, whose findings and coverage become the reading's."""
    whole = audit(stores, settings_of, at_ms=at_ms, progress=progress)
    reading.findings, reading.coverage, reading.missing = whole.findings, whole.coverage, whole.missing
    reading.check_stops = whole.check_stops
    reading.predicted = whole.predicted
    undecidable: Counter[tuple[str, str]] = Counter()
    for batch in whole:
        rows = pa.Table.from_batches([batch])
        undecidable.update(_undecidable(rows))
        yield from choose(rows).to_batches()
    reading.findings.extend(_undecidable_findings(undecidable))


def undecidable_findings(rows: pa.Table) -> list[Finding]:
    """What is not listed because it cannot be known must not look like nothing."""
    return _undecidable_findings(Counter(_undecidable(rows)))


def _undecidable(rows: pa.Table) -> list[tuple[str, str]]:
    unknown = rows.filter(pc.equal(rows["state"], "UNDECIDABLE"))
    return list(zip(unknown["store"].to_pylist(), unknown["reason"].to_pylist(), strict=True))


def _undecidable_findings(undecidable: Counter[tuple[str, str]]) -> list[Finding]:
    return [
        Finding(root, "undecidable", actual=f"{count}, because {reason}")
        for (root, reason), count in undecidable.items()
    ]


def open_rows(rows: pa.Table) -> pa.Table:
    """The rows that the broker still has before it: PENDING, and decided or discarded ones that it will ask again."""
    return rows_where(rows, is_open_row(rows))


def is_short_for(part: str, identity: str) -> bool:
    """Whether an id begins or ends with some text, so long that this is no chance; case does not count."""
    short, whole = part.upper(), identity.upper()
    return len(part) >= SHORT_ID_LENGTH_MIN and (whole.startswith(short) or whole.endswith(short))


def _scanned_for(why: str) -> Note:
    return Note(NoteKind.WHY, f"the log is scanned, because {why}")


def short_note(part: str, identities: Sequence[str]) -> Note:
    """Which ids a text was taken for."""
    ids = ", ".join(identities[:_SHORT_IDS_TOLD_MAX])
    return Note(NoteKind.WHY, f"{part} is short for {ids}, because nothing has that name")


def _rows_of_short_id(rows: pa.Table, part: str) -> pa.Table:
    """The rows whose id begins or ends with some text; case does not count."""
    ids = pc.utf8_upper(rows["transaction_id"])
    return rows.filter(pc.or_(pc.starts_with(ids, part.upper()), pc.ends_with(ids, part.upper())))


def rows_named(rows: pa.Table, identity: str) -> pa.Table:
    """The rows that an id, the message id of any of their records, or a business key names."""
    return rows.filter(_is_named(rows, identity))


def _is_of_one(entry: dict[str, Any]) -> bool:
    """Whether a witness is of one transaction alone: an op message that names queue offsets may be of many."""
    return entry.get("half_queue_offset") is None


def _is_named(rows: pa.Table, identity: str) -> pa.Array:
    """Which rows have the identity as id, as one of their keys, or as the message id of one of their records."""
    words = pc.split_pattern(pc.fill_null(rows["keys"], ""), " ")
    offset = offset_of(identity)
    named = []
    for row_id, keys, *lists in zip(
        rows["transaction_id"].to_pylist(),
        words.to_pylist(),
        *(rows[name].to_pylist() for name in ("half_copies", "final_records", "discard_copies", "op_marks")),
        strict=True,
    ):
        at_offset = offset is not None and any(
            entry["commit_log_offset"] == offset for entries in lists for entry in entries if _is_of_one(entry)
        )
        named.append(identity in (row_id, *keys) or row_id == identity.upper() or at_offset)
    return pa.array(named, pa.bool_())
