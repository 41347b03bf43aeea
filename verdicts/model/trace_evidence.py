"""What the producers of transactions wrote about them into the message traces of a store: found by the index, by id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import TRACE_TOPIC, Store
from rmqtx.readers.traces.trace_scan import traces_of


@dataclass(frozen=True, slots=True)
class TraceEvidence:
    """The traces of one store. That a line is missing shows nothing (docs/formats/traces.md#meaning)."""

    store: Store

    def rows(self, transaction_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the lines about each transaction, as rows of TRACES; a transaction without lines is left out.

        A trace record has the ids of all its lines as keys. Where the index does not reach, nothing is found.

        Order:  of a transaction: commit-log offset, then line.
        Damage: a record that cannot be read is left out; nothing, if a file cannot be read.
        """
        found: dict[int, Block] = {}
        log = self.store.log()
        try:
            _, offsets = open_index(self.store).find([f"{TRACE_TOPIC}#{one}".encode() for one in transaction_ids])
            for offset in sorted(set(offsets.tolist())):
                block = block_at(log, offset)
                if block is not None and block.topic_is(TRACE_TOPIC)[0]:
                    found[offset] = block
        except SourceError:  # the reading of log and index reports it
            return {}
        finally:
            log.close()
        return rows_by_id(found.values(), self.store.root, transaction_ids)


    @property
    def until_offset(self) -> int | None:
        """Commit-log offset of the last record in the index, which finds the traces; None if it cannot be read."""
        try:
            return open_index(self.store).covered_until_offset
        except SourceError:
            return None


def trace_evidence(store: Store) -> TraceEvidence | None:
    """Return the traces of a store; None if it has no trace topic, or no index that finds them."""
    has_topic = store.has_rocksdb_queues or TRACE_TOPIC in store.topics()  # queues in RocksDB are not listed there
    return TraceEvidence(store) if store.index_files and has_topic else None


def rows_by_id(
    blocks: Iterable[Block], store: str, transaction_ids: Iterable[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the lines about some transactions in trace records, as rows of TRACES. Order: as given."""
    findings: list[Finding] = []  # what cannot be read is the finding of `decode trace`
    wanted, found = frozenset(transaction_ids), defaultdict(list)
    for block in blocks:
        for row in traces_of(block, store, findings).to_pylist():
            if row["transaction_id"] in wanted:
                found[row["transaction_id"]].append(row)
    return dict(found)
