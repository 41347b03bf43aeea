"""Which repairs of rmqtx work on a store: advice names no command that the store's kind of log or queues refuses."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.storage.places import is_uri
from rmqtx.readers.store.store import open_store

_REBUILD = "rmqtx rebuild queues"
_DLEDGER = "start this member of the DLedger group with an empty store: it copies the log from the other members"
_ROCKSDB = (
    "the queues are in RocksDB: move the directory of their database out of the store, and the broker's start writes "
    "it from the log"
)


def instead_of_rebuild(root: str) -> str | None:
    """What to do where `rmqtx rebuild queues` refuses a store; None where it works, or nothing is known."""
    if (instead := instead_of_salvage(root)) is not None:
        return instead
    try:
        return _ROCKSDB if not is_uri(root) and open_store(root).has_rocksdb_queues else None
    except RmqtxError:
        return None


def instead_of_salvage(root: str) -> str | None:
    """What to do where `rmqtx salvage` refuses a store; None where it works, or nothing is known."""
    try:
        return _DLEDGER if not is_uri(root) and open_store(root).is_dledger else None
    except RmqtxError:
        return None


def usable_advice(advice: str, roots: Iterable[str]) -> str:
    """Advice about findings of some stores; without the rebuild of queues if each of the stores refuses it."""
    if _REBUILD not in advice:
        return advice
    found = [instead_of_rebuild(root) for root in roots]
    refusals = list(dict.fromkeys(one for one in found if one is not None))
    if not found or None in found:
        return advice
    before = advice.split(_REBUILD)[0].rstrip(" :;,")
    return "; ".join([*([before] if before else []), *refusals])


def with_usable_advice(findings: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of findings, each with the advice that works on its store."""
    advice, stores = findings["advice"].to_pylist(), findings["store"].to_pylist()
    if not any(_REBUILD in (one or "") for one in advice):
        return findings
    known: dict[tuple[str | None, str], str | None] = {}
    for one, store in zip(advice, stores, strict=True):
        if (one, store) not in known:
            known[one, store] = one if one is None else usable_advice(one, [store])
    usable = pa.array([known[pair] for pair in zip(advice, stores, strict=True)], findings.schema.field("advice").type)
    return findings.set_column(findings.schema.get_field_index("advice"), findings.schema.field("advice"), usable)
