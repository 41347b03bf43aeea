"""What a broker of 3.1 asks for when it is started again, and whether it takes the answer: as a real one then did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from readers.local_engine import audit
from readers.store import open_store
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened, settings_of

Row = dict[str, Any]
STORES = [name for name in corpus.corpus_names("state_table") if not name.startswith("upgraded")]


def audited(name: str) -> dict[str, Row]:
    rows: list[Row] = audit([opened(name)], settings_of(name)).table().to_pylist()
    return {row["transaction_id"]: row for row in rows}


@pytest.mark.parametrize("name", STORES)
def test_each_open_one_is_asked_and_answered_as_foretold(name: str) -> None:
    rows, wrong = audited(name), []
    for wanted in corpus.expected(name):
        row = rows[wanted["transaction_id"]]
        if row["state"] != "PENDING":
            continue
        told = [flag for flag in ("never_asked", "unanswerable") if flag in row["flags"]]
        seen = [] if wanted["answered_after_restart"] else ["unanswerable"]
        if told != (seen if wanted["asked_after_restart"] else ["never_asked"]):
            wrong.append((wanted["plan"], told, row["reason"]))
        assert row["advice"] == ("decide" if told else "wait")
        assert row["checks_count"] is None
    assert wrong == []


def test_a_damaged_table_does_not_say_that_nobody_asks(tmp_path: Path) -> None:
    name = "statetable-3.1.4"
    root = copy_of(name, tmp_path)
    file = sorted(root.glob("transaction/statetable/*"))[1]
    file.write_bytes(b"\x7f" * file.stat().st_size)
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    hit = [row for row in rows if row["state"] == "PENDING" and "is damaged" in row["reason"]]
    assert hit
    assert not [row for row in rows if "never_asked" in row["flags"]]
    assert {row["advice"] for row in hit} == {"wait"}
