"""Makes a proof while rows of an audit, a page or one transaction pass by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from itertools import repeat
from json.encoder import encode_basestring_ascii as _encode
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.index.index import ENTRY, HEADER, INDEX_SLOT, IndexFile
from rmqtx.readers.index.index_search import Index
from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.record_at import possible_length
from rmqtx.readers.model import clock
from rmqtx.readers.model.java_hashes import key_hashes
from rmqtx.readers.model.releases import dotted
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import DISCARD_TOPIC, Store
from rmqtx.verdicts.audit.provenance import small_file_facts, tool
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.verdict_words import WITNESS_KINDS, State
from rmqtx.verdicts.proofs import proof_file
from rmqtx.verdicts.proofs.proof_file import (
    PROOF_VERSION,
    VALUES,
    Bucket,
    DigestedFile,
    NotFound,
    ProofHead,
    ProofStream,
    ShownSetting,
    StoreFacts,
    as_line,
)

#: The columns of TRANSACTIONS that a proof needs.
PROOF_COLUMNS = ("store", "transaction_id", *VALUES, *WITNESS_KINDS)
#: Bytes of a segment under one leaf of the tree.
CHUNK_BYTES = 1 << 20
#: Entries of one index bucket that are read; a longer chain has no digest.
CHAIN_MAX = 64
_FIRST_READ_BYTES = 2048
Choose = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(slots=True)
class _StoreProof:
    """What is written of one store, and its open files."""

    number: int
    store: Store
    log: SegmentedLog
    numbers: dict[int, int]
    index: Index
    index_files: dict[str, OpenFile] = field(default_factory=dict)
    #: Chunks with witnesses, by segment.
    chunks: dict[int, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, number: int, store: Store) -> _StoreProof:
        numbers = {segment.base_offset: at for at, segment in enumerate(store.commit_log)}
        return cls(number, store, store.log(), numbers, Index(store))

    def close(self) -> None:
        self.log.close()
        for file in self.index_files.values():
            file.close()


class ProofWriter:
    """Writes the proof of rows that pass by.

    Shape: `is_whole`: all segments were read, and go into the tree; else the chunks with witnesses.
    """

    def __init__(
        self, stream: IO[bytes], stores: Sequence[Store], settings_of: SettingsOf, command: str, at_ms: int | None, *,
        is_whole: bool,
    ) -> None:
        self._stores = {store.root: _StoreProof.of(number, store) for number, store in enumerate(stores)}
        self._settings_of, self._is_whole, self._stream = settings_of, is_whole, stream
        self._head: ProofHead = {
            "proof_version": PROOF_VERSION, "made_by": tool(), "made_time_ms": clock.now_ms(),
            "command": command, "at_ms": at_ms, "stores": [],
        }
        self._out: ProofStream | None = None
        self.verdicts_count = 0

    def watching(
        self, reading: VerdictReading, batches: Iterable[pa.RecordBatch], choose: Choose
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a reading; the verdicts on those rows that are chosen are written first."""
        for batch in batches:
            rows = pa.Table.from_batches([choose(batch)])
            self._begun(reading).entries(list(self._verdicts(rows)))
            self.verdicts_count += rows.num_rows
            yield batch

    def finish(self, reading: VerdictReading) -> None:
        """Write what follows the verdicts: the trees of the segments."""
        out = self._begun(reading)
        out.segments()
        roots = []
        for store in self._stores.values():
            for number, segment in enumerate(store.store.commit_log):
                chunks = None if self._is_whole else sorted(store.chunks.get(number, ()))
                leaves = leaves_of(segment, chunks)
                roots.append(proof_file.root(leaves))
                out.entries([as_line({
                    "store": store.number, "segment": number, "chunk_bytes": CHUNK_BYTES, "chunks": chunks,
                    "leaves": [one.hex() for one in leaves],
                })])
            store.close()
        out.end(proof_file.root(roots).hex(), self.verdicts_count)

    def _begun(self, reading: VerdictReading) -> ProofStream:
        """The head is written with the first verdict: what is missing from the logs is known then."""
        if self._out is None:
            stores = [self._store(one, reading) for one in self._stores.values()]
            self._out = ProofStream(self._stream, {**self._head, "stores": stores})
        return self._out

    def _store(self, one: _StoreProof, reading: VerdictReading) -> StoreFacts:
        store, cursors = one.store, check_cursors(one.store)
        return {
            "store": store.root, "taken_time_ms": store.taken_time_ms, "begin_offset": store.log_begin_offset,
            "end_offset": written_end(store).offset, "settings": settings_shown(self._settings_of(store)),
            "half_cursors": _named(cursors.half), "op_cursors": _named(cursors.op),
            "missing": [[gap.begin_offset, gap.end_offset] for gap in reading.missing if gap.store == store.root],
            "files": small_files(store),
            "index": [
                {"file": _below(store, index.segment.file), "slots_count": index.slots_count}
                for index in one.index.files if index.slots_count is not None and not index.has_signed_hashes
            ],
            "segments": [
                {
                    "file": _below(store, segment.file), "base_offset": segment.base_offset,
                    "size_bytes": segment.size_bytes,
                }
                for segment in store.commit_log
            ],
        }

    def _verdicts(self, rows: pa.Table) -> Iterator[bytes]:
        """Yield the lines of verdicts. Texts are made by hand: the JSON encoder takes most of the time of a proof."""
        columns = [_texts(rows[name]) for name in ("transaction_id", *VALUES)]
        stores = [self._stores.get(name) for name in rows["store"].to_pylist()]
        witnesses = self._witnesses(rows)
        names = [f'"{name}":' for name in ("transaction_id", *VALUES)]
        is_committed = pc.equal(rows["state"], State.COMMITTED)
        others = iter(self._not_found(rows.filter(pc.invert(is_committed))))
        not_found = ["[]" if one else as_line(next(others)).decode() for one in is_committed.to_pylist()]
        for number, values in enumerate(zip(*columns, strict=True)):
            store = stores[number]
            yield (
                f'{{{",".join(map(str.__add__, names, values))},"store":{"null" if store is None else store.number},'
                f'"witnesses":[{",".join(witnesses[number])}],"not_found":{not_found[number]}}}'
            ).encode()

    def _witnesses(self, rows: pa.Table) -> list[list[str]]:
        """Return the witnesses of each row as texts."""
        found: list[list[str]] = [[] for _ in range(rows.num_rows)]
        for name, kind in WITNESS_KINDS.items():
            lists = rows[name].combine_chunks()
            flat = lists.flatten()
            parents = pc.list_parent_indices(lists).to_pylist()
            offsets, roots = (pc.struct_field(flat, part).to_pylist() for part in ("commit_log_offset", "store"))
            numbers = pc.struct_field(flat, "half_queue_offset").to_pylist() if kind == "op_mark" else repeat(None)
            for row, root, offset, number in zip(parents, roots, offsets, numbers, strict=kind == "op_mark"):
                text = self._witness(kind, root, offset, number)
                if text is not None:
                    found[row].append(text)
        return found

    def _witness(self, kind: str, root: str, offset: int, half_queue_offset: int | None) -> str | None:
        one = self._stores.get(root)
        segment = None if one is None else one.log.segment_at(offset)
        if one is None or segment is None:
            return None
        data = record_bytes(one.log, segment, offset)
        number, position = one.numbers[segment.base_offset], offset - segment.base_offset
        if not self._is_whole:
            last = (position + max(1, len(data)) - 1) // CHUNK_BYTES
            one.chunks.setdefault(number, set()).update(range(position // CHUNK_BYTES, last + 1))
        of_half = "null" if half_queue_offset is None else half_queue_offset
        return (
            f'{{"kind":"{kind}","store":{one.number},"segment":{number},"position_bytes":{position},"length_bytes":'
            f'{len(data)},"sha256":"{hashlib.sha256(data).hexdigest()}","half_queue_offset":{of_half}}}'
        )

    def _not_found(self, rows: pa.Table) -> Iterator[list[NotFound]]:
        """Yield what was looked for and not found: in the logs from the first half copy on, and in the index."""
        names = rows["transaction_id"].to_pylist()
        hashes = [
            key_hashes([f"{topic}#{name}".encode() for topic, name in zip(topics, names, strict=True)]).tolist()
            for topics in (rows["topic"].to_pylist(), repeat(DISCARD_TOPIC, len(names)))
        ] if names else [[], []]
        for row, final, discard in zip(rows.to_pylist(), *hashes, strict=True):
            kinds = [kind for name, kind in WITNESS_KINDS.items() if not row[name] and name != "half_copies"]
            wanted = {} if row["topic"] is None else {"final_record": final}
            wanted = {kind: value for kind, value in {**wanted, "discard_copy": discard}.items() if kind in kinds}
            yield [
                {
                    "store": one.number, "kinds": kinds, "from_offset": min(
                        (copy["commit_log_offset"] for copy in row["half_copies"] if copy["store"] == root),
                        default=one.store.log_begin_offset,
                    ),
                    "buckets": list(_buckets(one, wanted)),
                }
                for root, one in self._stores.items()
            ]


def _buckets(one: _StoreProof, wanted: Mapping[str, int]) -> Iterator[Bucket]:
    """Yield the bucket of each hash in each index file. `wanted`: hashes of keys by kind of witness."""
    for kind, hashed in wanted.items():
        for index in one.index.files:
            if index.slots_count is None or index.has_signed_hashes:
                continue
            file = one.index_files.get(index.segment.file)
            if file is None:
                file = one.index_files[index.segment.file] = index.segment.open()
            entries, digest = _chain(index, file, hashed % index.slots_count)
            yield {
                "kind": kind, "file": _below(one.store, index.segment.file), "bucket": hashed % index.slots_count,
                "entries": entries, "sha256": digest,
            }


def _chain(index: IndexFile, file: OpenFile, bucket: int) -> tuple[int | None, str | None]:
    """Return the number of entries of a bucket, and the digest of its slot and of these, newest first."""
    data = file.read(HEADER.size_bytes + INDEX_SLOT.size_bytes * bucket, INDEX_SLOT.size_bytes)
    digest, number, count = hashlib.sha256(data), int.from_bytes(data, "big", signed=True), 0
    while 0 < number <= index.entries_count:
        if count == CHAIN_MAX:
            return None, None
        data = file.read(index.entry_position(number), ENTRY.size_bytes)
        digest.update(data)
        older = int.from_bytes(data[ENTRY.offsets["previous_entry_number"] :], "big", signed=True)
        count += 1
        if older >= number:
            break
        number = older
    return count, digest.hexdigest()


def record_bytes(log: SegmentedLog, segment: Segment, offset: int) -> bytes:
    """Return the bytes of the record at a commit-log offset by its own length; none if that is impossible."""
    data = log.read(offset, _FIRST_READ_BYTES)
    length = possible_length(data, segment, offset)
    if length is None:
        return b""
    return data[:length] if length <= len(data) else log.read(offset, length)


def settings_shown(settings: BrokerSettings) -> dict[str, ShownSetting]:
    """Return the settings of a store's broker with their origins, as the values of a JSON object."""
    shown: dict[str, ShownSetting] = {}
    for one in fields(settings):
        if one.name not in ("origin", "defaults", "given"):
            value = getattr(settings, one.name)
            text = dotted(value) if isinstance(value, tuple) else value
            shown[one.name] = {"value": text, "origin": settings.origin.get(one.name)}
    return shown


def leaves_of(segment: Segment, chunks: Sequence[int] | None, size_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Return the hashes of some chunks of a segment, or of all."""
    numbers = range(-(-segment.size_bytes // size_bytes)) if chunks is None else chunks
    with segment.open() as file, ThreadPoolExecutor(2) as pool:

        def hashed(number: int) -> bytes:
            return proof_file.leaf(file.read(number * size_bytes, size_bytes))

        return list(pool.map(hashed, numbers))


def small_files(store: Store) -> list[DigestedFile]:
    """Return the small files that verdicts depend on, each with the digest of its bytes."""
    return [
        {
            "file": _below(store, file["file"]), "size_bytes": file["size_bytes"],
            "sha256": str(file["digest"]).removeprefix("sha256:"),
        }
        for file in small_file_facts(store) if file["digest"] is not None
    ]


def _texts(values: pa.ChunkedArray) -> list[str]:
    """Return the values of a column as JSON."""
    if pa.types.is_integer(values.type):
        return ["null" if one is None else str(one) for one in values.to_pylist()]
    if pa.types.is_list(values.type):
        return ["[]" if not one else json.dumps(one, separators=(",", ":")) for one in values.to_pylist()]
    return [_quoted(one) for one in values.to_pylist()]


def _quoted(text: str | None) -> str:
    return "null" if text is None else _encode(text)


def _named(cursors: Mapping[int, int] | None) -> dict[str, int] | None:
    return None if cursors is None else {str(queue): offset for queue, offset in cursors.items()}


def _below(store: Store, file: str) -> str:
    return file.removeprefix(store.root.rstrip("/") + "/")
