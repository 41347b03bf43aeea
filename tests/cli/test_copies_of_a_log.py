"""Two copies of one log, as a master and its slave have them: one record in both is one event, counted once."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model import exit_status
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.stores import copy_of

NAME = "common-5.3.3"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "orders-5.3.3.tar.xz"


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """A store, and a copy of it."""
    return copy_of(NAME, tmp_path / "a"), copy_of(NAME, tmp_path / "b")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The store of the example."""
    with tarfile.open(EXAMPLE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def rows(rmqtx: Run, *words: object) -> list[dict[str, Any]]:
    return rmqtx(*words, "--format", "jsonl", "--quiet").rows


def test_the_timeline_names_the_record_of_the_other_copy_as_the_same(rmqtx: Run, copies: tuple[Path, Path]) -> None:
    one, two = copies
    found = next(row for row in rows(rmqtx, "pending", one) if row["checks_count"])
    alone = rmqtx("show", found["transaction_id"], "--store", one, "--no-pager").out
    both = rmqtx("show", found["transaction_id"], "--store", one, "--store", two, "--no-pager").out
    records = sum(len(found[name]) for name in ("half_copies", "op_marks", "final_records", "discard_copies"))
    assert both.count("the same record, in another copy of the log") == records
    assert "from an older copy" not in both
    details = [line.split("  ")[-1].strip() for line in alone.splitlines() if line.startswith("20")]
    assert all(detail in both for detail in details)


def test_the_end_of_a_transaction_has_the_reason_that_one_copy_gives(rmqtx: Run, copies: tuple[Path, Path]) -> None:
    one, two = copies
    found = rows(rmqtx, "pending", one)[0]

    def discard(*stores: Path) -> str:
        words = [word for store in stores for word in ("--store", store)]
        page = rmqtx("show", found["transaction_id"], *words, "--no-pager").out
        return next(line for line in page.splitlines() if line.startswith("discard")).partition(": ")[2]

    assert discard(one, two) == discard(two, one) == discard(one)


def test_a_half_copy_in_both_is_counted_once(rmqtx: Run, copies: tuple[Path, Path]) -> None:
    one, two = copies
    alone, both = (rmqtx("audit", *stores, "--summary").err for stores in ([one], copies))
    line = next(line for line in alone.splitlines() if "half copies of" in line)
    assert line in both
    assert [row["half_copies_count"] for row in rows(rmqtx, "diagnose", one)] == [
        row["half_copies_count"] for row in rows(rmqtx, "diagnose", one, two)
    ]


@pytest.mark.parametrize("verb", ["commit", "rollback", "discard", "resume", "close"])
def test_an_act_takes_one_store(verb: str, rmqtx: Run, copies: tuple[Path, Path], tmp_path: Path) -> None:
    one, two = copies
    result = rmqtx(verb, "ID", "--store", one, "--store", two, "--to", tmp_path / "c", "--reason", "test", "--yes")
    assert result.status == exit_status.USAGE
    assert "--store is given 2 times" in result.err
    assert not (tmp_path / "c").exists()


def test_a_plan_of_two_stores_names_the_store_to_apply_it_to(
    rmqtx: Run, copies: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = copies
    plan = tmp_path / "plan.json"
    result = rmqtx("plan", "rollback", "--store", one, "--store", two, "--reason", "test", "--all", "-o", plan)
    assert f"rmqtx apply {plan} --store {one} --to NEW" in result.err


def test_the_check_of_a_slave_is_that_of_its_master(rmqtx: Run, copies: tuple[Path, Path], tmp_path: Path) -> None:
    one, _ = copies
    conf = tmp_path / "slave.conf"
    conf.write_text("brokerRole=SLAVE\nbrokerId=1\n")
    listed = rmqtx("pending", one, "--broker-conf", conf)
    assert "this broker is a slave: its master checks these transactions; decide them there" in listed.err
    reasons = {row["reason"] for row in rows(rmqtx, "pending", one, "--broker-conf", conf, "--at", "2027-06-01")}
    assert any("the next round of its master's check discards it" in reason for reason in reasons)
    assert not any("the next round of the check" in reason for reason in reasons)


def test_a_row_names_the_store_whose_check_reaches_the_transaction(rmqtx: Run, tmp_path: Path) -> None:
    """A slave acted as master and passed copies on: its own check has passed them, that of the other broker has not."""
    passed = copy_of("acting-5.3.3", tmp_path)
    with tarfile.open(corpus.CORPUS / "acting-5.3.3" / "beside.tar.xz") as archive:
        archive.extractall(tmp_path / "b", filter="data")
    other = tmp_path / "b" / "store"
    alone = rows(rmqtx, "pending", other)
    assert len(alone) == 6
    for stores in ((passed, other), (other, passed)):
        found = rows(rmqtx, "pending", *stores)
        for name in ("store", "transaction_id", "state", "flags", "advice"):
            assert [row[name] for row in found] == [row[name] for row in alone], name


def test_an_act_refuses_a_release_that_is_not_known(rmqtx: Run, copies: tuple[Path, Path], tmp_path: Path) -> None:
    one, _ = copies
    act = ("--store", one, "--to", tmp_path / "c", "--reason", "test", "--yes")
    for release in ("5.33", "5.9.9", "53.3.0"):
        result = rmqtx("commit", "ID", *act, "--broker-version", release)
        assert result.status == exit_status.USAGE
        assert "is not a known release, and releases write records differently" in result.err
        assert "treated as" not in result.err
    assert "treated as" in rmqtx("pending", one, "--broker-version", "5.33").err


def test_the_headline_and_the_counter_are_those_of_all_copies(rmqtx: Run, example: Path, tmp_path: Path) -> None:
    """What a copy decides is open in the other one, so neither a number nor a counter is that of one copy alone."""
    changed = tmp_path / "changed"
    act = ("--to", changed, "--broker-version", "5.3.3", "--reason", "test", "--yes")
    assert rmqtx("rollback", "payment-71030", "--store", example, *act).status == exit_status.DONE
    listed = rmqtx("pending", example, changed).err
    assert "6 pending transactions" in listed
    assert f"{example} and the copies of its log: the broker discards" in listed
    assert f"{changed}: the broker discards" not in listed
    assert f"{example}: the broker's counter" in rmqtx("audit", example, "--limit", "0").err
    assert f"{example}: the broker's counter" not in rmqtx("audit", example, changed, "--limit", "0").err
