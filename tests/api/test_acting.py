"""Plans and their application by the programming interface: as the commands, and nothing is done by mistake."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rmqtx
from rmqtx.readers.model import exit_status
from tests.cli.conftest import Run
from tests.forge.stores import contents, copy_of

VERSION = "5.3.3"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copy_of("common-5.3.3", tmp_path / "store")


@pytest.fixture
def stores(root: Path) -> rmqtx.Stores:
    return rmqtx.open(root, broker_version=VERSION)


def waiting(stores: rmqtx.Stores) -> list[str]:
    return [one.transaction_id for one in stores.pending() if one.state == rmqtx.State.PENDING]


def test_a_plan_is_that_of_the_command(command: Run, stores: rmqtx.Stores, root: Path, tmp_path: Path) -> None:
    words = ("plan", "rollback", "--store", root, "--broker-version", VERSION, "--all", "--reason", "OPS-1")
    result = command(*words, "-o", tmp_path / "command.json", "-q")
    plan = stores.plan("rollback", where=lambda _: True, reason="OPS-1")
    written = plan.write(tmp_path / "api.json")
    assert (plan.status, plan.file) == (result.status, written)
    mine, theirs = (json.loads((tmp_path / name).read_text()) for name in ("api.json", "command.json"))
    assert mine["steps"]
    assert [{**one, "store": None} for one in mine["steps"]] == [{**one, "store": None} for one in theirs["steps"]]
    assert mine["made_from"]["options"] == {"action": "rollback", "broker_version": VERSION}
    assert pa.table(plan).num_rows == len(plan) == len([*plan])
    assert "&lt;" not in plan._repr_html_()


def test_where_takes_a_function_and_an_expression_of_arrow(stores: rmqtx.Stores) -> None:
    first, *_ = wanted = waiting(stores)
    for plan in (
        stores.plan("rollback", where=lambda one: one.transaction_id == first, reason="OPS-1"),
        stores.plan("rollback", where=pc.field("transaction_id") == first, reason="OPS-1"),
        stores.plan("rollback", ids=[first, first], reason="OPS-1"),
    ):
        assert [one.transaction_id for one in plan.steps] == [first]
    every = stores.plan("rollback", where=lambda _: True, reason="OPS-1")
    assert {one.transaction_id for one in every} | {one.transaction_id for one in every.refused} == {*wanted}
    assert stores.plan("rollback", where=lambda _: False, reason="OPS-1").status == exit_status.NO_SUCH_TRANSACTION


def test_a_request_that_selects_nothing_or_gives_no_reason_is_refused(stores: rmqtx.Stores, root: Path) -> None:
    with pytest.raises(rmqtx.BadRequest, match="no transactions selected"):
        stores.plan("rollback", reason="OPS-1")
    with pytest.raises(rmqtx.BadRequest, match="reason"):
        stores.plan("rollback", where=lambda _: True, reason=" ")
    with pytest.raises(rmqtx.BadRequest, match="no action"):
        stores.plan("rolback", where=lambda _: True, reason="OPS-1")
    with pytest.raises(rmqtx.NoSuchTransaction):
        stores.plan("rollback", ids=["no-such-id"], reason="OPS-1")
    plan = stores.plan("rollback", where=lambda _: True, reason="OPS-1")
    with pytest.raises(rmqtx.BadRequest, match="lies inside the store"):
        plan.write(root / "commitlog" / "plan.json")
    with pytest.raises(rmqtx.BadRequest, match="was not written"):
        stores.apply(plan, to="changed", yes=True)


def test_a_plan_is_applied_to_a_copy_once_it_is_confirmed(
    stores: rmqtx.Stores, root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    before, (first, second, *_) = contents(root), waiting(stores)
    plan = stores.plan("rollback", ids=[first, second], reason="OPS-1")
    file = plan.write(tmp_path / "plan.json")
    with pytest.raises(rmqtx.BadRequest, match="already exists"):
        plan.write(file)
    target = tmp_path / "changed"
    with pytest.raises(rmqtx.BadRequest, match="confirmation"):
        stores.apply(plan, to=target)
    tried = stores.apply(plan, to=target, dry_run=True)
    assert (tried.status, tried.receipts, target.exists()) == (exit_status.DONE, [], False)
    assert [(one.transaction_id, one.refusals) for one in tried.acts] == [(first, ()), (second, ())]
    applied = stores.apply(plan, to=target, reason="agreed", yes=True)
    assert (applied.status, [one.outcome for one in applied]) == (exit_status.DONE, [rmqtx.ActOutcome.PROVED] * 2)
    assert {one.reason for one in applied} == {"OPS-1; agreed"}
    assert [str(one.plan["file"]) for one in applied if one.plan] == [str(file)] * 2
    assert pa.table(applied)["outcome"].to_pylist() == ["proved"] * 2
    assert contents(root) == before
    changed = {one.transaction_id: one.state for one in rmqtx.open(target, broker_version=VERSION).audit()}
    assert [changed[name] for name in (first, second)] == [rmqtx.State.ROLLED_BACK] * 2
    assert capfd.readouterr() == ("", "")
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_change_in_place_leaves_an_undo_file_and_is_not_repeated(
    stores: rmqtx.Stores, command: Run, root: Path, tmp_path: Path
) -> None:
    before, (first, *_) = contents(root), waiting(stores)
    file = stores.plan("rollback", ids=[first], reason="OPS-1").write(tmp_path / "plan.json")
    for changed, undo in ((None, None), (tmp_path / "a", tmp_path / "b")):
        with pytest.raises(rmqtx.BadRequest, match="either to= or undo="):
            stores.apply(file, yes=True, to=changed, undo=undo)
    with pytest.raises(rmqtx.BadRequest, match="lies inside the store"):
        stores.apply(file, undo=root / "undo", yes=True)
    assert stores.apply(file, undo=tmp_path / "undo", yes=True).status == exit_status.DONE
    again = stores.apply(file, undo=tmp_path / "undo.2", yes=True)
    assert (again.status, len(again.done), again.acts) == (exit_status.DONE, 1, ())
    assert command("undo", tmp_path / "undo", "--yes").status == exit_status.DONE
    assert contents(root) == before


def test_a_stale_plan_does_nothing(stores: rmqtx.Stores, root: Path, tmp_path: Path) -> None:
    (first, *_) = waiting(stores)
    file = stores.plan("commit", ids=[first], reason="OPS-1").write(tmp_path / "plan.json")
    other = stores.plan("rollback", ids=[first], reason="OPS-1").write(tmp_path / "other.json")
    assert stores.apply(other, undo=tmp_path / "undo", yes=True).status == exit_status.DONE
    before = contents(root)
    with pytest.raises(rmqtx.StalePlan) as stale:
        stores.apply(file, undo=tmp_path / "undo.2", yes=True)
    assert (stale.value.status, first in str(stale.value)) == (exit_status.STALE_PLAN, True)
    skipped = stores.apply(file, undo=tmp_path / "undo.3", yes=True, skip_stale=True)
    assert (skipped.status, [name for name, _ in skipped.stale]) == (exit_status.STALE_PLAN, [first])
    assert contents(root) == before


def test_a_required_approval_is_that_of_a_second_person(stores: rmqtx.Stores, tmp_path: Path) -> None:
    (first, *_) = waiting(stores)
    file = stores.plan("rollback", ids=[first], reason="OPS-1").write(tmp_path / "plan.json")
    key, signers = tmp_path / "giulia", tmp_path / "signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signers.write_text(f"giulia@shop {key.with_suffix('.pub').read_text()}")
    with pytest.raises(rmqtx.NotApproved) as missing:
        stores.apply(file, to=tmp_path / "changed", yes=True, require_approval=signers)
    assert missing.value.status == exit_status.REFUSED_BY_GUARD
    sign = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "rmqtx-plan", str(file)]
    subprocess.run(sign, check=True, capture_output=True)
    applied = stores.apply(file, to=tmp_path / "changed", yes=True, require_approval=signers)
    (receipt,) = applied
    assert receipt.plan
    assert str(receipt.plan["approved_by"]).startswith("giulia@shop with ED25519 key")


@pytest.mark.parametrize("table", ["checks", "rounds", "transactions"])
def test_a_simulation_is_that_of_the_command(command: Run, root: Path, table: str, tmp_path: Path) -> None:
    at = "2026-11-22T00:00:00Z"
    words = ("simulate", root, "--show", table, "--at", at, "-o", tmp_path / "rows.arrow", "-q")
    status = command(*words).status
    expected = pa.ipc.open_stream((tmp_path / "rows.arrow").read_bytes()).read_all().to_pylist()
    found = rmqtx.open(root).simulate(table, at=at)
    assert found.to_arrow().to_pylist() == expected
    assert (found.status, bool(expected)) == (status, True)
    if table == "checks":
        assert next(iter(found)).round == 1
        both = rmqtx.open(root).simulate(at=at, changes={"transactionCheckMax": "1"})
        assert len({one.configuration for one in both}) == 2
    with pytest.raises(rmqtx.BadRequest):
        rmqtx.open(root).simulate("check")
    with pytest.raises(rmqtx.BadRequest):
        rmqtx.open(root).simulate(changes={"transactionCheckMx": "1"})
