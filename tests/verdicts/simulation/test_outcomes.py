"""What simulated rounds do with half copies, on stores small enough to be read by eye."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.cursors import CheckCursors
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.check.check_rules import CheckSettings, check_rules
from rmqtx.verdicts.check.timers_without_copies import AskingSettings, OpenRecord
from rmqtx.verdicts.check.window import check_window
from rmqtx.verdicts.simulation.beside_simulated import BesideSimulated
from rmqtx.verdicts.simulation.simulation import Simulated, outcomes
from rmqtx.verdicts.simulation.simulation_setup import _id_findings, has_half_queue, with_cursors
from tests.forge.damage import flip_byte
from tests.forge.logs import Forge
from tests.forge.stores import copy_of
from tests.verdicts.ends.test_contradicting_ids import id_places

SETTINGS = CheckSettings(6_000, 15, 30_000, 1 << 40)


def simulated(root: Path, begin_ms: int) -> Simulated:
    """The check of a store from its first half on, with a 5.3.3 broker."""
    rules = check_rules((5, 3, 3))
    return Simulated(str(root), "", check_window(open_store(root), rules, 0, 0, 0), rules, SETTINGS, begin_ms)


def test_a_copy_that_is_put_back_into_another_topic_is_not_skipped(tmp_path: Path) -> None:
    """The slot leads to a record of another topic; the next round begins at the end of the half queue."""
    forge = Forge(tmp_path / "store")
    forge.half("ELSEWHERE")
    root = forge.write()
    (log,) = (root / "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(HALF_TOPIC.encode(), b"X" * len(HALF_TOPIC), 1))
    (one,) = outcomes(simulated(root, forge.now_ms + 3_600_000), 3).values()
    assert (one.end, one.checks_to_come_count) == (None, 1)


def test_no_round_is_played_after_the_one_that_discards_the_last_half(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    forge.half("SPENT", checks=15)
    check = simulated(forge.write(), forge.now_ms + 3_600_000)
    (one,) = outcomes(check, 3).values()
    assert (one.end, one.end_round) == ("discarded", 1)
    assert check.last is not None
    assert check.last.begin_ms == check.begin_ms


def test_the_timer_of_a_state_table_runs_once_a_minute_and_has_no_queue() -> None:
    timer = BesideSimulated("store", "", "state_table", (OpenRecord(0, 700, 3, 3),), pa.table({}), 1_000)
    assert [one.begin_ms for one in islice(timer.rounds(), 3)] == [1_000, 61_000, 121_000]
    assert timer.queue_id is None


def test_the_check_in_rocksdb_is_that_of_queue_0() -> None:
    settings = AskingSettings(6_000, 15, 30_000)
    assert BesideSimulated("store", "", "rocksdb", (), pa.table({}), 0, settings=settings).queue_id == 0


def test_an_id_that_the_index_contradicts_is_one_finding_also_at_the_begin_of_a_file(tmp_path: Path) -> None:
    name = "killed-5.3.3"
    root = copy_of(name, tmp_path)
    bases = {segment.base_offset for segment in open_store(root).commit_log[1:]}
    first, record = next(
        (begin, record) for record, begin, _ in id_places(root)["half"] if record["commit_log_offset"] in bases
    )
    flip_byte(Path(record["file"]), first + len(UNIQ_KEY) + 3, 1)
    window = check_window(open_store(root), check_rules((5, 3, 3)), 0, 0, 0)
    (found,) = _id_findings(open_store(root), window)
    assert (found.code, found.file, found.position_bytes) == ("words-contradict", record["file"], 0)


def test_a_cursor_from_the_command_line_replaces_that_of_queue_0_and_no_other_one() -> None:
    known = CheckCursors({0: 3, 1: 9}, {0: 4, 1: 8})
    changed = with_cursors(known, 5, None)
    assert (changed.half, changed.op, changed.is_supposed) == ({0: 5, 1: 9}, {0: 4, 1: 8}, True)
    assert with_cursors(CheckCursors(None, None), None, 2) == CheckCursors(None, {0: 2}, is_supposed=True)


def test_an_empty_store_is_checked_if_its_release_has_half_topics(tmp_path: Path) -> None:
    """Else the simulation of a new broker reports that no check uses half topics."""
    store = open_store(Forge(tmp_path / "store").write())
    assert [has_half_queue(store, broker_settings(store, version=one)) for one in ("4.2.0", "4.3.0", "5.5.0")] == [
        False, True, True,
    ]
    assert has_half_queue(store)
