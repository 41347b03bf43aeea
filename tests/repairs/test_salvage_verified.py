"""A salvaged store is verified: nothing impossible is passed on, and it is never worse than what it was made of."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.store import open_store
from rmqtx_cli.main import status_of
from tests.forge import damage
from tests.forge.damage import log_files, records_in
from tests.forge.stores import copy_of
from tests.repairs.test_salvage import salvaged
from tests.representatives import rest_is_slow
from tests.verdicts.verifying import every_finding

#: An impossible time, one of the year 2300, and one before 1970.
TIMES = (6_365_935_209_750_747_224, 10_413_792_000_000, -5)


def errors(root: Path) -> set[str]:
    return {row["code"] for row in every_finding(root) if row["severity"] != "note"}


@pytest.mark.parametrize("time_ms", TIMES)
@pytest.mark.parametrize("number", rest_is_slow([0, -1, 40]))
def test_an_impossible_store_time_is_named_and_not_passed_on(time_ms: int, number: int, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "source")
    file = log_files(root)[0]
    place, _ = records_in(file)[number]
    known = checkpoint_values(open_store(root))
    damage.write_bytes(file, place + AT["store_time_ms"], struct.pack(">q", time_ms))
    target = tmp_path / "new"
    result = salvaged(root, target)
    (found,) = [one for one in result.findings if one.code == "record-header"]
    assert (found.commit_log_offset, found.store) == (place, str(target))
    assert str(time_ms) in str(found.actual)
    values = checkpoint_values(open_store(target))
    last = known["physic_msg_time_ms"]
    assert last - 60_000 < values["physic_msg_time_ms"] == values["logics_msg_time_ms"] <= last
    assert errors(target) <= errors(root) | {"record-header"}


@pytest.mark.parametrize("field", ["store_port", "reconsume_times", "born_time_ms"])
def test_a_time_is_taken_from_records_with_plausible_headers_only(field: str, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "source")
    file = log_files(root)[0]
    place, _ = records_in(file)[-1]
    time_ms = 7_200_000_000_000  # the year 2198
    damage.write_bytes(file, place + AT["store_time_ms"], struct.pack(">q", time_ms))
    damage.write_bytes(file, place + AT[field], b"\xff" * 4)
    salvaged(root, tmp_path / "new")
    assert checkpoint_values(open_store(tmp_path / "new"))["physic_msg_time_ms"] < time_ms


def test_the_records_after_an_impossible_time_are_kept(tmp_path: Path) -> None:
    """A recovery leaves older records after the end of the data: a time in the future must not make all others old."""
    root = copy_of("common-5.3.3", tmp_path / "source")
    file = log_files(root)[0]
    places = records_in(file)
    damage.write_bytes(file, places[50][0] + AT["store_time_ms"], struct.pack(">q", TIMES[0]))
    damage.zero_bytes(file, places[51][0], places[51][1])
    result = salvaged(root, tmp_path / "new")
    assert result.chosen.left_out_count == 0
    assert result.records_count == len(places) - 1


def test_the_status_is_3_and_the_record_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = copy_of("common-4.9.7", tmp_path / "source")
    file = log_files(root)[0]
    place, _ = records_in(file)[30]
    damage.write_bytes(file, place + AT["store_time_ms"], struct.pack(">q", TIMES[0]))
    assert status_of(["salvage", str(root), "--to", str(tmp_path / "new")]) == 3
    text = capsys.readouterr().err
    assert f"record-header: {tmp_path / 'new'}/commitlog/{file.name} at byte {place}" in text
    assert ".unfinished" not in text


@pytest.mark.parametrize("seed", rest_is_slow(range(6), quick=3))
def test_a_new_store_verifies_no_worse_than_its_source(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    root = copy_of(chance.choice(["killed-4.9.7", "common-5.3.3", "killed-5.1.4"]), tmp_path / "source")
    for _ in range(chance.randint(1, 4)):
        file = chance.choice([one for one in log_files(root) if records_in(one)])
        place, length = chance.choice(records_in(file))
        at, size = place + chance.randrange(length), chance.choice([1, 2, 8, 300, 2000])
        damage.write_bytes(file, min(at, file.stat().st_size - size), chance.randbytes(size))
    salvaged(root, tmp_path / "new")
    worse = errors(tmp_path / "new") - errors(root)
    assert worse <= {"record-damaged"}  # fillers stand for what is lost, also where nothing but a gap was


def test_of_a_torn_and_a_whole_copy_the_whole_one_is_taken(tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path / "source")
    file = log_files(root)[0]
    whole = file.read_bytes()
    place, length = records_in(file)[20]
    torn = tmp_path / "torn"
    torn.write_bytes(whole[: place + length - 9] + bytes(9) + whole[place + length :])
    part = tmp_path / "part"
    part.write_bytes(whole[place - 600 : place + length + 10])
    result = salvaged(root, tmp_path / "new", torn, part)
    assert (tmp_path / "new" / "commitlog" / file.name).read_bytes()[: place + length] == whole[: place + length]
    assert result.chosen.contradictions_count == 1
