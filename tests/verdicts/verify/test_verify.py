"""What a verification says: nothing of a sound store; of a damaged index, checkpoint, cursor or op the damage alone."""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.readers.index.index import ENTRY
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.jobs import workers
from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.verify.verify import DEFAULT, FULL, QUICK, Verify
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.damage import log_files, queue_files
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import contents, copy_of, opened, unpacked
from tests.representatives import few_quick, in_two_ways, rest_is_slow
from tests.verdicts.verifying import LEVELS, SEGMENTS, every_finding, findings, the_one, worse_than_notes

# ---- sound stores


@pytest.mark.parametrize("name", few_quick(corpus.corpus_names()))
def test_a_sound_store_has_no_finding_but_notes(name: str) -> None:
    for level in LEVELS:
        rows = every_finding(unpacked(name), level)
        # Their check stops: nothing is damaged, and no broker of their version gets past it.
        is_stopped = name.startswith(("poison", "noroom"))
        # Nothing is damaged: its broker does not read its cursors when it starts.
        forgets = name == "lmq-4.9.3"
        wanted = ["check-stopped"] * is_stopped + ["cursors-not-loaded"] * forgets
        assert [row["code"] for row in worse_than_notes(rows)] == wanted
        codes = {row["code"] for row in rows} - {"check-stopped", "cursors-not-loaded", "start-checks-again"}
        late = {"slot-pending", "start-enters", "start-deletes-index"}
        assert codes <= {"store-time-backwards", "body-stream", *late}, codes
        if codes & late:  # only a killed broker leaves records behind
            assert corpus.recipe(name)["stop"] == "kill"


@pytest.mark.parametrize("name", in_two_ways(corpus.corpus_names()))
def test_splits_change_nothing(name: str) -> None:
    whole = sorted(map(str, every_finding(unpacked(name), FULL, 1 << 30)))
    for split_bytes in (65_536, 7001):
        assert sorted(map(str, every_finding(unpacked(name), FULL, split_bytes))) == whole, split_bytes


def test_processes_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = copy_of(SEGMENTS, tmp_path)
    damage.zero_bytes(queue_files(root, HALF_TOPIC)[0], 40, 40)
    one = every_finding(root, split_bytes=7001)
    monkeypatch.setattr(workers, "ONE_PROCESS_BYTES_MAX", 0)
    two = run_job(Verify(), plan_splits([open_store(root)], split_bytes=7001), processes=2).table().to_pylist()
    assert two == one != []


def test_nothing_is_written(copy: Path) -> None:
    before = contents(copy)
    findings(copy, FULL)
    assert contents(copy) == before


# ---- index, checkpoint, cursors, ops


