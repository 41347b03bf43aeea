"""What a search finds: the records that a slow reading of every row finds, whatever the splits."""

from __future__ import annotations

import pickle
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.jobs.search import Search, SearchConditions, rows_with
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import RECORDS
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, Store, open_store
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import copy_of, opened
from tests.representatives import each_store, rest_is_slow

Row = dict[str, Any]
NAMES = (
    "common-4.3.0", "common-5.3.3", "codecs-5.5.0", "delayed-5.1.4", "ipv6-5.3.3", "killed-4.9.7", "longtopic-5.1.4",
)
ALL = tuple(name for name in RECORDS.names if name != "body_crc_matches")


def searched(store: Store, conditions: SearchConditions, split_bytes: int = 1 << 27, **options: Any) -> Reading:
    return run_job(Search(conditions, ALL, **options), plan_splits([store], split_bytes=split_bytes))


def found(store: Store, conditions: SearchConditions, split_bytes: int = 1 << 27) -> list[int]:
    return [row["commit_log_offset"] for row in searched(store, conditions, split_bytes).table().to_pylist()]


def slowly(store: Store, test: Callable[[Row], bool]) -> list[int]:
    """Commit-log offsets of all records that fulfil a test, one row after another; bodies are inflated."""
    rows = scan_records(store, with_body=True, decompress=True).table().to_pylist()
    return [row["commit_log_offset"] for row in rows if test(row)]


