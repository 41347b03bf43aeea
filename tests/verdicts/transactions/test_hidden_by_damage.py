"""Which transactions a damaged record can concern: what lies before their first copy, or behind their end, cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtx.readers.queues.consume_queue import SLOT
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


@pytest.mark.parametrize("places", [[], [1]])
def test_a_commit_lacks_its_op_message_also_directly_behind_damaged_bytes(tmp_path: Path, places: list[int]) -> None:
    """Those before its half cannot have contained it, also where slots contradict one another, so that nothing is known
    of what was there.
    """
    forge = Forge(tmp_path / "store")
    first = forge.half("FIRST")
    hidden = forge.append(Message(topic="other"))
    following = forge.half("NEXT")
    forge.commit(first)
    forge.commit(following)
    root = forge.write(half_cursor=2)
    (file,) = damage.queue_files(root, "other")
    slots = [
        SLOT.pack(commit_log_offset=hidden + place, record_length_bytes=following - hidden - place, tags_code=0)
        for place in [0] * len(places) + places
    ]
    file.write_bytes(b"".join(slots).ljust(file.stat().st_size, b"\0"))
    damage.write_bytes(damage.log_files(root)[0], hidden, b"\xff" * 80)
    flags = {name: row["flags"] for name, row in judged(root).items()}
    assert ["commit_without_op" in flags[name] for name in ("FIRST", "NEXT")] == [False, True]


@pytest.mark.parametrize("knows_orders", [True, False])
def test_damaged_bytes_may_have_the_first_commit_unless_the_queue_of_its_topic_is_whole(
    tmp_path: Path, knows_orders: bool
) -> None:
    """Then the one that is left was written after the rollback."""
    forge = Forge(tmp_path / "store")
    half = forge.half("A")
    hidden = forge.append(Message(topic="other"))
    forge.op(half)
    forge.commit(half)
    forge.append(Message(topic="other"))
    root = forge.write(half_cursor=1, op_cursor=1)
    shutil.rmtree(root / "consumequeue" / "other")
    if not knows_orders:
        shutil.rmtree(root / "consumequeue" / "orders")
    damage.write_bytes(damage.log_files(root)[0], hidden, b"\xff" * 80)
    assert ("commit_after_rollback" in judged(root)["A"]["flags"]) == knows_orders
