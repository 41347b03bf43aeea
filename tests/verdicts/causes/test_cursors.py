"""Causes in the cursors of the check."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.cause import FITS
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from rmqtx.verdicts.causes.strengths import CAUSES
from tests.forge.stores import copy_of, opened
from tests.verdicts.causes.diagnosed import diagnosis_of, strengths

WORD = "cursors-unreadable"


@pytest.mark.parametrize("backup", [b"", b"\0\0\0\0", b'{"offsetTable":{"RMQ'])
def test_what_a_power_loss_leaves(backup: bytes, tmp_path: Path) -> None:
    """#9412: the file is empty or half written, and so is its backup; a killed 5.4.0 left an empty file too."""
    root = copy_of("common-5.3.3", tmp_path / "store")
    file = root / "config/consumerOffset.json"
    file.write_bytes(file.read_bytes()[:100])
    assert WORD not in _diagnosed(root)  # the backup is used
    file.with_suffix(".json.bak").write_bytes(backup)
    (found,) = _diagnosed(root)[WORD].items()
    assert found[0] == "explains"
    assert found[1] > 0


def test_a_cursor_file_that_does_not_exist_is_no_power_loss(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "store")
    for file in (root / "config").glob("consumerOffset*"):
        file.unlink()
    assert WORD not in _diagnosed(root)


def test_a_check_that_does_not_run_only_fits() -> None:
    store = opened("common-4.3.0")
    settings = broker_settings(store, version="4.3.0")
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    rows, evidence, rule = reading.table(), reading.evidence, CAUSES["check-thread-ended"].rule
    assert not rule(Evidence(rows, evidence)).any()
    flags = pa.array([["stalled"], *([[]] * (rows.num_rows - 1))], rows.schema.field("flags").type)
    stalled = rows.set_column(rows.schema.get_field_index("flags"), "flags", flags)
    assert rule(Evidence(stalled, evidence)).tolist() == [FITS] + [0] * (rows.num_rows - 1)


def _diagnosed(root: Path) -> dict[str, dict[str, int]]:
    store = open_store(root)
    return strengths(diagnosis_of(store, broker_settings(store)).table().to_pylist())
