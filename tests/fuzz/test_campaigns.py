"""A sample of the two campaigns, the same every time; `make fuzz` plays thousands."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz import agreement, single_records, whole_segments
from tests.fuzz.agreement import Heard
from tests.fuzz.asking import Answer
from tests.fuzz.campaign_run import main
from tests.fuzz.kept import read_kept
from tests.fuzz.outcomes import FAILURES, REPORTED, UNCHANGED, Case
from tests.representatives import one_of_each_design, rest_is_slow

#: A small store of each family: one of its segments is damaged in every way.
WHOLE = (
    "busystop-5.3.3", "multipath-4.9.7", "killed-4.4.0", "prepared-killed-4.2.0", "statetable-killed-3.1.4",
    "upgraded-4.2.0-4.3.0", "rocksdb-single-5.5.0", "dledger-4.9.7",
)
SINGLE = ("fifteen-5.1.4", "masked-4.3.0", "statetable-slave-3.1.4", "upgraded-4.2.0-4.3.0")
AGREEING = ("fifteen-5.1.4", "rocksdb-single-5.5.0", "statetable-slave-3.1.4", "controller-5.1.4")
SEGMENTS_COUNT, RECORDS_COUNT, AGREEING_COUNT = 4, 6, 2


@pytest.mark.parametrize("name", rest_is_slow(WHOLE, quick=1))
def test_no_destroyed_segment_reads_as_healthy(name: str) -> None:
    cases = random.Random(name).sample(list(whole_segments.cases_of(name, 0)), SEGMENTS_COUNT)
    played = [whole_segments.play(case) for case in cases]
    assert [str(one) for one in played if one.outcome in FAILURES] == []
    assert any(one.outcome != UNCHANGED for one in played)


@pytest.mark.parametrize("name", one_of_each_design(SINGLE))
def test_no_answer_from_a_damaged_record_is_silently_wrong(name: str) -> None:
    played = [single_records.play(Case(name, "", str(number), 0)) for number in range(RECORDS_COUNT)]
    assert [str(one) for one in played if one.outcome in FAILURES] == []
    assert sum(one.outcome == REPORTED for one in played) > RECORDS_COUNT / 3


@pytest.mark.parametrize("name", one_of_each_design(AGREEING))
@pytest.mark.usefixtures("at_the_real_moment")  # as simulate reads it
def test_commands_agree_about_a_damaged_store(name: str) -> None:
    played = [agreement.play(Case(name, "", str(number), 0)) for number in range(AGREEING_COUNT)]
    assert [str(one) for one in played if one.outcome in FAILURES] == []


def test_commands_that_do_not_agree_are_found() -> None:
    """Where one command has another status or another row, that is a difference, and no reason covers it."""
    done, incomplete = (Heard(Answer(status, "", ""), (), frozenset(), frozenset()) for status in (0, 3))
    row = dict.fromkeys((*agreement.COMPARED, "transaction_id"), "x") | {"flags": [], "state": "PENDING"}
    listed = Heard(Answer(0, "", ""), (row,), frozenset(), frozenset())
    names = [*agreement.COMMANDS, *(f"undamaged {name}" for name in ("pending", "audit", "simulate"))]
    heard = dict.fromkeys(names, done)
    assert agreement.differences_of(heard) == ([], [])
    for name in ("pending", "scanned", "audit", "diagnose"):
        found, _ = agreement.differences_of(heard | {name: incomplete, "undamaged pending": listed})
        assert found, name
    assert {one.rule for one in agreement.differences_of(heard | {"pending": listed})[0]} == {"both paths"}


@pytest.mark.slow
def test_an_interrupted_campaign_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.jsonl"
    arguments = ["run", "records", "--store", "masked-4.3.0", "--seed", "22", "--cases", "3", "--keep", str(kept)]
    arguments += ["--processes", "1"]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    whole = read_kept(kept)[0]
    assert len(whole) == 3
    kept.write_text("".join(kept.read_text(encoding="utf-8").splitlines(keepends=True)[:1]), encoding="utf-8")
    main()
    assert read_kept(kept)[0] == whole
