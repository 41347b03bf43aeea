"""An audit that follows says at every moment what an audit of the whole store says then."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import COMMIT
from rmqtx.readers.model.errors import BadRequest, FileChanged, SourceError, UnwritableFile
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store, open_store
from rmqtx.verdicts.follow.checkpoint_db import FORMAT_VERSION, FollowDatabase
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import copy_of, settings_of, unpacked
from tests.representatives import one_of_each_design, rest_is_slow
from tests.spark.growing import Growing
from tests.verdicts.following import Followed

NAMES = (
    "busystop-4.4.0", "busystop-5.5.0", "common-4.9.7", "cursorback-5.3.3", "cursoredited-4.3.0", "delayed-5.1.4",
    "fifteen-4.3.0", "ipv6-5.1.4", "killed-5.3.3", "masked-4.9.7", "masked-5.3.3", "multipath-4.9.7", "poison-4.3.0",
)
#: As far as the log tells: a table beside it is that of the end all along.
OTHER_DESIGNS = [
    name for design in ("state_table", "prepared_records", "rocksdb") for name in corpus.corpus_names(design=design)
]


def by_default(store: Store) -> BrokerSettings:
    return broker_settings(store, version="5.3.3")


def set_cursors(root: Path, half: int | None, op: int) -> None:
    group = CHECK_GROUP
    text = "{}" if half is None else f'{{"{HALF_TOPIC}@{group}":{{0:{half}}},"{OP_TOPIC}@{group}":{{0:{op}}}}}'
    (root / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{text}}}')


@pytest.mark.parametrize("name", rest_is_slow(NAMES, quick=3))
def test_a_real_store_that_grows(name: str, tmp_path: Path) -> None:
    growing = Growing(unpacked(name), tmp_path / "copy")
    cursors = growing.root / "config" / "consumerOffset.json"
    final = cursors.read_bytes()
    followed = Followed([growing.root], tmp_path / "checkpoint", settings_of(name))
    chance = random.Random(name)
    moments = growing.moments(5, chance.randrange(100))
    for moment in moments:
        growing.write_to(moment)
        set_cursors(growing.root, chance.randrange(40) if moment != moments[0] else None, chance.randrange(10))
        if moment == moments[-1]:
            cursors.write_bytes(final)
        followed.assert_current(chance.choice([1, 5, 1000]))
        followed.restart()
    assert followed.assert_current().num_rows > 0
    assert (followed.last.new_count, followed.last.changed_count, followed.last.has_grown) == (0, 0, False)


@pytest.mark.parametrize("name", one_of_each_design(OTHER_DESIGNS))
def test_a_store_of_another_design_that_grows(name: str, tmp_path: Path) -> None:
    growing = Growing(unpacked(name), tmp_path / "copy")
    followed = Followed([growing.root], tmp_path / "checkpoint", settings_of(name))
    for moment in growing.moments(5, 7):
        growing.write_to(moment)
        followed.assert_current(5)
        followed.restart()
    assert followed.assert_current().num_rows > 0
    assert (followed.last.new_count, followed.last.changed_count, followed.last.has_grown) == (0, 0, False)


def forge_final(forge: Forge, half: int, name: str) -> Message:
    """A COMMIT record that names a half copy and bears another id."""
    properties = (("REAL_TOPIC", "orders"), ("UNIQ_KEY", name), ("PGROUP", "shop"), ("TRAN_MSG", "true"))
    return Message(topic="orders", properties=properties, sys_flag=COMMIT, prepared_transaction_offset=half)


#: Enough for nine files of the log, where only their number matters.
FEW_HALVES = 20


def rolling(root: Path, seed: int = 0, halves: int = 50) -> Path:
    """Histories of every kind over many small files, put together at random."""
    forge, chance = Forge(root, segment_bytes=2048), random.Random(seed)
    places: list[int] = []
    for number in range(halves):
        places.append(forge.half(f"T{number:014d}"))
        for _ in range(3):
            one, old = chance.choice(places), f"T{chance.randrange(number + 1):014d}"
            kind = chance.choice(["op", "ops", "commit", "discard", "copy", "other group", "stranger", "outside"])
            if kind == "op":
                forge.op(one)
            elif kind == "ops":
                forge.op(*chance.sample(places, min(3, len(places))))
            elif kind == "commit":
                forge.commit(one)
            elif kind == "copy":
                places.append(forge.half(old, checks=1))
            elif kind == "other group":  # one id, two transactions
                places.append(forge.half(old, group="other"))
            elif kind == "stranger":  # a final with another id than its copy's: they are judged together
                forge.append(forge_final(forge, one, f"S{number:014d}"))
            elif kind == "outside":  # the decision's op hides the half with the discard copy's queue offset
                copy = forge.discard(one)
                forge.commit(copy)
                forge.op(copy)
            else:
                forge.discard(one)
    forge.write(half_cursor=halves // 2, op_cursor=3)
    assert len(open_store(root).commit_log) > 8
    return root


def follow_growth(growing: Growing, followed: Followed, seed: int, count: int = 8) -> None:
    chance = random.Random(seed)
    for moment in growing.moments(count, seed):
        growing.write_to(moment)
        set_cursors(growing.root, chance.choice([0, 10, 30, None]), chance.randrange(6))
        if followed.used_at_ms is not None:
            followed.used_at_ms += chance.choice([0, 5000, 90_000])
        followed.assert_current(chance.choice([1, 7, 1000]))
        if chance.random() < 0.3:
            followed.restart()


@pytest.mark.parametrize("seed", rest_is_slow(range(4), quick=1, slow=1))
def test_histories_over_many_files(seed: int, tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole", seed), tmp_path / "copy")
    followed = Followed([growing.root], tmp_path / "checkpoint", by_default)
    follow_growth(growing, followed, seed)
    # what only several steps together can know was there
    count = followed.database.connection.execute
    assert count("SELECT count(*) FROM ties").fetchone()[0] > 1
    assert len(followed.database.of_store(0, "view")["foreign"]) > 1


@pytest.mark.parametrize("seed", rest_is_slow(range(2), quick=0, slow=1))
def test_while_its_broker_runs_time_alone_changes_verdicts(seed: int, tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole", seed), tmp_path / "copy")
    used = open_store(growing.whole).taken_time_ms
    followed = Followed([growing.root], tmp_path / "checkpoint", by_default, used_at_ms=used)
    follow_growth(growing, followed, seed)


def test_a_flag_that_comes_with_time_is_told(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "s")
    forge.half("waiting")
    forge.write()
    followed = Followed([forge.root], tmp_path / "checkpoint", by_default, used_at_ms=forge.now_ms)
    followed.assert_current()
    followed.used_at_ms = forge.now_ms + 3_600_000
    assert followed.assert_current()["flags"].to_pylist()[0] == ["stalled", "never_checked"]
    assert (followed.last.new_count, followed.last.changed_count) == (0, 1)


def test_of_a_stopped_broker_the_clock_alone_ends_immunity(tmp_path: Path) -> None:
    name = "common-5.3.3"
    rows = Followed([unpacked(name)], tmp_path / "first", settings_of(name)).assert_current().to_pylist()
    stopped_ms = max(copy["store_time_ms"] for row in rows for copy in row["half_copies"])
    followed = Followed([unpacked(name)], tmp_path / "second", settings_of(name), opened_at_ms=stopped_ms)
    for later_ms, changed, immune in ((0, 0, 2), (1000, 0, 2), (3_700_000, 2, 0), (3_800_000, 0, 0), (1000, 2, 2)):
        followed.opened_at_ms = stopped_ms + later_ms
        flags = followed.assert_current()["flags"].to_pylist()
        assert (followed.last.changed_count, sum("immune" in of for of in flags)) == (changed, immune)


@pytest.mark.usefixtures("at_the_real_moment")
def test_of_a_stopped_broker_the_clock_alone_brings_what_is_pending_near_its_end(tmp_path: Path) -> None:
    name = "common-5.3.3"
    rows = Followed([unpacked(name)], tmp_path / "first", settings_of(name)).assert_current().to_pylist()
    pending = sorted(row["born_time_ms"] for row in rows if row["state"] == "PENDING")
    near_ms = (int(corpus.recipe(name)["broker_conf"]["fileReservedTime"]) - 6) * 3_600_000
    followed = Followed([unpacked(name)], tmp_path / "second", settings_of(name), opened_at_ms=pending[0] + near_ms)
    for reached_ms in (pending[0], pending[0] + 1, pending[-1], pending[-1] + near_ms):
        followed.opened_at_ms = reached_ms + near_ms
        flags = followed.assert_current()["flags"].to_pylist()
        near = [of for of in flags if {"expires_soon", "expired"} & set(of)]
        assert len(near) == sum(born_ms < reached_ms for born_ms in pending)


@pytest.mark.parametrize("seed", rest_is_slow(range(6), quick=0, slow=1))
def test_damage_says_the_same_whenever_it_is_met(seed: int, tmp_path: Path) -> None:
    root, chance = rolling(tmp_path / "whole", seed), random.Random(seed)
    for file in chance.sample(damage.log_files(root), 2):
        position, length = chance.choice(damage.records_in(file))
        if seed % 2:
            damage.flip_byte(file, position + chance.randrange(length))
        else:
            damage.write_bytes(file, position + chance.randrange(length), b"\xff" * chance.randrange(1, 300))
    growing = Growing(root, tmp_path / "copy")
    follow_growth(growing, Followed([growing.root], tmp_path / "checkpoint", by_default), seed)


@pytest.mark.parametrize("seed", rest_is_slow(range(2), quick=1))
def test_queues_that_come_later_than_the_log(seed: int, tmp_path: Path) -> None:
    root, chance = rolling(tmp_path / "whole", seed), random.Random(seed)
    for file in damage.queue_files(root, "RMQ_SYS_TRANS*"):
        damage.flip_byte(file, 20 * chance.randrange(20) + 6)  # a slot that points elsewhere
    growing = Growing(root, tmp_path / "copy")
    followed = Followed([growing.root], tmp_path / "checkpoint", by_default)
    files = damage.queue_files(growing.root)
    whole = {file: file.read_bytes() for file in files}
    for moment in growing.moments(10, seed):
        growing.write_to(moment)
        for file, data in whole.items():
            written = [at for at in range(0, len(data), 20) if data[at : at + 20].strip(b"\0")]
            shown = 20 * sum(int.from_bytes(data[at : at + 8], "big") < moment for at in written)
            file.write_bytes(data[: max(0, shown - 20 * chance.randrange(3))].ljust(len(data), b"\0"))
        followed.step()
    for file, data in whole.items():
        file.write_bytes(data)
    followed.assert_current()


@pytest.mark.slow
def test_what_expired_is_forgotten(tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole", 1), tmp_path / "copy")
    followed = Followed([growing.root], tmp_path / "checkpoint", by_default)
    gone = 0
    for number, moment in enumerate(growing.moments(14, 5)):
        growing.write_to(moment)
        files = damage.log_files(growing.root)
        for file in files[: max(0, min(number // 2, len(files) - 1))]:
            file.unlink()
        followed.assert_current()
        gone += followed.last.gone_count
    assert gone > 5
    files = damage.log_files(growing.root)
    files[len(files) // 2].unlink()  # a hole in the middle
    followed.assert_current()
    assert any(finding.code == "segment-gap" for finding in followed.last.findings)


def test_it_was_away_while_files_expired(tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole", 2, halves=FEW_HALVES), tmp_path / "copy")
    followed = Followed([growing.root], tmp_path / "checkpoint", by_default)
    growing.write_to(3000)
    followed.assert_current()
    growing.write_to(growing.end)
    for file in damage.log_files(growing.root)[:5]:
        file.unlink()
    assert followed.assert_current().num_rows
    assert followed.last.bytes_forgotten


def test_stores_of_one_cluster_are_one_audit(tmp_path: Path) -> None:
    growing = [Growing(unpacked(name), tmp_path / name) for name in ("common-5.1.4", "masked-5.1.4")]
    twin = Growing(unpacked("masked-5.1.4"), tmp_path / "twin")
    stores = [*growing, twin]
    followed = Followed([one.root for one in stores], tmp_path / "checkpoint", settings_of("common-5.1.4"))
    moments = [one.moments(4, seed) for seed, one in enumerate(stores)]
    for step in range(4):
        for one, its in zip(stores, moments, strict=True):
            one.write_to(its[step])
        followed.assert_current()
    rows = followed.assert_current().to_pylist()
    assert any(len({copy["store"] for copy in row["half_copies"]}) > 1 for row in rows)


def test_a_wrong_slot_that_comes_late_is_known_once(tmp_path: Path) -> None:
    root = rolling(tmp_path / "s", 3)
    followed = Followed([root], tmp_path / "checkpoint", by_default)
    (file,) = damage.queue_files(root, HALF_TOPIC)
    whole = bytearray(file.read_bytes())
    whole[20 * 30 + 7] ^= 0xFF
    file.write_bytes(whole[: 20 * 25].ljust(len(whole), b"\0"))
    followed.assert_current()
    file.write_bytes(whole)
    for _ in range(3):
        followed.assert_current()
        said = followed.database.connection.execute("SELECT said FROM segments").fetchall()
        assert sum(len(json.loads(text)["unfound"]) for (text,) in said) == 1


def test_a_disk_that_is_full_ends_it_and_loses_nothing(tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole"), tmp_path / "copy")
    followed = Followed([growing.root], tmp_path / "checkpoint", by_default)
    growing.write_to(3000)
    followed.assert_current()
    run = followed.database.connection.execute
    run(f"PRAGMA max_page_count = {run('PRAGMA page_count').fetchone()[0]}")
    growing.write_to(growing.end)
    with pytest.raises(UnwritableFile, match=r"cannot use .*checkpoint: database or disk is full"):
        followed.step()
    run("PRAGMA max_page_count = 1000000")
    followed.assert_current()


# -- what must not be followed ----------------------------------------------------------------------------------------


def test_a_log_that_was_cut_back_is_refused(tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole", halves=FEW_HALVES), tmp_path / "copy")
    followed = Followed([growing.root], tmp_path / "checkpoint", by_default)
    growing.write_to(7000)
    followed.assert_current()
    before = followed.kept()
    growing.write_to(6000)
    for _ in range(2):
        with pytest.raises(FileChanged, match=r"a recovery cut it, or it was replaced.*remove .*checkpoint"):
            followed.step()
    assert followed.kept() == before


def test_another_store_in_its_place_is_refused(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "s")
    followed = Followed([root], tmp_path / "checkpoint", by_default)
    followed.assert_current()
    other = Forge(tmp_path / "s", segment_bytes=damage.log_files(root)[0].stat().st_size)
    for file in damage.log_files(root):
        file.unlink()
    other.half("another")
    other.write()
    with pytest.raises(FileChanged, match="is not the log that was read"):
        followed.step()


def test_a_read_file_of_another_length_is_refused(tmp_path: Path) -> None:
    root = rolling(tmp_path / "s", halves=FEW_HALVES)
    followed = Followed([root], tmp_path / "checkpoint", by_default)
    followed.assert_current()
    damage.truncate(damage.log_files(root)[2], 1000)
    with pytest.raises(FileChanged, match="had 2048 bytes when it was read and has 1000"):
        followed.step()


def test_a_file_that_cannot_be_read_ends_it_and_is_read_later(tmp_path: Path) -> None:
    growing = Growing(rolling(tmp_path / "whole", halves=FEW_HALVES), tmp_path / "copy")
    followed = Followed([growing.root], tmp_path / "checkpoint", by_default)
    growing.write_to(9000)
    followed.assert_current()
    growing.write_to(growing.end)
    stores = followed.stores()
    damage.log_files(growing.root)[-2].rename(tmp_path / "away")
    with pytest.raises(SourceError):
        followed.step(stores=stores)
    (tmp_path / "away").rename(stores[0].commit_log[-2].file)
    followed.assert_current()


@pytest.mark.parametrize("content", [b"not a database at all, but longer than a header of one" * 40, b"x"])
def test_a_file_that_is_none_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(BadRequest, match="is not a checkpoint"):
        FollowDatabase(str(path), [open_store(unpacked("poison-4.3.0"))])
    assert path.read_bytes() == content


def test_another_form_has_another_number(tmp_path: Path) -> None:
    database = FollowDatabase(str(tmp_path / "checkpoint"), [open_store(unpacked("poison-4.3.0"))])
    tables = [text for (text,) in database.connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    database.close()
    form = zlib.crc32("\n".join(sorted(tables)).encode())
    said = "the tables in the file changed: raise FORMAT_VERSION, then write both here"
    assert (FORMAT_VERSION, form) == (11, 59_277_488), said


def test_other_stores_other_forms_and_other_followers_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    mine, other = ([open_store(unpacked(name))] for name in ("poison-4.3.0", "common-5.1.4"))
    database = FollowDatabase(path, mine)
    with pytest.raises(BadRequest, match="is in use"):
        FollowDatabase(path, mine)
    database.connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    database.close()
    with pytest.raises(BadRequest, match=f"has checkpoint format {FORMAT_VERSION + 1}"):
        FollowDatabase(path, mine)
    fresh = str(tmp_path / "fresh")
    FollowDatabase(fresh, mine).close()
    with pytest.raises(BadRequest, match=r"is a checkpoint of .*poison.*, not of .*common"):
        FollowDatabase(fresh, other)