def asked(rows: list[Row]) -> list[tuple[SearchConditions, Callable[[Row], bool]]]:
    """Questions about what is in some rows, each with the slow way to answer it."""
    half = next(row for row in rows if row["topic"] == HALF_TOPIC and row["keys"])
    middle = rows[len(rows) // 2]["store_time_ms"]
    word = half["keys"].split(" ")[0]
    identity = half["transaction_id"] or half["message_id"]
    topic = dict(half["properties"])["REAL_TOPIC"]
    body = next(row["body"] for row in rows if row["body"] and len(row["body"]) > 30)
    piece = body[10:25]
    waiting = (HALF_TOPIC, DISCARD_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)

    def of_topic(row: Row) -> bool:
        on_its_way = row["topic"] in waiting and dict(row["properties"]).get("REAL_TOPIC") == topic
        return row["topic"] == topic or on_its_way

    expression = rb'"count":[5-7],.*"sku":"[A-C]'
    return [
        (SearchConditions(key=word), lambda row: word in (row["keys"] or "").split(" ")),
        (SearchConditions(key=word[:-1]), lambda row: word[:-1] in (row["keys"] or "").split(" ")),
        (SearchConditions(identity=identity), lambda row: identity in (row["transaction_id"], row["message_id"])),
        (SearchConditions(identity=half["message_id"].lower()), lambda row: row["message_id"] == half["message_id"]),
        (SearchConditions(topic=topic), of_topic),
        (SearchConditions(topic=HALF_TOPIC), lambda row: row["topic"] == HALF_TOPIC or (
            row["topic"] in waiting and dict(row["properties"]).get("REAL_TOPIC") == HALF_TOPIC)),
        (SearchConditions(from_time_ms=middle), lambda row: row["store_time_ms"] >= middle),
        (SearchConditions(topic=topic, to_time_ms=middle), lambda row: of_topic(row) and row["store_time_ms"] < middle),
        (SearchConditions(properties=(("PGROUP", "s?[o-p]p*"), ("WAIT", "true"))),
         lambda row: re.fullmatch("s.[o-p]p.*", row["producer_group"] or "") is not None
         and dict(row["properties"]).get("WAIT") == "true"),
        (SearchConditions(body=piece), lambda row: piece in (row["body"] or b"")),
        (SearchConditions(body=b"true"), lambda row: b"true" in (row["body"] or b"")),  # which stands in properties too
        (SearchConditions(body=b"absent from here"), lambda _: False),
        (SearchConditions(body_regex=expression), lambda row: re.search(expression, row["body"] or b"") is not None),
        (SearchConditions(body_regex=rb"^[0-9,]+$"),
         lambda row: re.search(rb"^[0-9,]+$", row["body"] or b"") is not None),
        (SearchConditions(topic=topic, body=piece, body_regex=rb"\A"),
         lambda row: of_topic(row) and piece in (row["body"] or b"")),
    ]


@pytest.mark.parametrize("name", rest_is_slow(NAMES, quick=3))
def test_a_search_finds_what_a_slow_reading_finds(name: str) -> None:
    store = opened(name)
    rows = scan_records(store, with_body=True, decompress=True).table().to_pylist()
    hits = 0
    for conditions, test in asked(rows):
        wanted = slowly(store, test)
        hits += len(wanted)
        assert found(store, conditions) == wanted, conditions
        for split_bytes in (65_536, 7001):
            assert found(store, conditions, split_bytes) == wanted, (conditions, split_bytes)
    assert hits > 100


@pytest.mark.parametrize("name", each_store(corpus.corpus_names()))
def test_rows_are_those_of_decode(name: str) -> None:
    store = opened(name)
    wanted = scan_records(store, columns=list(ALL), with_body=True).table()
    reading = searched(store, SearchConditions(), 7001)
    assert reading.table().to_pylist() == wanted.to_pylist()
    assert reading.findings == []
    assert [part.unread_bytes for part in reading.coverage] == [0] * len(reading.coverage)


def test_only_what_is_asked_for_is_decoded() -> None:
    job = Search(SearchConditions(topic="orders"), ("topic", "keys"))
    table = run_job(job, plan_splits([opened("common-5.3.3")])).table()
    assert table.schema == RECORDS
    assert table["body"].null_count == table["store"].null_count == table.num_rows > 0
    assert table["topic"].null_count == 0


def test_a_question_travels() -> None:
    job = Search(SearchConditions(key="a", body_regex=rb"x+", properties=(("a", "b"),)), ("topic",))
    assert pickle.loads(pickle.dumps(job)) == job


def test_an_expression_that_is_none() -> None:
    with pytest.raises(BadRequest, match="not a regular expression"):
        SearchConditions(body_regex=b"(")


def test_words_side_by_side_and_across_records(tmp_path: Path) -> None:
    """A literal that only the end of one record and the begin of the next make together is in neither."""
    forge = Forge(tmp_path)
    one = forge.append(Message(body=b"needle", properties=(("KEYS", "a b"), ("UNIQ_KEY", "needle"))))
    two = forge.append(Message(body=b"nothing", properties=(("KEYS", "needle"),)))
    three = forge.append(Message(body=b"n" * 50 + b"needle", properties=(("x", "needle"),)))
    store = open_store(forge.write())
    assert found(store, SearchConditions(body=b"needle")) == [one, three]
    assert found(store, SearchConditions(key="needle")) == [two]
    assert found(store, SearchConditions(key="b")) == [one]
    assert found(store, SearchConditions(identity="needle")) == [one]
    assert found(store, SearchConditions(properties=(("x", "need*"),))) == [three]
    assert found(store, SearchConditions(properties=(("x", "Need*"),))) == []
    (block,) = SegmentScan(store.commit_log[0])
    last = block.raw[two - 2 : two + 2]  # the end of the first record and the begin of the second
    assert rows_with(block, last).tolist() == []
    assert found(store, SearchConditions(body=b"")) == [one, two, three]


def test_bodies_are_inflated_and_bad_ones_told(tmp_path: Path) -> None:
    forge = Forge(tmp_path)
    text = b"a long text about oranges " * 40
    good = forge.append(Message(body=zlib.compress(text), sys_flag=1))
    bad = forge.append(Message(body=b"oranges, but no stream", sys_flag=1))
    plain = forge.append(Message(body=b"oranges"))
    store = open_store(forge.write())
    reading = searched(store, SearchConditions(body=b"oranges", body_regex=rb"or.nges"), inflates=True)
    rows = reading.table().to_pylist()
    assert [row["commit_log_offset"] for row in rows] == [good, plain]
    assert rows[0]["body"] == text
    (finding,) = reading.findings
    assert (finding.code, finding.commit_log_offset, finding.kind.severity) == ("body-stream", bad, "note")
    assert searched(store, SearchConditions(topic="orders")).findings == []  # nobody looked at bodies
    stored = searched(store, SearchConditions(body=b"oranges")).table().to_pylist()
    assert stored[0]["body"] == zlib.compress(text)


def test_damage_is_stepped_over_and_told(tmp_path: Path) -> None:
    root = copy_of("killed-5.1.4", tmp_path)
    whole = found(open_store(root), SearchConditions(topic="orders"))
    damage.zero_bytes(damage.log_files(root)[2], 4096, 4096)
    reading = searched(open_store(root), SearchConditions(topic="orders"), 7001)
    rows = [row["commit_log_offset"] for row in reading.table().to_pylist()]
    assert set(rows) < set(whole)
    assert {finding.code for finding in reading.findings} == {"record-damaged"}
