"""Prepared records of unrelated logs with one id: an id of the designs before 4.3 is an address and a place."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.evidence.same_log import logs_of
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx_cli.main import status_of
from tests.forge import damage
from tests.forge.stores import copy_of, unpacked
from tests.verdicts.following import Followed

NAMES = ("prepared-3.2.6", "statetable-3.1.4")
#: The first record of both logs is a prepared record.
SHARED = "7F00000100002AC70000000000000000"


def rows_of(*roots: Path) -> tuple[VerdictReading, dict[str, dict[str, Any]]]:
    reading = audit([open_store(root) for root in roots], broker_settings)
    return reading, {row["transaction_id"]: row for row in reading.table().to_pylist()}


@pytest.mark.parametrize("names", list(itertools.permutations(NAMES)), ids=lambda names: names[0])
def test_two_transactions_with_one_id_have_no_certain_state(names: tuple[str, ...]) -> None:
    roots = [unpacked(name) for name in names]
    alone = [rows_of(root)[1] for root in roots]
    reading, rows = rows_of(*roots)
    assert sorted(one[SHARED]["state"] for one in alone) == ["COMMITTED", "PENDING"]
    assert (rows[SHARED]["state"], rows[SHARED]["reason_code"]) == ("UNDECIDABLE", "id_of_several_logs")
    others = {name: row["state"] for one in alone for name, row in one.items() if name != SHARED}
    assert {name: row["state"] for name, row in rows.items() if name != SHARED} == others
    [finding] = [one for one in reading.findings if one.code == "logs-share-ids"]
    assert finding.is_error
    for root in roots:
        assert str(root) in str(finding.actual)
        assert f"rmqtx audit {root}" in str(finding.advice)
        assert str(root) in rows[SHARED]["reason"]


def test_whichever_columns_are_listed_and_in_pending(capsys: pytest.CaptureFixture[str]) -> None:
    roots = [unpacked(name) for name in NAMES]
    for command in (("audit", "--summary"), ("audit", "--limit", "1"), ("pending",)):
        assert status_of([command[0], *map(str, roots), *command[1:]]) == 3
        printed = capsys.readouterr()
        assert "logs-share-ids" in printed.out + printed.err
    reading = audit([open_store(root) for root in roots], broker_settings, columns=["state"])
    assert reading.table().schema.names == ["state"]
    assert [one.code for one in reading.findings].count("logs-share-ids") == 1
    assert pending([open_store(root) for root in roots], broker_settings).table().num_rows == 28  # and 13 + 16 alone


@pytest.mark.parametrize("name", NAMES)
def test_copies_of_one_log_stay_joined(name: str, tmp_path: Path) -> None:
    """Also where the first records of one copy are damaged."""
    root = unpacked(name)
    equal, damaged = tmp_path / "equal", copy_of(name, tmp_path / "damaged")
    shutil.copytree(root, equal)
    _, alone = rows_of(root)
    file = damage.log_files(damaged)[0]
    places = damage.records_in(file)
    damage.zero_bytes(file, places[0][0], places[20][0])
    for roots in ((root, equal), (equal, damaged), (damaged, equal)):
        reading, rows = rows_of(*roots)
        assert {name: row["state"] for name, row in rows.items()} == {name: row["state"] for name, row in alone.items()}
        assert [one for one in reading.findings if one.code == "logs-share-ids"] == []
        assert set(logs_of([open_store(one) for one in roots]).values()) == {str(roots[0])}
    _, rows = rows_of(root, equal, unpacked(next(other for other in NAMES if other != name)))
    assert rows[SHARED]["reason_code"] == "id_of_several_logs"


def test_an_audit_that_follows_has_the_same_rows(tmp_path: Path) -> None:
    followed = Followed([unpacked(name) for name in NAMES], tmp_path / "checkpoint", broker_settings)
    rows = {row["transaction_id"]: row for row in followed.assert_current().to_pylist()}
    assert rows[SHARED]["reason_code"] == "id_of_several_logs"
