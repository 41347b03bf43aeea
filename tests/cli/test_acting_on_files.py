"""commit, rollback, discard, resume and close on the files of a stopped broker, as a user types them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import (
    DONE,
    NO_SUCH_TRANSACTION,
    REFUSED_BY_GUARD,
    SOME_REFUSED,
    STORE_IN_USE,
    USAGE,
)
from rmqtx.readers.queues.consume_queue import PRE_BLANK_LENGTH, SLOT
from rmqtx.readers.store.store import OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.damage import queue_files, write_bytes
from tests.forge.stores import contents, copy_of, settings_of
from tests.repairs.broker_lock import locked_by_a_broker
from tests.verdicts.truth import audited

NAME = "common-5.3.3"
VERSION = ("--broker-version", "5.3.3")


@pytest.fixture
def store(corpus_store: Callable[[str], Path], tmp_path: Path) -> Path:
    """A store to change."""
    return Path(shutil.copytree(corpus_store(NAME), tmp_path / "store"))


def case(name: str) -> str:
    """The id of a transaction by the history that made it."""
    return str(next(row["transaction_id"] for row in corpus.expected(NAME) if row["case"] == name))


def state_of(rmqtx: Run, store: Path, name: str) -> str:
    shown = rmqtx("show", name, "--store", store, *VERSION, "--format", "json", "-q")
    return str(json.loads(shown.out)[0]["state"])


def test_a_copy_is_made_and_the_store_stays(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    before = contents(store)
    target = tmp_path / "settled"
    ids = [case("pending.0"), case("pending.1")]
    result = rmqtx("commit", *ids, "--store", store, "--to", target, *VERSION, "--yes", "--format", "jsonl")
    assert result.status == DONE, result.err
    assert [row["outcome"] for row in result.rows] == ["proved", "proved"]
    assert f"{target} is the changed store; {store} is unchanged" in result.err
    assert contents(store) == before
    assert [state_of(rmqtx, target, name) for name in ids] == ["COMMITTED", "COMMITTED"]
    requests = result.rows[0]["requests"]
    assert [(one["request"], one["fields"]["record"]) for one in requests] == [("APPEND", "final"), ("APPEND", "op")]


def test_in_place_and_back(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    before = contents(store)
    undo = tmp_path / "way-back"
    where = ("--store", store, *VERSION, "--in-place", "--undo", undo)
    result = rmqtx("rollback", case("pending.0"), *where, "--yes")
    assert result.status == DONE, result.err
    assert state_of(rmqtx, store, case("pending.0")) == "ROLLED_BACK"
    assert rmqtx("undo", undo, "--yes").status == DONE
    assert contents(store) == before


def test_an_op_message_that_the_check_does_not_read_is_not_written(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    """Brokers 4.3.0 to 5.5.0 ask about the transaction, or discard it, although its message is delivered."""
    file = store / "config" / "consumerOffset.json"
    number = 10_000
    entry = r'("RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":\s*\{\s*"?0"?:\s*)\d+'
    text, count = re.subn(entry, rf"\g<1>{number}", file.read_text())
    assert count == 1
    file.write_text(text)
    for act in ("commit", "rollback", "discard"):
        result = rmqtx(act, case("pending.0"), "--store", store, *VERSION, "--to", tmp_path / "new", "--yes")
        assert result.status == REFUSED_BY_GUARD
        assert f"cannot-be-written: the op cursor {number} is after the end of the op queue" in result.err
        assert "first set the cursor: rmqtx cursor set --op " in result.err
    assert not (tmp_path / "new").exists()


def test_behind_a_filler_no_op_message_is_written(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    """Brokers 4.9.7 to 5.5.0 give the op message no slot, and ask about the transaction; found by histories."""
    file = queue_files(store, OP_TOPIC)[-1]
    used = -(-len(file.read_bytes().rstrip(b"\0")) // SLOT.size_bytes)
    filler = SLOT.pack(commit_log_offset=0, record_length_bytes=PRE_BLANK_LENGTH)
    write_bytes(file, (used - 1) * SLOT.size_bytes, filler)
    name = case("pending.0")
    for act in ("commit", "rollback", "discard"):
        result = rmqtx(act, name, "--store", store, *VERSION, "--to", tmp_path / "new", "--yes")
        assert result.status == REFUSED_BY_GUARD
        assert "lead to no record, so the check does not read the op message" in result.err
        assert f"rmqtx rebuild queues {store} --to NEW" in result.err
    assert rmqtx("rebuild", "queues", store, "--to", tmp_path / "rebuilt").status == DONE
    again = rmqtx("commit", name, "--store", tmp_path / "rebuilt", *VERSION, "--to", tmp_path / "new", "--yes")
    assert again.status == DONE, again.err


def test_twice_is_refused(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    name = case("pending.0")
    first = rmqtx("commit", name, "--store", store, *VERSION, "--to", tmp_path / "one", "--yes")
    assert first.status == DONE
    second = rmqtx("commit", name, "--store", tmp_path / "one", *VERSION, "--to", tmp_path / "two", "--yes")
    assert second.status == REFUSED_BY_GUARD
    assert "already-delivered" in second.err
    assert not (tmp_path / "two").exists()


def test_some_refused_others_done(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    ids = [case("pending.0"), case("commit.0")]
    result = rmqtx("rollback", *ids, "--store", store, *VERSION, "--to", tmp_path / "x", "--yes")
    assert result.status == SOME_REFUSED
    assert state_of(rmqtx, tmp_path / "x", ids[0]) == "ROLLED_BACK"


def test_a_dry_run_makes_nothing(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    result = rmqtx("commit", case("pending.0"), "--store", store, *VERSION, "--to", tmp_path / "x", "--dry-run")
    assert result.status == DONE
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "state").exists()


def test_somebody_is_asked(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    result = rmqtx("commit", case("pending.0"), "--store", store, *VERSION, "--to", tmp_path / "x")
    assert result.status == USAGE
    assert "--yes" in result.err


def test_a_running_broker_is_left_alone(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    with locked_by_a_broker(store):
        result = rmqtx("commit", case("pending.0"), "--store", store, *VERSION, "--to", tmp_path / "x", "--yes")
    assert result.status == STORE_IN_USE
    assert "is in use" in result.err
    assert len(result.err.splitlines()) == 2  # the header, and the refusal


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "either --to or --in-place"),
        (("--in-place",), "--in-place needs --undo FILE"),
        (("--to", "x", "--in-place", "--undo", "y"), "either --to or --in-place"),
        (("--to", "x", "-n", "127.0.0.1:1"), "leave one out"),
        (("--to", "x", "--settle", "1s"), "--settle is for live brokers"),
    ],
)
def test_options_that_do_not_go_together(rmqtx: Run, store: Path, more: tuple[str, ...], said: str) -> None:
    result = rmqtx("commit", case("pending.0"), "--store", store, *VERSION, *more, "--yes")
    assert result.status == USAGE
    assert said in result.err


def test_without_a_store_there_is_nothing_to_change(rmqtx: Run) -> None:
    result = rmqtx("commit", "X", "--to", "x", "-n", "127.0.0.1:1")
    assert result.status == USAGE
    assert "--to needs --store" in result.err


def test_the_version_must_be_known(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    result = rmqtx("commit", case("pending.0"), "--store", store, "--to", tmp_path / "x", "--yes")
    assert result.status == REFUSED_BY_GUARD
    assert "--broker-version" in result.err


def test_nothing_goes_into_the_store_itself(rmqtx: Run, store: Path) -> None:
    for option in (("--to", store / "x"), ("--in-place", "--undo", store / "x")):
        result = rmqtx("commit", case("pending.0"), "--store", store, *VERSION, *option, "--yes")
        assert result.status == USAGE
        assert "lies inside the store" in result.err


def test_what_is_not_there(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    result = rmqtx("commit", "NOBODY", "--store", store, *VERSION, "--to", tmp_path / "x", "--yes")
    assert result.status == NO_SUCH_TRANSACTION


def test_a_plan_is_carried_out_on_files_once_for_each_store(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    made = rmqtx("plan", "commit", "--all", "--store", store, *VERSION, "--reason", "OPS-1", "-o", plan)
    assert made.status == DONE, made.err
    apply = ("apply", plan, "--store", store, *VERSION, "--yes", "--format", "jsonl")
    first = rmqtx(*apply, "--to", tmp_path / "one")
    assert first.status == DONE, first.err
    done = {row["transaction_id"] for row in first.rows}
    assert len(done) > 10
    # the store itself is as it was: what was done to a copy of it is not done to it
    undo = tmp_path / "undo"
    second = rmqtx(*apply, "--in-place", "--undo", undo)
    assert {row["transaction_id"] for row in second.rows} == done
    third = rmqtx(*apply, "--to", tmp_path / "two")
    assert third.status == DONE
    assert "nothing left to do" in third.err
    assert not (tmp_path / "two").exists()
    # what was taken back is not done, whatever the receipts say
    assert rmqtx("undo", undo, "--yes").status == DONE
    again = rmqtx(*apply, "--in-place", "--undo", tmp_path / "another")
    assert {row["transaction_id"] for row in again.rows} == done
    assert state_of(rmqtx, store, min(done)) == "COMMITTED"


def test_what_may_have_been_rolled_back_is_committed_only_by_an_override(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    """Rolled back just before a kill, the op in memory (5.3.3): nothing in the store shows it."""
    store = corpus_store("opslost-5.3.3")
    rolled_back = str(next(
        row["transaction_id"] for row in corpus.expected("opslost-5.3.3")
        if row["case"].startswith("op_batch_lost") and row["state"] == "PENDING"
    ))
    where = ("--store", store, "--to", tmp_path / "settled", *VERSION, "--dry-run")
    refused = rmqtx("commit", rolled_back, *where)
    assert refused.status == REFUSED_BY_GUARD
    assert "refused by op-in-memory: its producer may have rolled it back" in refused.err
    assert rmqtx("rollback", rolled_back, *where).status == DONE
    assert rmqtx("commit", rolled_back, *where, "--override", "op-in-memory", "--reason", "asked").status == DONE
    plan = tmp_path / "plan.json"
    planned = rmqtx("plan", "commit", rolled_back, "--store", store, *VERSION, "--reason", "asked", "-o", plan)
    assert planned.status == DONE
    assert f"{rolled_back}: planned, but apply refuses it by op-in-memory: its producer may have" in planned.err
    # the commands to type next have what apply requires
    assert f"--to NEW {' '.join(VERSION)}" in planned.err
    page = rmqtx("plan", "show", plan).out
    assert "refused 1 step by op-in-memory" in page
    assert f"--to NEW {' '.join(VERSION)} --dry-run" in page
    apply = ("apply", plan, *where)
    assert rmqtx(*apply).status == REFUSED_BY_GUARD
    assert rmqtx(*apply, "--override", "op-in-memory", "--reason", "asked").status == DONE
    other = rmqtx("plan", "rollback", rolled_back, "--store", store, *VERSION, "--reason", "x", "-o", tmp_path / "b")
    assert "op-in-memory" not in other.err
    closed = rmqtx("close", rolled_back, *where, "--override", "not-open", "--reason", "asked")
    assert "ROLLBACK (no decision was found: this rolls it back) at queue offset" in closed.err


def test_an_act_makes_no_warning_and_no_doubt_about_others(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    """The first discard of a store has no queue yet (a warning, queue-missing), and its `abort` is that of rmqtx: the
    causes of the others were those of a broker that had been killed.
    """
    source, new = corpus_store("lmqhalf-5.5.0"), tmp_path / "new"
    rows = {row["transaction_id"]: row for row in audited("lmqhalf-5.5.0")}
    (identity, *_) = [one for one, row in rows.items() if row["state"] == "PENDING" and not row["causes"]]
    done = rmqtx(
        "discard", identity, "--store", source, "--to", new, "--broker-version", "5.5.0", "--reason", "test", "--yes",
    )
    assert done.status == DONE, done.err
    verified = rmqtx("verify", new, "--full", "--broker-version", "5.5.0", "--format", "jsonl", "-q")
    assert verified.status == DONE, verified.out
    after = audit([open_store(new)], settings_of("lmqhalf-5.5.0")).table().to_pylist()
    assert {row["transaction_id"]: row["causes"] for row in after if row["transaction_id"] != identity} == {
        name: row["causes"] for name, row in rows.items() if name != identity
    }


def test_a_second_act_sees_the_broker_of_the_first(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    """The `abort` of rmqtx made a downgraded store look like one of the release before: that version was accepted."""
    name = "downgraded-5.5.0-5.3.3-4.9.7"
    one, other, *_ = (row["transaction_id"] for row in audited(name) if row["state"] == "PENDING")
    words = ("--reason", "test", "--yes", "--broker-version", "4.9.7")
    first, second = tmp_path / "first", tmp_path / "second"
    assert rmqtx("rollback", one, "--store", corpus_store(name), "--to", first, *words).status == DONE
    assert rmqtx("rollback", other, "--store", first, "--to", second, *words).status == DONE
    wrong = rmqtx("rollback", other, "--store", first, "--to", tmp_path / "third", *words[:-1], "5.5.0")
    assert wrong.status == REFUSED_BY_GUARD


@pytest.mark.parametrize(
    ("name", "version"), [
        ("statetable-3.1.4", "3.1.4"), ("prepared-3.2.6", "3.2.6"), ("prepared-4.2.0", "4.2.0"),
        ("common-4.3.0", "4.3.0"), (NAME, "5.3.3"), ("rocksdb-5.4.0", "5.4.0"),
    ],
)
def test_an_act_and_its_undo_leave_the_names_and_bytes_that_were_there(
    rmqtx: Run, tmp_path: Path, name: str, version: str
) -> None:
    root = copy_of(name, tmp_path / "store")
    (root / "lock").unlink(missing_ok=True)  # as in a copy
    before = contents(root)
    waiting = [row["transaction_id"] for row in audited(name) if row["state"] == "PENDING"]
    of_broker = ("--broker-version", version)
    undo_file = tmp_path / "undo"
    in_place = ("--store", root, "--in-place", "--undo", undo_file, *of_broker, "--yes")
    result = rmqtx("commit", "no-such-transaction", *in_place)
    assert result.status == NO_SUCH_TRANSACTION
    assert contents(root) == before
    overrides = ("--reason", "test", "--override", "immunity", "--override", "op-in-memory")
    result = rmqtx("commit", waiting[0], *in_place, *overrides)
    assert result.status == DONE, result.err
    acted = contents(root)
    assert acted.keys() - before.keys() <= {"abort", "rocksdbstore"} | {
        one for one in acted if one.startswith("consumequeue")
    }
    result = rmqtx("undo", undo_file, "--yes")
    assert result.status == DONE, result.err
    assert contents(root) == before
