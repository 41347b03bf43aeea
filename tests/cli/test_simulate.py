"""`rmqtx simulate` as somebody types it."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import AT, PREPARED
from rmqtx.readers.model import exit_status
from rmqtx.readers.old_tables.state_table import STATE_SLOT
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx_cli.words.times import parse_time_ms, time_text
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.field import field_stores
from tests.forge.damage import SLOT_BYTES, flip_byte, log_files, queue_files
from tests.forge.logs import Forge
from tests.forge.records import FIRST_MS
from tests.forge.stores import copy_of, unpacked
from tests.repairs.broker_lock import locked_by_a_broker

NAME = "common-5.3.3"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "orders-5.3.3.tar.xz"
#: Late enough for every half of the store to be checked: its broker's transactionTimeOut is ten minutes.
LATER = "2026-11-21T06:00:00Z"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """The configuration of the store's broker."""
    path = tmp_path / "broker.conf"
    path.write_text(corpus.broker_conf(NAME))
    return path


def test_what_hangs_is_checked_and_given_up_on(rmqtx: Run, common: Path, conf: Path) -> None:
    listed = rmqtx("pending", common, "--all-open", "--format", "jsonl")
    pending = {row["transaction_id"] for row in listed.rows}
    settled = ("--broker-conf", conf, "--at", LATER, "--format", "jsonl")
    first = rmqtx("simulate", common, "--rounds", "1", *settled)
    assert {row["transaction_id"] for row in first.rows} == pending
    assert {row["action"] for row in first.rows} == {"checked", "put back immune"}
    assert "assumed: the broker starts at 2026-11-21T06:00:00.000Z, and no producer answers" in first.err
    assert ": 18 checked, 2 put back immune; half cursor 269 to 289" in first.err
    assert "stops at the copies that it has put back" in first.err
    fates = rmqtx("simulate", common, "--show", "transactions", *settled).rows
    assert {row["transaction_id"] for row in fates} == pending
    for row in fates:
        asked = 0 if row["next_check_time_ms"] is None else 5 - (row["checks_count"] or 0)
        assert (row["end"], row["checks_to_come_count"]) == ("discarded", asked), row


def test_a_changed_setting_beside_the_present_one(rmqtx: Run, common: Path, conf: Path) -> None:
    options = ("--broker-conf", conf, "--at", LATER, "--with", "transactionCheckMax=7", "--format", "jsonl")
    fates = rmqtx("simulate", common, "--show", "transactions", *options).rows
    for now, then in zip(fates[::2], fates[1::2], strict=True):
        assert now["transaction_id"] == then["transaction_id"]
        assert (now["configuration"], then["configuration"]) == ("as is", "transactionCheckMax=7")
        assert then["end_round"] == now["end_round"] + 2
        assert then["written_bytes"] > now["written_bytes"]


def test_cursors_somebody_thinks_of_setting(rmqtx: Run, common: Path, conf: Path) -> None:
    options = ("--broker-conf", conf, "--at", LATER, "--show", "rounds", "--rounds", "1", "--format", "json")
    back = json.loads(rmqtx("simulate", common, "--half-cursor", "0", "--op-cursor", "0", *options).out)[0]
    assert (back["half_cursor_before"], back["op_cursor_before"]) == (0, 0)
    marks = {mark["half_queue_offset"] for row in corpus.expected(NAME) for mark in row["op_marks"]}
    assert back["ended_count"] == len(marks)


@pytest.mark.parametrize("wish", ["transactionCheckMax", "brokerName=x", "transactionCheckMax=many"])
def test_a_setting_that_is_none(rmqtx: Run, common: Path, wish: str) -> None:
    result = rmqtx("simulate", common, "--with", wish)
    assert result.status == exit_status.USAGE
    assert result.err.startswith(f"rmqtx: --with {wish}: ")


