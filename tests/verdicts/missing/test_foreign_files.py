"""A file of the log of another broker: no answer is certain that rests on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import corpus
from tests.forge.damage import log_files
from tests.forge.stores import copy_of, settings_of, unpacked

#: A store, the number of the file that is replaced, and the store with the other file: the first two had
#: ROLLED_BACK → DISCARDED, the third was OK for `check`; of the others the file in the middle has the right place.
MIXED = [
    ("killed-4.3.0", 0, "opslost-5.3.3"), ("killed-4.4.0", 0, "delayed-5.1.4"), ("killed-5.1.4", 0, "fifteen-5.1.4"),
    ("killed-5.3.3", 2, "killed-5.5.0"), ("killed-4.9.7", 3, "killed-5.1.4"),
]


def mixed(name: str, number: int, other: str, to: Path) -> Path:
    """A copy of a store with a file of another log."""
    root = copy_of(name, to)
    file, theirs = log_files(root)[number], log_files(unpacked(other))[number]
    file.write_bytes(theirs.read_bytes()[: file.stat().st_size].ljust(file.stat().st_size, b"\0"))
    return root


@pytest.mark.parametrize(("name", "number", "other"), MIXED)
def test_no_row_that_rests_on_a_file_of_another_log_is_certain(
    name: str, number: int, other: str, tmp_path: Path
) -> None:
    reading = audit([open_store(mixed(name, number, other, tmp_path))], settings_of(name))
    states = {row["transaction_id"]: row["state"] for row in reading.table().to_pylist()}
    truth = {row["transaction_id"]: row["state"] for row in corpus.expected(name)}
    sure = {identity: state for identity, state in states.items() if state != "UNDECIDABLE"}
    assert {identity: state for identity, state in sure.items() if truth.get(identity) != state} == {}
    assert sure
    (found,) = (one for one in reading.findings if one.actual and "the file belongs to another log" in one.actual)
    assert (found.code, found.commit_log_offset) == ("slot-mismatch", number * 16_384)
