"""What every answer says of the next minutes is what the simulation plays: stores, settings and clocks in turn.

`python -m tests.verdicts.deadlines.one_future` compares each store with each setting at each clock, and counts.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.check.timers_without_copies import Asking
from rmqtx.verdicts.simulation.beside_simulated import BesideSimulated
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks
from tests.brokers import corpus
from tests.forge.damage import log_files, queue_files, write_bytes, zero_bytes
from tests.forge.stores import copy_of, settings_of
from tests.representatives import rest_is_slow
from tests.verdicts.deadlines.one_future import CLOCKS, SETTINGS, Case, cases, compared

#: Stores of each way in which a check goes on, stops, expires or drops; each is read with some settings and clocks.
NAMES = (
    "common-5.3.3", "poison-4.4.0", "rocksdb-5.5.0", "killed-4.9.7", "common-4.3.0", "common-4.9.7", "common-5.1.4",
    "common-5.5.0", "killed-5.3.3", "noroom-5.5.0", "statetable-3.1.4", "lmq-4.9.3", "cursoredited-5.1.4",
    "ahead-5.3.3",
)
#: For each of these stores every setting once, at clocks in turn.
SOME = [
    Case(name, changes, list(CLOCKS)[(number + place) % len(CLOCKS)])
    for number, name in enumerate(NAMES) for place, changes in enumerate(SETTINGS)
]


@pytest.mark.parametrize(
    "case", rest_is_slow(SOME, quick=len(SETTINGS) * 4), ids=lambda case: f"{case.name}: {case.changes}, {case.clock}"
)
def test_every_answer_is_what_the_simulation_plays(case: Case) -> None:
    found = compared(case)
    assert found.differences == []
    assert found.counts.total() > 10


@pytest.mark.deep
@pytest.mark.parametrize("name", corpus.corpus_names())
def test_every_store_with_every_setting_at_every_clock(name: str) -> None:
    assert [line for case in cases([name]) for line in compared(case).differences] == []


def damaged(name: str, how: str, to: Path) -> str:
    """A copy of a store with a hole in its log, or with a queue that lost its newest slots, and its release."""
    root = copy_of(name, to)
    if how == "hole":
        file = max(log_files(root), key=lambda one: len(one.read_bytes().rstrip(b"\0")))
        write_bytes(file, len(file.read_bytes().rstrip(b"\0")) * 2 // 3, bytes(range(1, 251)) * 8)
    else:
        topic = HALF_TOPIC if how == "half slots" else OP_TOPIC
        file = queue_files(root, topic)[-1]
        end = len(file.read_bytes().rstrip(b"\0")) // 20 * 20
        zero_bytes(file, end - 60, 60)
    return f"{root}={corpus.recipe(name)['version']}"


@pytest.mark.parametrize(
    "name", ["statetable-3.1.4", "statetable-killed-3.1.4", "rocksdb-5.5.0", "rocksdb-killed-5.5.0", "prepared-4.2.0"]
)
def test_a_start_that_cuts_the_log_takes_its_records_from_every_table(name: str, tmp_path: Path) -> None:
    """`simulate` asked about records that `pending` and `verify` had behind the cut, and `pending` of 3.1 said wait."""
    root = copy_of(name, tmp_path)
    file = max(log_files(root), key=lambda one: len(one.read_bytes().rstrip(b"\0")))
    write_bytes(file, len(file.read_bytes().rstrip(b"\0")) // 3 // 4096 * 4096, bytes(4096))
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    cut = [row for row in rows if row["next_event"] == "cut" and row["state"] == "PENDING"]
    assert cut
    assert {row["advice"] for row in cut} == {"decide"}
    settings = settings_of(name)(open_store(root))
    checks, findings, _ = simulated_checks(open_store(root), [SimulatedConfiguration("as is", settings)], None, 1 << 41)
    assert "start-cuts-log" in {finding.code for finding in findings}
    asked = {
        one.check_row(step)["transaction_id"] for one in checks if isinstance(one, BesideSimulated)
        for played in islice(one.rounds(), 1) for step in played.steps
        if step.action in (Asking.ASKED, Asking.UNANSWERABLE)
    }
    assert asked == {row["transaction_id"] for row in rows if row["next_event"] == "asked"}


@pytest.mark.parametrize("how", ["hole", "half slots", "op slots"])
@pytest.mark.parametrize(
    "name", rest_is_slow(["killed-5.3.3", "common-4.9.7", "common-5.5.0", "killed-5.1.4"], quick=1)
)
def test_answers_about_damaged_stores_are_what_the_simulation_plays(name: str, how: str, tmp_path: Path) -> None:
    place = damaged(name, how, tmp_path)
    for clock in CLOCKS:
        found = compared(Case(place, "eleven years of fileReservedTime", clock))
        assert found.differences == []
        assert found.counts.total() > 10


@pytest.mark.parametrize(
    "name",
    rest_is_slow([
        "statetable-lossy-3.1.4", "rocksdb-killed-5.5.0", "statetable-killed-3.1.4", "rocksdb-both-5.5.0",
        "prepared-killed-4.2.0", "statetable-recovered-3.1.4",
    ]),
)
def test_so_are_answers_about_damaged_stores_of_the_other_designs(name: str, tmp_path: Path) -> None:
    found = compared(Case(damaged(name, "hole", tmp_path), "one check", "when written"))
    assert found.differences == []
    assert found.counts.total() > 100