@pytest.mark.parametrize("name", rest_is_slow(["common-5.3.3", "common-4.3.0", "common-5.5.0"], quick=0, slow=1))
def test_any_byte_of_an_index_entry(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    chance = random.Random(name)
    (index,) = open_index(opened(name)).files[:1]
    file = root / "index" / Path(index.segment.file).name
    data = file.read_bytes()
    for _ in range(40):
        number = chance.randrange(1, index.entries_count + 1)
        inside = chance.randrange(12)  # hash and offset; time and chain say nothing of the record
        damage.flip_byte(file, index.entry_position(number) + inside, chance.randint(1, 255))
        rows = findings(root, split_bytes=chance.choice((1 << 27, 7001)))
        damage.write_bytes(file, 0, data)
        assert rows, (number, inside)
        assert {row["code"] for row in rows} <= {"index-mismatch", "index-damaged"}, (number, inside, rows)
        assert {row["file"] for row in rows} == {str(file)}
        at = index.entry_position(number)
        assert any(row["position_bytes"] <= at < row["position_bytes"] + row["length_bytes"] for row in rows)


def test_an_entry_is_gone(copy: Path) -> None:
    """The entry of another record in its place: the one that is lost is missed."""
    index = open_index(open_store(copy)).files[0]
    file = Path(index.segment.file)
    place = index.entry_position(10)
    twin = file.read_bytes()[index.entry_position(9) :][: ENTRY.size_bytes - 4]
    lost = ENTRY.unpack(file.read_bytes()[place:][: ENTRY.size_bytes])["commit_log_offset"]
    damage.write_bytes(file, place, twin)
    rows = [row for row in findings(copy) if row["code"] != "index-damaged"]
    row = the_one(rows)
    assert (row["code"], row["commit_log_offset"]) == ("index-missing", lost)


def test_a_checkpoint_ahead_of_the_log(copy: Path) -> None:
    file = copy / "checkpoint"
    time = int.from_bytes(file.read_bytes()[:8], "big")
    damage.write_bytes(file, 0, (time + 86_400_000).to_bytes(8, "big"))
    row = the_one(findings(copy))
    assert (row["code"], row["file"], row["position_bytes"]) == ("checkpoint-ahead", str(file), 0)


@pytest.mark.parametrize("value", [-7_200_184_879_839_969_280, 1 << 60])
def test_an_impossible_offset_in_the_checkpoint(copy: Path, value: int) -> None:
    damage.write_bytes(copy / "checkpoint", 32, value.to_bytes(8, "big", signed=True))
    row = the_one(findings(copy))
    assert (row["code"], row["position_bytes"]) == ("checkpoint-damaged", 32)


@pytest.mark.parametrize(("group", "code"), [(CHECK_GROUP, "cursor-beyond-end"),
                                             ("", "group-cursor-beyond-end")])
def test_a_cursor_beyond_its_queue(group: str, code: str, tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.op(forge.half("A"))
    forge.write(half_cursor=99 if group else 1, op_cursor=1)
    file = tmp_path / "config" / "consumerOffset.json"
    if not group:
        text = file.read_text("utf-8").replace(f"{OP_TOPIC}@CID_RMQ_SYS_TRANS", f"{OP_TOPIC}@shop").replace("1}", "99}")
        file.write_text(text.replace("{0:99}", "{0:1}", 1), "utf-8")
    row = the_one(findings(tmp_path))
    assert row["code"] == code
    assert row["actual"] == "99"


def test_an_op_number_that_no_half_has(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    half = forge.half("A")
    op = forge.op(half)
    root = forge.write(half_cursor=1, op_cursor=1)
    assert findings(root) == []
    file = log_files(root)[0]
    data = file.read_bytes()
    damage.write_bytes(file, op + 88, b"7")
    damage.write_bytes(file, op + AT["body_crc"], (zlib.crc32(b"7") & 0x7FFFFFFF).to_bytes(4, "big"))
    row = the_one(findings(root))
    assert (row["code"], row["commit_log_offset"], row["actual"]) == ("op-beyond-end", op, "7")
    assert len(data) == file.stat().st_size


def test_records_of_an_older_design_are_told_once(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    places = [forge.half(name) for name in "ABC"]
    root = forge.write()
    file = log_files(root)[0]
    for place in places[1:]:
        damage.write_bytes(file, place + AT["sys_flag"], (4).to_bytes(4, "big"))
    told = [row for row in findings(root, split_bytes=99) if row["code"] == "older-design"]
    assert the_one(told)["commit_log_offset"] == places[1]


def test_cursors_that_cannot_be_read(copy: Path) -> None:
    file = copy / "config" / "consumerOffset.json"
    file.write_text(json.dumps({"offsetTable": 7}), "utf-8")
    assert "config-damaged" in {row["code"] for row in findings(copy)}


def test_queues_in_rocksdb_that_cannot_be_read_are_said_to_be_unchecked(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    forge.half("A")
    root = forge.write()
    damage.drop(root / "consumequeue")
    damage.foreign_file(root / "consumequeue", "CURRENT", b"MANIFEST-000004\n")
    for level, told in ((QUICK, ("queues-unchecked", "note")), (DEFAULT, ("database-unread", "warning"))):
        row = the_one(findings(root, level))
        assert (row["code"], row["severity"]) == told


def light(forge: Forge, places: str) -> int:
    """A record that is in two light queues beside its own."""
    words = (("INNER_MULTI_DISPATCH", "%LMQ%one,%LMQ%two"), ("INNER_MULTI_QUEUE_OFFSET", places), ("TAGS", "t"))
    return forge.append(Message(properties=words))


def test_light_queues(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    records = [light(forge, "0,0"), light(forge, "1,1")]
    root = forge.write()
    own = root / "consumequeue" / "orders" / "0" / ("0" * 20)
    for name in ("%LMQ%one", "%LMQ%two"):
        (root / "consumequeue" / name / "0").mkdir(parents=True)
        (root / "consumequeue" / name / "0" / ("0" * 20)).write_bytes(own.read_bytes())
    for split_bytes in (1 << 27, 99):
        assert findings(root, split_bytes=split_bytes) == []
    file = root / "consumequeue" / "%LMQ%two" / "0" / ("0" * 20)
    damage.zero_bytes(file, 20, 20)
    row = the_one(findings(root))
    assert (row["code"], row["commit_log_offset"]) == ("slot-missing", records[1])
    assert "%LMQ%two" in row["expected"]


def test_a_running_broker_is_ahead_of_what_was_read(copy: Path) -> None:
    """Queues are read later than the log: what they know more is no finding, and neither is a slot that is to come."""
    store = replace(open_store(copy), used_by_process=1)
    file = queue_files(copy, HALF_TOPIC)[0]
    data = file.read_bytes()
    used = next(n for n in range(len(data) // 20) if not data[n * 20 :][:20].strip(b"\0"))
    new = SLOT.pack(commit_log_offset=1 << 30, record_length_bytes=300, tags_code=0)
    damage.write_bytes(file, used * 20, new)
    assert run_job(Verify(), plan_splits([store])).table().num_rows == 0
    assert {row["code"] for row in findings(copy)} == {"slot-dangling", "log-missing"}  # once it has stopped it is
    damage.write_bytes(file, (used - 1) * 20, bytes(40))
    rows = run_job(Verify(), plan_splits([store])).table().to_pylist()
    assert {row["code"] for row in worse_than_notes(rows)} <= {"cursor-beyond-end"}
    assert [row["code"] for row in rows if row["code"].startswith("slot")] == ["slot-pending"]


@pytest.mark.parametrize("every", rest_is_slow([4, 1], quick=0, slow=1))
def test_whatever_is_damaged_is_no_error(tmp_path: Path, every: int) -> None:
    for number, (name, wound) in list(enumerate(damage.RANDOM.items()))[::every]:
        root = copy_of("killed-5.1.4", tmp_path / f"{number}")
        wound(root, random.Random(name))
        for level in LEVELS:
            rows = run_job(Verify(level), plan_splits([open_store(root)], split_bytes=7001)).table().to_pylist()
            assert {row["code"] for row in rows} <= KINDS.keys()
