"""Bundles: the smallest part of a store that shows some transactions or findings as the whole store does.

A bundle is a store with the same commit-log offsets that contains only what was chosen; every command that reads stores
can read it. Before it gets its name it is read back, and each row is compared with the original's.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.log.commit_log import last_with_data
from rmqtx.readers.model.errors import BadRequest, UnwritableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import FUTURE_COLUMNS, column
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.bundles import old_tables
from rmqtx.repairs.bundles.archive import pack, write_files
from rmqtx.repairs.bundles.config_files import (
    checkpoint_times,
    directories,
    last_time_ms,
    naming,
    planned_queues,
    small_files,
)
from rmqtx.repairs.bundles.files import KeptLog, PlannedFile, planned_segment
from rmqtx.repairs.bundles.findings import add_findings, found_in
from rmqtx.repairs.bundles.redaction import Redactor
from rmqtx.repairs.bundles.selection import Selection, complete, selected
from rmqtx.repairs.changes.fingerprints import require_links_inside
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.provenance import tool
from rmqtx.verdicts.evidence.store_facts import StoreFacts, store_facts
from rmqtx.verdicts.model.transaction import Transaction

MANIFEST_VERSION = 1
MANIFEST, STORE_DIRECTORY, CONF = "manifest.json", "store", "broker.conf"
#: Keys of a broker's configuration that verdicts depend on; other keys are left out of a bundle.
_CONF_KEYS = (
    "transactionTimeOut", "transactionCheckMax", "transactionCheckInterval", "transactionOpBatchInterval",
    "fileReservedTime", "brokerRole",
)
#: One row is a transaction of a bundle, with its names in the store and in the bundle.
BUNDLED = pa.schema(
    [
        column("transaction_id", pa.string(), "the transaction's id in the store"),
        column("bundle_transaction_id", pa.string(), "its id in the bundle: a pseudonym if the bundle is redacted"),
        column("state", pa.string(), "its state"),
        column("was_asked", pa.bool_(), "whether it was requested; else a requested transaction's verdict needs it"),
        column("records_count", pa.int32(), "number of its records in the bundle"),
    ]
)
_ARCHIVE_SUFFIXES = (".tar.xz", ".txz")
#: Columns that depend on the moment of reading and on records that are left out.
_OF_THE_MOMENT = FUTURE_COLUMNS


@dataclass(frozen=True, slots=True)
class BundleSource:
    """A store to bundle, with its configuration and version if they were given."""

    store: Store
    conf: Mapping[str, str] | None = None
    version: str | None = None

    def settings_of(self, store: Store) -> BrokerSettings:
        """The broker's settings."""
        return broker_settings(store, conf=self.conf, version=self.version)


@dataclass(slots=True)
class Bundle:
    """A bundle that was written.

    Shape: `transactions`: rows of BUNDLED, requested ones first; `differences`: sentences on rows that differ from the
           store's; empty: there are none. `options`: options that a reader of the bundle must add.
    Units: bytes, as on disk.
    """

    place: Path
    transactions: pa.Table
    findings_count: int = 0
    records_count: int = 0
    records_bytes: int = 0
    size_bytes: int = 0
    differences: list[str] = field(default_factory=list)
    options: tuple[str, ...] = ()


