"""Known lines of real logs, files in their order, times of any zone, and what damage leaves readable."""

from __future__ import annotations

import datetime
import gzip
import re
import subprocess
import sys
import zoneinfo
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.broker_logs.line_kinds import KINDS
from rmqtx.readers.broker_logs.log_files import LOG_NAMES, log_files, parsed_zone, shown_zone_seconds, zone_text
from rmqtx.readers.broker_logs.log_lines import TEXT_CHARACTERS_MAX, LogLine, reading_of
from rmqtx.readers.model.errors import BadRequest
from tests.broker_logs import forge
from tests.pages.list_pages import filled

LOGS = Path(__file__).with_name("logs")
RELEASES = ("4.3.0", "4.5.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")
#: A phrase of each kind that `grep` finds where the kind is, and nowhere else.
PHRASES = {
    "round-begins": "Begin to check prepare message", "put-back": "Send check message, the offset=",
    "check-sent": "- Check transaction. real_topic", "no-producer": "channel is null. groupId",
    "answered-unknown": "transaction state, but it's pending", "answered-commit": "state, the producer commit the",
    "answered-rollback": "state, the producer rollback the", "ended-unknown": "message,  and it's pending",
    "ended-rollback": "sending message, rollback the", "request": "- Transaction request:", "discarded": "- MsgExt:",
    "discard-copied": "TRANS_CHECK_MAXTIME_TOPIC OK", "put-back-failed": "PutBackToHalfQueueReturnResult write",
    "not-in-memory": "request pos invalid", "schedule-drops": "[BUG] the real topic", "round-failed": "- Check error",
    "commit-refused-immune": "Message commit fail", "rollback-refused-immune": "Message rollback fail",
    "broker-started": "boot success", "producer-connected": "new producer connected", "request-failed": "[code=37,",
    "producer-left": "unregister a producer group", "ops-skipped": "OFFSET_OVERFLOW_ONE, topic=RMQ_SYS_TRANS_OP",
    "check-send-failed": "invoke producer exception",
}
NAMED = 1_700_000_000_000


def known(place: Path, zone: str | None = None) -> list[LogLine]:
    return list(reading_of(place, zone).lines())


@pytest.mark.parametrize("release", RELEASES)
def test_known_lines_of_real_brokers(release: str) -> None:
    text = "".join((LOGS / release / f"{name}.log").read_text("utf-8") for name in LOG_NAMES)
    expected = {word: text.count(phrase) for word, phrase in PHRASES.items() if phrase in text}
    found = Counter(line.kind.word for line in known(LOGS / release))
    assert dict(found) == expected
    assert {"round-begins", "no-producer", "answered-unknown"} <= set(found)


def test_every_line_names_what_its_kind_declares() -> None:
    lines = [line for release in RELEASES for line in known(LOGS / release)]
    for line in lines:
        assert line.time_ms is not None
        assert line.number >= 1
        if line.kind.names == "record":
            assert line.log_offset is not None or re.fullmatch(r"[0-9A-F]{24,56}", line.unique_key or "")
        elif line.kind.names == "group":
            assert line.group in ("tx_group", "gone_group", "immune_group", "CLIENT_INNER_PRODUCER")
    exceptions = {line.exception for line in lines if line.kind.word == "round-failed"}
    assert exceptions == {"NullPointerException"}


def test_the_offset_of_a_message_id_is_that_of_its_record() -> None:
    for line in known(LOGS / "5.5.0"):
        if line.kind.word == "put-back-failed":
            assert line.log_offset is not None
            assert line.text.endswith(f"{line.log_offset:016X}")


@pytest.mark.parametrize("release", RELEASES)
def test_the_broker_writes_its_own_zone(release: str) -> None:
    """The machine was set to UTC, and the lines have epoch milliseconds beside the time of GMT+8."""
    reading = reading_of(LOGS / release)
    assert "+08:00" in reading.zone_note
    begins = [line for line in reading.lines() if line.kind.word == "round-begins"]
    for line in begins:
        match = re.search(r"begin time:(\d{13})", line.text)
        assert match is not None
        assert line.time_ms is not None
        assert 0 <= int(match[1]) - line.time_ms < 1000


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "UTC"])
def test_another_zone_is_shown_or_given(name: str, tmp_path: Path) -> None:
    zone = zoneinfo.ZoneInfo(name)
    shown = forge.written(tmp_path / "a", [forge.round_begins(NAMED, zone), forge.no_producer(NAMED, "g", zone)])
    silent = forge.written(tmp_path / "b", [forge.no_producer(NAMED, "g", zone)])
    for found in (known(shown), known(silent, name)):
        assert [line.time_ms for line in found if line.kind.word == "no-producer"] == [NAMED]
    assert "do not show their zone" in reading_of(silent).zone_note
    assert known(silent)[0].time_ms == NAMED + _ahead(zone) - 8 * 3_600_000


