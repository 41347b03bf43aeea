"""Prepared records of live brokers: shown by id, key or message id as their files show them, and never listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.log.record_at import block_at
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups, queues
from rmqtx.remoting.protocol.codes import RequestCode
from tests.brokers import corpus
from tests.remoting.test_live_questions import Row, Served

NAMES = ("statetable-3.1.4", "prepared-3.2.6", "prepared-4.2.0", "prepared-killed-4.2.0")
HALF_TOPIC_REQUESTS = (
    RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET,
    RequestCode.QUERY_CONSUME_QUEUE, RequestCode.PULL_MESSAGE,
)


def told(row: Row) -> Row:
    """What both ways must say alike: a live broker does not show its state table."""
    left_out = {"reason", "reason_code", "advice", "state_entries", "flags", "producer_alive", "asked_through"}
    flags = set(row["flags"]) - {"never_checked", "stalled", "expires_soon", "unanswerable", "never_asked"}
    return {**{name: value for name, value in row.items() if name not in left_out}, "flags": sorted(flags)}


@pytest.mark.parametrize("name", NAMES)
def test_each_is_found_by_its_id_and_judged_as_in_the_files(name: str, tmp_path: Path, client: Client) -> None:
    one = Served(name, tmp_path, client)
    with one.server:
        files = one.in_files()
        for row in files[:: max(1, len(files) // 12)]:
            reading = lookups.lookup([one.broker], [row["transaction_id"]])
            assert [told(found) for found in one.live(reading.table().to_pylist())] == [told(row)]
            assert reading.findings == []
        assert {row["state"] for row in files} == {"PENDING", "COMMITTED", "ROLLED_BACK"}
    assert not one.answers.counts.keys() & set(HALF_TOPIC_REQUESTS)  # which would make queues in its memory


@pytest.mark.parametrize("name", ["prepared-3.2.6", "prepared-4.2.0"])
def test_each_is_found_by_a_business_key_and_a_message_id(name: str, tmp_path: Path, client: Client) -> None:
    one = Served(name, tmp_path, client)
    with one.server:
        row = next(row for row in one.in_files() if row["state"] == "ROLLED_BACK" and row["keys"])
        prepared = prepared_message_id(one, row)
        for word in (row["keys"].split(" ")[0], prepared):
            (found,) = lookups.show([one.broker], word).table().to_pylist()
            assert (found["transaction_id"], found["state"]) == (row["transaction_id"], "ROLLED_BACK")


def prepared_message_id(one: Served, row: Row) -> str:
    """The offset message id of a row's prepared record."""
    log = one.store.log()
    try:
        block = block_at(log, row["half_copies"][0]["commit_log_offset"])
    finally:
        log.close()
    assert block is not None
    return str(block.message_ids()[0])


def test_3_1_is_asked_for_a_key_by_pieces_of_the_time_that_it_answers_for(tmp_path: Path, client: Client) -> None:
    one = Served("statetable-3.1.4", tmp_path, client)
    with one.server:
        row = next(row for row in one.in_files() if row["keys"])
        key = row["keys"].split(" ")[0]
        assert lookups.show([one.broker], key).table()["transaction_id"].to_pylist() == [row["transaction_id"]]
        asked = [one_.fields for one_ in one.server.requests if one_.code == RequestCode.QUERY_MESSAGE]
    spans = [int(fields["endTimestamp"]) - int(fields["beginTimestamp"]) for fields in asked]
    assert spans
    assert max(spans) <= 73 * 3_600_000


def test_what_is_open_cannot_be_listed_and_that_is_said(tmp_path: Path, client: Client) -> None:
    one = Served("prepared-4.2.0", tmp_path, client)
    with one.server:
        for ask in (lookups.pending, lookups.audit):
            reading = ask([one.broker])
            assert reading.table().num_rows == 0
            assert [found.code for found in reading.findings] == ["prepared-unlisted"]


def test_a_log_too_long_to_be_walked_leaves_it_undecidable(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Served("prepared-4.2.0", tmp_path, client)
    monkeypatch.setattr(queues, "_WALKED_BYTES_MAX", 1000)
    with one.server:
        row = next(row for row in one.in_files() if row["state"] == "PENDING")
        reading = lookups.lookup([one.broker], [row["transaction_id"]])
        (found,) = reading.table().to_pylist()
    assert found["state"] == "UNDECIDABLE"
    assert [one.code for one in reading.findings] == ["prepared-unwalked"]


def test_a_later_broker_shows_what_ended_a_prepared_record_of_an_earlier_one(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = corpus.recipe
    monkeypatch.setattr(corpus, "recipe", lambda name: {**real(name), "version": "4.9.7"})
    one = Served("upgraded-4.2.0-4.9.7", tmp_path, client)
    with one.server:
        rows = one.in_files()
        old = [row for row in rows if any(mark["half_queue_offset"] is None for mark in row["op_marks"])]
        assert {"COMMITTED", "ROLLED_BACK"} == {row["state"] for row in old}
        for row in old:
            (found,) = lookups.show([one.broker], prepared_message_id(one, row)).table().to_pylist()
            assert (found["transaction_id"], found["state"]) == (row["transaction_id"], row["state"])
