"""Verdicts on the stores of the corpus, held against what clients, consumers and brokers saw."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of

Row = dict[str, Any]
EVIDENCE = {
    "half_copies": ("queue_id", "queue_offset", "commit_log_offset", "checks_count"),
    "op_marks": ("queue_id", "queue_offset", "commit_log_offset", "half_queue_offset"),
    "final_records": ("topic", "queue_id", "queue_offset", "commit_log_offset"),
    "discard_copies": ("queue_id", "queue_offset", "commit_log_offset"),
}
"""The lists that prove a verdict, and what of each entry the truth knows."""


@functools.cache
def judged(name: str) -> pa.Table:
    """The audit of a store of the corpus, read once in this process."""
    return audit([opened(name)], settings_of(name)).table()


@functools.cache
def audited(name: str) -> list[Row]:
    """Every verdict on a store of the corpus."""
    rows: list[Row] = judged(name).to_pylist()
    return rows


def states_and_errors(root: Path, name: str) -> tuple[dict[str, str], set[str]]:
    """The states by id in a changed copy of a store of the corpus, and the codes of errors."""
    reading = audit([open_store(root)], settings_of(name))
    states = {row["transaction_id"]: row["state"] for row in reading.table().to_pylist()}
    return states, {one.code for one in reading.findings if one.kind.severity == "error"}


def wrong_states(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """What is certain after a damage and was not so: a sentence for each transaction."""
    changed = {
        key: f"{key} {state} -> {after.get(key)}" for key, state in before.items()
        if after.get(key) not in (state, "UNDECIDABLE")
    }
    invented = {key for key in after.keys() - before.keys() if after[key] != "UNDECIDABLE"}
    return changed | {key: f"invented {key} {after[key]}" for key in invented}


def places(entries: list[Row], fields: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """What the truth knows of some entries of a list."""
    return sorted(tuple(entry[field] or 0 for field in fields) for entry in entries)


def is_open(row: Row) -> bool:
    """Whether the broker will ask the producer again; it never asks for what a foreign op number hides."""
    return (row["state"] == "PENDING" and "masked" not in row["flags"]) or row["advice"] in ("close", "wait")


def is_asked(row: Row) -> bool:
    """Whether the broker will ask the producer, by the verdict."""
    return (
        (row["state"] == "PENDING" and row["advice"] != "decide")
        or bool({"unanswerable", "open_after_decision"} & set(row["flags"]))
        or row["advice"] in ("close", "wait")
    )


def differences(row: Row | None, wanted: Row, is_open: Callable[[Row], bool] = is_open) -> list[str]:
    """What a verdict says other than the truth. `is_open`: what it says of whether the producer is asked."""
    if row is None:
        return ["it is missing"]
    states = wanted["state"] if isinstance(wanted["state"], list) else [wanted["state"]]  # the truth may permit several
    found = []
    if row["state"] not in states:
        found.append(f"{row['state']} ({row['reason']}) is not {states}")
    lacking = set(wanted["flags_at_least"]) - set(row["flags"])
    if lacking:
        found.append(f"flags {sorted(lacking)} are not in {row['flags']}")
    if "conflict" in set(row["flags"]) - set(wanted["flags_at_least"]):
        found.append("conflict: nobody decided it both ways")
    if wanted["open"] is not None and is_open(row) != wanted["open"]:
        found.append(f"open is {is_open(row)}: {row['flags']}, {row['reason']}")
    if row["deliveries_count"] != wanted["deliveries_count"]:
        found.append(f"{row['deliveries_count']} deliveries, and consumers got {wanted['deliveries_count']}")
    for field, fields in EVIDENCE.items():
        proof, truth = places(row[field], fields), places(wanted[field], fields)
        if proof != truth:
            found.append(f"{field} {proof} are not {truth}")
    return found


def require_truth(name: str, rows: list[Row], is_open: Callable[[Row], bool] = is_open) -> None:
    """That all verdicts on a store say what was seen, and that there are no others."""
    known = {row["transaction_id"]: row for row in rows}
    wanted = {row["transaction_id"]: row for row in corpus.expected(name)}
    wrong = {
        f"{row['plan']} {identity}": told
        for identity, row in wanted.items()
        if (told := differences(known.get(identity), row, is_open))
    }
    assert wrong == {}
    assert sorted(set(known) - set(wanted)) == []


def require_judged_as_any_store(name: str) -> list[str]:
    """That verdicts are those that were seen, and `pending` gives the open ones; gives the notes of `pending`."""
    rows = audited(name)
    require_truth(name, rows)
    reading = pending([opened(name)], settings_of(name))
    assert reading.table().to_pylist() == [
        row for row in rows if row["state"] == "PENDING" or row["advice"] in ("close", "wait")
    ]
    return [note.text for note in reading.notes]
