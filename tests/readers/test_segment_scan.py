"""Walking a segment: each record once, whatever the windows and splits; every byte accounted for, whatever it is."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.log.commit_log import scan_records, scan_segments
from rmqtx.readers.log.corrected_records import corrected_blocks
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMMIT, FILLER, RECORD
from rmqtx.readers.log.segment_scan import SegmentScan, Span
from rmqtx.readers.model.columns import strings
from rmqtx.readers.model.errors import BadRequest, FileChanged, UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Bounds, Coverage
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, open_store
from tests.forge.logs import Forge, in_one_file
from tests.forge.records import Message, blank

pytestmark = pytest.mark.usefixtures("engine")
BASE = 1 << 32


def messages(count: int, seed: int = 1) -> list[Message]:
    """Records of every kind and of very different lengths."""
    chance = random.Random(seed)
    return [
        Message(
            topic=chance.choice(["orders", "a", HALF_TOPIC, "x" * 127]),
            body=chance.randbytes(chance.choice([0, 1, 7, 50, 900])),
            properties=tuple(("UNIQ_KEY", f"{chance.randrange(1 << 40):X}") for _ in range(chance.randrange(3))),
            sys_flag=chance.choice([0, 0, COMMIT]),
            version=chance.choice([1, 2]),
            born_host=chance.choice([("10.0.0.7", 1), ("fe80::1", 2)]),
            store_host=chance.choice([("10.0.0.1", 3), ("::1", 4)]),
            store_time_ms=1_700_000_000_000 + number,
        )
        for number in range(count)
    ]


def segment_of(data: bytes, directory: Path, base: int = BASE) -> Segment:
    path = directory / f"{base:020d}"
    path.write_bytes(data)
    return Segment(str(path), base, len(data))


HEADERS = [field.name for field in RECORD.fields if field.code in ("i", "q")]


def columns_of(block: Block) -> dict[str, list[object]]:
    """Columns of a block that the accelerator may have decoded with its window."""
    columns: dict[str, list[object]] = {name: block.header(name).tolist() for name in HEADERS}
    columns |= {f"is {name}": block.topic_is(name).tolist() for name in (HALF_TOPIC, DISCARD_TOPIC, FILLER, "orders")}
    return columns | {
        "topics": block.topics().to_pylist(), "texts": block.topic_texts().to_pylist(),
        "bodies": block.bodies().to_pylist(), "ids": block.properties.text("UNIQ_KEY").to_pylist(),
        "tags": strings(block.properties.value("TAGS")).to_pylist(), "maps": block.properties.maps().to_pylist(),
        "types": [block.header(name).dtype.str for name in HEADERS],
    }


def test_columns_of_a_window_are_those_of_its_bytes(tmp_path: Path) -> None:
    written = [
        replace(message, topic=DISCARD_TOPIC if number % 7 == 3 else "тема" if number % 7 == 5 else message.topic)
        for number, message in enumerate(messages(300, seed=5))
    ]
    data, _ = in_one_file([*written, Message(properties=(("UNIQ_KEY", "ключ"), ("TAGS", "ok")))], BASE)
    blocks = list(SegmentScan(segment_of(data, tmp_path)))
    assert sum(map(len, blocks)) == 301
    for block in blocks:
        rows = np.arange(len(block))
        for chosen in (rows, rows[::3], rows[:0], rows % 2 == 0, block.topic_is(HALF_TOPIC)):
            plain = Block(block.raw, block.base_offset, block.position_bytes, block.file, block.starts[chosen])
            part = block.take(chosen)
            assert columns_of(part) == columns_of(plain)
            for name in ("UNIQ_KEY", "TAGS", "KEYS"):
                assert part.properties.text(name).equals(strings(part.properties.value(name)))
            assert part.topic_texts().equals(strings(part.topics()))
            assert part.coded_topics().to_pylist() == part.topics().to_pylist()
            assert part.properties.coded("TAGS").to_pylist() == part.properties.value("TAGS").to_pylist()
            some = np.arange(len(part))[::-2]
            assert columns_of(part.take(some)) == columns_of(plain.take(some))


def positions(scan: SegmentScan) -> list[tuple[int, int]]:
    """Where the records of a scan begin, and how long they are."""
    found: list[tuple[int, int]] = []
    for block in scan:
        found += zip((block.starts + block.position_bytes).tolist(), block.lengths.tolist(), strict=True)
    return found


def assert_accounted(scan: SegmentScan, size: int) -> None:
    spans = sorted(scan.spans, key=lambda span: span.position_bytes)
    assert scan.decoded_bytes + sum(span.length_bytes for span in spans) == size
    assert all(span.length_bytes > 0 for span in spans)
    assert all(a.position_bytes + a.length_bytes <= b.position_bytes for a, b in pairwise(spans))


@pytest.mark.parametrize("window_bytes", [1, 50, 91, 100, 500, 4096, 1 << 20])
def test_any_window_gives_the_same_records(tmp_path: Path, window_bytes: int) -> None:
    data, places = in_one_file(messages(60), BASE)
    segment = segment_of(data + blank(500), tmp_path)
    scan = SegmentScan(segment, window_bytes=window_bytes)
    assert positions(scan) == places
    assert scan.spans == [Span("blank", len(data), 500)]
    assert_accounted(scan, segment.size_bytes)


@given(st.lists(st.integers(0, 16_000), max_size=6), st.sampled_from([100, 3000, 1 << 20]))
def test_splits_anywhere_give_each_record_once(cuts: list[int], window_bytes: int) -> None:
    scans = [
        SegmentScan(_SEGMENT, from_position=begin, to_position=end, window_bytes=window_bytes)
        for begin, end in _pairs([0, *sorted(cuts), _SEGMENT.size_bytes])
    ]
    assert [place for scan in scans for place in positions(scan)] == _PLACES
    assert sum(scan.decoded_bytes for scan in scans) == sum(length for _, length in _PLACES)
    assert sum(span.length_bytes for scan in scans for span in scan.spans) == 700


@given(st.data())
def test_splits_of_a_damaged_file_are_the_whole(draw: st.DataObject) -> None:
    whole = bytearray(Path(_SEGMENT.file).read_bytes())
    for begin in draw.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=3)):
        other = draw.draw(st.binary(min_size=1, max_size=4) | st.just(bytes(300)))[: len(whole) - begin]
        whole[begin : begin + len(other)] = other
    near = [edge + shift for place, length in _PLACES for edge in (place, place + length) for shift in (-1, 0, 1)]
    cuts = draw.draw(st.lists(st.integers(0, len(whole)) | st.sampled_from(near), max_size=6))
    edges = sorted({0, len(whole), *(min(max(cut, 0), len(whole)) for cut in cuts)})
    path = Path(_SEGMENT.file).with_suffix(".split")
    path.write_bytes(whole)
    segment = Segment(str(path), BASE, len(whole))
    alone = SegmentScan(segment)
    wanted = positions(alone)
    scans = [SegmentScan(segment, from_position=begin, to_position=end) for begin, end in _pairs(edges)]
    assert [place for scan in scans for place in positions(scan)] == wanted
    assert covered(scans) == covered([alone])
    assert sum(scan.decoded_bytes + sum(s.length_bytes for s in scan.spans) for scan in scans) == len(whole)


def covered(scans: list[SegmentScan]) -> set[int]:
    """Every byte that scans call damaged, torn or foreign."""
    spans = [span for scan in scans for span in scan.spans if not span.is_filler]
    return {place for s in spans for place in range(s.position_bytes, s.position_bytes + s.length_bytes)}


def _pairs(edges: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(edges))


@pytest.fixture(autouse=True, scope="module")
def _one_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    global _SEGMENT, _PLACES
    data, _PLACES = in_one_file(messages(60), BASE)
    _SEGMENT = segment_of(data + blank(700), tmp_path_factory.mktemp("log"))


_SEGMENT = Segment("", 0, 0)
_PLACES: list[tuple[int, int]] = []


@given(st.data())
def test_any_damage_is_accounted_for_and_costs_no_other_record(draw: st.DataObject) -> None:
    whole = bytearray(Path(_SEGMENT.file).read_bytes())
    begin = draw.draw(st.integers(0, len(whole) - 1))
    other = draw.draw(st.binary(min_size=1, max_size=200))[: len(whole) - begin]
    whole[begin : begin + len(other)] = other
    path = Path(_SEGMENT.file).with_suffix(".damaged")
    path.write_bytes(whole)
    scan = SegmentScan(Segment(str(path), BASE, len(whole)), window_bytes=draw.draw(st.sampled_from([300, 1 << 20])))
    found = positions(scan)
    assert_accounted(scan, len(whole))
    untouched = [
        (place, length) for place, length in _PLACES if place + length <= begin or place >= begin + len(other)
    ]
    assert set(untouched) <= set(found)


@given(st.binary(max_size=600))
def test_any_bytes_at_all(data: bytes) -> None:
    path = Path(_SEGMENT.file).with_suffix(".any")
    path.write_bytes(data)
    for is_last in (True, False):
        scan = SegmentScan(Segment(str(path), BASE, len(data)), is_last=is_last)
        positions(scan)
        assert_accounted(scan, len(data))


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (bytes(300), ["preallocated"]),
        (b"", []),
        (b"\x7f" * 100 + bytes(200), ["foreign", "preallocated"]),
        (b"\x7f" * 5000 + bytes(200), ["damaged", "preallocated"]),
        (b"\0\0\1\0\xda\xa3\x20\xa7" + bytes(300), ["torn", "preallocated"]),
        (Message().record(BASE + 5)[:60] + bytes(300), ["foreign", "preallocated"]),
    ],
)
def test_what_lies_behind_the_last_record(tmp_path: Path, tail: bytes, kind: list[str]) -> None:
    later = [Message(store_time_ms=1_800_000_000_000)]
    data, places = in_one_file(later, BASE)
    scan = SegmentScan(segment_of(data + tail, tmp_path))
    assert positions(scan) == places
    assert [span.kind for span in scan.spans] == kind
    assert_accounted(scan, len(data) + len(tail))


def test_a_record_that_was_not_written_to_its_end_is_torn(tmp_path: Path) -> None:
    data, places = in_one_file([*messages(3), Message(properties=(("A", "b"),))], BASE)
    last, length = places[-1]
    for left in range(4, length):
        if data[last + left - 1] == 0:  # the same bytes as if one less was written
            continue
        scan = SegmentScan(segment_of(data[: last + left].ljust(len(data) + 100, b"\0"), tmp_path))
        if left >= length - 4:  # only properties are missing: the recovery of a broker keeps the record
            assert positions(scan) == places, left
            assert [span.kind for span in scan.spans] == ["preallocated"], left
            continue
        assert positions(scan) == places[:-1], left
        assert [span.kind for span in scan.spans] == ["torn", "preallocated"], left


def test_a_record_whose_properties_a_running_broker_completes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, places = in_one_file([*messages(3), Message(properties=(("A", "b"), ("C", "d")))], BASE)
    whole = data + bytes(100)
    segment = segment_of(data[:-4].ljust(len(whole), b"\0"), tmp_path)
    block_of = SegmentScan._block

    def written_meanwhile(*arguments: Any) -> Any:
        found = block_of(*arguments)
        Path(segment.file).write_bytes(whole)
        return found

    monkeypatch.setattr(SegmentScan, "_block", written_meanwhile)
    scan = SegmentScan(segment)
    (block,) = scan
    assert block.properties.text("C").to_pylist()[-1] == "d"
    assert (block.starts + block.position_bytes).tolist() == [place for place, _ in places]
    assert_accounted(scan, len(whole))


@pytest.mark.parametrize("more", [0, 2])
def test_a_record_that_a_running_broker_ends_while_it_is_read_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    data, places = in_one_file([*messages(3), Message(properties=(("A", "b"),)), *messages(more, 2)], BASE)
    whole = data + bytes(100)
    begun = whole[: places[3][0] + 20].ljust(len(whole), b"\0")
    segment = segment_of(begun, tmp_path)
    resync = SegmentScan._resync

    def written_meanwhile(*arguments: Any) -> int | None:
        Path(segment.file).write_bytes(whole)
        return resync(*arguments)

    monkeypatch.setattr(SegmentScan, "_resync", written_meanwhile)
    scan = SegmentScan(segment)
    assert positions(scan) == places
    assert [span.kind for span in scan.spans] == ["preallocated"]
    assert_accounted(scan, len(whole))


def test_zeros_between_full_files_are_damage(tmp_path: Path) -> None:
    data, places = in_one_file(messages(3), BASE)
    scan = SegmentScan(segment_of(data + bytes(100), tmp_path), is_last=False)
    assert positions(scan) == places
    assert [span.kind for span in scan.spans] == ["damaged"]


def test_stopping_at_the_first_break_as_recovery_does(tmp_path: Path) -> None:
    data, places = in_one_file(messages(9), BASE)
    broken = bytearray(data)
    broken[places[4][0] + 5] ^= 0xFF
    scan = SegmentScan(segment_of(bytes(broken), tmp_path), stops_at_break=True)
    assert positions(scan) == places[:4]


def test_a_record_inside_another_whose_length_lies(tmp_path: Path) -> None:
    data, places = in_one_file(messages(9), BASE)
    broken = bytearray(data)
    begin, _ = places[3]
    covered = places[5][0] + places[5][1] - begin
    broken[begin : begin + 4] = covered.to_bytes(4, "big")
    scan = SegmentScan(segment_of(bytes(broken), tmp_path))
    assert positions(scan) == places[:3] + places[4:]
    assert scan.spans == [Span("damaged", begin, places[3][1])]


@pytest.mark.parametrize("host_flags", [0x10, 0x20, 0x30])
def test_a_record_too_short_for_the_hosts_that_it_claims(tmp_path: Path, host_flags: int) -> None:
    """Found by fuzzing: the fields behind wide hosts would stand behind the end of the file."""
    message = Message(topic="", body=b"", sys_flag=host_flags)
    record = message.record(BASE)
    assert len(record) == 91
    scan = SegmentScan(segment_of(record, tmp_path))
    assert positions(scan) == []
    assert_accounted(scan, 91)
    assert corrected_blocks(record, BASE, "", 0) is None


def test_a_message_with_a_record_in_its_body_is_one_record(tmp_path: Path) -> None:
    """A body may be anything, also a record that claims to stand where it stands."""
    first = Message(body=bytes(40))
    inner_at = BASE + 88
    message = Message(body=Message(topic="inner").record(inner_at))
    data, places = in_one_file([message, first], BASE)
    assert positions(SegmentScan(segment_of(data, tmp_path))) == places


def test_a_file_that_shrinks_or_goes_is_an_error_with_its_place(tmp_path: Path) -> None:
    data, _ = in_one_file(messages(30), BASE)
    segment = segment_of(data, tmp_path)
    Path(segment.file).write_bytes(data[:1000])
    with pytest.raises(FileChanged) as caught:
        positions(SegmentScan(segment))
    assert caught.value.file == segment.file
    Path(segment.file).unlink()
    with pytest.raises(UnreadableFile):
        positions(SegmentScan(segment))


def test_a_store_whose_file_shrinks_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    for number in range(20):
        forge.half(f"ID{number:030d}")
    store = open_store(forge.write())
    Path(store.commit_log[0].file).write_bytes(b"")
    reading = scan_records(store)
    assert reading.table().num_rows
    assert [finding.code for finding in reading.findings] == ["unreadable-file"]
    assert reading.coverage[0].unread_bytes == reading.coverage[0].size_bytes


@pytest.mark.parametrize("bounds", [(0, 4096), (1, 5000), (4095, 4097), (9000, 9001), (5000, 4000), (0, 1 << 40)])
def test_a_range_has_the_records_that_begin_in_it(tmp_path: Path, bounds: tuple[int, int]) -> None:
    forge = Forge(tmp_path / "store")
    for number in range(60):
        forge.half(f"ID{number:030d}")
    store = open_store(forge.write())
    every = scan_records(store).table()["commit_log_offset"].to_pylist()
    begin, end = bounds
    reading = scan_records(store, Bounds(begin, end))
    assert reading.table()["commit_log_offset"].to_pylist() == [offset for offset in every if begin <= offset < end]
    assert sum(part.size_bytes for part in reading.coverage) == sum(s.size_bytes for s in store.commit_log)
    assert all(part.unread_bytes >= 0 for part in reading.coverage)


def test_two_ranges_are_the_whole(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    for number in range(40):
        forge.half(f"ID{number:030d}")
    store = open_store(forge.write())
    whole = [offset for block in scan_segments(store, [], []) for offset in block.commit_log_offsets.tolist()]
    for cut in range(0, store.commit_log[-1].end_offset, 37):
        parts: list[int] = []
        for begin, end in ((None, cut), (cut, None)):
            findings: list[Finding] = []
            coverage: list[Coverage] = []
            for block in scan_segments(store, findings, coverage, from_offset=begin, to_offset=end):
                parts += block.commit_log_offsets.tolist()
            assert findings == []
        assert parts == whole


def test_a_column_that_does_not_exist(tmp_path: Path) -> None:
    store = open_store(Forge(tmp_path / "store").write())
    with pytest.raises(BadRequest, match="no column nonsense"):
        scan_records(store, columns=["nonsense"])
