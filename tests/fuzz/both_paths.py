"""Reads a store by the reference path and by the accelerator: both must find the same, whatever the damage is."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.kernels import use_accelerator
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.evidence.witness_scan import IDENTIFIED, SplitFacts, scan_witnesses
from rmqtx.verdicts.model.marked_copies import SeenCopies

#: Bytes of a split: the stores of the corpus have several then.
_SPLIT_BYTES = 64 << 10


def same_by_both_paths(store: Store) -> None:
    """Compare records, witnesses and findings; nothing to compare if the extra `fast` is not installed.

    Raises: AssertionError with the first difference.
    """
    try:
        if not use_accelerator(True):
            return
        fast = _everything(store)
    finally:
        use_accelerator(False)
    reference = _everything(store)
    for what, expected in reference.items():
        assert fast[what] == expected, f"{what}: {_first_difference(fast[what], expected)}"
    assert fast.keys() == reference.keys()


def _everything(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        records = scan_records(store, with_body=True, check_crc=True)
        found["records"] = records.table().to_pylist()
        found |= {"coverage": list(records.coverage), "findings": list(records.findings)}
        for split in plan_splits([store], split_bytes=_SPLIT_BYTES):
            where = f"split {split.number}"
            witnesses = scan_witnesses(split, None, with_copies=True)
            for name in (*IDENTIFIED, "marks"):
                found[f"{where}: {name}"] = [row for rows in getattr(witnesses, name) for row in rows.to_pylist()]
            found[f"{where}: hashes"] = {name: values.tolist() for name, values in witnesses.hashes.items()}
            found[f"{where}: facts"] = _facts(witnesses.facts)
    except RmqtxError as error:
        found["error"] = str(error)
    return found


def _facts(facts: SplitFacts) -> list[Any]:
    names = [name for name in SplitFacts.__slots__ if name not in ("split", "error")]
    values = [getattr(facts, name) for name in names]
    return [*(_comparable(value) for value in values), str(facts.error)]


def _comparable(value: Any) -> Any:
    """Arrays as lists, also those of a dataclass: arrays have no one truth value; redelivered copies as pairs."""
    if isinstance(value, SeenCopies):
        return list(value)
    if is_dataclass(value):
        return {one.name: _comparable(getattr(value, one.name)) for one in fields(value)}
    return value.tolist() if hasattr(value, "tolist") else value


def _first_difference(mine: Any, expected: Any) -> str:
    if isinstance(mine, list) and isinstance(expected, list):
        for number, (one, other) in enumerate(zip(mine, expected, strict=False)):
            if one != other:
                return f"{number}: {one} instead of {other}"[:2000]
        return f"{len(mine)} instead of {len(expected)}"
    return f"{mine} instead of {expected}"[:2000]
