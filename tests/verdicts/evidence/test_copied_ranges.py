"""Damage in one copy of a log beside other copies: what another one has is not missing, in any order of the stores."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.evidence import copied_ranges
from rmqtx.verdicts.model.reading import VerdictReading
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.stores import copy_of, settings_of
from tests.verdicts.following import Followed

NAME = "common-5.3.3"


def audited(roots: Sequence[Path]) -> VerdictReading:
    return audit([open_store(root) for root in roots], settings_of(NAME))


def states(reading: VerdictReading) -> dict[str, tuple[str, str]]:
    return {row["transaction_id"]: (row["state"], row["reason_code"]) for row in reading.table().to_pylist()}


def states_in_each_order(*roots: Path) -> dict[str, tuple[str, str]]:
    """The states and reasons of some stores together, which do not depend on their order."""
    found = [states(audited(order)) for order in itertools.permutations(roots)]
    assert all(one == found[0] for one in found)
    return found[0]


def are_undecidable(found: dict[str, tuple[str, str]]) -> set[str]:
    return {name for name, (state, _) in found.items() if state == "UNDECIDABLE"}


def copies(to: Path, count: int = 2) -> list[Path]:
    first = copy_of(NAME, to / "0")
    roots = [first]
    for number in range(1, count):
        roots.append(to / str(number) / first.name)
        shutil.copytree(first, roots[-1])
    return roots


def records(root: Path) -> tuple[Path, list[tuple[int, int]]]:
    """The first log file, and position and length of each record."""
    file = damage.log_files(root)[0]
    return file, damage.records_in(file)


def lose(root: Path, first: float, count: int = 12) -> None:
    """Write zeros over some records, from a part of the file on."""
    file, places = records(root)
    some = places[int(len(places) * first) :][:count]
    damage.zero_bytes(file, some[0][0], some[-1][0] + some[-1][1] - some[0][0])


def test_what_another_copy_has_is_not_missing(tmp_path: Path) -> None:
    whole, damaged = copies(tmp_path)
    wanted = states(audited([whole]))
    lose(damaged, 0.5)
    assert are_undecidable(states(audited([damaged])))
    assert states_in_each_order(damaged, whole) == wanted
    reading = audited([damaged, whole])
    reading.table()
    assert [one.store for one in reading.findings if one.code == "record-damaged"] == [str(damaged)]
    assert reading.missing == []
    for order in ((damaged, whole), (whole, damaged)):
        rows = pending([open_store(root) for root in order], settings_of(NAME)).table()
        listed = {row["transaction_id"] for row in rows.to_pylist() if row["state"] == "PENDING"}
        assert listed == {name for name, (state, _) in wanted.items() if state == "PENDING"}


def test_so_it_is_from_the_first_record_on(tmp_path: Path) -> None:
    whole, damaged = copies(tmp_path)
    lose(damaged, 0.0, 3)
    assert not are_undecidable(states_in_each_order(damaged, whole))


@pytest.mark.parametrize(("first", "second"), [(0.3, 0.6), (0.5, 0.7), (0.7, 0.9)])
def test_two_copies_that_are_damaged_in_different_places_never_make_a_wrong_state(
    tmp_path: Path, first: float, second: float
) -> None:
    """An op message that only one of them has does not decide a half message that only the other one has."""
    one, other = copies(tmp_path)
    wanted = states(audited([one]))
    lose(one, first)
    lose(other, second)
    found = states_in_each_order(one, other)
    undecidable = are_undecidable(found)
    assert undecidable
    assert {name: state for name, (state, _) in found.items() if name not in undecidable} == {
        name: state for name, (state, _) in wanted.items() if name not in undecidable
    }


def test_what_no_copy_has_is_missing(tmp_path: Path) -> None:
    one, other, third = copies(tmp_path, 3)
    for root in (one, other):
        lose(root, 0.5)
    lost = are_undecidable(states_in_each_order(one, other))
    assert lost
    assert lost == are_undecidable(states(audited([one])))
    assert not are_undecidable(states_in_each_order(one, other, third))


def lose_end(root: Path) -> None:
    lose(root, 0.8, 10_000)


def test_a_lost_end_to_whose_records_the_queues_refer_is_not_missing(tmp_path: Path) -> None:
    whole, damaged = copies(tmp_path)
    wanted = states(audited([whole]))
    lose_end(damaged)
    assert are_undecidable(states(audited([damaged])))
    assert states_in_each_order(damaged, whole) == wanted
    rows = pending([open_store(root) for root in (damaged, whole)], settings_of(NAME)).table()
    listed = {row["transaction_id"] for row in rows.to_pylist() if row["state"] == "PENDING"}
    assert listed == {name for name, (state, _) in wanted.items() if state == "PENDING"}


@pytest.mark.parametrize("kind", ["no queue", "a slot of another record"])
def test_a_lost_end_may_have_been_another_history(tmp_path: Path, kind: str) -> None:
    """Without a record behind it, or its slots, nothing shows that the damaged copy went on as the other one did."""
    whole, damaged = copies(tmp_path)
    lose_end(damaged)
    queue = damaged / "consumequeue" / "orders"
    if kind == "no queue":
        shutil.rmtree(queue)
    else:
        for file in sorted(queue.glob("*/*")):
            data = bytearray(file.read_bytes())
            last = max(at for at in range(0, len(data), 20) if any(data[at : at + 20]))
            data[last + 8 : last + 12] = (int.from_bytes(data[last + 8 : last + 12], "big") + 1).to_bytes(4, "big")
            file.write_bytes(data)
    alone, together = are_undecidable(states(audited([damaged]))), states_in_each_order(damaged, whole)
    assert alone
    assert are_undecidable(together) <= alone
    open_ones = {name for name, (state, _) in states(audited([whole])).items() if state == "PENDING"}
    assert open_ones & alone
    assert open_ones & alone <= are_undecidable(together)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_page_of_zeros_that_begins_in_properties_is_not_missing(tmp_path: Path, part: float) -> None:
    """The torn record does not count: its id would make a transaction of its own."""
    whole, damaged = copies(tmp_path)
    wanted = states(audited([whole]))
    file, places = records(damaged)
    begin, length = places[int(len(places) * part)]
    damage.zero_bytes(file, begin + length - 60, 4096)
    alone = audited([damaged])
    assert are_undecidable(states(alone))
    assert "record-properties" in {one.code for one in alone.findings}
    assert states_in_each_order(damaged, whole) == wanted
    reading = audited([whole, damaged])
    reading.table()
    (differs,) = [one for one in reading.findings if one.code == "logs-differ"]
    assert differs.meaning is not None
    assert differs.meaning.startswith(f"{damaged} is damaged there")


def test_a_copy_whose_log_begins_later_fills_nothing(tmp_path: Path) -> None:
    later, damaged = copies(tmp_path)
    lose(damaged, 0.5)
    file, places = records(later)
    begin = places[3][0]
    file.with_name(f"{begin:020d}").write_bytes(file.read_bytes()[begin:])
    file.unlink()
    assert are_undecidable(states_in_each_order(damaged, later))


def diverged(to: Path, *, is_other_behind: bool) -> list[Path]:
    """Two logs of which the second has damage; the first has another history there, and behind it where asked."""
    roots = []
    for name in ("A", "B"):
        forge = Forge(to / name)
        for number in range(4):
            forge.half(f"COMMON{number}")
        lost = forge.half(f"LOST{name}")
        for number in range(3):
            behind = forge.half(f"BEHIND{name if is_other_behind else 'X'}{number}")
        roots.append(forge.write())
    damage.zero_bytes(damage.log_files(roots[1])[0], lost, (behind - lost) // 4)
    return roots


def test_another_history_behind_the_damage_fills_nothing(tmp_path: Path) -> None:
    whole, damaged = diverged(tmp_path / "other", is_other_behind=True)
    found = states_in_each_order(whole, damaged)
    assert are_undecidable(found) >= {f"COMMON{number}" for number in range(4)}
    # What has no copy in the damaged store does not depend on it.
    assert {found[name][0] for name in ("LOSTA", "BEHINDA0")} == {"PENDING"}
    same = states_in_each_order(*diverged(tmp_path / "same", is_other_behind=False))
    assert not are_undecidable(same)


def test_too_many_ranges_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, damaged = copies(tmp_path)
    lose(damaged, 0.5)
    monkeypatch.setattr(copied_ranges, "_RANGES_MAX", 0)
    assert are_undecidable(states_in_each_order(damaged, whole))


def test_logs_of_one_store_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError

    for name in ("blocks_of", "logs_of"):
        monkeypatch.setattr(copied_ranges, name, refused)
    (damaged,) = copies(tmp_path, 1)
    lose(damaged, 0.5)
    assert are_undecidable(states(audited([damaged])))


def test_an_audit_that_follows_has_the_same_rows(tmp_path: Path) -> None:
    whole, damaged = copies(tmp_path)
    followed = Followed([damaged, whole], tmp_path / "checkpoint", settings_of(NAME))
    followed.assert_current()
    lose(damaged, 0.5)
    followed = Followed([damaged, whole], tmp_path / "other", settings_of(NAME))
    rows = followed.assert_current().to_pylist()
    assert "UNDECIDABLE" not in {row["state"] for row in rows}
