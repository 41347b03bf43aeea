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


def _halves_of(name: str, to: Path) -> tuple[Path, Path]:
    """Two copies of a store: one lost the second part of its log, and in the other the first part has expired."""
    roots = copy_of(name, to / "old"), copy_of(name, to / "new")
    places = damage.records_in(damage.log_files(roots[0])[0])
    cut = places[len(places) // 2][0]
    for root in roots:
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        (root / "checkpoint").unlink()
    (file,) = damage.log_files(roots[0])
    data = file.read_bytes()
    file.write_bytes(data[:cut])
    (file,) = damage.log_files(roots[1])
    file.unlink()
    (file.parent / f"{cut:020}").write_bytes(data[cut:])
    return roots


@pytest.mark.parametrize("name", NAMES)
def test_whether_logs_without_a_common_part_are_of_one_broker_is_unknown(name: str, tmp_path: Path) -> None:
    roots = _halves_of(name, tmp_path)
    for given in (roots, roots[::-1]):
        reading, rows = rows_of(*given)
        reasons = {row["reason_code"] for row in rows.values()}
        assert "id_of_uncompared_logs" in reasons
        assert "id_of_several_logs" not in reasons
        [finding] = [one for one in reading.findings if one.code == "logs-share-ids"]
        assert "whether one broker wrote both is unknown" in str(finding.meaning)
        assert "unrelated" not in f"{finding.line()} {[row['reason'] for row in rows.values()]}"
    # As the advice says: one store that has parts of both shows that it is one broker.
    reading, rows = rows_of(*roots, unpacked(name))
    assert not {"id_of_uncompared_logs", "id_of_several_logs"} & {row["reason_code"] for row in rows.values()}
    assert [one for one in reading.findings if one.code == "logs-share-ids"] == []
    other = unpacked(next(one for one in NAMES if one != name))
    _, rows = rows_of(roots[0], other)  # these have a common part, with other records
    assert rows[SHARED]["reason_code"] == "id_of_several_logs"


def test_diff_does_not_call_them_different(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = _halves_of(NAMES[0], tmp_path)
    (log,) = damage.log_files(old)
    damage.truncate(log, damage.records_in(log)[1][0])
    (log,) = damage.log_files(new)
    data, places = log.read_bytes(), damage.records_in(log)
    log.unlink()
    (log.parent / f"{int(log.name) + places[-1][0]:020}").write_bytes(data[places[-1][0] :])
    assert not set(rows_of(old)[1]) & set(rows_of(new)[1])
    status_of(["diff", str(old), str(new)])
    printed = capsys.readouterr()
    assert "no transaction in common" in printed.err
    assert "whether one broker wrote both is unknown" in printed.err
    assert "different records" not in printed.err
