"""Derived files made anew, against those that real brokers wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.index.index import ENTRY, HEADER
from rmqtx.readers.model.errors import BadRequest, NotAStore, StoreInUse
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.rebuild.rebuild import PARTS, index_has_tags, rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx_cli.main import status_of
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.stores import copy_of
from tests.representatives import few_quick

DERIVED = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
#: Until 4.9 a header counted every entry as a used slot.
COUNTS_ENTRIES = ("4.3.0", "4.3.1", "4.4.0", "4.5.0")
#: The broker was killed before a queue was complete.
INCOMPLETE = {
    "killed-4.4.0": "consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0/00000000000000000000",
    "parallel-5.3.3": "consumequeue/TRANS_CHECK_MAX_TIME_TOPIC/0/00000000000000000000",
}


def made(root: Path, target: Path, *parts: str):  # type: ignore[no-untyped-def]
    store = open_store(root)
    tags = index_has_tags(store, broker_settings(store))
    return rebuild(parts or PARTS, store, target, store_sizes(store), with_tags=tags)


def files_below(root: Path, *names: str) -> dict[str, bytes]:
    return {
        str(file.relative_to(root)): file.read_bytes()
        for name in names
        for file in sorted((root / name).rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize("name", few_quick(corpus.corpus_names()))
def test_queues_are_byte_for_byte_the_brokers(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    built = made(root, tmp_path / "new", "queues")
    before, after = files_below(root, *DERIVED), files_below(tmp_path / "new", *DERIVED)
    if name in INCOMPLETE:  # what is there is the beginning of what was made
        known, whole = before.pop(INCOMPLETE[name]), after.pop(INCOMPLETE[name])
        assert whole != known
        assert whole.startswith(known.rstrip(b"\0"))
    assert after == before
    assert built.lost_numbers_count == 0
    assert not built.findings


#: The brokers of one store did not index alike: 5.5.0 has tags among the keys; two were killed before they had indexed.
OTHER_INDEX = ("killed-4.4", "downgraded", "parallel")
ONE_INDEX = [name for name in corpus.corpus_names() if not name.startswith(OTHER_INDEX)]


@pytest.mark.parametrize("name", few_quick(ONE_INDEX))
def test_the_index_is_byte_for_byte_the_brokers(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    made(root, tmp_path / "new", "index", "checkpoint")
    before, after = (list(files_below(place, "index").values()) for place in (root, tmp_path / "new"))
    if name.endswith(COUNTS_ENTRIES):
        at = HEADER.offsets["used_slots_count"]
        before, after = ([data[:at] + data[at + 4 :] for data in files] for files in (before, after))
    assert after == before
    assert_same_checkpoint(root, tmp_path / "new")


def assert_same_checkpoint(root: Path, new: Path) -> None:
    """Byte for byte, but for what brokers write late: when they last flushed, which 5.5.0 forgets of queues; and the
    place in the queues that 5.5.0 flushes after a minute.
    """
    before, after = ((place / "checkpoint").read_bytes() for place in (root, new))
    assert len(after) == len(before)
    for name in ("physic_msg_time_ms", "logics_msg_time_ms"):
        at = CHECKPOINT_FIELDS.offsets[name]
        was, now = (int.from_bytes(data[at : at + 8], "big") for data in (before, after))
        assert was <= now
        before = before[:at] + after[at : at + 8] + before[at + 8 :]
    at = CHECKPOINT_FIELDS.offsets["logics_offset"]
    assert not any(after[at : at + 8])
    before = before[:at] + bytes(8) + before[at + 8 :]
    assert after == before


@pytest.mark.parametrize("name", ["common-4.3.0", "common-5.3.3", "multipath-5.5.0", "killed-5.1.4"])
def test_a_store_without_derived_files_gets_them_back(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    whole = made(root, tmp_path / "whole")
    sizes = store_sizes(open_store(root))
    for part in ("consumequeue", "index", "checkpoint"):
        damage.drop(root / part)
    store = open_store(root)
    again = rebuild(PARTS, store, tmp_path / "again", sizes, with_tags=name.endswith("5.5.0"))
    assert again.slots_count == whole.slots_count
    parts = ("consumequeue", "index", "config", "commitlog", "checkpoint")
    assert files_below(tmp_path / "again", *parts) == files_below(tmp_path / "whole", *parts)
    assert status_of(["verify", str(tmp_path / "again"), "--quiet", "-o", str(tmp_path / "f.jsonl")]) == 0
    assert rows(tmp_path / "again") == rows(tmp_path / "whole")


def rows(root: Path) -> list[dict[str, object]]:
    found = audit([open_store(root)], broker_settings).table().drop(["store"])
    return [{key: str(value).replace(str(root), "") for key, value in row.items()} for row in found.to_pylist()]


def test_numbers_keep_their_places_where_records_are_lost(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    (log,) = damage.log_files(root)
    lost = damage.records_in(log)[40:60]
    damage.zero_bytes(log, lost[0][0], sum(length for _, length in lost))
    before = files_below(root, "consumequeue")
    built = made(root, tmp_path / "new", "queues")
    assert built.lost_numbers_count == len(lost)
    assert {finding.code for finding in built.findings} == {"record-damaged", "queue-number-missing"}
    after = files_below(tmp_path / "new", "consumequeue")
    changed = 0
    for name, data in before.items():
        for place in range(0, len(data), 20):
            if after[name][place : place + 20] != data[place : place + 20]:
                changed += 1
                assert after[name][place : place + 20] == bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)
    assert changed == len(lost)


@pytest.mark.parametrize("bit", [0, 1, 3, 5])
def test_one_wrong_number_costs_no_more_than_its_neighbour(bit: int, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    before = files_below(root, "consumequeue")
    (log,) = damage.log_files(root)
    position, _ = damage.records_in(log)[200]
    damage.flip_byte(log, position + 27, 1 << bit)
    built = made(root, tmp_path / "new", "queues")
    after = files_below(tmp_path / "new", "consumequeue")
    places = [(name, place) for name, data in before.items() for place in range(0, len(data), 20)]
    changed = [one for one in places if before[one[0]][one[1] : one[1] + 20] != after[one[0]][one[1] : one[1] + 20]]
    assert 1 <= len(changed) <= 2
    assert {finding.code for finding in built.findings} <= {"queue-number-taken", "queue-number-missing"}


def test_a_queue_that_was_deleted_begins_again(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    (log,) = damage.log_files(root)
    store = open_store(root)
    with open_queue(store, "orders", 1) as queue:
        _, offsets, _, _ = queue.read(0, queue.max_offset)
    half = len(offsets) // 2
    for number, offset in enumerate(offsets[half:].tolist()):
        damage.write_bytes(log, offset + 20, number.to_bytes(8, "big"))
    made(root, tmp_path / "new", "queues")
    with open_queue(open_store(tmp_path / "new"), "orders", 1) as queue:
        _, again, _, _ = queue.read(0, queue.max_offset)
    assert again.tolist() == offsets[half:].tolist()


def test_queues_whose_records_expired_are_kept(tmp_path: Path) -> None:
    root = copy_of("multipath-5.1.4", tmp_path)
    kept = root / "consumequeue" / "expired" / "0" / f"{20000:020d}"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(bytes(20_000))
    damage.drop(damage.log_files(root)[0])
    built = made(root, tmp_path / "new", "queues")
    assert built.kept_queues == [("expired", 0), ("orders", 1)]
    assert (tmp_path / "new" / "consumequeue" / "expired" / "0" / kept.name).exists()
    before, after = files_below(root, "consumequeue"), files_below(tmp_path / "new", "consumequeue")
    begin = int(damage.log_files(tmp_path / "new")[0].name)
    assert begin == 16384
    for name, data in after.items():
        if any(f"{topic}/{number}/" in name for topic, number in built.kept_queues):
            assert data == before[name]
            continue
        for place in range(0, len(data), 20):
            slot, was = data[place : place + 20], before[name][place : place + 20]
            expired = was != bytes(20) and int.from_bytes(was[:8], "big") < begin
            assert slot == (bytes(8) + b"\x7f\xff\xff\xff" + bytes(8) if expired else was)


def test_a_full_index_file_is_followed_by_another(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    store = open_store(root)
    sizes = store_sizes(store, {"maxIndexNum": "300", "maxHashSlotNum": "50"})
    built = rebuild(["index", "checkpoint"], store, tmp_path / "new", sizes)
    files = files_below(tmp_path / "new", "index")
    headers = [HEADER.unpack(data) for data in files.values()]
    assert [header["next_entry_number"] for header in headers] == [300, 300, built.index_entries_count - 2 * 299 + 1]
    assert built.checkpoint["index_msg_time_ms"] == headers[1]["end_time_ms"]
    assert {len(data) for data in files.values()} == {HEADER.size_bytes + 4 * 50 + 300 * ENTRY.size_bytes}
    assert status_of(["verify", str(tmp_path / "new"), "--quiet", "-o", str(tmp_path / "f.jsonl")]) == 0


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(BadRequest, match="already exists"):
        made(root, tmp_path / "taken")
    damage.drop(tmp_path / "taken")
    with pytest.raises(BadRequest, match="contains the other"):
        made(root, root / "new")
    damage.drop(root / "commitlog")
    with pytest.raises(NotAStore, match="rmqtx salvage"):
        made(root, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    monkeypatch.setattr("rmqtx.readers.store.store.Store.in_use", property(lambda self: True))
    with pytest.raises(StoreInUse):
        made(root, tmp_path / "new")


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_of("common-5.3.3", tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert status_of(["rebuild", "all", str(root), "--to", str(tmp_path / "new")]) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize("place", ["other/log", "store/own", "store"])
def test_a_log_in_a_directory_of_its_own_is_copied_to_where_it_is_looked_for(place: str, tmp_path: Path) -> None:
    """The copy had no commitlog/, and the status was 0: "no transaction can be read"."""
    root = copy_of("killed-5.3.3", tmp_path)
    files = [(file.name, file.read_bytes()) for file in damage.log_files(root)]
    log = tmp_path / place if place != "store" else root
    (root / "commitlog").rename(tmp_path / "moved")
    log.mkdir(parents=True, exist_ok=True)
    for name, data in files:
        (log / name).write_bytes(data)
    store = open_store(root, (str(log),))
    rebuild({"queues"}, store, tmp_path / "new", store_sizes(store))
    assert [(file.name, file.read_bytes()) for file in damage.log_files(tmp_path / "new")] == files
    before, after = (audit([one], broker_settings).table() for one in (store, open_store(tmp_path / "new")))
    assert after["state"].equals(before["state"])
    assert not list((tmp_path / "new").glob("0*"))