def test_a_given_zone_wins_and_the_contradiction_is_reported(tmp_path: Path) -> None:
    place = forge.written(tmp_path, [forge.round_begins(NAMED), forge.no_producer(NAMED, "g")])
    reading = reading_of(place, "UTC")
    assert "they show the zone +08:00" in reading.zone_note
    assert {line.time_ms for line in reading.lines()} == {NAMED + 8 * 3_600_000}


def test_summer_time_changes_within_a_named_zone() -> None:
    berlin = parsed_zone("Europe/Berlin")
    winter, summer = (int(datetime.datetime(2026, month, 1, tzinfo=datetime.UTC).timestamp()) for month in (1, 7))
    assert (berlin(winter), berlin(summer)) == (3600, 7200)


@pytest.mark.parametrize("text", ["", "Mars/Olympus", "+25:00", "+08:99", "../etc/passwd", "/etc/localtime", "8"])
def test_what_is_not_a_zone_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a zone"):
        parsed_zone(text)


@given(st.integers(-72, 72), st.integers(0, 4_000_000_000_000), st.integers(-59_000, 59_000))
def test_a_shown_zone_is_a_quarter_of_an_hour(quarters: int, epoch_ms: int, late_ms: int) -> None:
    seconds = quarters * 900
    assert shown_zone_seconds(epoch_ms + seconds * 1000 + late_ms, epoch_ms) == seconds
    assert shown_zone_seconds(epoch_ms + seconds * 1000 + 300_000, epoch_ms) is None
    assert parsed_zone(zone_text(seconds))(0) == seconds


def test_rotated_files_are_read_oldest_first(tmp_path: Path) -> None:
    names = (
        "otherdays/transaction.10.log.gz", "otherdays/transaction.2.log", "otherdays/transaction.1.log.gz",
        "transaction.log",
    )
    for place, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        forge.written(path.parent, [forge.no_producer(NAMED + place * 1000, "g")], path.name)
    for name in ("stats.log", "transaction.log.swp", "notes.txt", "transaction.log.gz.tmp"):
        (tmp_path / name).write_text("no log")
    assert [str(one.path.relative_to(tmp_path)) for one in log_files(tmp_path)] == list(names)
    assert [line.time_ms for line in known(tmp_path)] == [NAMED + place * 1000 for place in range(4)]


def test_files_by_date_are_read_oldest_first(tmp_path: Path) -> None:
    names = (
        "broker.2026-11-21.log", "broker.log.2026-11-22", "broker-20261123.1.log.gz", "broker-20261123.2.log",
        "broker.log",
    )
    for name in names:
        forge.written(tmp_path, [forge.line(NAMED, "The broker[a, b] boot success. x")], name)
    assert [one.path.name for one in log_files(tmp_path)] == list(names)


def test_the_folder_of_the_user_is_enough(tmp_path: Path) -> None:
    forge.written(tmp_path / "logs" / "rocketmqlogs", [forge.no_producer(NAMED, "g")])
    assert len(known(tmp_path)) == 1
    assert len(known(tmp_path / "logs/rocketmqlogs/transaction.log")) == 1


