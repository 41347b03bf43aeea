"""Copies of half messages as ordinary messages: what they keep, what they lose, and what is never sent."""

from __future__ import annotations

import hashlib
import zlib

import pytest

from rmqtx.readers.log.properties import ORIGIN
from rmqtx.readers.log.record_layout import BORN_V6, COMMIT, COMPRESSED, PREPARED, ROLLBACK, STORE_V6
from rmqtx.readers.log.record_values import block_of
from rmqtx.readers.model.errors import FormatError
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.repairs.acts.send_medium import copy_to_send
from rmqtx.repairs.acts.situation import NamedRecord, named_record
from rmqtx.verdicts.model.marked_copies import copies_in
from tests.forge.records import Message

OF_PRODUCER = (("KEYS", "order-1 b"), ("TAGS", "paid"), ("UNIQ_KEY", "A1"), ("WAIT", "true"), ("colour", "modrá"))
OF_HALF = (
    ("TRAN_MSG", "true"), ("PGROUP", "shop"), ("REAL_TOPIC", "orders"), ("REAL_QID", "3"),
    ("__transactionId__", "A1"), ("TRANSACTION_CHECK_TIMES", "4"), ("CHECK_IMMUNITY_TIME_IN_SECONDS", "60"),
    ("TRAN_PREPARED_QUEUE_OFFSET", "7"),
)


def half(**changes: object) -> NamedRecord:
    fields: dict[str, object] = {"topic": HALF_TOPIC, "properties": (*OF_PRODUCER, *OF_HALF), "flag": 5}
    message = Message(**(fields | changes))  # type: ignore[arg-type]
    return named_record(block_of(message.record(700)), "/store")


def test_it_keeps_what_consumers_need_and_nothing_of_the_half() -> None:
    record = half()
    copy = copy_to_send(record, "orders")
    digest = hashlib.sha256(record.raw).hexdigest()[:16]
    assert copy.properties == {**dict(OF_PRODUCER), ORIGIN: f"{record.message_id}:{digest}"}
    assert (copy.topic, copy.queue_id, copy.body, copy.flag, copy.sys_flag) == ("orders", 3, b"body", 5, 0)
    assert copy.born_time_ms == record.born_time_ms
    assert copy.left_out == ()


def test_a_compressed_body_stays_compressed_and_no_flag_makes_it_a_half_or_a_final() -> None:
    body = zlib.compress(b"long " * 2_000)
    record = half(
        body=body, sys_flag=COMPRESSED | 0x300 | PREPARED, born_host=("fd00::7", 1), store_host=("fd00::1", 10_911)
    )
    assert record.sys_flag & (BORN_V6 | STORE_V6)
    copy = copy_to_send(record, "orders")
    assert (copy.body, copy.sys_flag) == (body, COMPRESSED | 0x300)


def test_as_a_half_it_names_its_group_and_keeps_its_immunity() -> None:
    copy = copy_to_send(half(), "orders", "shop")
    assert copy.sys_flag == PREPARED
    of_half = {"TRAN_MSG": "true", "PGROUP": "shop", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
    assert {name: copy.properties[name] for name in of_half} == of_half
    assert not {"REAL_TOPIC", "TRANSACTION_CHECK_TIMES"} & set(copy.properties)


def test_the_copy_of_a_copy_has_its_own_mark() -> None:
    copy = copy_to_send(half(properties=(*OF_PRODUCER, *OF_HALF, (ORIGIN, "x:y"))), "orders")
    assert copy.properties[ORIGIN] != "x:y"


def test_a_prepared_record_keeps_its_own_queue() -> None:
    record = half(topic="orders", queue_id=2, properties=(*OF_PRODUCER, *OF_HALF[:2]), sys_flag=PREPARED)
    copy = copy_to_send(record, "orders")
    assert (copy.queue_id, copy.sys_flag) == (2, 0)


def test_a_delay_is_left_out_and_reported() -> None:
    copy = copy_to_send(half(properties=(*OF_PRODUCER, *OF_HALF, ("DELAY", "2"), ("TIMER_DELAY_SEC", "3"))), "orders")
    assert copy.left_out == ("DELAY", "TIMER_DELAY_SEC")
    assert not {"DELAY", "TIMER_DELAY_SEC"} & set(copy.properties)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sys_flag": COMPRESSED}, "cannot read the body"),
        ({"crc": 1}, "cannot read the body"),
        ({"properties": (("KEYS", "a"), *OF_HALF)}, "no UNIQ_KEY"),
    ],
)
def test_what_cannot_be_read_or_recognised_is_not_sent(changes: dict[str, object], why: str) -> None:
    with pytest.raises(FormatError, match=why):
        copy_to_send(half(**changes), "orders")


def test_copies_and_commit_records_are_deliveries_and_nothing_else_is() -> None:
    own, other = ("UNIQ_KEY", "T1"), ("UNIQ_KEY", "T2")
    messages = {
        "a COMMIT record": Message(properties=(own,), sys_flag=COMMIT, prepared_transaction_offset=700),
        "a copy": Message(properties=(own, (ORIGIN, "x:y"))),
        "the same message, sent again by its application": Message(properties=(own,)),
        "a prepared record": Message(properties=(own,), sys_flag=PREPARED),
        "a ROLLBACK record": Message(properties=(own,), sys_flag=ROLLBACK, body=b""),
        "another message": Message(properties=(other, (ORIGIN, "x:y"))),
        "a half message": Message(topic=HALF_TOPIC, properties=(own, (ORIGIN, "x:y")), sys_flag=PREPARED),
        "a message that a consumer sent back": Message(topic="%RETRY%c", properties=(own, (ORIGIN, "x:y"))),
    }
    wanted = {"T1": "orders"}

    def found(*, only_marked: bool) -> list[str]:
        return [
            name for name, message in messages.items()
            if list(copies_in(block_of(message.record(900)), "a@h:1", wanted, only_marked=only_marked))
        ]

    assert found(only_marked=True) == ["a copy"]
    assert found(only_marked=False) == list(messages)[:3]
