"""New stores from damaged, misnamed and loose files: what is sound is there, and a broker walks over the rest."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtx.readers.cursors import read_cursors
from rmqtx.readers.model.errors import BadRequest, NotAStore, UnreadableFile
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.repairs.records.fillers import FILLER_BYTES_MAX, FILLER_BYTES_MIN, FillerModel, Lost, filled
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.repairs.salvage.salvage import Salvaged, salvage
from rmqtx.repairs.salvage.scan_for_records import FoundRuns, SalvageSource
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx_cli.main import status_of
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.stores import contents, copy_of, settings_of, unpacked
from tests.repairs.test_rebuild import files_below
from tests.representatives import rest_is_slow

BLANK = b"\xcb\xd4\x31\x94"
SEGMENT = 1 << 18


def salvaged(root: Path, target: Path, *paths: Path) -> Salvaged:
    """What comes of some files, with the sizes and the configuration of a store."""
    store = open_store(root)
    result = salvage(
        list(paths) or [root], target, store_sizes(store), config=root / "config", old_store=None if paths else store
    )
    for part in result.coverage:
        assert part.unread_bytes == 0
        assert min(part.decoded_bytes, part.filler_bytes, part.damaged_bytes) >= 0
    return result


def states(root: Path) -> dict[str, tuple[str, str]]:
    rows = audit([open_store(root)], broker_settings).table().to_pylist()
    return {row["transaction_id"]: (row["state"], ",".join(row["flags"])) for row in rows}


def assert_walked(root: Path) -> None:
    """A broker's recovery comes from the first record of every segment to its blank record, or the last one's end."""
    files = damage.log_files(root)
    for file in files:
        data = file.read_bytes()
        position = 0
        assert data[4:7] == b"\xda\xa3\x20"
        while data[position + 4 : position + 7] == b"\xda\xa3\x20":
            assert int.from_bytes(data[position + 28 : position + 36], "big") == int(file.name) + position
            position += int.from_bytes(data[position : position + 4], "big")
        if file is files[-1] and not data[position:].strip(b"\0"):
            return
        assert data[position + 4 : position + 8] == BLANK
        assert int.from_bytes(data[position : position + 4], "big") == len(data) - position


@pytest.mark.parametrize(
    "name",
    rest_is_slow([
        "common-4.3.0", "killed-5.5.0", "batchcq-5.3.3", "ipv6-5.1.4", "killed-4.9.7", "common-5.3.3", "propcrc-5.3.3",
    ], quick=4),
)
def test_a_whole_store_comes_out_as_it_was(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    salvaged(root, tmp_path / "new")
    parts = ("commitlog", "consumequeue", "batchconsumequeue", "config")
    before = {place: data for place, data in files_below(root, *parts).items() if data.strip(b"\0")}
    assert files_below(tmp_path / "new", *parts) == before
    assert_walked(tmp_path / "new")
    assert states(tmp_path / "new") == states(root)
    assert status_of(["verify", str(tmp_path / "new"), "--quiet", "-o", str(tmp_path / "f.jsonl")]) == 0


def damaged(root: Path) -> int:
    """Damage of several kinds in the only segment of a store; gives how many records it hit."""
    (log,) = damage.log_files(root)
    records = damage.records_in(log)
    damage.zero_bytes(log, 0, records[2][0] + 3)
    damage.zero_bytes(log, records[40][0], sum(length for _, length in records[40:60]))
    data = log.read_bytes()
    with_body = next(place for place, _ in records[100:] if int.from_bytes(data[place + 84 : place + 88], "big") > 20)
    damage.flip_byte(log, with_body + 95)
    damage.flip_byte(log, records[200][0] + 2)
    damage.write_bytes(log, records[300][0] + 10, b"\xff" * 700)
    hit = sum(1 for position, length in records[300:] if position < records[300][0] + 710)
    return 3 + 20 + 2 + hit


@pytest.mark.parametrize("name", ["common-4.3.0", "common-4.9.7", "common-5.3.3", "common-5.5.0"])
def test_holes_are_filled_and_nothing_else_is_lost(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    before = files_below(root, "consumequeue")
    (log,) = damage.log_files(root)
    whole = damage.records_in(log)
    lost = damaged(root)
    result = salvaged(root, tmp_path / "new")
    assert result.records_count == len(whole) - lost
    assert result.lost_numbers_count == result.placeholders_count == lost
    assert result.chosen.left_out_count == 1
    assert_walked(tmp_path / "new")
    after = files_below(tmp_path / "new", "consumequeue")
    slots = {
        (name, place): (data[place : place + 20], after[name][place : place + 20])
        for name, data in before.items()
        for place in range(0, len(data), 20)
    }
    changed = [pair for pair in slots.values() if pair[0] != pair[1]]
    assert len(changed) <= lost
    assert all(int.from_bytes(one[8:12], "big") and int.from_bytes(other[8:12], "big") for one, other in changed)


@pytest.mark.parametrize("name", ["common-4.9.7", "common-5.3.3", "killed-5.1.4"])
def test_the_audit_says_nothing_else_than_of_the_damaged_store(name: str, tmp_path: Path) -> None:
    """Queues and index that are made anew know less of what a hole hid: a verdict may open, and none may close."""
    root = copy_of(name, tmp_path)
    chance = random.Random(name)
    for log in damage.log_files(root):
        records = damage.records_in(log)
        for position, length in chance.sample(records, len(records) // 20):
            damage.zero_bytes(log, position, length)
    salvaged(root, tmp_path / "new")
    assert_walked(tmp_path / "new")
    before, after = states(root), states(tmp_path / "new")
    assert after.keys() == before.keys()
    for identity, (state, _) in after.items():
        assert state in (before[identity][0], "UNDECIDABLE"), f"{identity}: {before[identity]} -> {state}"
    # what verify tells is what was lost, and that its fillers are no evidence
    assert status_of(["verify", str(tmp_path / "new"), "--quiet", "-o", str(tmp_path / "f.jsonl")]) == 1
    codes = {line.split('"code":"')[1].split('"')[0] for line in (tmp_path / "f.jsonl").read_text().splitlines()}
    assert codes <= {
        "record-damaged", "group-cursor-beyond-end", "op-beyond-end", "store-time-backwards", "start-deletes-index",
    }


def test_from_the_image_of_a_disk(tmp_path: Path) -> None:
    root = copy_of("killed-5.5.0", tmp_path)
    chance = random.Random(7)
    logs = damage.log_files(root)
    pieces = [log.read_bytes() for log in logs]
    chance.shuffle(pieces)
    image = tmp_path / "disk.img"
    image.write_bytes(b"".join(chance.randbytes(4096 * chance.randint(0, 3)) + piece for piece in pieces) + b"end")
    result = salvaged(root, tmp_path / "new", image)
    before = {place: data for place, data in files_below(root, "commitlog").items() if data.strip(b"\0")}
    assert files_below(tmp_path / "new", "commitlog") == before
    assert result.coverage[0].damaged_bytes > 0
    assert result.coverage[0].decoded_bytes == result.end_offset - sum(
        len(data) - position for data, position in ((data, _blank_at(data)) for data in before.values()) if position
    )


def _blank_at(data: bytes) -> int:
    """Where a segment's blank record begins; 0 if there is none."""
    place = data.rfind(BLANK)
    return max(0, place - 4)