def test_unknown_cursors_must_be_given(rmqtx: Run, tmp_path: Path) -> None:
    store = copy_of("fifteen-5.3.3", tmp_path)
    for file in (store / "config").glob("consumerOffset.json*"):
        file.write_text("{")
    result = rmqtx("simulate", store)
    assert result.status == exit_status.UNREADABLE
    assert "--half-cursor N --op-cursor M" in result.err
    assert rmqtx("simulate", store, "--half-cursor", "0", "--op-cursor", "0").status in (
        exit_status.DONE, exit_status.INCOMPLETE,
    )


def test_what_keeps_it_from_being_known(rmqtx: Run, tmp_path: Path) -> None:
    store = copy_of("fifteen-5.3.3", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRole=SLAVE\n")
    assert "a slave does not check" in rmqtx("simulate", store, "--broker-conf", conf).err
    (store / "consumequeue" / HALF_TOPIC).rename(tmp_path / "taken away")
    result = rmqtx("simulate", store)
    assert (result.status, "no half queue" in result.err) == (exit_status.INCOMPLETE, True)
    assert "cursor-beyond-end" in result.err
    (store / "consumequeue" / "CURRENT").write_text("MANIFEST-000001\n")
    result = rmqtx("simulate", store)
    assert (result.status, "the RocksDB database" in result.err) == (exit_status.UNREADABLE, True)


def test_a_half_that_ends_every_round(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    words = ("--show", "transactions", "--at", LATER, "--format", "jsonl")
    result = rmqtx("simulate", corpus_store("poison-4.3.0"), *words)
    assert "every round ends in an exception at half queue offset 23" in result.err
    assert {row["end"] for row in result.rows} == {None}


def test_every_store_of_the_corpus(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    for name in ("killed-4.4.0", "poison-4.3.0", "delayed-4.3.0", "multipath-5.1.4", "masked-5.5.0", "ipv6-4.9.7"):
        for show in ("checks", "rounds", "transactions"):
            result = rmqtx("simulate", corpus_store(name), "--show", show, "--format", "jsonl")
            assert result.status in (exit_status.DONE, exit_status.INCOMPLETE), (name, show, result.err)
            assert all(result.rows)  # each line is an object


def test_the_timer_of_a_state_table(rmqtx: Run) -> None:
    store = unpacked("statetable-recovered-3.1.4")
    first = rmqtx("simulate", store, "--rounds", "2", "--at", LATER, "--format", "jsonl")
    assert first.status == exit_status.DONE
    assert {row["action"] for row in first.rows} == {"asked", "unanswerable"}
    begin_ms = parse_time_ms(LATER)
    assert [row["round_time_ms"] for row in first.rows[::16]] == [begin_ms + 60_000, begin_ms + 120_000]
    assert "round 1 at 2026-11-21T06:01:00.000Z: 13 unanswerable, 3 asked; stops at the end of the table" in first.err
    assert "half cursor" not in first.err
    result = rmqtx("simulate", store, "--show", "transactions", "--at", LATER, "--format", "jsonl")
    fates = result.rows
    assert "16 open slots: 16 checked once in each run, without a limit; every answer about 13 of them" in result.err
    assert {(row["design"], row["end"], row["checks_to_come_count"]) for row in fates} == {("state_table", None, None)}
    assert [row["half_queue_offset"] for row in fates if row["is_answerable"]] == [13, 14, 15]
    switch = ("--with", "checkTransactionMessageEnable=false")
    off = rmqtx("simulate", store, *switch, "--show", "rounds", "--format", "jsonl")
    assert {row["stop"] for row in off.rows} == {"the end of the table", "checkTransactionMessageEnable is false"}
    assert "its check has no cursors" in rmqtx("simulate", store, "--half-cursor", "3").err
    wrong = rmqtx("simulate", store, "--with", "checkTransactionMessageEnable=perhaps")
    assert wrong.status == exit_status.USAGE


def test_nobody_asks_for_prepared_records(rmqtx: Run) -> None:
    result = rmqtx("simulate", unpacked("prepared-4.2.0"))
    assert (result.status, result.out) == (exit_status.DONE, "")
    assert "its prepared records are never checked: brokers from 3.2 on have no check for them" in result.err
    assert "round 1" not in result.err


def test_the_check_of_rocksdb(rmqtx: Run, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
    path = tmp_path / "broker.conf"
    path.write_text(corpus.broker_conf("rocksdb-5.5.0"))
    options = ("--broker-conf", path, "--at", "2026-11-22T06:00:00Z", "--format", "jsonl")
    fates = rmqtx("simulate", unpacked("rocksdb-5.5.0"), "--show", "transactions", *options).rows
    assert {row["end"] for row in fates} == {"dropped"}
    assert all(row["checks_to_come_count"] == 6 - row["checks_count"] for row in fates)
    assert {row["written_bytes"] for row in fates} == {0}
    played = rmqtx("simulate", unpacked("rocksdb-5.5.0"), "--show", "rounds", "--rounds", "6", *options).rows
    assert sum(row["discarded_count"] for row in played) == len(fates)


def test_the_halves_that_a_start_adds_are_those_that_it_asks_about(rmqtx: Run) -> None:
    pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
    result = rmqtx("simulate", unpacked("rocksdb-killed-5.4.0"), "--rounds", "1", "--format", "jsonl")
    assert f"adds {len(result.rows)} half messages of the log" in result.err


def test_a_running_broker_has_halves_that_its_table_does_not_have_yet(rmqtx: Run, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
    store = copy_of("rocksdb-killed-5.4.0", tmp_path)
    with locked_by_a_broker(store):
        result = rmqtx("simulate", store, "--rounds", "1")
    assert "its broker is running: the RocksDB table is as old as its last flush" in result.err


def test_an_act_on_a_clean_store_adds_no_halves_to_the_table(rmqtx: Run, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
    store = copy_of("rocksdb-5.5.0", tmp_path)
    before = rmqtx("simulate", store, "--show", "transactions", "--format", "jsonl").rows
    changed = tmp_path / "changed"
    done = rmqtx(
        "commit", before[0]["transaction_id"], "--store", store, "--broker-version", "5.5.0", "--to", changed,
        "--yes", "--reason", "the application committed it",
    )
    assert done.status == exit_status.DONE, done.err
    result = rmqtx("simulate", changed, "--show", "transactions", "--format", "jsonl")
    assert len(result.rows) == len(before) - 1
    assert "as old as its last flush" not in result.err


@pytest.mark.parametrize("show", ["rounds", "checks", "transactions"])
def test_without_its_table_the_check_of_rocksdb_is_unknown(rmqtx: Run, tmp_path: Path, show: str) -> None:
    store = copy_of("rocksdb-5.5.0", tmp_path)
    shutil.rmtree(store / "rocksdbstore")
    result = rmqtx("simulate", store, "--show", show)
    assert result.status == exit_status.INCOMPLETE
    assert "rmqtx: what the check does is unknown\n" in result.err
    assert "reaches no open half message" not in result.err
    (first, *_) = rmqtx("pending", store, "--format", "jsonl").rows
    page = rmqtx("show", first["transaction_id"], "--store", store).out
    assert "discard unknown: the table of its check was not read" in page


@pytest.mark.parametrize("name", ["rocksdb-5.5.0", "statetable-3.1.4"])
def test_a_broker_without_a_half_queue_that_does_not_start_checks_nothing(
    rmqtx: Run, tmp_path: Path, name: str
) -> None:
    root = copy_of(name, tmp_path)
    for file in ("topics.json", "topics.json.bak"):
        (root / "config" / file).write_bytes(b'{"a":')
    run = rmqtx("simulate", root)
    assert run.status == exit_status.INCOMPLETE
    assert "the broker does not start on this store, so it checks nothing" in run.err


def test_without_the_library_the_check_of_rocksdb_is_not_known(rmqtx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    result = rmqtx("simulate", unpacked("rocksdb-5.5.0"))
    assert (result.status, result.out) == (exit_status.INCOMPLETE, "")
    assert "pip install 'rmqtx[rocksdb]'" in result.err
    assert "what the check does is unknown" in result.err


def test_both_designs_of_one_store(rmqtx: Run) -> None:
    pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
    result = rmqtx(
        "simulate", unpacked("rocksdb-both-5.5.0"), "--at", "2026-11-22T06:00:00Z", "--show", "rounds", "--rounds", "1",
        "--format", "jsonl",
    )
    seen = {row["design"]: row for row in result.rows}
    assert seen["half_topic"]["half_cursor"] == seen["half_topic"]["half_end"] > 0
    assert (seen["rocksdb"]["half_cursor"], seen["rocksdb"]["checked_count"]) == (None, 1)


def test_a_table_that_cannot_be_made_anew_is_not_known(rmqtx: Run, tmp_path: Path) -> None:
    store = copy_of("statetable-killed-3.1.4", tmp_path)
    shutil.rmtree(store / "transaction" / "redolog")
    result = rmqtx("simulate", store)
    assert (result.status, result.out) == (exit_status.INCOMPLETE, "")
    assert "table-lost" in result.err


@pytest.mark.parametrize("name", ["busystop-4.3.0", "propcrc-5.3.3"])
def test_a_time_that_no_clock_says(rmqtx: Run, tmp_path: Path, name: str) -> None:
    """The birth of an open half, or one that only its property CRC contradicts: it was given up on in another way."""
    store = copy_of(name, tmp_path)
    before = rmqtx("simulate", store, "--show", "transactions", "--format", "jsonl")
    assert before.status == exit_status.DONE
    identity = before.rows[0]["transaction_id"]
    [row] = rmqtx("show", identity, "--store", store, "--format", "jsonl").rows
    byte = 1 if name == "busystop-4.3.0" else 6
    flip_byte(log_files(store)[0], row["half_copies"][-1]["commit_log_offset"] + AT["born_time_ms"] + byte, 0x50)
    result = rmqtx("simulate", store)
    assert result.status == exit_status.INCOMPLETE


@pytest.mark.parametrize("name", ["statetable-recovered-3.1.4", "statetable-lossy-3.1.4"])
def test_an_open_slot_that_leads_to_another_record(rmqtx: Run, tmp_path: Path, name: str) -> None:
    """Its place is zero: another transaction was asked for than the slot's, with status 0."""
    store = copy_of(name, tmp_path)
    before = rmqtx("simulate", store)
    assert (before.status, "slot of the state table" in before.err) == (exit_status.DONE, False)
    file = min((store / "transaction" / "statetable").iterdir())
    data = file.read_bytes()
    places = [place for place in range(0, len(data), STATE_SLOT.size_bytes)
              if data[place + STATE_SLOT.size_bytes - 1] == PREPARED and any(data[place : place + 8])]
    file.write_bytes(data[: places[0]] + bytes(8) + data[places[0] + 8 :])
    result = rmqtx("simulate", store)
    assert result.status == exit_status.INCOMPLETE
    assert "a slot of the state table that contradicts its record" in result.err


def test_a_port_that_none_is_of_an_open_record(rmqtx: Run, tmp_path: Path) -> None:
    """Host and place are the id of a record without UNIQ_KEY: another transaction was asked for, with status 0."""
    store = copy_of("statetable-recovered-3.1.4", tmp_path)
    table = min((store / "transaction" / "statetable").iterdir()).read_bytes()
    slots = [table[at : at + STATE_SLOT.size_bytes] for at in range(0, len(table), STATE_SLOT.size_bytes)]
    place = next(int.from_bytes(slot[:8], "big") for slot in slots if slot[-1] == PREPARED and any(slot[:8]))
    file = store / "commitlog" / f"{0:020}"
    data = bytearray(file.read_bytes())
    data[place + AT["store_address"] + 4 : place + AT["store_address"] + 8] = b"\x00\xe1\x2a\xb3"
    file.write_bytes(data)
    result = rmqtx("simulate", store)
    assert result.status == exit_status.INCOMPLETE
    assert "a port from 0 to 65535" in result.err


def test_records_that_a_table_names_and_the_log_has_not(rmqtx: Run, tmp_path: Path) -> None:
    store = copy_of("statetable-3.1.4", tmp_path)
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").mkdir()
    played = rmqtx("simulate", store, "--rounds", "1", "--format", "jsonl").rows
    assert {(row["action"], row["transaction_id"]) for row in played} == {("unreadable", None)}
    fates = rmqtx("simulate", store, "--show", "transactions", "--format", "jsonl").rows
    assert {(row["checks_to_come_count"], row["next_check_time_ms"], row["is_answerable"]) for row in fates} == {
        (0, None, False)
    }


@pytest.mark.parametrize("name", ["busystop-5.3.3", "rocksdb-5.4.0", "statetable-3.1.4"])
def test_a_destroyed_log_is_no_log_with_nothing_to_do(rmqtx: Run, tmp_path: Path, name: str) -> None:
    store = copy_of(name, tmp_path)
    (segment,) = log_files(store)
    segment.write_bytes(bytes(segment.stat().st_size))
    result = rmqtx("simulate", store, "--show", "transactions", "--format", "jsonl")
    assert result.status == exit_status.INCOMPLETE
    # The start of 5.3.3 cuts the queues, so no slot is left without its record.
    assert ": no record of their own" in result.err or "log-missing" in result.err


def test_a_lost_log_before_a_file_of_zeros_is_not_an_expired_one(rmqtx: Run, tmp_path: Path) -> None:
    """The next file of the log was made ahead: the halves seemed to have expired, and the check to do nothing."""
    root = copy_of("opslost-5.3.3", tmp_path)
    first, second = log_files(root)
    assert not any(second.read_bytes())
    first.unlink()
    result = rmqtx("simulate", root, "--at", "2026-12-01T00:00:00Z")
    assert (result.status, "log-missing" in result.err) == (exit_status.INCOMPLETE, True)


@pytest.mark.parametrize("is_longer", [True, False])
def test_a_slot_of_another_length(is_longer: bool, rmqtx: Run, tmp_path: Path) -> None:
    """A broker decodes a record by its own length: it reads one that is shorter than the slot, but none that is longer.
    """
    store = copy_of("busystop-5.3.3", tmp_path)
    words = ("simulate", store, "--show", "transactions", "--at", "2026-12-01T00:00:00Z", "--format", "jsonl")
    whole = rmqtx(*words).rows
    number = whole[-1]["half_queue_offset"]
    (queue,) = queue_files(store, HALF_TOPIC)
    length = int.from_bytes(queue.read_bytes()[number * SLOT_BYTES + 8 :][:4], "big")
    other = length + 1 if is_longer else length - 1
    flip_byte(queue, number * SLOT_BYTES + 11, (length ^ other) & 0xFF)
    result = rmqtx(*words)
    assert result.status == exit_status.INCOMPLETE
    assert (result.rows == whole) is is_longer
    assert (f"1 slots of {HALF_TOPIC}/0, the first number {number}" in result.err) is not is_longer


def test_an_id_that_the_index_contradicts(rmqtx: Run, tmp_path: Path) -> None:
    """One byte of the UNIQ_KEY of the only copy of a half: a transaction that never was seemed to expire, status 0."""
    root = copy_of("cursoredited-4.3.0", tmp_path)
    found = rmqtx("simulate", root, "--show", "transactions", "--at", "2026-12-01T00:00:00Z", "--format", "jsonl",
                       "--quiet").rows
    ids = [row["transaction_id"] for row in found]
    lone = [row for row in found if ids.count(row["transaction_id"]) == 1][-1]
    [file] = log_files(root)
    begin = lone["commit_log_offset"]
    flip_byte(file, file.read_bytes().index(lone["transaction_id"].encode(), begin) + 23, 1)
    data = file.read_bytes()
    file.write_bytes(data[:begin])  # the second file of the log begins with it
    file.with_name(f"{begin:020}").write_bytes(data[begin : 2 * begin])
    result = rmqtx("simulate", root, "--show", "transactions", "--at", "2026-12-01T00:00:00Z", "--format", "jsonl")
    assert result.status == exit_status.INCOMPLETE
    assert result.err.count("words-contradict") == 1


def test_a_last_slot_that_cannot_be(rmqtx: Run, tmp_path: Path) -> None:
    """The queue seemed to end before it, and its half was not asked for, status 0."""
    root = copy_of("codecs-5.5.0", tmp_path)
    with open_queue(open_store(root), HALF_TOPIC, 0) as queue:
        last = queue.max_offset - 1
    [file] = queue_files(root, HALF_TOPIC)
    data = file.read_bytes()
    file.write_bytes(data[: last * SLOT_BYTES] + b"\xff" * 8 + data[last * SLOT_BYTES + 8 :])
    result = rmqtx("simulate", root, "--show", "transactions", "--format", "jsonl")
    assert (result.status, "slot-invalid" in result.err) == (exit_status.INCOMPLETE, True)


def test_the_rounds_of_a_running_broker_whose_check_is_stopped_are_those_after_a_restart(
    rmqtx: Run, tmp_path: Path
) -> None:
    with tarfile.open(EXAMPLE) as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "store"
    (store / "abort").touch()
    with locked_by_a_broker(store):
        result = rmqtx("simulate", store, "--rounds", "1")
    assert "the check does not move on" in result.err
    assert "the running broker checks nothing; the rounds are those after its restart" in result.err


def test_a_half_that_names_no_producer_is_put_back_unasked(rmqtx: Run, tmp_path: Path) -> None:
    """Its properties are torn: `pending` reported that, `simulate` called it checked and had status 0."""
    root = field_stores("torn-props-middle", tmp_path) / "store"
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=1000000\n")  # none of them is too old, whenever the test runs
    settings = ("--broker-version", "4.9.7", "--broker-conf", conf, "--format", "jsonl")
    result = rmqtx("simulate", root, "--rounds", "1", *settings)
    assert Counter(row["action"] for row in result.rows) == {"checked": 3, "put back unasked": 1}
    assert result.status == exit_status.INCOMPLETE
    assert "half-unreadable" in result.err
    assert "3 checked, 1 put back unasked" in result.err
    [played] = rmqtx("simulate", root, "--rounds", "1", "--show", "rounds", *settings).rows
    assert (played["checked_count"], played["unasked_count"]) == (3, 1)


def test_a_default_maximum_of_checks_that_a_copy_refutes_discards_nothing(rmqtx: Run, tmp_path: Path) -> None:
    """A copy with 18 checks: with transactionCheckMax=15 the check had discarded it and not put it back."""
    forge = Forge(tmp_path / "store")
    forge.half("A", checks=18)
    forge.half("B", checks=3)
    root = forge.write()
    at = ("--at", time_text(FIRST_MS + 600_000))
    listed = rmqtx("pending", root, *at, "--format", "jsonl").rows
    found = {row["transaction_id"]: (row["advice"], row["discard_at_ms"], row["next_event"]) for row in listed}
    assert found == {"A": ("wait", None, "unknown"), "B": ("wait", None, "asked")}
    assert "a half copy has 18 checks, more than transactionCheckMax 15" in rmqtx("show", "A", "--store", root, *at).out
    simulated = rmqtx("simulate", root, "--rounds", "1", *at)
    assert (simulated.status, "check-max-unknown" in simulated.err) == (exit_status.INCOMPLETE, True)
    assert "expected at most 15 checks (the default), found a half copy with 18 checks" in simulated.err
    assert "state" not in simulated.err.split("check-max-unknown")[1]
    conf = tmp_path / "broker.conf"
    conf.write_text("transactionCheckMax=20\n")
    known = rmqtx("pending", root, *at, "--broker-conf", conf, "--format", "jsonl").rows
    assert all(row["discard_at_ms"] is not None for row in known)


def test_the_last_line_counts_the_rounds_that_were_played(rmqtx: Run, corpus_store: Callable[[str], Path]) -> None:
    """Also those in which nothing was done."""
    result = rmqtx("simulate", corpus_store("common-5.3.3"), "--rounds", "3")
    assert "round 3 at" in result.err
    assert "3 rounds: 20 expired" in result.err
