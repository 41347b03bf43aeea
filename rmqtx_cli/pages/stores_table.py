"""One row about a store: design, broker version, files, cursors, and what can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from rmqtx.readers.cursors import check_cursors, cursor_databases
from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.designs import DESIGNS, HALF_TOPIC_DESIGN, SeenDesign, are_before_half_topics, designs_of
from rmqtx.readers.log.designs import ROCKSDB as ROCKSDB_DESIGN
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import column
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb_queues import joined_bounds, lacking_database, queue_bounds
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.epoch_file import FILE_NAME as EPOCH_FILE
from rmqtx.readers.store.epoch_file import read_epochs
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Store
from rmqtx.readers.store.version_signs import rust_mark
from rmqtx.verdicts.audit.log_copies import glance_at_copies
from rmqtx.verdicts.check.state import half_lag
from rmqtx.verdicts.claims.log_agreement import agreement_findings, has_data
from rmqtx.verdicts.claims.log_claims import LogClaims, log_claims
from rmqtx.verdicts.missing.check_queue_findings import half_queue_findings, op_queue_findings
from rmqtx.verdicts.simulation.next_start import refused_by_all, still_beyond
from rmqtx_cli.output.views import ALWAYS, View, plain
from rmqtx_cli.words.of_old_stores import has_only_prepared
from rmqtx_cli.words.text import count, escaped, size

if TYPE_CHECKING:
    from rmqtx.readers.store.broker_settings import BrokerSettings

#: Offsets of the commit log in bytes, of queues as numbers of entries; null where unknown.
STORES = pa.schema(
    [
        column("store", pa.string(), "root of the store"),
        column("generation", pa.string(), "designs of transactions that the store shows, in words"),
        column("designs", pa.list_(pa.string()), "the same designs as fixed words (rmqtx explain design)"),
        column("designs_shown_by", pa.list_(pa.string()), "for each design the files that show it"),
        column("broker_versions", pa.string(), "versions that can have written the store, as far as its files show"),
        column("settings", pa.string(), "broker settings that are assumed, each with its source"),
        column("is_in_use", pa.bool_(), "whether a process has the store's lock now"),
        column("used_by_process", pa.int64(), "that process"),
        column("is_aborted", pa.bool_(), "whether the file abort exists: the broker runs, or did not stop cleanly"),
        column("log_files_count", pa.int64(), "files of the commit log"),
        column("log_begin_offset", pa.int64(), "offset of the first byte of the log"),
        column(
            "log_end_offset", pa.int64(),
            "end of the written part of the log, rounded up to 4096 bytes (the log is not read); null if nothing is "
            "written",
        ),
        column("log_size_bytes", pa.int64(), "length of all log files in bytes, written or not"),
        column("topics_count", pa.int64(), "topics that have queues"),
        column("queues_count", pa.int64(), "queues of all topics"),
        column("index_files_count", pa.int64(), "files of the message index"),
        column("half_min_offset", pa.int64(), "offset of the first entry of the half queue"),
        column("half_max_offset", pa.int64(), "end of the half queue: the offset of the next entry"),
        column("half_next_offset", pa.int64(), "offset of the half message that the check reads next"),
        column("half_lag", pa.int64(), "half copies between the check's cursor and the end of the queue"),
        column("op_max_offset", pa.int64(), "end of the op queue"),
        column("op_next_offset", pa.int64(), "offset of the op message that the check reads next"),
        column("discarded_count", pa.int64(), "copies in the discard queue"),
        column("trust", pa.list_(pa.string()), "sentences about what can be trusted and what cannot"),
        column("confirm_offset", pa.int64(), "offset up to which replicas confirmed the log; null without replicas"),
        column("epochs", pa.list_(pa.string()), "epochs of the controller's masters, each as `epoch from offset`"),
        column("copy_of", pa.string(), "the store before it in the list that has the log of the same broker"),
    ]
)
#: The columns that a narrow table keeps longest have the lowest rank.
_RANKS = {"store": ALWAYS, "half_lag": 1, "is_in_use": 2, "broker_versions": 3, "discarded_count": 4, "trust": 5}
STORES_VIEW = View(
    tuple(plain(name, _RANKS.get(name, 6), may_be_cut=True, least_cells=20) for name in STORES.names), "no such stores"
)


@dataclass(slots=True)
class StoreRow:
    """A row of STORES. `copy_of` and part of `trust` are known when all rows are there."""

    store: str
    generation: str
    designs: list[str]
    designs_shown_by: list[str]
    broker_versions: str
    settings: str
    is_in_use: bool | None
    used_by_process: int | None
    is_aborted: bool
    log_files_count: int
    log_begin_offset: int | None
    log_end_offset: int | None
    log_size_bytes: int
    topics_count: int
    queues_count: int
    index_files_count: int
    half_min_offset: int | None
    half_max_offset: int | None
    half_next_offset: int | None
    half_lag: int | None
    op_max_offset: int | None
    op_next_offset: int | None
    discarded_count: int | None
    trust: list[str]
    confirm_offset: int | None
    epochs: list[str]
    copy_of: str | None = None


NO_QUEUE = (None, None)
#: The newest bytes of logs of one broker that are compared.
_COMPARED_BYTES = 1 << 20


def store_row(store: Store, settings: BrokerSettings) -> tuple[StoreRow, list[Finding]]:
    """The row of STORES, and the findings of reading the store."""
    findings = [*store.findings, *lacking_database(store)]
    cursors = check_cursors(store)
    in_rocksdb = queue_bounds(store, findings)
    (half_min, half_max), (_, op_max), (_, discarded) = (
        joined_bounds(_range(store, topic, findings), in_rocksdb.get((topic, 0))) or NO_QUEUE
        for topic in (HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC)
    )
    half_next = None if cursors.half is None else cursors.half.get(0, half_min)
    queues = sorted({*store.queues(), *in_rocksdb})
    end, size_bytes = _log_end(store)
    seen = designs_of(store)
    words = [design.word for design in seen]
    findings += cursors.findings if not are_before_half_topics(words) else []  # older designs have no cursors
    claims = log_claims(store, cursors)
    findings += agreement_findings(store, claims)
    if not are_before_half_topics(words):
        # A cursor after the begin shows that the check has read half messages, or op messages, which name some.
        has_halves = bool((cursors.half or {}).get(0) or op_max)
        derived = [
            *half_queue_findings(store, cursors.half, has_halves),
            *op_queue_findings(store, cursors.op, has_ops=bool((cursors.op or {}).get(0))),
        ]
        derived = [one for one in derived if one.code != "cursor-before-begin"]
        findings += still_beyond(store, settings, derived, is_cut=False)
        findings += _refused_starts(store, settings)
    row = StoreRow(
        store=store.root,
        generation=generation(store, seen),
        designs=words,
        designs_shown_by=[design.why for design in seen],
        broker_versions=settings.broker,
        settings=settings.describe(),
        is_in_use=None if store.is_remote else store.in_use,  # a lock is not copied
        used_by_process=store.used_by_process,
        is_aborted=store.aborted,
        log_files_count=len(store.commit_log),
        log_begin_offset=store.log_begin_offset if store.commit_log else None,
        log_end_offset=end,
        log_size_bytes=size_bytes,
        topics_count=len({topic for topic, _ in queues}),
        queues_count=len(queues),
        index_files_count=len(store.index_files),
        half_min_offset=half_min,
        half_max_offset=half_max,
        half_next_offset=half_next,
        half_lag=half_lag(half_next, half_max),
        op_max_offset=op_max,
        op_next_offset=None if cursors.op is None else cursors.op.get(0),
        discarded_count=discarded,
        trust=list(_trust(store, findings, words, claims, cursor=half_next, half_max=half_max)),
        confirm_offset=_confirm_offset(store),
        epochs=_epochs(store, findings),
    )
    return row, findings


def _refused_starts(store: Store, settings: BrokerSettings) -> list[Finding]:
    if store.in_use:
        return []
    try:
        return refused_by_all(store, settings)
    except SourceError as error:
        return [Finding(store.root, "unreadable-file", error.file, actual=error.message)]


def compared_copies(rows: list[StoreRow], stores: Sequence[Store]) -> list[Finding]:
    """Add to the rows which stores have the log of one broker; return the findings about those that differ."""
    firsts, found = glance_at_copies(stores, _COMPARED_BYTES)
    differing = {finding.store for finding in found}
    by_root = {row.store: row for row in rows}
    for row in rows:
        if (first := firsts.get(row.store)) is None:
            continue
        row.copy_of = first
        how = "differ" if row.store in differing else "are equal"
        row.trust.append(f"has the log of the same broker as {first}; the newest bytes that both have {how}")
        row.trust += _lacking(row, by_root[first])
        by_root[first].trust += _lacking(by_root[first], row)
    return found


def _lacking(row: StoreRow, other: StoreRow) -> Iterator[str]:
    """Sentences about half messages to check that another copy of the log has at offsets where this one has none."""
    begin, end = row.half_min_offset, row.half_max_offset
    other_begin, other_end, following = other.half_min_offset, other.half_max_offset, other.half_next_offset
    if begin is None or end is None or other_begin is None or other_end is None or following is None:
        return
    low = max(following, other_begin)
    missing = max(0, min(begin, other_end) - low) + max(0, other_end - max(end, low))
    if missing:
        both = f"{quoted(row.store)} {quoted(other.store)}"
        yield (
            f"lacks {count(missing, 'half copy', 'half copies')} that the check of {other.store} still reads: a "
            f"failover to this copy loses what is open among them; rmqtx pending {both} counts it"
        )


def _confirm_offset(store: Store) -> int | None:
    return None if rust_mark(store) is not None else checkpoint_values(store).get("confirm_offset") or None


def _epochs(store: Store, findings: list[Finding]) -> list[str]:
    if not store.has(EPOCH_FILE):
        return []
    reading = read_epochs(store)
    rows = reading.table().to_pylist()
    findings += reading.findings
    return [f"{row['epoch']} from {row['begin_offset']}" for row in rows]


def generation(store: Store, seen: Sequence[SeenDesign]) -> str:
    """The designs of transactions that the store shows, and how it stores queues, in words."""
    queues = storage(store)
    names = [DESIGNS[design.word] for design in seen]
    if not names:
        return f"no transactions found, {queues}"
    return f"{' and '.join(names)}, {queues}"


def storage(store: Store) -> str:
    """How the store keeps queues, cursors and log, where versions differ."""
    parts = []
    has_files = next(store.queues(), None) is not None
    if store.has_rocksdb_queues:
        parts.append(f"{'file and ' if has_files else ''}RocksDB consume queues (5.2.0+)")
    else:
        parts.append("file consume queues")
    parts += [f"cursors in RocksDB ({form.setting})" for form in cursor_databases(store)]
    if store.is_dledger:
        parts.append("DLedger commit log (4.5.0+), read only")
    if store.has("epochFileCheckpoint"):
        parts.append("a controller's replica (5.0.0+, epochFileCheckpoint), read only")
    return ", ".join(parts)


def _log_end(store: Store) -> tuple[int | None, int]:
    end = written_end(store).offset if has_data(store) else None
    return end, sum(segment.size_bytes for segment in store.commit_log)


def _range(store: Store, topic: str, findings: list[Finding]) -> tuple[int, int] | None:
    try:
        with open_queue(store, topic, 0) as queue:
            findings += queue.findings
            return (queue.min_offset, queue.max_offset) if queue.exists else None
    except SourceError as error:
        findings.append(Finding(store.root, "unreadable-file", error.file, actual=error.message))
        return None


def _trust(
    store: Store, findings: list[Finding], designs: Sequence[str], claims: LogClaims, *, cursor: int | None,
    half_max: int | None,
) -> Iterator[str]:
    """Sentences about what can be trusted and what cannot."""
    errors = sorted({finding.code for finding in findings if is_doubt(finding)})
    if not store.commit_log:
        yield "no commit log: no transaction can be read"
        if errors:
            yield f"damaged: {', '.join(errors)}"
        return
    yield _moment(store)
    if not errors:
        if claims.newest:
            yield "the newest entries of queues, index and tables lead to records; the log was not read (rmqtx verify)"
        else:
            yield "no other file refers to a record of the log; the log was not read (rmqtx verify)"
    if claims.note is not None:
        yield claims.note
    if (store.in_use or store.aborted) and ROCKSDB_DESIGN in designs:
        yield "the RocksDB table is as old as its last flush: later checks and discards are missing"
    if _is_cursor_unknown(cursor, half_max):
        yield "the check's cursor is unknown: transactions that depend on it are UNDECIDABLE"
    if store.has_rocksdb_queues and not store.has("consumequeue", HALF_TOPIC):
        yield "the queues are in RocksDB: rmqtx pending reads the whole log"
    elif are_before_half_topics(designs):
        yield "prepared records are in no queue: rmqtx pending reads the whole log"
    elif half_max is None:
        yield "no half queue: rmqtx pending reads the whole log"
    if not store.index_files:
        yield "no index: rmqtx show reads the whole log to find a key"
    if errors:
        yield f"damaged: {', '.join(errors)}"


def is_doubt(finding: Finding) -> bool:
    """Whether a finding about a store contradicts what its row shows: an error, or a queue that is not there."""
    return finding.is_error or finding.code == "queue-missing"


def is_incomplete(row: StoreRow) -> bool:
    """Whether a store has a half queue and not the cursor of its check."""
    return _is_cursor_unknown(row.half_next_offset, row.half_max_offset)


def _is_cursor_unknown(cursor: int | None, half_max: int | None) -> bool:
    return cursor is None and half_max is not None


def _moment(store: Store) -> str:
    """The sentence about the moment of the files, and how the broker stopped."""
    if store.in_use:
        return "the broker is running: the newest decisions may not be in the files yet"
    if store.aborted and store.is_remote:
        return "the broker ran during the copy, or did not stop cleanly: files may be from different moments"
    if store.aborted and not store.was_killed:
        return "abort was written by rmqtx: the next start recovers the log"
    if store.aborted and store.size_bytes("abort") == 0:  # as brokers before 5.0 leave it, and rmqtx for them
        return (
            "abort exists: rmqtx changed this copy after a clean stop, or the broker did not stop cleanly and data "
            "that it had not flushed is missing"
        )
    if store.aborted:
        return "the broker did not stop cleanly: data that it had not flushed is missing"
    if store.is_remote:
        return "stopped cleanly before the copy; unknown whether all files were copied"
    return "stopped cleanly" if store.has_clean_end else "no checkpoint: unknown whether the broker stopped cleanly"


def draw_stores(rows: list[StoreRow], stream: IO[bytes]) -> None:
    """Write the rows as pages for people."""
    for number, row in enumerate(rows):
        lines = [*([""] if number else []), escaped(row.store), *(f"  {line}" for line in _page(row))]
        stream.write("".join(f"{line}\n" for line in lines).encode())


def _page(row: StoreRow) -> Iterator[str]:
    yield f"design      {row.generation}"
    if row.designs != [HALF_TOPIC_DESIGN]:
        for word, why in zip(row.designs, row.designs_shown_by, strict=True):
            yield f"            {DESIGNS[word]}: {escaped(why)}"
    for number, part in enumerate(row.settings.split("; ")):
        yield f"{'' if number else 'broker':<10}  {escaped(part.removeprefix('broker '))}"
    if row.log_end_offset is None:
        yield f"commit log  {count(row.log_files_count, 'file')}, nothing written"
    else:
        yield (
            f"commit log  {count(row.log_files_count, 'file')}, bytes {row.log_begin_offset} to "
            f"about {row.log_end_offset} written, {size(row.log_size_bytes)} allocated"
        )
    yield (
        f"queues      {count(row.queues_count, 'queue')} of {count(row.topics_count, 'topic')}; "
        f"{count(row.index_files_count, 'index file')}"
    )
    if not are_before_half_topics(row.designs) and not has_only_prepared(row.store):
        half = _queue(row.half_min_offset, row.half_max_offset, row.half_next_offset, row.half_lag)
        yield f"half queue  {half}"
        yield f"op queue    {_queue(0, row.op_max_offset, row.op_next_offset, None)}"
        yield f"discarded   {_discarded(row)}"
    if row.confirm_offset is not None or row.epochs:
        confirmed = "unknown" if row.confirm_offset is None else f"up to {row.confirm_offset}"
        epochs = f"; epoch {', '.join(row.epochs)}" if row.epochs else ""
        yield f"replicas    confirmed {confirmed}{epochs}"
    for number, sentence in enumerate(row.trust):
        yield f"{'' if number else 'trust':<10}  {sentence}"


def _discarded(row: StoreRow) -> str:
    """The number of discard copies; for transactions in RocksDB the broker writes none."""
    copies = row.discarded_count or 0
    if ROCKSDB_DESIGN not in row.designs:
        return str(copies)
    return f"{count(copies, 'copy', 'copies')}; what RocksDB drops has no copy: rmqtx audit lists it"


def _queue(first: int | None, end: int | None, following: int | None, lag: int | None) -> str:
    if end is None:
        return "no files"
    cursor = "the check's cursor is unknown" if following is None else f"the check reads {following} next"
    behind = "" if not lag else f": {count(lag, 'half copy', 'half copies')} to read"
    return f"{first} to {end}; {cursor}{behind}"


def stores_table(rows: list[StoreRow]) -> pa.Table:
    """The rows of STORES."""
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=STORES)