def test_how_long_segments_are_is_known_from_their_blank_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_of("killed-5.5.0", tmp_path)
    logs = damage.log_files(root)
    image, loose = tmp_path / "disk.img", tmp_path / "loose"
    image.write_bytes(b"".join(b"\xee" * 700 + log.read_bytes() for log in reversed(logs)))
    loose.write_bytes(logs[3].read_bytes())  # its end is four segments from the log's begin
    before = files_below(root, "commitlog")
    for source in (image, loose):
        assert status_of(["salvage", str(source), "--to", str(tmp_path / f"new-{source.stem}")]) == 0
        assert "log files of 16.0 KiB" in capsys.readouterr().err
    whole = {place: data for place, data in before.items() if data.strip(b"\0")}
    assert files_below(tmp_path / "new-disk", "commitlog") == whole
    first = damage.log_files(tmp_path / "new-loose")[0]
    assert first.name == logs[3].name
    end = _blank_at(logs[3].read_bytes())
    assert first.read_bytes()[:end] == logs[3].read_bytes()[:end]


@pytest.mark.parametrize("name", ["delayed-4.3.0", "delayed-4.4.0"])
def test_an_op_of_a_half_that_waits_elsewhere_makes_no_number(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    (log,) = damage.log_files(root)
    assert salvaged(root, tmp_path / "new", log).placeholders_count == 0
    assert states(tmp_path / "new") == states(root)


def test_a_discard_copy_lost_at_the_end_is_not_forgotten(tmp_path: Path) -> None:
    root = copy_of("fifteen-4.9.7", tmp_path)
    (log,) = damage.log_files(root)
    position, length = damage.records_in(log)[-1]
    damage.zero_bytes(log, position, length)
    salvaged(root, tmp_path / "new")
    assert_walked(tmp_path / "new")
    assert states(tmp_path / "new") == states(root)
    assert {state for state, _ in states(root).values()} == {"UNDECIDABLE"}


def test_misnamed_torn_and_overlapping_files(tmp_path: Path) -> None:
    root = copy_of("killed-5.5.0", tmp_path)
    whole = files_below(root, "commitlog")
    logs = damage.log_files(root)
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / "one").write_bytes(logs[0].read_bytes()[1000:])  # without its beginning
    (loose / "two").write_bytes(logs[0].read_bytes()[:9000])  # torn
    (loose / "three").write_bytes(logs[2].read_bytes()[:100] + logs[2].read_bytes()[200:])  # shifted
    (loose / "00000000000000000000").write_bytes(logs[3].read_bytes())
    result = salvaged(root, tmp_path / "new", loose)
    assert_walked(tmp_path / "new")
    after = files_below(tmp_path / "new", "commitlog")
    assert sorted(after)[:4] == sorted(whole)[:4]
    assert after[sorted(whole)[0]] == whole[sorted(whole)[0]]
    end = _blank_at(whole[sorted(whole)[3]])
    assert after[sorted(whole)[3]][:end] == whole[sorted(whole)[3]][:end]
    # of the segment that is missing only numbers that the check would stumble over, then a blank record
    absent = after[sorted(whole)[1]]
    assert _blank_at(absent) < 6000
    assert absent.count(b"RMQTX_FILLER") == absent.count(b"\xda\xa3\x20")
    assert result.chosen.duplicates_count > 0
    assert not result.chosen.contradictions_count


