"""What a store is, in one row: which design and broker, which files, where the cursors stand, what can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from readers.cursors.cursors import check_cursors
from readers.cursors.rocksdb_cursors import cursor_databases
from readers.log.commit_log import written_end_offset
from readers.log.designs import DESIGNS, HALF_TOPIC_DESIGN, PREPARED_RECORDS, STATE_TABLE, designs_of
from readers.log.designs import ROCKSDB as ROCKSDB_DESIGN
from readers.model.errors import SourceError
from readers.model.findings import Finding
from readers.model.tables import column
from readers.queues.consume_queue import open_queue
from readers.rocksdb.rocksdb_queues import queue_bounds
from readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqtx_cli.output.views import ALWAYS, View, plain
from rmqtx_cli.words.text import count, escaped, size
from verdicts.claims.log_agreement import agreement_findings, has_data
from verdicts.claims.log_claims import LogClaims, log_claims

if TYPE_CHECKING:
    from readers.log.designs import SeenDesign
    from readers.store.broker_settings import BrokerSettings
    from readers.store.store import Store

#: Offsets of the commit log in bytes; of queues as ordinals; null where not known.
STORES = pa.schema(
    [
        column("store", pa.string(), "root of the store"),
        column("generation", pa.string(), "which designs of transactions the store shows, in words"),
        column("designs", pa.list_(pa.string()), "the same as words (rmqtx explain design)"),
        column("designs_shown_by", pa.list_(pa.string()), "for each design the files that show it"),
        column("broker_versions", pa.string(), "the versions that can have written it, as far as that shows"),
        column("settings", pa.string(), "the broker's settings that are supposed, each with where it is from"),
        column("is_in_use", pa.bool_(), "whether a process has the store's lock now"),
        column("used_by_process", pa.int64(), "that process"),
        column("is_aborted", pa.bool_(), "whether the file abort is there: the broker runs, or did not stop cleanly"),
        column("log_files_count", pa.int64(), "files of the commit log"),
        column("log_begin_offset", pa.int64(), "first byte of the log that is there"),
        column("log_end_offset", pa.int64(), "end of what is written in the log; null where nothing is"),
        column("log_size_bytes", pa.int64(), "bytes that the log's files occupy, written or not"),
        column("topics_count", pa.int64(), "topics that have queues"),
        column("queues_count", pa.int64(), "queues of all topics"),
        column("index_files_count", pa.int64(), "files of the message index"),
        column("half_min_offset", pa.int64(), "first entry of the half queue"),
        column("half_max_offset", pa.int64(), "end of the half queue: the next entry's number"),
        column("half_next_offset", pa.int64(), "the half that the check reads next"),
        column("half_lag", pa.int64(), "half copies that the check has before it"),
        column("op_max_offset", pa.int64(), "end of the op queue"),
        column("op_next_offset", pa.int64(), "the op message that the check reads next"),
        column("discarded_count", pa.int64(), "copies in the discard queue"),
        column("trust", pa.list_(pa.string()), "what can be relied on, and what cannot, in sentences"),
    ]
)
#: What is asked about first has the least rank; of the rest a narrow table has none.
_RANKS = {"store": ALWAYS, "half_lag": 1, "is_in_use": 2, "broker_versions": 3, "discarded_count": 4, "trust": 5}
STORES_VIEW = View(
    tuple(plain(name, _RANKS.get(name, 6), may_be_cut=True, least_cells=20) for name in STORES.names), "no such stores"
)


NO_QUEUE = (None, None)


def store_row(store: Store, settings: BrokerSettings) -> tuple[dict[str, Any], list[Finding]]:
    """The row of STORES, and what was wrong while it was made."""
    findings = list(store.findings)
    cursors = check_cursors(store)
    in_rocksdb = queue_bounds(store, findings)
    half_min, half_max = _range(store, HALF_TOPIC, findings) or in_rocksdb.get((HALF_TOPIC, 0)) or NO_QUEUE
    _, op_max = _range(store, OP_TOPIC, findings) or in_rocksdb.get((OP_TOPIC, 0)) or NO_QUEUE
    _, discarded = _range(store, DISCARD_TOPIC, findings) or in_rocksdb.get((DISCARD_TOPIC, 0)) or NO_QUEUE
    half_next = None if cursors.half is None else cursors.half.get(0, half_min)
    queues = sorted({*store.queues(), *in_rocksdb})
    end, size_bytes = _log_end(store)
    seen = designs_of(store)
    words = [design.word for design in seen]
    findings += cursors.findings if not is_older(words) else []  # nothing of those is decided by a cursor
    claims = log_claims(store, cursors)
    findings += agreement_findings(store, claims)
    row = {
        "store": store.root,
        "generation": generation(store, seen),
        "designs": words,
        "designs_shown_by": [design.why for design in seen],
        "broker_versions": settings.version,
        "settings": settings.describe(),
        "is_in_use": None if store.is_remote else store.in_use,  # a lock does not travel with a copy
        "used_by_process": store.used_by_process,
        "is_aborted": store.aborted,
        "log_files_count": len(store.commit_log),
        "log_begin_offset": store.log_begin_offset if store.commit_log else None,
        "log_end_offset": end,
        "log_size_bytes": size_bytes,
        "topics_count": len({topic for topic, _ in queues}),
        "queues_count": len(queues),
        "index_files_count": len(store.index_files),
        "half_min_offset": half_min,
        "half_max_offset": half_max,
        "half_next_offset": half_next,
        "half_lag": None if half_next is None or half_max is None else max(0, half_max - half_next),
        "op_max_offset": op_max,
        "op_next_offset": None if cursors.op is None else cursors.op.get(0),
        "discarded_count": discarded,
        "trust": list(_trust(store, findings, words, claims, cursor=half_next, half_max=half_max)),
    }
    return row, findings


def generation(store: Store, seen: Sequence[SeenDesign]) -> str:
    """Which designs of transactional messages the store shows, and where queues are kept."""
    queues = storage(store)
    names = [DESIGNS[design.word] for design in seen]
    if not names:
        return f"no transactions of any design seen, {queues}"
    return f"{' and '.join(names)}, {queues}"


def storage(store: Store) -> str:
    """In what the store keeps its queues, cursors and log, where versions differ."""
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
    end = written_end_offset(store.commit_log) if has_data(store) else None
    return end, sum(segment.size_bytes for segment in store.commit_log)


def _range(store: Store, topic: str, findings: list[Finding]) -> tuple[int, int] | None:
    try:
        with open_queue(store, topic, 0) as queue:
            return (queue.min_offset, queue.max_offset) if queue.exists else None
    except SourceError as error:
        findings.append(Finding(store.root, "unreadable-file", error.file, actual=error.message))
        return None


def _trust(
    store: Store, findings: list[Finding], designs: Sequence[str], claims: LogClaims, *, cursor: int | None,
    half_max: int | None,
) -> Iterator[str]:
    """What can be relied on, as sentences."""
    errors = sorted({finding.code for finding in findings if finding.kind.severity == "error"})
    if not store.commit_log:
        yield "there is no commit log: no transaction can be seen"
        if errors:
            yield f"damaged: {', '.join(errors)}"
        return
    if store.in_use:
        yield "the broker is writing: decisions of the last moments may not be in the files yet"
    elif store.aborted and store.is_remote:
        yield "the broker ran while it was copied, or did not stop cleanly: files may be of different moments"
    elif store.aborted:
        yield "the broker did not stop cleanly: what it had not flushed is not in the files"
    elif store.is_remote:
        yield "stopped cleanly before it was copied; whether all files were copied is not known"
    else:
        yield "stopped cleanly"
    if not errors:
        if claims.newest:
            yield "the newest entries of queues, index and tables lead to records; the log was not read (rmqtx verify)"
        else:
            yield "no other file knows a record of the log, which was not read (rmqtx verify)"
    if claims.note is not None:
        yield claims.note
    if (store.in_use or store.aborted) and ROCKSDB_DESIGN in designs:
        yield "RocksDB's table is as old as its last flush: it misses later checks, and later drops"
    if cursor is None and half_max is not None:
        yield "the check's cursor is not known: what only it decides is UNDECIDABLE"
    if store.has_rocksdb_queues and not store.has("consumequeue", HALF_TOPIC):
        yield "the queues are in RocksDB: pending transactions are found by scanning the log"
    elif is_older(designs):
        yield "prepared records are in no queue: pending transactions are found by scanning the log"
    elif half_max is None:
        yield "there is no half queue: pending transactions are found by scanning the log"
    if not store.index_files:
        yield "there is no index: show finds keys by scanning the log"
    if errors:
        yield f"damaged: {', '.join(errors)}"


def draw_stores(rows: list[dict[str, Any]], stream: IO[bytes]) -> None:
    """The rows as pages for people."""
    for number, row in enumerate(rows):
        lines = [*([""] if number else []), escaped(row["store"]), *(f"  {line}" for line in _page(row))]
        stream.write("".join(f"{line}\n" for line in lines).encode())


def _page(row: dict[str, Any]) -> Iterator[str]:
    yield f"design      {row['generation']}"
    if row["designs"] != [HALF_TOPIC_DESIGN]:
        for word, why in zip(row["designs"], row["designs_shown_by"], strict=True):
            yield f"            {DESIGNS[word]}: {escaped(why)}"
    for number, part in enumerate(row["settings"].split("; ")):
        yield f"{'' if number else 'broker':<10}  {escaped(part.removeprefix('broker '))}"
    if row["log_end_offset"] is None:
        yield f"commit log  {count(row['log_files_count'], 'file')}, nothing written"
    else:
        yield (
            f"commit log  {count(row['log_files_count'], 'file')}, bytes {row['log_begin_offset']} to "
            f"{row['log_end_offset']} written, {size(row['log_size_bytes'])} allocated"
        )
    yield (
        f"queues      {count(row['queues_count'], 'queue')} of {count(row['topics_count'], 'topic')}; "
        f"{count(row['index_files_count'], 'index file')}"
    )
    if not is_older(row["designs"]):
        half = _queue(row["half_min_offset"], row["half_max_offset"], row["half_next_offset"], row["half_lag"])
        yield f"half queue  {half}"
        yield f"op queue    {_queue(0, row['op_max_offset'], row['op_next_offset'], None)}"
        yield f"discarded   {_discarded(row)}"
    for number, sentence in enumerate(row["trust"]):
        yield f"{'' if number else 'trust':<10}  {sentence}"


def _discarded(row: dict[str, Any]) -> str:
    """Copies of what was given up; none are made of transactions in RocksDB."""
    copies = row["discarded_count"] or 0
    if ROCKSDB_DESIGN not in row["designs"]:
        return str(copies)
    return f"{count(copies, 'copy', 'copies')}; none is made of what RocksDB drops: rmqtx audit lists that"


def is_older(designs: Sequence[str]) -> bool:
    """Whether all transactions that a store shows are of brokers before 4.3: these have no check queues and cursors."""
    return bool(designs) and set(designs) <= {STATE_TABLE, PREPARED_RECORDS}


def _queue(first: int | None, end: int | None, following: int | None, lag: int | None) -> str:
    if end is None:
        return "no files"
    cursor = "the check's cursor is not known" if following is None else f"the check reads {following} next"
    behind = "" if not lag else f": {count(lag, 'half copy', 'half copies')} before it"
    return f"{first} to {end}; {cursor}{behind}"


def stores_table(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows of STORES."""
    return pa.Table.from_pylist(rows, schema=STORES)
