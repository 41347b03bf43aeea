"""A last queue file without slots: which releases refuse to start, and the slot without a record that others add."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtx.readers.jobs.job_runner import Tally
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.releases import parse_version
from rmqtx.readers.model.tables import FINDINGS
from rmqtx.readers.queues.slot_files import topic_text
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.compared.unclaimed_slots import QueueComparison
from rmqtx.verdicts.startup.recovery import PredictedStart, predict_start
from rmqtx.verdicts.startup.rules import rules_of
from rmqtx.verdicts.startup.started_queues import started_queues
from rmqtx.verdicts.verify.verify import Verify, log_facts, log_ranges
from tests.field import field_stores, right
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import Message

REFUSED, REACHED = "zero-last-queue-file", "zero-last-queue-file-reached"
QUEUE = f"consumequeue/{HALF_TOPIC}/0"
VERSIONS = ("4.9.7", "5.0.0", "5.1.4", "5.3.3", "5.4.0", "5.5.0")


def foreseen(root: Path, version: str) -> PredictedStart:
    """What a start does; the releases may be older than the one that wrote the store."""
    store = open_store(root)
    plan = plan_splits([store])
    tally = Tally(plan, Reading(FINDINGS, []))
    for split in plan:
        tally.add(split, Verify().of_split(split))
    splits = tally.carried[store.root]
    queues = QueueComparison(store, [split.queues for split in splits], log_ranges(store, splits))
    list(queues.findings())
    return predict_start(store, {}, log_facts(splits), queues.facts, rules_of(parse_version(version), {}))


def half_end(start: PredictedStart) -> int:
    """The next number of the half queue."""
    (end,) = [fate.end for fate in start.fates if topic_text(fate.facts.name[1]) == HALF_TOPIC]
    return end


def files_of(refused: list[Finding], root: Path) -> list[str]:
    """The files because of which a start is refused."""
    return [str(Path(str(one.file)).relative_to(root)) for one in refused]


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_refused_as_brokers_did(version: str, tmp_path: Path) -> None:
    root = field_stores(REFUSED, tmp_path) / "store"
    wanted = right(REFUSED)
    start = foreseen(root, version)
    assert bool(start.refused) == wanted["start_refused"].get(version, version == "5.0.0")
    if start.refused:
        assert files_of(start.refused, root) == [wanted["file"]]
    else:
        assert half_end(start) == (10 if version == "5.5.0" else half_end(start))


@pytest.mark.parametrize(
    ("version", "is_refused"), [("5.1.4", True), ("5.3.3", True), ("5.4.0", False), ("5.5.0", False)]
)
def test_after_a_kill_5_4_0_dispatches_before_it_cuts(version: str, is_refused: bool, tmp_path: Path) -> None:
    root = field_stores(REFUSED, tmp_path) / "store"
    (root / "abort").touch()
    start = foreseen(root, version)
    assert bool(start.refused) == is_refused
    if not is_refused:
        assert half_end(start) == 11


@pytest.mark.parametrize("version", VERSIONS)
def test_queues_that_reach_the_end_of_the_log_get_an_empty_slot(version: str, tmp_path: Path) -> None:
    start = foreseen(field_stores(REACHED, tmp_path) / "store", version)
    assert not start.refused
    assert half_end(start) == 11
    assert [fate.holes for fate in start.fates if fate.holes] == [[(10, 11)]]


@pytest.mark.parametrize(("version", "end"), [("4.9.7", 31), ("5.3.3", 31), ("5.5.0", 31)])
def test_a_gap_before_it_is_skipped(version: str, end: int, tmp_path: Path) -> None:
    """4.9.7, 5.3.3 and 5.5.0 went on at 31."""
    root = field_stores(REACHED, tmp_path) / "store"
    (root / QUEUE / f"{200:020d}").rename(root / QUEUE / f"{600:020d}")
    start = foreseen(root, version)
    assert half_end(start) == end
    assert [fate.holes for fate in start.fates if fate.holes] == [[(10, 30), (30, 31)]]


@pytest.mark.parametrize(("version", "end"), [("5.3.3", None), ("5.5.0", 30)])
def test_a_gap_before_it_where_no_queue_reaches_the_end(version: str, end: int | None, tmp_path: Path) -> None:
    """5.3.3 exited, 5.5.0 went on at 30."""
    root = field_stores(REFUSED, tmp_path) / "store"
    (root / QUEUE / f"{200:020d}").rename(root / QUEUE / f"{600:020d}")
    start = foreseen(root, version)
    assert (None if start.refused else half_end(start)) == end


@pytest.mark.parametrize(("version", "is_refused"), [("4.9.7", False), ("5.3.3", True), ("5.5.0", False)])
def test_the_only_file_after_older_ones_have_expired(version: str, is_refused: bool, tmp_path: Path) -> None:
    """5.3.3 exited."""
    root = field_stores(REFUSED, tmp_path) / "store"
    (root / QUEUE / f"{0:020d}").unlink()
    assert bool(foreseen(root, version).refused) == is_refused


@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.0"])
def test_two_empty_files_are_one(version: str, tmp_path: Path) -> None:
    root = field_stores(REFUSED, tmp_path) / "store"
    shutil.copy(root / QUEUE / f"{200:020d}", root / QUEUE / f"{400:020d}")
    start = foreseen(root, version)
    assert files_of(start.refused, root) == ([] if version == "5.5.0" else [right(REFUSED)["file"]])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_queue_with_an_empty_first_file_starts(version: str, tmp_path: Path) -> None:
    root = field_stores(REACHED, tmp_path) / "store"
    damage.drop(root / QUEUE)
    (root / QUEUE).mkdir()
    (root / QUEUE / f"{0:020d}").write_bytes(bytes(200))
    start = foreseen(root, version)
    assert not start.refused
    assert half_end(start) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_its_slot_counts_after_a_kill_too_if_a_queue_of_another_topic_reaches_the_end(
    version: str, tmp_path: Path
) -> None:
    """Played on 4.9.7 to 5.5.0: a power loss took the only half message, and the next one got number 1."""
    forge = Forge(tmp_path / "store", segment_bytes=16_384)
    forge.append(Message(topic="orders", body=b"paid"))
    forge.write(half_cursor=0, op_cursor=0)
    (root := tmp_path / "store").joinpath("abort").touch()
    (root / QUEUE).mkdir(parents=True)
    (root / QUEUE / f"{0:020d}").write_bytes(bytes(400))
    started = started_queues(open_store(root), parse_version(version), {}, 0)
    assert started is not None
    assert started[HALF_TOPIC].end == 1
