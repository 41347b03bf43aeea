"""Which transactions a damaged record can concern: what lies before their first copy, or behind their end, cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.verdicts.transactions.test_forged_stores import judged


def judged_with_damage(root: Path, offset: int) -> dict[str, str]:
    """The states, after a part of a record in the first file is overwritten."""
    damage.write_bytes(damage.log_files(root)[0], offset, b"\xff" * 80)
    return {name: row["state"] for name, row in judged(root).items()}


def test_a_rollback_before_a_damaged_record_of_another_topic_stays_one(tmp_path: Path) -> None:
    """That record may be the decision of another record, which explains only op messages behind it."""
    forge = Forge(tmp_path / "store")
    before, between = forge.half("BEFORE"), forge.half("BETWEEN")
    forge.op(before)
    hidden = forge.append(Message(topic="other"))
    forge.op(between)
    states = judged_with_damage(forge.write(half_cursor=2, op_cursor=2), hidden)
    assert states == {"BEFORE": "ROLLED_BACK", "BETWEEN": "UNDECIDABLE"}


def test_a_half_directly_behind_damaged_bytes_is_not_concerned(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    forge.half("FIRST")
    hidden = forge.append(Message(topic="other"))
    forge.op(forge.half("NEXT"))
    root = forge.write(half_cursor=2, op_cursor=1)
    shutil.rmtree(root / "consumequeue" / "other")
    assert judged_with_damage(root, hidden) == {"FIRST": "UNDECIDABLE", "NEXT": "ROLLED_BACK"}
