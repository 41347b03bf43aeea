"""A cursor beyond the end of its queue is a fault only if it is one after the next start, too."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.verify.verify import Verify
from tests.forge import damage
from tests.forge.damage import queue_files
from tests.forge.logs import Forge

CODES = {"cursor-beyond-end", "group-cursor-beyond-end"}


def _codes(root: Path) -> tuple[set[str], set[str]]:
    reading = audit([open_store(root)], lambda store: broker_settings(store, version="5.3.3"))
    reading.table()
    verified = run_job(Verify(version="5.3.3"), plan_splits([open_store(root)])).table()
    return set(verified["code"].to_pylist()) & CODES, {one.code for one in reading.findings} & CODES


def _store(tmp_path: Path, half_cursor: int, op_cursor: int = 0) -> Path:
    forge = Forge(tmp_path)
    forge.op(forge.half("A"))
    forge.half("B")
    return forge.write(half_cursor=half_cursor, op_cursor=op_cursor)


@pytest.mark.parametrize(("cursor", "codes"), [(2, set()), (3, {"cursor-beyond-end"})])
def test_a_start_writes_all_queues_again(cursor: int, codes: set[str], tmp_path: Path) -> None:
    root = _store(tmp_path, cursor)
    shutil.rmtree(root / "consumequeue")
    assert _codes(root)[0] == codes


@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize(("cursor", "codes"), [(1, set()), (2, {"cursor-beyond-end"})])
def test_the_op_cursor_counts_as_the_half_cursor_does(
    has_queues: bool, cursor: int, codes: set[str], tmp_path: Path
) -> None:
    root = _store(tmp_path, 0, cursor)
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    assert _codes(root) == (codes, codes)


@pytest.mark.parametrize("is_killed", [True, False])
def test_the_last_slot_of_the_half_queue_is_absent(is_killed: bool, tmp_path: Path) -> None:
    root = _store(tmp_path, 2)
    damage.write_bytes(queue_files(root, HALF_TOPIC)[0], SLOT.size_bytes, bytes(SLOT.size_bytes))
    abort = root / "abort"
    if is_killed:
        abort.touch()
    else:
        abort.unlink(missing_ok=True)
    codes: set[str] = set() if is_killed else {"cursor-beyond-end"}
    assert _codes(root) == (codes, codes)
