"""`rmqtx cursor set`: what becomes of the transactions, and what of the files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.errors import UnsafeStore
from rmqtx.readers.model.exit_status import DONE, INCOMPLETE, REFUSED_BY_GUARD, STORE_IN_USE, USAGE
from rmqtx.readers.store.fastjson import parse
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.repairs.cursors import Effects, Move, change_set
from rmqtx_cli.commands.repairing.cursor import _is_refused
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.stores import contents, copy_of
from tests.repairs.broker_lock import locked_by_a_broker

VERSIONS = ("4.3.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")
FILE = "config/consumerOffset.json"


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_but_the_cursors_changes(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path, version: str
) -> None:
    store, target = corpus_store(f"common-{version}"), tmp_path / "target"
    before = contents(store)
    cursors = check_cursors(open_store(store))
    assert cursors.half is not None
    assert cursors.op is not None
    half, op = cursors.half[0] + 3, cursors.op[0] - 1
    result = rmqtx(
        "cursor", "set", "--half", half, "--op", op, "--store", store, "--to", target, "--yes",
        "--override", "abandoned", "--override", "asked-again", "--reason", "a test", "--format", "jsonl",
    )
    assert result.status == DONE, result.err
    assert contents(store) == before
    after = contents(target)
    assert {name for name in before if after[name] != before[name]} <= {FILE, f"{FILE}.bak"}
    told, old = parse((target / FILE).read_text()), parse((store / FILE).read_text())
    assert told["offsetTable"].pop(f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS") == {"0": half}
    assert told["offsetTable"].pop("RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS") == {"0": op}
    for name in (HALF_TOPIC, OP_TOPIC):
        old["offsetTable"].pop(f"{name}@CID_RMQ_SYS_TRANS")
    assert told == old
    abandoned = {row["transaction_id"] for row in result.rows if row["kind"] == "abandoned"}
    passed = {
        row["transaction_id"] for row in corpus.expected(f"common-{version}")
        if row["state"] == "PENDING" and (row["newest_half_queue_offset"] or 0) < half
    }
    assert abandoned == passed


def test_what_nobody_wants_is_refused(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    forward = rmqtx("cursor", "set", "--half", 289, "--store", common, "--to", tmp_path / "x", "--yes")
    assert forward.status == REFUSED_BY_GUARD
    assert "refused by abandoned" in forward.err
    back = rmqtx("cursor", "set", "--half", 0, "--store", common, "--to", tmp_path / "x", "--yes")
    assert back.status == REFUSED_BY_GUARD
    assert "refused by asked-again" in back.err
    assert not (tmp_path / "x").exists()


def test_in_place_and_back(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(common, tmp_path / "store"))
    before, undo = contents(store), tmp_path / "undo"
    set_back = ("cursor", "set", "--op", 0, "--store", store, "--in-place", "--undo", undo, "--yes")
    assert rmqtx(*set_back).status == DONE
    assert check_cursors(open_store(store)).op == {0: 0}
    assert rmqtx("undo", undo, "--yes").status == DONE
    assert contents(store) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--half", 9999), "queue offsets 0 to 289"),
        ((), "no cursor is given"),
        (("--half", 1, "--override", "abandonned", "--reason", "x"), "did you mean abandoned"),
        (("--half", 280, "--override", "abandoned"), "needs --reason"),
    ],
)
def test_what_cannot_be_meant(
    rmqtx: Run, common: Path, tmp_path: Path, options: tuple[object, ...], said: str
) -> None:
    result = rmqtx("cursor", "set", *options, "--store", common, "--to", tmp_path / "x", "--yes")
    assert result.status == USAGE
    assert said in result.err


def test_a_running_broker_is_left_alone(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(common, tmp_path / "store"))
    with locked_by_a_broker(store):
        result = rmqtx("cursor", "set", "--op", 0, "--store", store, "--to", tmp_path / "x", "--yes")
    assert result.status == STORE_IN_USE


KEY = f'"{HALF_TOPIC}@CID_RMQ_SYS_TRANS"'


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"offsetTable":{}}', {"0": 7}),
        ('{"offsetTable":{"a@b":{0:1}}}', {"0": 7}),
        (f'{{"offsetTable":{{{KEY}:{{}}}}}}', {"0": 7}),
        (f'{{"offsetTable":{{{KEY}:{{1:5}}}}}}', {"0": 7, "1": 5}),
        (f'{{"offsetTable":{{{KEY}:{{10:5,0:-1}}}}}}', {"0": 7, "10": 5}),
        (f'{{"pullOffsetTable":{{{KEY}:{{0:3}}}},"offsetTable":{{{KEY}:{{"0":5}}}}}}', {"0": 7}),
        (f'{{"x":{{"offsetTable":{{{KEY}:{{0:3}}}}}},"offsetTable":{{{KEY}:{{0:5}}}}}}', {"0": 7}),
    ],
)
def test_every_form_of_the_table_keeps_the_rest(
    corpus_store: Callable[[str], Path], tmp_path: Path, text: str, wanted: dict[str, int]
) -> None:
    store = Path(shutil.copytree(corpus_store("common-5.3.3"), tmp_path / "store"))
    (store / FILE).write_text(text)
    (store / f"{FILE}.bak").unlink()
    [step] = change_set(open_store(store), [Move(HALF_TOPIC, None, 7)]).changes()
    value = parse(step.data.decode())  # type: ignore[union-attr]
    assert value["offsetTable"][KEY.strip('"')] == wanted
    value["offsetTable"].pop(KEY.strip('"'))
    old = parse(text)
    old["offsetTable"].pop(KEY.strip('"'), None)
    assert value == old


def test_a_table_that_is_none_is_not_changed(corpus_store: Callable[[str], Path], tmp_path: Path) -> None:
    store = Path(shutil.copytree(corpus_store("common-5.3.3"), tmp_path / "store"))
    for text in ('{"offsetTable":[]}', "{}", '{"offsetTable":{"a'):
        (store / FILE).write_text(text)
        with pytest.raises(UnsafeStore):
            change_set(open_store(store), [Move(HALF_TOPIC, None, 7)])


def test_the_file_that_the_broker_reads_is_changed(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    """enableLmq, 5.3.2."""
    store, target = corpus_store("lmq-5.3.2"), tmp_path / "target"
    result = rmqtx(
        "cursor", "set", "--half", 80, "--store", store, "--to", target, "--broker-version", "5.3.2", "--yes",
        "--override", "asked-again", "--reason", "a test",
    )
    assert result.status == DONE, result.err
    assert check_cursors(open_store(target)).half == {0: 80}
    before, after = contents(store), contents(target)
    changed = {name for name in before if before[name] != after[name]}
    assert {Path(name).name for name in changed} == {"lmqConsumerOffset.json", "lmqConsumerOffset.json.bak"}


@pytest.mark.parametrize("version", [(), ("--broker-version", "4.9.3")])
def test_cursors_that_the_broker_does_not_read_are_not_set(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path, version: tuple[str, ...]
) -> None:
    """enableLmq, 4.9.3."""
    store, target = corpus_store("lmq-4.9.3"), tmp_path / "target"
    result = rmqtx("cursor", "set", "--half", 60, "--store", store, "--to", target, *version, "--yes")
    assert result.status == REFUSED_BY_GUARD
    assert "broker 4.9.3 does not read" in result.err
    assert not target.exists()


def test_those_that_a_later_stop_takes_out_of_the_check_are_listed(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path
) -> None:
    """The check stops at half 23 and, once that is passed, at 24: the copies 19 to 22 are asked about before only."""
    store, conf = corpus_store("poison-4.4.0"), tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=100000\n")
    settings = ("--broker-version", "4.4.0", "--broker-conf", conf)
    abandon = ("--store", store, "--override", "abandoned", "--reason", "a test", "--format", "jsonl", *settings)
    result = rmqtx("cursor", "set", "--half", 24, "--to", tmp_path / "x", *abandon, "--yes")
    assert result.status == DONE, result.err
    found = result.rows
    kinds = {row["transaction_id"]: (row["kind"], row["state_after"]) for row in found}
    before, after = (
        {row["transaction_id"]: row["next_event"] for row in said.rows}
        for said in (rmqtx("audit", place, *settings, "--format", "jsonl") for place in (store, tmp_path / "x"))
    )
    passed = {one for one, event in before.items() if event == "asked" and after[one] == "stopped"}
    assert {one for one, (kind, _) in kinds.items() if kind == "never-asked"} == passed
    assert {one[-6:] for one, what in kinds.items() if what == ("never-asked", "PENDING")} == {"430004", "430005"}
    assert [what for what in kinds.values() if what[0] != "never-asked"] == [("abandoned", "LOST")]
    assert "with the new cursors the check is stopped at half 24 " in result.err
    further = rmqtx("cursor", "set", "--half", 25, "--to", tmp_path / "y", *abandon, "--dry-run")
    assert {row["kind"] for row in further.rows} == {"abandoned", "taken-up"}
    assert "the check is stopped" not in further.err


def test_decided_ones_that_are_too_old_are_not_asked_about(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    """The check discards them; a longer fileReservedTime would make it ask, so the default alone is not enough."""
    conf = tmp_path / "broker.conf"
    act = ("cursor", "set", "--half", 0, "--store", common, "--to", tmp_path / "x", "--yes", "--format", "jsonl")
    conf.write_text("fileReservedTime=1000000\n")
    asked = rmqtx(*act, "--broker-conf", conf)
    assert asked.status == REFUSED_BY_GUARD
    assert "asked-again" in {row["kind"] for row in asked.rows}
    conf.write_text("fileReservedTime=1\n")
    old = rmqtx(*act, "--broker-conf", conf)
    assert old.status == DONE, old.err
    assert {row["kind"] for row in old.rows} == {"discarded-unasked"}
    found = Effects(old.rows, [])
    assert _is_refused(found, (), has_conf=False)
    assert not _is_refused(found, ("asked-again",), has_conf=False)


@pytest.mark.parametrize("which", ["one file", "all files"])
def test_a_half_whose_record_is_in_a_missing_file_is_not_passed(
    which: str, rmqtx: Run, tmp_path: Path
) -> None:
    """What was in it is unknown: the log is to be found first."""
    store = copy_of("killed-4.3.0", tmp_path / "store")
    files = sorted((store / "commitlog").iterdir())
    for path in files[2:3] if which == "one file" else files:
        path.unlink()
    table = store / FILE
    moved = re.sub(rf'({HALF_TOPIC}@CID_RMQ_SYS_TRANS":{{0:)\d+', r"\g<1>47", table.read_text())  # in the third file
    for path in (table, table.with_name("consumerOffset.json.bak")):
        path.write_text(moved)
    pending = rmqtx("pending", store, "--broker-version", "4.3.0")
    assert pending.status == INCOMPLETE
    assert "rmqtx cursor set" not in pending.err
    assert ("is in a missing file of the log: find that file" in pending.err) == (which == "one file")
    assert ("the check is stopped at half 47" in pending.err) == (which == "one file")
    words = ("cursor", "set", "--half", 48, "--store", store, "--to", tmp_path / "new", "--broker-version", "4.3.0")
    refused = rmqtx(*words, "--reason", "a test", "--yes")
    assert refused.status == REFUSED_BY_GUARD
    assert "refused by abandoned: 1 half slot that the cursor passes" in refused.err
    assert "more transactions may be affected" in refused.err
    allowed = rmqtx(*words, "--override", "abandoned", "--reason", "a test", "--yes")
    assert allowed.status == INCOMPLETE
    assert (tmp_path / "new").exists()
