"""Ends of bounded worlds: what rmqtx reports of each store is what happened, and what its broker does next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.model.auditing import chosen, judged, worlds
from tests.model.judging import judged_store
from tests.model.rules import RELEASES, Commit, Disk, Half, Op, Release, Settings
from tests.model.worlds import ends, reached

_ALONE, _FROM_FILES = 100, 2


@pytest.mark.parametrize("name", ["small", "ages"])
@pytest.mark.parametrize("version", RELEASES)
def test_what_is_reported_of_the_ends_of_a_small_world_is_right(version: str, name: str) -> None:
    world = worlds(version)[name]
    world = replace(world, bounds=replace(world.bounds, kills=0))
    alone, files, _ = chosen(world, reached(world), _ALONE, _FROM_FILES, seed=0)
    without = judged(world, alone, from_files=False)
    assert without.violations == []
    assert (without.stores, without.undecided) == (_ALONE, {})
    written = judged(world, files, from_files=True)
    assert written.violations == []
    assert written.stores == _FROM_FILES


def test_every_kind_of_end_is_in_the_small_world() -> None:
    world = worlds("5.3.3")["small"]
    world = replace(world, bounds=replace(world.bounds, kills=0))
    hows = {end.how for end in ends(world, reached(world)).values()}
    assert {
        "stop", "stop, cursors lost", "kill, 0 lost, no new slots", "kill, 1 lost", "kill, 1 lost, old cursors"
    } <= hows


def test_a_decided_transaction_of_which_a_start_reads_a_copy_again_is_to_be_closed() -> None:
    """4.4.0 cuts the slot of a lost op message, and begins the check again: it asked about the transaction."""
    halves = (Half(0, 0, None, None, 0), Half(0, 1, 1, None, 1))
    disk = Disk((*halves, Commit(0, 1, 2)), (Op(((1, 0),), 2),), (2, 1), (3, None), frozenset(), 2, True)
    found = judged(worlds("4.4.0")["small"], [disk], from_files=True)
    assert (found.violations, found.answers["advice"]) == ([], 1)


@pytest.mark.parametrize("version", ["4.3.0", "4.9.7", "5.0.0", "5.3.3", "5.5.0"])
def test_no_producer_is_asked_after_a_power_loss_took_the_only_op_message_and_its_slot(
    version: str, tmp_path: Path
) -> None:
    """The start counts the first slot of the file, and each round ends there (played on these releases)."""
    release = Release(version, has_batches=version >= "5.1", is_done_at_once=True, writes_discards=True,
                      end_is_illegal=version < "4.6", overflow_to_begin=version < "4.9.4")
    lost = (Op(((0, 0),), 0),)
    disk = Disk((Half(0, 0, None, None, 0), Half(1, 1, None, None, 0)), lost, (2, 0), (0, 0), frozenset(), 0, True)
    rows = judged_store(tmp_path / "store", disk, release, Settings()).values()
    assert [(row["next_event"], row["answer_effect"]) for row in rows] == [("stopped", None)] * 2
