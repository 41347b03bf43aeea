"""What brokers wrote is written again from the record that it followed from, and compared byte for byte."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from rmqtx.readers.log.properties import CHECK_TIMES, UNIQ_KEY
from rmqtx.readers.log.record_layout import COMMIT, COMPRESSED, TRANSACTION_MASK
from rmqtx.readers.model.errors import BadRequest, FormatError
from rmqtx.readers.model.releases import parse_version
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, WAITING_TOPICS, open_store
from rmqtx.repairs.records.record_writer import (
    RecordDraft,
    WritingRules,
    blank_head,
    discard_copy_of,
    draft_of,
    final_of,
    half_copy_of,
    op_of,
    property_values,
    writing_rules,
)
from tests.brokers.corpus import corpus_names, recipe
from tests.forge.records import Message
from tests.forge.stores import copy_of
from tests.repairs.log_records import at_its_place, number, records, rules_of
from tests.representatives import each_store

#: Stores of the old designs have neither half messages nor ops; several versions did not write all of a store alike.
NAMES = [
    name for name in corpus_names()
    if parse_version(recipe(name)["version"]) >= (4, 3, 0) and not recipe(name).get("earlier")
]


FIFTEEN = {f"fifteen-{version}" for version in ("4.3.0", "4.4.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")}
WITHOUT_FINALS, WITHOUT_OPS = {*FIFTEEN, "timer-5.3.0"}, {*FIFTEEN, "opslost-5.3.3"}


def is_final(draft: RecordDraft) -> bool:
    """Whether a COMMIT record was made of a half copy alone: not put off by a delay, not sent back by a consumer, and
    not numbered in light queues.
    """
    others = (b"DELAY", b"TIMER_OUT_MS", b"RETRY_TOPIC", b"INNER_MULTI_DISPATCH")
    return not (
        draft.topic in (*WAITING_TOPICS, HALF_TOPIC) or draft.topic.startswith("%RETRY%")
        or any(name in property_values(draft.properties) for name in others)
    )


def is_resumed(draft: RecordDraft) -> bool:
    """Whether it is the half copy that a resume made."""
    return draft.topic == HALF_TOPIC and property_values(draft.properties).get(CHECK_TIMES.encode()) == b"0"


@pytest.mark.parametrize("name", each_store(NAMES))
def test_every_record_of_a_transaction_is_written_as_its_broker_wrote_it(name: str, tmp_path: Path) -> None:
    version = recipe(name)["version"]
    store = open_store(copy_of(name, tmp_path / name))
    seen = list(records(store))
    rules = rules_of(store, version, seen)
    halves = {number(record, "commit_log_offset", 8): record for record in seen}
    finals = ops = 0
    for record in seen:
        draft = draft_of(record)
        assert at_its_place(draft, rules, record) == record
        if draft.sys_flag & TRANSACTION_MASK == COMMIT and is_final(draft):
            half = halves[draft.prepared_transaction_offset]
            assert at_its_place(final_of(half, rules), rules, record) == record
            finals += 1
        elif draft.topic == OP_TOPIC and draft.body.strip(b"0123456789,") == b"" and draft.body:
            numbers = [int(part) for part in draft.body.split(b",") if part]
            op = op_of(
                numbers, rules, queue_id=draft.queue_id, broker_host=draft.store_host, now_ms=draft.born_time_ms
            )
            if op.body == draft.body:  # op messages that a client sent are none of the broker's
                assert at_its_place(op, rules, record) == record
                ops += 1
    assert finals or name in WITHOUT_FINALS
    assert ops or name in WITHOUT_OPS


def test_discard_copies_and_resumed_halves_are_written_as_their_broker_wrote_them(tmp_path: Path) -> None:
    """From the last half copy before it: its count of checks apart, which the broker raises as it gives up."""
    discards = resumed = 0
    for name in ("common-4.9.7", "common-5.1.4", "common-5.3.3", "common-5.5.0", "propcrc-5.3.3", "ipv6-5.1.4"):
        store = open_store(copy_of(name, tmp_path / name))
        seen = list(records(store))
        rules = rules_of(store, recipe(name)["version"], seen)
        copies: dict[bytes, dict[str, bytes]] = defaultdict(dict)
        for record in seen:
            draft = draft_of(record)
            properties = property_values(draft.properties)
            known = copies[properties.get(UNIQ_KEY.encode(), b"")]
            if draft.topic == DISCARD_TOPIC:
                assert at_its_place(discard_copy_of(known[HALF_TOPIC]), rules, record) == record
                discards += 1
            elif is_resumed(draft) and not draft.sys_flag & COMPRESSED:
                assert at_its_place(half_copy_of(known[DISCARD_TOPIC]), rules, record) == record
                resumed += 1
            if draft.topic in (HALF_TOPIC, DISCARD_TOPIC):
                known[draft.topic] = record
    assert discards > 50
    assert resumed > 5


def test_a_half_that_never_was_checked_gets_its_count_of_checks() -> None:
    half = Message(properties=(("UNIQ_KEY", "A1"), ("REAL_TOPIC", "orders"), ("REAL_QID", "1"))).record(0)
    draft = half_copy_of(half)
    assert property_values(draft.properties)[b"TRANSACTION_CHECK_TIMES"] == b"0"
    assert draft.properties.startswith(b"UNIQ_KEY\x01A1\x02REAL_TOPIC\x01orders\x02REAL_QID\x011\x02")


def test_what_says_no_destination_has_no_final(rules: WritingRules) -> None:
    with pytest.raises(FormatError, match="REAL_TOPIC"):
        final_of(Message(properties=(("UNIQ_KEY", "A1"),)).record(0), rules)


def test_a_damaged_body_is_not_copied(rules: WritingRules) -> None:
    with pytest.raises(FormatError, match="CRC"):
        final_of(Message(properties=(("REAL_TOPIC", "orders"), ("REAL_QID", "1")), crc=17).record(0), rules)


def test_the_end_of_the_properties_is_the_versions(rules: WritingRules) -> None:
    """A half that an older broker wrote is committed by the one that opens the store now."""
    from dataclasses import replace

    half = Message(properties=(("REAL_TOPIC", "orders"), ("REAL_QID", "1")), is_closed=False).record(0)
    for is_closed in (True, False):
        mine = replace(rules, properties_are_closed=is_closed)
        record = final_of(half, mine).record(mine, queue_offset=0, commit_log_offset=0, store_time_ms=1)
        assert record.endswith(b"REAL_QID\x011\x02") == is_closed


def test_a_version_that_is_not_known_well_enough_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(BadRequest, match="--broker-version"):
        writing_rules(broker_settings(open_store(tmp_path)), has_property_crc=False)


def test_the_blank_record_says_what_is_left() -> None:
    assert blank_head(4711) == bytes.fromhex("00001267cbd43194")


@pytest.fixture
def rules() -> WritingRules:
    return WritingRules(
        ops_are_lists=True, finals_name_destination=True, properties_are_closed=True, has_property_crc=False,
        writes_discard_copy=True,
    )