def make_bundle(
    source: BundleSource, identities: Iterable[str], codes: Iterable[str], target: Path, *, is_archive: bool,
    key: bytes | None = None, scan: bool = True,
) -> Bundle:
    """Write a bundle of the transactions that some ids name and of the findings of some codes.

    `target`: an archive or a directory that does not exist yet. `key`: redact, with pseudonyms from this key.
    `scan`: read the whole log for the rows; else follow queues and index.
    Raises: BadRequest, NoSuchTransaction, UnwritableFile; then nothing is left at the target.
    """
    refuse_target(target, is_archive=is_archive)
    require_links_inside(source.store.root)
    redactor = None if key is None else Redactor(key)
    selection = selected(source.store, source.settings_of, identities, scan=scan)
    add_findings(selection, codes)
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise UnwritableFile(f"cannot write {target}: {error.strerror or error}", file=target) from error
    try:
        draft = _Draft(source, selection, redactor, work / "first")
        if draft.differences:
            complete(selection, source.settings_of, draft.foreign_offsets)
            draft = _Draft(source, selection, redactor, work / "second")
        _name(draft, target, is_archive=is_archive)
        return draft.bundle(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def refuse_target(target: Path, *, is_archive: bool) -> None:
    """Refuse a target that exists, or an archive without the suffix of its format.

    Raises: BadRequest, UnwritableFile.
    """
    if is_archive and not target.name.endswith(_ARCHIVE_SUFFIXES):
        raise BadRequest(f"{target} is not a valid name for a bundle", advice="give -o FILE.tar.xz, or --to DIR")
    if os.path.lexists(target):
        raise UnwritableFile(f"{target} already exists", file=target, advice="give another name, or remove it")
    if not target.parent.is_dir():
        raise UnwritableFile(f"{target.parent} is not a directory", file=target, advice="create it first")


def _name(draft: _Draft, target: Path, *, is_archive: bool) -> None:
    """Give the verified bundle its name, unless that name exists by now."""
    if is_archive:
        name = target.name.removesuffix(".tar.xz").removesuffix(".txz")
        pack(draft.root, name, [*draft.facts, draft.manifest_fact], directories(draft.source.store), target)
        return
    try:
        draft.root.chmod(0o700)
        target.mkdir(mode=0o700)
        draft.root.rename(target)  # onto the empty directory that was just created
    except OSError as error:
        raise UnwritableFile(f"cannot write {target}: {error.strerror or error}", file=target) from error


class _Draft:
    """A bundle in a temporary directory, read back and compared."""

    def __init__(self, source: BundleSource, selection: Selection, redactor: Redactor | None, root: Path) -> None:
        self.source, self.selection, self.redactor, self.root = source, selection, redactor, root
        self._facts_of_store: StoreFacts = store_facts(source.store, source.settings_of)
        self._conf = self._configuration()
        root.mkdir()
        for directory in directories(source.store):
            (root / directory).mkdir(parents=True, exist_ok=True)
        self.foreign_offsets: list[int] = []
        #: Transactions that differ because some tables beside the log are left out.
        self._left_out: dict[tuple[str, ...], old_tables.JudgedByLog] = {}
        self.facts = list(write_files(self._files(), root))
        self.differences = list(dict.fromkeys(self._differences()))
        self.all_differences = [*old_tables.left_out_notes(self._left_out), *self.differences]
        manifest = json.dumps(self._manifest(), indent=1, ensure_ascii=True).encode("ascii") + b"\n"
        self.manifest_fact = next(write_files([PlannedFile.of(MANIFEST, manifest)], root))

    # -- files ---------------------------------------------------------------------------------------------------------

    def _configuration(self) -> dict[str, str]:
        conf = {key: value for key, value in (self.source.conf or {}).items() if key in _CONF_KEYS}
        if self.selection.check_max is not None:
            conf["transactionCheckMax"] = str(self.selection.check_max)
        return conf

    def _files(self) -> Iterator[PlannedFile]:
        yield from self._segments()
        seen: set[str] = set()
        for file in (
            *planned_queues(self.selection, self.redactor),
            *old_tables.planned_tables(self.selection, self.redactor),
            *small_files(self.selection, self._facts_of_store, self.redactor),
        ):
            if file.path not in seen:
                seen.add(file.path)
                yield file
        if self._conf:
            text = "".join(f"{key}={value}\n" for key, value in sorted(self._conf.items()))
            yield PlannedFile.of(CONF, text.encode("utf-8"))

    def _segments(self) -> Iterator[PlannedFile]:
        store, kept = self.source.store, self.selection.kept_ranges()
        times = {offset: one.store_time_ms for offset, one in self.selection.records.items()}
        change, change_bytes = (
            (_same, _same) if self.redactor is None else (self.redactor.record, self.redactor.loose_bytes)
        )
        latest = last_time_ms(checkpoint_times(store, self._facts_of_store.reference_time_ms))
        log = KeptLog(change, change_bytes, times, last_with_data(store.commit_log), latest)
        for segment in store.commit_log:
            mine = [one for one in kept if segment.base_offset <= one.offset < segment.end_offset]
            path = f"{STORE_DIRECTORY}/{_directory_of(segment)}/{segment.base_offset:020d}"
            yield planned_segment(segment, path, mine, log)

    # -- comparing -----------------------------------------------------------------------------------------------------

    def _differences(self) -> Iterator[str]:
        copy = BundleSource(open_store(self.root / STORE_DIRECTORY), self._conf, self.source.version)
        rows = map(Transaction.of, audit([copy.store], copy.settings_of).table().to_pylist())
        found = {row.transaction_id: row for row in rows}
        for row in self.selection.every:
            name = self._renamed_id(row)
            other = found.pop(name, None)
            if other is None:
                yield f"{name} is missing in the bundle"
                continue
            mine, others = _plain(self._renamed(row)), _plain(other)
            for part in mine:
                if mine[part] == others[part] or part in _OF_THE_MOMENT:
                    continue
                if part in old_tables.COLUMNS and (tables := old_tables.tables_of(self.selection, row)):
                    judged = self._left_out.setdefault(tables, old_tables.JudgedByLog())
                    judged.names.add(name)
                    if part == "state":
                        judged.states[mine[part], others[part]] += 1
                else:
                    yield f"{name}: {part} is {others[part]} in the bundle and {mine[part]} in the store"
        for row in found.values():
            self.foreign_offsets.extend(one.commit_log_offset for one in row.witnesses)
            yield f"{row.transaction_id} is in the bundle, but was not chosen"
        if self.selection.findings:
            yield from self._other_findings(copy.store)

    def _other_findings(self, copy: Store) -> Iterator[str]:
        """Yield a sentence for each requested finding that the bundle does not show."""
        codes = frozenset(one.code for one in self.selection.findings)
        known = {_finding_place(one) for one in found_in(copy, codes)}
        for one in self.selection.findings:
            if _finding_place(one) not in known:
                yield f"verify does not find {one.code} at {_finding_place(one)[1:]} in the bundle"

    def _renamed(self, row: Transaction) -> Transaction:
        """The transaction with the bundle's names."""
        if self.redactor is None:
            return row
        name_of, keys = naming(self.redactor), row.keys
        return replace(
            row,
            producer_group=None if row.producer_group is None else name_of(row.producer_group),
            topic=None if row.topic is None else name_of(row.topic),
            keys=None if keys is None else self.redactor.words(keys.encode("utf-8", "surrogateescape")).decode("ascii"),
            transaction_id=self._renamed_id(row),
            final_records=tuple(replace(final, topic=name_of(final.topic)) for final in row.final_records),
        )

    def _renamed_id(self, row: Transaction) -> str:
        """A transaction's id in the bundle: a name, or, without a unique key, a message id with a broker's address."""
        identity = row.transaction_id
        if self.redactor is None:
            return identity
        offsets = (one.commit_log_offset for one in row.witnesses)
        records = [self.selection.records[offset] for offset in offsets if offset in self.selection.records]
        if records and not any(one.has_unique_key for one in records):
            return self.redactor.message_id(identity)
        return self.redactor.text(identity)

    # -- manifest ------------------------------------------------------------------------------------------------------

    def _transactions(self) -> Iterator[dict[str, object]]:
        for rows, was_asked in ((self.selection.rows, True), (self.selection.brought, False)):
            for row in rows:
                yield {
                    "transaction_id": self._renamed_id(row), "state": row.state, "flags": row.flags,
                    "reason": row.reason, "was_asked": was_asked,
                    "commit_log_offsets": sorted({one.commit_log_offset for one in row.witnesses}),
                }

    def _manifest(self) -> dict[str, object]:
        store, name_of = self.source.store, naming(self.redactor)
        settings = self._facts_of_store.settings
        return {
            "manifest_version": MANIFEST_VERSION,
            "made_by": tool(),
            "store": {
                "root": store.root if self.redactor is None else None,
                "broker_version": settings.version,
                "settings": settings.describe(),
                "log_begin_offset": store.log_begin_offset,
                "log_end_offset": store.log().end_offset,
                "segments_count": len(store.commit_log),
                "was_in_use": store.in_use,
                "was_stopped_cleanly": not store.aborted and not store.in_use,
            },
            "read_with": ["rmqtx", "audit", STORE_DIRECTORY, *self.reading_options()],
            "is_redacted": self.redactor is not None,
            "rows_are_those_of_the_store": not self.all_differences,
            "differences": self.all_differences,
            "transactions": list(self._transactions()),
            "findings": [
                {"code": one.code, "commit_log_offset": one.commit_log_offset,
                 "position_bytes": one.position_bytes, "length_bytes": one.length_bytes}
                for one in self.selection.findings
            ],
            "records": [
                {"commit_log_offset": one.offset, "length_bytes": one.length_bytes, "topic": name_of(one.topic),
                 "queue_id": one.queue_id, "queue_offset": one.queue_offset, "store_time_ms": one.store_time_ms}
                for _, one in sorted(self.selection.records.items())
            ],
            "files": self.facts,
        }

    def reading_options(self) -> list[str]:
        """The options that give a reader of the bundle the verdicts of the store."""
        conf = ["--broker-conf", CONF] if self._conf else []
        return [*conf, *(["--broker-version", self.source.version] if self.source.version else [])]

    def bundle(self, place: Path) -> Bundle:
        """The description of the bundle at its final place."""
        records = self.selection.records.values()
        asked = len(self.selection.rows)
        rows = [
            {
                "transaction_id": row.transaction_id, "bundle_transaction_id": self._renamed_id(row),
                "state": row.state, "was_asked": number < asked,
                "records_count": len({one.commit_log_offset for one in row.witnesses}),
            }
            for number, row in enumerate(self.selection.every)
        ]
        extents = (length for fact in (*self.facts, self.manifest_fact) for _, length in fact["extents"])
        return Bundle(
            place, pa.Table.from_pylist(rows, schema=BUNDLED), len(self.selection.findings), len(records),
            sum(one.length_bytes for one in records), place.stat().st_size if place.is_file() else sum(extents),
            self.all_differences, tuple(self.reading_options()),
        )


def _directory_of(segment: Segment) -> str:
    """Directory of the log in the bundle; the name of a DLedger member is not taken from its store."""
    return "dledger-n0/data" if segment.frame_bytes else "commitlog"


def _same(data: bytes, **_: int) -> bytes:
    return data


def _plain(one: Transaction) -> dict[str, Any]:
    """The values of a transaction without the name of its store."""
    return {
        column: [_plain_entry(entry, column) if isinstance(entry, dict) else entry for entry in value]
        if isinstance(value, tuple) else value
        for column, value in one.row().items() if column != "store"
    }


def _plain_entry(entry: Mapping[str, object], column: str) -> dict[str, object]:
    left_out = ("store", "checks_count") if column == "discard_copies" else ("store",)
    return {name: value for name, value in entry.items() if name not in left_out}


def _finding_place(one: Finding) -> tuple[object, ...]:
    """Code and place of a finding, without its file's name."""
    return one.code, one.position_bytes, one.length_bytes, one.commit_log_offset