def test_of_two_copies_the_sound_one_is_taken(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    before = files_below(root, "commitlog")
    (log,) = damage.log_files(root)
    records = damage.records_in(log)
    other = tmp_path / "other"
    other.write_bytes(log.read_bytes())
    damage.flip_byte(log, records[10][0] + 95)  # a body: its CRC tells
    damage.flip_byte(other, records[20][0] + 95)
    damage.flip_byte(other, records[30][0] + 23)  # a queue offset: nothing tells which is right
    result = salvaged(root, tmp_path / "new", log, other)
    after = files_below(tmp_path / "new", "commitlog")
    assert result.records_count == len(records)
    assert result.chosen.contradictions_count == 3
    (name,) = before
    changed = {place for place, (one, two) in enumerate(zip(before[name], after[name], strict=True)) if one != two}
    assert changed <= {records[30][0] + 23}


def test_what_a_filler_stands_for_is_taken_from_another_file(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    before = files_below(root, "commitlog", "consumequeue")
    backup = tmp_path / "backup"
    backup.write_bytes(damage.log_files(root)[0].read_bytes())
    damaged(root)
    salvaged(root, tmp_path / "poor")
    again = salvaged(root, tmp_path / "again", tmp_path / "poor" / "commitlog")
    assert files_below(tmp_path / "again", "commitlog") == files_below(tmp_path / "poor", "commitlog")
    assert again.placeholders_count == again.lost_numbers_count > 0
    rich = salvaged(root, tmp_path / "rich", tmp_path / "poor", backup)
    assert files_below(tmp_path / "rich", "commitlog", "consumequeue") == before
    assert not rich.lost_bytes
    assert not rich.findings


@pytest.mark.parametrize("with_queues", [True, False])
def test_numbers_of_halves_and_ops_are_not_given_again(with_queues: bool, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    before = ends(root)
    (log,) = damage.log_files(root)
    records = damage.records_in(log)
    position = records[350][0]
    damage.zero_bytes(log, position, records[-1][0] + records[-1][1] - position)
    if not with_queues:
        damage.drop(root / "consumequeue")
    result = salvaged(root, tmp_path / "new")
    assert_walked(tmp_path / "new")
    after = ends(tmp_path / "new")
    assert result.placeholders_count > 0
    for topic in (HALF_TOPIC, OP_TOPIC):
        assert after[topic, 0] == before[topic, 0] if with_queues else after[topic, 0] >= cursors(root)[topic]
    if with_queues:
        was, now = states(root), states(tmp_path / "new")
        # Slots that led to lost records lead to fillers now, and prove no longer what stood there.
        assert now.keys() == was.keys()
        assert {state for name, (state, _) in now.items() if state != was[name][0]} <= {"UNDECIDABLE"}
        assert any(state == was[name][0] == "COMMITTED" for name, (state, _) in now.items())


def ends(root: Path) -> dict[tuple[str, int], int]:
    store = open_store(root)
    return {name: open_queue(store, *name).max_offset for name in store.queues()}


def cursors(root: Path) -> dict[str, int]:
    rows = read_cursors(open_store(root)).table().to_pylist()
    return {row["topic"]: row["next_queue_offset"] for row in rows if row["group"] == CHECK_GROUP}


def test_records_that_recovery_had_cut_off_stay_away(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    (log,) = damage.log_files(root)
    records = damage.records_in(log)
    data = log.read_bytes()
    position, length = records[150]
    # older records behind the end, at places that they state themselves
    stale = bytearray(data[records[5][0] : records[5][0] + records[5][1]])
    stale[28:36] = (position + length + 50).to_bytes(8, "big")
    log.write_bytes((data[: position + length] + b"\xee" * 50 + bytes(stale)).ljust(len(data), b"\0"))
    result = salvaged(root, tmp_path / "new")
    assert result.records_count == 151
    assert result.chosen.pieces[-1].end_offset == position + length
    assert result.chosen.left_out_count == 1


def test_a_record_from_far_away_does_not_make_a_log_of_many_files(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    (log,) = damage.log_files(root)
    records = damage.records_in(log)
    record = bytearray(log.read_bytes()[: records[0][1]])
    record[28:36] = (1 << 50).to_bytes(8, "big")
    stray = tmp_path / "stray"
    stray.write_bytes(record)
    result = salvaged(root, tmp_path / "new", log, stray)
    assert result.segments_count == 1
    assert result.chosen.left_out_count == 1
    assert {finding.code for finding in result.findings} == {"record-left-out"}


@pytest.mark.parametrize("lost_count", [0, 1, 3])
@pytest.mark.parametrize("length", [FILLER_BYTES_MIN, 400, 613, 2 * FILLER_BYTES_MAX + 5, FILLER_BYTES_MAX + 1])
def test_a_hole_is_filled_to_the_byte(length: int, lost_count: int) -> None:
    lost = [Lost(b"RMQ_SYS_TRANS_HALF_TOPIC", 0, number) for number in range(lost_count)]
    place, borne = 1000, []
    for offset, record, number in filled(1000, 1000 + length, lost, FillerModel(1)):
        assert offset == place
        assert int.from_bytes(record[:4], "big") == len(record) <= FILLER_BYTES_MAX
        place += len(record)
        borne += [number] if number else []
    assert place == 1000 + length
    assert borne == lost[: len(borne)]


def test_sectors_that_cannot_be_read_are_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    (log,) = damage.log_files(root)
    read = OpenFile.read

    def failing(self: OpenFile, position: int, length: int) -> bytes:
        if position < 12288 and position + length > 8192:
            raise UnreadableFile("cannot read: Input/output error", file=self.file, position_bytes=position)
        return read(self, position, length)

    monkeypatch.setattr(OpenFile, "read", failing)
    scan = FoundRuns(0, SalvageSource(str(log), log.stat().st_size))
    runs = list(scan)
    assert sum(run.records_count for run in runs) > 350
    assert scan.coverage.unread_bytes == 4096
    assert [finding.code for finding in scan.findings] == ["unreadable-file"]


@pytest.mark.parametrize("page", [0, 2])
def test_zeros_in_place_of_records_are_damaged(page: int, tmp_path: Path) -> None:
    """At the begin of a segment and between two records; the zeros behind the last record are unused."""
    root = copy_of("common-5.3.3", tmp_path)
    (log,) = damage.log_files(root)
    data = bytearray(log.read_bytes())
    sound = FoundRuns(0, SalvageSource(str(log), len(data)))
    list(sound)
    data[4096 * page : 4096 * (page + 1)] = bytes(4096)
    log.write_bytes(data)
    scan = FoundRuns(0, SalvageSource(str(log), len(data)))
    list(scan)
    assert sound.coverage.damaged_bytes == 0 == scan.coverage.unread_bytes
    assert scan.coverage.damaged_bytes == sound.coverage.decoded_bytes - scan.coverage.decoded_bytes >= 4096
    assert scan.coverage.filler_bytes == sound.coverage.filler_bytes


def test_what_is_refused(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    with pytest.raises(BadRequest, match="is inside"):
        salvaged(root, root / "new")
    nothing = tmp_path / "nothing"
    nothing.write_bytes(random.Random(1).randbytes(100_000))
    with pytest.raises(NotAStore, match="no record"):
        salvaged(root, tmp_path / "new", nothing)
    with pytest.raises(NotAStore, match="does not exist"):
        salvaged(root, tmp_path / "new", tmp_path / "absent")
    assert not (tmp_path / "new").exists()


def test_the_command_takes_what_the_store_says_and_tells_what_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    hashes = files_below(root, ".")
    assert status_of(["salvage", str(root), "--to", str(tmp_path / "same")]) == 0
    assert files_below(root, ".") == hashes
    lost = damaged(root)
    capsys.readouterr()
    assert status_of(["salvage", str(root), "--to", str(tmp_path / "new")]) == 3
    said = capsys.readouterr().err
    assert f"and the records of {lost} queue offsets; {lost} empty messages in their place" in said
    assert "record-left-out" in said
    assert "unfinished" not in said
    assert (tmp_path / "new" / "config" / "topics.json").exists()


def test_a_segment_that_is_not_there_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """But not the rest of the one before it, which the broker had left blank, where the next record shows that."""
    root = copy_of("killed-5.1.4", tmp_path)
    whole = salvaged(root, tmp_path / "whole")
    assert whole.lost_bytes == 0
    gone = damage.log_files(root)[3]
    size = gone.stat().st_size
    gone.unlink()
    capsys.readouterr()
    assert status_of(["salvage", str(root), "--to", str(tmp_path / "new")]) == 3
    said = capsys.readouterr().err
    assert "lost: 0 B" not in said
    lost = salvaged(root, tmp_path / "again").lost_bytes
    assert size <= lost < size + 4096  # and the end of the file before it, of which nothing tells what it was


@pytest.mark.parametrize("name", corpus.corpus_names("state_table"))
def test_the_tables_of_3_1_come_along_and_each_verdict_stays(name: str, tmp_path: Path) -> None:
    old = open_store(unpacked(name))
    config = Path(old.root) / "config"
    result = salvage([Path(old.root)], tmp_path / "new", store_sizes(old), config=config, old_store=old)
    assert result.has_state_table
    assert not result.lacks_rocksdb
    before, after = (
        [
            {key: value for key, value in row.items() if key in ("transaction_id", "state", "flags", "advice")}
            for row in audit([store], settings_of(name)).table().to_pylist()
        ]
        for store in (old, open_store(tmp_path / "new"))
    )
    if old.aborted:  # its flags tell what a start would make of the table; a clean store is not recovered
        for row in (*before, *after):
            del row["flags"], row["advice"]
    assert after == before
    assert contents(tmp_path / "new" / "transaction") == contents(Path(old.root) / "transaction")


@pytest.mark.parametrize("name", corpus.corpus_names("prepared_records"))
def test_prepared_records_are_judged_as_before(name: str, tmp_path: Path) -> None:
    old = open_store(unpacked(name))
    config = Path(old.root) / "config"
    result = salvage([Path(old.root)], tmp_path / "new", store_sizes(old), config=config, old_store=old)
    assert not result.has_state_table
    states = [
        [(row["transaction_id"], row["state"]) for row in audit([store], settings_of(name)).table().to_pylist()]
        for store in (old, open_store(tmp_path / "new"))
    ]
    assert states[0] == states[1]


def test_what_only_rocksdb_knew_is_said_to_be_lost(tmp_path: Path) -> None:
    old = open_store(unpacked("rocksdb-5.5.0"))
    result = salvage([Path(old.root)], tmp_path / "new", store_sizes(old), old_store=old)
    assert result.lacks_rocksdb
    assert not (tmp_path / "new" / "rocksdbstore").exists()


def test_what_a_killed_broker_may_have_decided_is_still_in_doubt(tmp_path: Path) -> None:
    """A salvaged store was "stopped cleanly", so a message whose producer had rolled it back could be committed."""
    root = copy_of("killed-5.3.3", tmp_path)
    result = salvaged(root, tmp_path / "new")
    assert result.is_of_killed
    assert open_store(tmp_path / "new").was_killed
    flagged = {identity for identity, (_, flags) in states(root).items() if "may_be_decided" in flags}
    assert flagged
    assert flagged == {i for i, (_, flags) in states(tmp_path / "new").items() if "may_be_decided" in flags}


@pytest.mark.parametrize(
    ("name", "places"),
    [("timer-5.3.0", ("timerlog", "timerwheel")), ("controller-5.1.4", ("epochFileCheckpoint", "brokerIdentity"))],
)
def test_what_waits_in_a_timer_and_who_manages_the_broker_come_along(
    name: str, places: tuple[str, ...], tmp_path: Path
) -> None:
    """`config/timercheck` came alone, so the timer would have skipped them; and acts on the replica were allowed."""
    root = copy_of(name, tmp_path)
    result = salvaged(root, tmp_path / "new")
    assert not result.lacks_timers
    for place in places:
        assert files_below(tmp_path / "new", place) == files_below(root, place) or (
            (tmp_path / "new" / place).read_bytes() == (root / place).read_bytes()
        )
    assert salvaged(root, tmp_path / "log", root / "commitlog").lacks_timers == (name == "timer-5.3.0")


def test_abort_of_rmqtx_is_no_kill(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    (root / "abort").write_bytes(b"0")
    result = salvaged(root, tmp_path / "new")
    assert (result.is_of_killed, (tmp_path / "new" / "abort").read_bytes()) == (False, b"0")
