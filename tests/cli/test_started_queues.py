"""The half and op queue after a start, compared with what a real 5.3.3 left after starts on damaged copies of a store.

The store is that of `make demo`: its half queue ends at slot 351, after all other queues, its op queue at slot 10.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.releases import Version
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.startup.started_queues import StartedQueue, started_queues
from rmqtx.verdicts.verify.verify import DEFAULT, Verify
from tests.cli.conftest import Run
from tests.forge import damage
from tests.forge.damage import queue_files

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "orders-5.3.3.tar.xz"
#: The places of the half messages 343 to 350.
LAST_OFFSETS = (325714, 326375, 326935, 327446, 328054, 328624, 329247, 329738)
START_ERRORS = {"start-skips", "start-shifts", "start-cuts-queue"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with tarfile.open(EXAMPLE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def started(root: Path, topic: str, version: Version = (5, 3, 3)) -> StartedQueue:
    found = started_queues(open_store(root), version, {}, 0)
    assert found is not None
    return found[topic]


def invalid_slots(root: Path) -> None:
    damage.write_bytes(queue_files(root, HALF_TOPIC)[0], 342 * 20, b"\xff" * 60)


def test_other_queues_bound_what_is_dispatched(root: Path) -> None:
    """5.3.3 cut the queue at slot 342 and dispatched what follows the other queues: to slots 342 to 349."""
    invalid_slots(root)
    queue = started(root, HALF_TOPIC)
    assert (queue.kept_end, tuple(offset for offset, _ in queue.added)) == (342, LAST_OFFSETS)
    assert [(one.code, one.commit_log_offset) for one in queue.cuts] == [
        ("start-cuts-queue", None), ("start-skips", 325103), ("start-shifts", 325714),
    ]


def test_a_removed_half_queue_begins_with_what_follows_the_other_queues(root: Path) -> None:
    """5.3.3 made a queue with fillers before slot 343, and with slots 343 to 350."""
    shutil.rmtree(queue_files(root, HALF_TOPIC)[0].parents[1])
    queue = started(root, HALF_TOPIC)
    assert (queue.begin, tuple(offset for offset, _ in queue.added)) == (343, LAST_OFFSETS)
    assert [(one.code, one.commit_log_offset) for one in queue.cuts] == [("start-skips", 0)]


def test_before_5_0_0_a_removed_half_queue_begins_with_its_fillers(root: Path) -> None:
    """The log begins at 0, and so does the place in a filler; this is so on 4.9.7 (tests/histories/found.py)."""
    shutil.rmtree(queue_files(root, HALF_TOPIC)[0].parents[1])
    queue = started(root, HALF_TOPIC, (4, 9, 7))
    assert (queue.begin, queue.kept_end, queue.end, queue.file_end) == (0, 342, 351, 1_000)


def test_lookups_say_what_verify_says(root: Path, rmqtx: Run) -> None:
    invalid_slots(root)
    rows = run_job(Verify(DEFAULT, "5.3.3", ()), plan_splits([open_store(root)])).table().to_pylist()
    wanted = {(row["code"], row["actual"]) for row in rows if row["code"] in START_ERRORS}
    assert {code for code, _ in wanted} == START_ERRORS
    for command in ("pending", "simulate"):
        result = rmqtx(command, root, "--broker-version", "5.3.3")
        assert result.status == 3
        assert "undecidable" not in result.err
        for code, actual in wanted:
            assert any(f": {code}: " in line and f"found {actual}" in line for line in result.err.splitlines())


@pytest.mark.parametrize("keeps_file", [True, False])
def test_a_lost_op_queue_is_reported_by_a_simulation_too(root: Path, rmqtx: Run, *, keeps_file: bool) -> None:
    file = queue_files(root, OP_TOPIC)[0]
    if keeps_file:
        damage.zero_bytes(file, 0, file.stat().st_size)
    else:
        file.write_bytes(b"")
    result = rmqtx("simulate", root)
    assert result.status == 3
    assert ": start-skips: " in result.err
    assert ": cursor-beyond-end: " in result.err


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_half_messages_behind_a_slot_over_the_end_of_the_log_are_skipped(
    version: str, root: Path, rmqtx: Run
) -> None:
    """From 5.3.4 on a start cuts the queues after its dispatch: what it cut off was not reported, with status 0."""
    damage.write_bytes(queue_files(root, HALF_TOPIC)[0], 340 * 20 + 4, b"\x02")
    options = ("--broker-version", version)
    for command in ("simulate", "verify", "pending"):
        result = rmqtx(command, root, *options)
        assert result.status == (1 if command == "verify" else 3)
        assert "start-skips" in result.out + result.err
    rows = rmqtx("verify", root, *options, "--format", "jsonl").rows
    (found,) = (row for row in rows if row["code"] == "start-skips")
    assert found["expected"] == f"its slot in queue 0 of {HALF_TOPIC}, and those of 10 more records"


def test_a_corrected_cursor_passes_what_a_start_writes_before_it(root: Path, rmqtx: Run) -> None:
    """The queue has eight slots after the start: the cursor 342 lies beyond them and moves to their end."""
    damage.zero_bytes(queue_files(root, HALF_TOPIC)[0], 0, 351 * 20)
    version = ("--broker-version", "5.3.3")
    rows = rmqtx("pending", root, *version, "--format", "jsonl").rows
    assert {(row["next_event"], row["advice"], tuple(row["flags"])) for row in rows} == {("skipped", "decide", ())}
    simulated = rmqtx("simulate", root, *version, "--show", "transactions", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["end"] for line in simulated] == ["skipped"] * 8


def test_a_simulation_says_that_the_broker_does_not_start(root: Path, rmqtx: Run) -> None:
    damage.truncate(damage.log_files(root)[-1], 200_000)
    assert "the broker does not start on this store, so it checks nothing" in rmqtx("simulate", root).err


@pytest.mark.parametrize("command", ["pending", "simulate"])
@pytest.mark.parametrize(
    ("options", "status"), [((), 3), (("--broker-version", "5.2.0"), 3), (("--broker-version", "5.3.3"), 0)]
)
def test_damage_that_only_some_releases_read_is_found_if_the_release_is_not_known(
    command: str, options: tuple[str, ...], status: int, root: Path, rmqtx: Run
) -> None:
    """5.2.0 begins with the first file, and cuts off the log at the damage; 5.3.3 begins with the last one."""
    damage.write_bytes(damage.log_files(root)[0], 20 << 12, bytes(1 << 12))
    run = rmqtx(command, root, *options)
    assert run.status == status
    if command == "simulate" and not options:
        assert "found a start of 5.2.0 ends the log at commit-log offset" in run.err
        assert "not every version does this, but for example 5.2.0; add --broker-version" in run.err