@pytest.mark.parametrize("kind", ["empty", "other", "missing", "file"])
def test_a_place_without_logs_is_an_error_that_shows_what_to_type(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "logs"
    if kind != "missing":
        place.mkdir()
    if kind in ("other", "file"):
        (place / "gc.log").write_text("x")
    with pytest.raises(BadRequest, match="--broker-logs ~/logs/rocketmqlogs"):
        reading_of(place / "gc.log" if kind == "file" else place)


def test_the_page_has_every_kind() -> None:
    text = Path("docs/broker_logs.md").read_text("utf-8")
    assert filled("broker_logs.md", text) == text, "make man"


def test_text_of_clients_does_not_make_a_line(tmp_path: Path) -> None:
    """A phrase counts only where the message of a line begins."""
    forged = "Check transaction failed, channel is null. groupId=victim"
    lines = [
        forge.line(NAMED, f"MsgExt:MessageExt [queueId=0, queueOffset=5, commitLogOffset=77, x={forged}]"),
        forge.line(NAMED, f"something - {forged}"),
        f"{forged}\n",
    ]
    (found,) = known(forge.written(tmp_path, lines))
    assert (found.kind.word, found.log_offset) == ("discarded", 77)


def test_long_and_binary_lines_are_cut_and_passed(tmp_path: Path) -> None:
    known_line = forge.no_producer(NAMED, "g").encode()
    long = forge.line(NAMED, "MsgExt:MessageExt [queueOffset=5, commitLogOffset=77, ").encode()[:-1] + b"x" * 5_000_000
    data = known_line + long + b"\n" + bytes(range(256)) * 5000 + b"\n" + known_line.replace(b"\n", b"\r\n")
    place = forge.written(tmp_path, data)
    reading = reading_of(place)
    found = list(reading.lines())
    assert [line.kind.word for line in found] == ["no-producer", "discarded", "no-producer"]
    assert max(len(line.text) for line in found) == TEXT_CHARACTERS_MAX + 1
    assert [line.group for line in found] == ["g", None, "g"]
    assert found[-1].number == data.count(b"\n")
    assert reading.problems == []


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_blocks_of_any_size_give_the_same_lines(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [known(LOGS / release) for release in RELEASES]
    monkeypatch.setattr("rmqtx.readers.broker_logs.log_lines._BLOCK_BYTES", chunk * 17)
    assert [known(LOGS / release) for release in RELEASES] == whole


def test_a_damaged_archive_is_read_up_to_the_damage(tmp_path: Path) -> None:
    data = gzip.compress("".join(forge.no_producer(NAMED + n * 1000, f"g{n}") for n in range(50_000)).encode())
    (tmp_path / "transaction.1.log.gz").write_bytes(data[: len(data) // 2])
    (tmp_path / "broker.1.log.gz").write_bytes(b"no archive")
    forge.written(tmp_path, b"\0" * 1000, "store.log")
    reading = reading_of(tmp_path)
    assert 100 < len(list(reading.lines())) < 50_000
    assert [Path(problem.partition(": ")[0]).name for problem in reading.problems] == [
        "transaction.1.log.gz", "broker.1.log.gz", "store.log",
    ]


_PIECES = st.one_of(
    st.sampled_from([kind.begins for kind in KINDS]),
    st.sampled_from([" - ", "2026-11-23 21:26:09 WARN T - ", "\n", "'", "{", "}", "\x1b[31m"]),
    st.sampled_from(["commitLogOffset=", "queueOffset=", "9" * 30, "msgId: ", "F" * 40, "groupId="]),
    st.text(max_size=20),
)


@given(st.lists(_PIECES, max_size=30), st.binary(max_size=40))
def test_any_text_is_read_without_an_error(pieces: list[str], rest: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        data = "".join(pieces).encode("utf-8", "surrogatepass") + rest
        forge.written(Path(folder), data)
        reading = reading_of(Path(folder))
        found = list(reading.lines())
        assert len(found) <= data.count(b"\n") + 1
        for line in found:
            assert line.log_offset is None or 0 <= line.log_offset < 1 << 63
            assert [one for one in KINDS if one.word == line.kind.word] == [line.kind]


@pytest.mark.slow
def test_a_million_lines_in_constant_memory(tmp_path: Path) -> None:
    """CPU seconds and peak memory are printed; the peak grows with neither the lines nor their times."""
    seconds = range(NAMED // 1000, NAMED // 1000 + 3600)
    peaks = []
    for count in (100_000, 1_000_000):
        place = forge.written(tmp_path / str(count), forge.numbered(count, seconds))
        code = (
            "import re, sys, time; from pathlib import Path; "
            "from rmqtx.readers.broker_logs.log_lines import reading_of; "
            "from rmqtx.verdicts.model.log_evidence import LogGathering; g = LogGathering(); "
            "r = reading_of(Path(sys.argv[1])); n = sum(1 for _ in g.watching(r.lines())); e = g.evidence(r); "
            "peak = re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]; "
            "print(n, peak, time.process_time())"
        )
        done = subprocess.run([sys.executable, "-c", code, str(place)], check=True, capture_output=True, text=True)
        found, peak_kib, cpu_seconds = done.stdout.split()
        assert int(found) == count // 10
        peaks.append(int(peak_kib))
        print(f"{count} lines: {peak_kib} KiB, {cpu_seconds} s")
    assert peaks[1] < peaks[0] + 20_000


def _ahead(zone: datetime.tzinfo) -> int:
    offset = datetime.datetime.fromtimestamp(NAMED / 1000, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds() * 1000)
