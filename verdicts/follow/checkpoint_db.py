"""The checkpoint of an audit that follows growing stores: one SQLite file with witnesses, verdicts and places.

All changes of a step are one database transaction, so a kill at any moment leaves the state before the step. Columns
are those of the Arrow schemas; a store is its number in `stores`. For each verdict the file has the scalar columns, and
counts and a digest of its evidence, because the evidence itself is in the witnesses. Other programs may read the table
`verdicts`.

Joins name their order and index: without statistics of a growing table, SQLite would search only by store number.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.op_messages import OFFSET_MARKS
from rmqtx.readers.log.transaction_records import JUDGED_FINALS, JUDGED_HALVES
from rmqtx.readers.model.declared_json import ANYTHING, JsonForm, list_of, needed, struct_of
from rmqtx.readers.model.errors import BadRequest, BadText, UnwritableFile
from rmqtx.readers.model.identities import UInt64s
from rmqtx.readers.model.tables import MARKS, TRANSACTIONS
from rmqtx.readers.storage.places import is_uri
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.evidence.witness_scan import IDENTIFIED
from rmqtx.verdicts.follow.segment_notes import Place
from rmqtx.verdicts.model.verdict_inputs import MisdirectedDecision
from rmqtx.verdicts.model.witnesses import Witnesses, op_numbers

#: A change of the file format changes this number.
FORMAT_VERSION = 11
_APPLICATION_ID = 0x524D5154  # "RMQT"
_POLL_SECONDS = 0.1
_HEAD = b"SQLite format 3\0"

#: Columns of `verdicts` with joined words.
JOINED_WORDS = ("flags", "causes")
#: Columns of `verdicts` that are text: `store` is a number in the file.
_VERDICT_TEXTS = {
    *JOINED_WORDS, *(field.name for field in TRANSACTIONS if pa.types.is_string(field.type) and field.name != "store")
}
#: The columns of `verdicts`: those of TRANSACTIONS without lists, and counts and digest of the lists.
VERDICT_COLUMNS = (
    "hash",
    *(
        name for name in TRANSACTIONS.names
        if name in JOINED_WORDS or not pa.types.is_list(TRANSACTIONS.field(name).type)
    ),
    "half_copies_count", "op_marks_count", "final_records_count", "discard_copies_count", "evidence_digest",
)
WITNESS_TABLES: dict[str, pa.Schema] = {
    "halves": JUDGED_HALVES, "discards": JUDGED_HALVES, "finals": JUDGED_FINALS, "damaged_halves": JUDGED_HALVES,
    "offset_marks": OFFSET_MARKS, "marks": MARKS,
}
#: SQLite errors that the disk or another program causes.
_SYSTEM_ERRORS = frozenset({
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB,
})


def _declaration(name: str, schema: pa.Schema) -> str:
    hashed = [] if name == "marks" else ["hash INTEGER NOT NULL"]
    texts = [
        f"{field.name} {'TEXT' if pa.types.is_string(field.type) and field.name != 'store' else 'INTEGER'}"
        for field in schema
    ]
    last = ", half_queue_offset, repetition" if name == "marks" else ""
    key = f"PRIMARY KEY (store, commit_log_offset{last})"
    return f"CREATE TABLE {name} ({', '.join([*hashed, *texts, key])}) WITHOUT ROWID"


#: In files of this version `segments.said` has the notes of a segment (`SegmentNotes`), and `strays` the decisions that
#: name no half copy of their own.
_SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    "CREATE TABLE stores (number INTEGER PRIMARY KEY, root TEXT UNIQUE NOT NULL, place TEXT NOT NULL, "
    "view TEXT)",
    "CREATE TABLE segments (store INTEGER, base_offset INTEGER, size_bytes INTEGER, said TEXT NOT NULL, "
    "PRIMARY KEY (store, base_offset)) WITHOUT ROWID",
    *(_declaration(name, schema) for name, schema in WITNESS_TABLES.items()),
    "CREATE INDEX halves_by_queue_offset ON halves (store, queue_offset)",
    "CREATE INDEX damaged_halves_by_queue_offset ON damaged_halves (store, queue_offset)",
    "CREATE INDEX damaged_halves_by_hash ON damaged_halves (hash)",
    "CREATE INDEX marks_by_half ON marks (store, half_queue_offset)",
    "CREATE TABLE strays (store INTEGER, final_offset INTEGER, prepared_offset INTEGER, "
    "PRIMARY KEY (store, final_offset)) WITHOUT ROWID",
    "CREATE TABLE ties (one INTEGER, other INTEGER, PRIMARY KEY (one, other)) WITHOUT ROWID",
    "CREATE TABLE unjudged (hash INTEGER PRIMARY KEY)",
    "CREATE TABLE verdicts ("
    + ", ".join(f"{name} {'TEXT' if name in _VERDICT_TEXTS else 'INTEGER'}" for name in VERDICT_COLUMNS)
    + ")",
    "CREATE INDEX verdicts_by_hash ON verdicts (hash)",
    "CREATE TABLE changes (number INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, rows_count INTEGER NOT NULL, "
    "batch BLOB NOT NULL)",
    "CREATE INDEX verdicts_unsettled ON verdicts (state) WHERE state IN ('PENDING', 'LOST', 'UNDECIDABLE')",
)
#: The changes of a stream, by the number of the first change of each batch; only in its checkpoint.
FEED_TABLE = (
    "CREATE TABLE feed (first INTEGER PRIMARY KEY, rows_count INTEGER NOT NULL, at_ms INTEGER NOT NULL, "
    "batch BLOB NOT NULL)"
)
_IDENTITY_INDEX = "CREATE INDEX IF NOT EXISTS {0}_by_hash ON {0} (hash)"
_CURSORS = pa.map_(pa.string(), pa.field("offset", pa.int64(), nullable=False))
#: The JSON columns of a store.
_KEPT = {
    "place": JsonForm(
        "checkpoint of this version",
        struct_of(Place),
    ),
    "view": JsonForm(
        "checkpoint of this version",
        pa.struct([pa.field("half_cursors", _CURSORS), pa.field("op_cursors", _CURSORS),
                   *(needed(name, ANYTHING) for name in ("settings", "missing", "checks_limit", "beside", "evidence")),
                   needed("copies", list_of(pa.string())),
                   *(needed(name, ANYTHING) for name in ("reference_time_ms", "begins_later")),
                   needed("foreign", list_of(struct_of(MisdirectedDecision)))]),
        is_open=True,
    ),
}


def _next_step(path: str, error: OSError) -> str | None:
    """What makes a place that cannot be opened one for a checkpoint; None if nothing is known."""
    if is_uri(path):
        return "a checkpoint is a file on a disk of this machine: give its path, not a URI"
    if not (folder := Path(path).parent).is_dir():
        return f"make its folder: mkdir -p {shlex.quote(str(folder))}"
    if isinstance(error, IsADirectoryError):
        return "give a file in this folder"
    return None


class FollowDatabase:
    """An open checkpoint; only one program can open it at a time.

    Shape: `roots`: the stores' roots by number; `is_new`: nothing was judged yet.
    """

    def __init__(self, path: str, stores: Sequence[Store], *, wait_seconds: float = 0) -> None:
        """Open the checkpoint of these stores, or create it. `wait_seconds`: how long it may be in use before.

        Raises: BadRequest if the file is no checkpoint, of other stores, of another version, or in use; UnwritableFile.
        """
        self.path = path
        try:
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnwritableFile(
                f"cannot write {path}: {error.strerror}", file=path, advice=_next_step(path, error)
            ) from error
        try:
            self._require_ours(time.monotonic() + wait_seconds)
            with self.naming_the_file():
                self.connection = sqlite3.connect(path, isolation_level=None)
                self._open(stores)
        except BaseException:
            os.close(self._lock)
            raise

    def _require_ours(self, until: float) -> None:
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise BadRequest(f"{self.path} is in use: another rmqtx uses this checkpoint") from None
                time.sleep(_POLL_SECONDS)
        if os.pread(self._lock, len(_HEAD), 0) not in (b"", _HEAD):
            raise self._none()

    def _open(self, stores: Sequence[Store]) -> None:
        run = self.connection.execute
        run("PRAGMA page_size = 8192")  # only for a new file; an old file keeps its own
        run("PRAGMA auto_vacuum = INCREMENTAL")
        kind, version = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
        self.is_made = kind == 0 and run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not self.is_made and kind != _APPLICATION_ID:
            raise self._none()
        if not self.is_made and version != FORMAT_VERSION:
            raise BadRequest(
                f"{self.path} has checkpoint format {version}, and this version needs {FORMAT_VERSION}",
                advice="remove it to begin from the start of the logs",
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run("PRAGMA cache_size = -131072")
        run("CREATE TEMP TABLE chunk (hash INTEGER PRIMARY KEY)")
        run("CREATE TEMP TABLE named (store INTEGER, half_queue_offset INTEGER, "
            "PRIMARY KEY (store, half_queue_offset)) WITHOUT ROWID")
        if self.is_made:
            self._make(stores)
        self._require_schema()
        self._require(stores)

    def _require_schema(self) -> None:
        """Require that the file contains only our own schema: no trigger, no view, no table of another form."""
        run = self.connection.execute
        run("PRAGMA trusted_schema = OFF")
        found = {text for (text,) in run("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        later = {_IDENTITY_INDEX.replace("IF NOT EXISTS ", "").format(table) for table in IDENTIFIED}
        if not set(_SCHEMA) <= found <= {*_SCHEMA, *later, FEED_TABLE}:
            raise self._none()

    def changed(self, why: object) -> BadText:
        """Return the error for a value that rmqtx did not write into the file."""
        return BadText(
            f"{self.path} was changed by another program: {' '.join(str(why).split())[:200]}", file=self.path,
            advice="remove it to begin from the start of the logs",
        )

    def _none(self) -> BadRequest:
        return BadRequest(f"{self.path} is not a checkpoint of rmqtx", advice="give another file")

    def _make(self, stores: Sequence[Store]) -> None:
        with self.transaction():
            for statement in _SCHEMA:
                self.connection.execute(statement)
            place = json.dumps(asdict(Place()))
            for number, store in enumerate(stores):
                self.connection.execute("INSERT INTO stores VALUES (?, ?, ?, NULL)", (number, store.root, place))
            self.connection.execute("INSERT INTO meta VALUES ('judges_all', '1'), ('id', ?)", (uuid.uuid4().hex,))
            self.connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            self.connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _require(self, stores: Sequence[Store]) -> None:
        self.roots: dict[int, str] = dict(self.connection.execute("SELECT number, root FROM stores").fetchall())
        mine, given = set(self.roots.values()), {store.root for store in stores}
        if mine != given:
            raise BadRequest(
                f"{self.path} is a checkpoint of {', '.join(sorted(mine))}, not of {', '.join(sorted(given))}",
                advice="give the same stores, or another checkpoint",
            )
        self.numbers = {root: number for number, root in self.roots.items()}

    def close(self) -> None:
        """Close the file; it is complete."""
        self.connection.close()
        os.close(self._lock)

    @contextmanager
    def naming_the_file(self) -> Iterator[None]:
        """Turn disk errors in the block into an error that names the file. Raises: UnwritableFile."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _SYSTEM_ERRORS:
                raise
            raise UnwritableFile(f"cannot use {self.path}: {error}", file=self.path) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one database transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:  # a full disk has ended the transaction
                self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    # -- values -----------------------------------------------------------------------------------------------------

    def meta(self, name: str) -> str | None:
        """A value by name."""
        row = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, name: str, value: str | None) -> None:
        """Store a value by name; None removes it."""
        if value is None:
            self.connection.execute("DELETE FROM meta WHERE name = ?", (name,))
        else:
            self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def of_store(self, number: int, column: str) -> Any:
        """Return a JSON value of a store, `place` or `view`; None if there is none."""
        text = self.connection.execute(f"SELECT {column} FROM stores WHERE number = ?", (number,)).fetchone()[0]
        return None if text is None else _KEPT[column].read(text, self.path)

    def set_of_store(self, number: int, column: str, value: Any) -> None:
        """Store this value."""
        self.connection.execute(f"UPDATE stores SET {column} = ? WHERE number = ?", (json.dumps(value), number))

    def states(self) -> dict[str, int]:
        """Return the number of transactions in each state."""
        return dict(self.connection.execute("SELECT state, count(*) FROM verdicts GROUP BY state").fetchall())

    # -- witnesses --------------------------------------------------------------------------------------------------

    def add(self, table: str, number: int, batches: Iterable[pa.RecordBatch], hashes: UInt64s | None) -> None:
        """Store witnesses; those at the same place are replaced."""
        first = 0
        for rows in batches:
            columns: list[Iterable[Any]] = []
            if hashes is not None:
                columns.append(signed(hashes[first : first + rows.num_rows]))
            columns += [
                [number] * rows.num_rows if name == "store" else rows[name].to_pylist() for name in rows.schema.names
            ]
            marks = ", ".join("?" * len(columns))
            self.connection.executemany(
                f"INSERT OR REPLACE INTO {table} VALUES ({marks})", zip(*columns, strict=True)
            )
            first += rows.num_rows

    def drop(self, number: int, begin: int, end: int) -> None:
        """Remove the witnesses of a store in a range of its log; their transactions must be judged again."""
        bounds = (number, begin, end)
        where = "store = ? AND commit_log_offset >= ? AND commit_log_offset < ?"
        for table in IDENTIFIED:
            self.connection.execute(f"INSERT OR IGNORE INTO unjudged SELECT hash FROM {table} WHERE {where}", bounds)
        self.connection.execute(
            "INSERT OR IGNORE INTO unjudged SELECT h.hash FROM marks m "
            "CROSS JOIN halves h INDEXED BY halves_by_queue_offset "
            "ON h.store = m.store AND h.queue_offset = m.half_queue_offset "
            "WHERE m.store = ? AND m.commit_log_offset >= ? AND m.commit_log_offset < ?",
            bounds,
        )
        for table in (*IDENTIFIED, "marks"):
            self.connection.execute(f"DELETE FROM {table} WHERE {where}", bounds)
        self.connection.execute(
            "DELETE FROM strays WHERE store = ? AND final_offset >= ? AND final_offset < ?", bounds
        )

    def shrink(self) -> None:
        """Return the space of removed rows to the disk."""
        self.connection.execute("PRAGMA incremental_vacuum").fetchall()

    # -- what must be judged ----------------------------------------------------------------------------------------

    def mark_unjudged(self, hashes: Iterable[int]) -> None:
        """Mark the transactions of these identities to be judged again."""
        self.connection.executemany("INSERT OR IGNORE INTO unjudged VALUES (?)", ((value,) for value in hashes))

    def mark_all_unjudged(self) -> None:
        """Mark all transactions to be judged again."""
        for table in (*IDENTIFIED, "damaged_halves", "verdicts"):
            self.connection.execute(f"INSERT OR IGNORE INTO unjudged SELECT hash FROM {table}")

    def index_witnesses(self) -> None:
        """Create the identity indexes: once, after the first witnesses are stored, because this is faster."""
        for table in IDENTIFIED:
            self.connection.execute(_IDENTITY_INDEX.format(table))

    def choose(self, hashes: Iterable[int]) -> None:
        """Choose the identities for `witnesses` and `verdicts`."""
        self.connection.execute("DELETE FROM chunk")
        self.connection.executemany("INSERT OR IGNORE INTO chunk VALUES (?)", ((value,) for value in hashes))

    def witnesses(self) -> tuple[Witnesses, dict[str, int]]:
        """Return the witnesses of the chosen identities; for records without UNIQ_KEY also replacement → identity.

        Order: stores by number, then log order.
        """
        tables: dict[str, list[pa.RecordBatch]] = {}
        lone: dict[str, int] = {}
        for name in ("damaged_halves", *IDENTIFIED):
            rows = self.connection.execute(
                f"SELECT w.* FROM chunk c CROSS JOIN {name} w INDEXED BY {name}_by_hash ON w.hash = c.hash "
                "ORDER BY w.store, w.commit_log_offset"
            ).fetchall()
            tables[name] = [self._batch(WITNESS_TABLES[name], [row[1:] for row in rows])] if rows else []
            lone_id = "lone_prepared_id" if name in ("finals", "offset_marks") else "lone_message_id"
            own = WITNESS_TABLES[name].names.index(lone_id) + 1
            lone.update((row[own], row[0]) for row in rows if row[own] is not None)
        halves = [*tables["halves"], *tables["damaged_halves"]]
        marks = self._marks_on(halves)
        batches = [self._batch(MARKS, marks)] if marks else []
        return Witnesses.of(halves, batches, tables["finals"], tables["discards"], tables["offset_marks"]), lone

    def _marks_on(self, halves: Iterable[pa.RecordBatch]) -> list[tuple[Any, ...]]:
        """Return the op marks that name some half copies, each once."""
        run = self.connection.execute
        run("DELETE FROM named")
        for rows in halves:
            places = zip(rows["store"].to_pylist(), op_numbers(rows).to_pylist(), strict=True)
            self.connection.executemany(
                "INSERT OR IGNORE INTO named VALUES (?, ?)",
                ((self.numbers[root], number) for root, number in places if number is not None),
            )
        return run(
            "SELECT m.* FROM named n CROSS JOIN marks m INDEXED BY marks_by_half "
            "ON m.store = n.store AND m.half_queue_offset = n.half_queue_offset "
            "ORDER BY m.store, m.commit_log_offset, m.half_queue_offset, m.repetition"
        ).fetchall()

    def _batch(self, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        try:
            return self._batch_of(schema, rows)
        except (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError) as error:  # SQLite accepts any value
            raise self.changed(error) from error

    def _batch_of(self, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = []
        for field, values in zip(schema, zip(*rows, strict=True), strict=True):
            if field.name == "store":
                arrays.append(pa.array([self.roots[number] for number in values], pa.string()))
            elif pa.types.is_boolean(field.type):
                arrays.append(pa.array(values, pa.int8()).cast(pa.bool_()))
            else:
                arrays.append(pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    # -- verdicts ---------------------------------------------------------------------------------------------------

    def verdicts(self) -> dict[tuple[Any, ...], int]:
        """Return the verdicts of the chosen identities, each with its row number."""
        rows = self.connection.execute(
            f"SELECT v.rowid, {', '.join(f'v.{name}' for name in VERDICT_COLUMNS)} "
            "FROM chunk c CROSS JOIN verdicts v INDEXED BY verdicts_by_hash ON v.hash = c.hash"
        ).fetchall()
        return {row[1:]: row[0] for row in rows}

    def replace_verdicts(self, gone: Iterable[int], added: Iterable[tuple[Any, ...]]) -> None:
        """Remove verdicts by row number and add others; the chosen identities are then judged."""
        self.connection.executemany("DELETE FROM verdicts WHERE rowid = ?", ((row,) for row in gone))
        marks = ", ".join("?" * len(VERDICT_COLUMNS))
        self.connection.executemany(f"INSERT INTO verdicts VALUES ({marks})", added)
        self.connection.execute("DELETE FROM unjudged WHERE hash IN (SELECT hash FROM chunk)")


def signed(hashes: UInt64s) -> list[int]:
    """Return identity hashes as signed integers for SQLite."""
    values: list[int] = np.ascontiguousarray(hashes).view(np.int64).tolist()
    return values
