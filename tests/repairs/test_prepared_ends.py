"""COMMIT and ROLLBACK records that brokers before 4.3 wrote are made again of their prepared record, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import COMMIT, COMPRESSED, PREPARED, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.model.errors import FormatError
from rmqtx.readers.model.releases import Version, parse_version
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.records.record_writer import WritingRules, commit_record_of, draft_of, rollback_record_of
from tests.brokers.corpus import corpus_names, recipe, truth
from tests.forge.records import Message
from tests.forge.stores import copy_of
from tests.repairs.log_records import at_its_place, number, records

NAMES = [name for design in ("state_table", "prepared_records") for name in corpus_names(design)]
#: What brokers before 4.3 write of the rules that came later.
RULES = WritingRules(
    ops_are_lists=False, finals_name_destination=True, properties_are_closed=True, has_property_crc=False,
    writes_discard_copy=False,
)


def prepared_and_ends(store: Store) -> list[tuple[bytes, bytes]]:
    """Every prepared record of a store with each record that ends it."""
    seen = {number(record, "commit_log_offset", 8): record for record in records(store)}
    found = []
    for record in seen.values():
        if number(record, "sys_flag", 4) & TRANSACTION_MASK in (COMMIT, ROLLBACK):
            prepared = seen.get(draft_of(record).prepared_transaction_offset)
            if prepared is not None and number(prepared, "sys_flag", 4) & TRANSACTION_MASK == PREPARED:
                found.append((prepared, record))
    return found


def upgraded_at(name: str) -> int:
    """Where the log of an upgraded store goes on as the later broker wrote it; its end where there is none."""
    lines = truth(name)
    if not any(line["event"] == "upgraded" for line in lines):
        return 1 << 62
    places: list[int] = []
    for line in lines:
        if line["event"] == "upgraded":
            break
        places += [line["commit_log_offset"]] if isinstance(line.get("commit_log_offset"), int) else []
    return max(places, default=0)


@pytest.mark.parametrize("name", NAMES)
def test_every_end_of_a_prepared_record_is_written_as_its_broker_wrote_it(name: str, tmp_path: Path) -> None:
    first = parse_version(recipe(name)["version"])
    border = upgraded_at(name)
    ends = prepared_and_ends(open_store(copy_of(name, tmp_path / name)))
    kinds = set()
    for prepared, record in ends:
        version: Version = first if number(record, "commit_log_offset", 8) <= border else (3, 2, 6)
        kind = draft_of(record).sys_flag & TRANSACTION_MASK
        made = commit_record_of(prepared) if kind == COMMIT else rollback_record_of(prepared, version)
        if made.queue_offset is not None:
            assert number(record, "queue_offset", 8) == made.queue_offset
        assert at_its_place(made, RULES, record) == record
        kinds.add(kind)
    assert kinds == {COMMIT, ROLLBACK}


def test_a_rollback_record_has_the_slots_number_before_3_2_and_0_later() -> None:
    prepared = Message(
        topic="orders", queue_id=2, queue_offset=41, sys_flag=PREPARED | COMPRESSED, body=b"x"
    ).record(700)
    for version, expected in (((3, 1, 4), 41), ((3, 2, 6), 0), ((4, 2, 0), 0), ((4, 9, 7), 0)):
        draft = rollback_record_of(prepared, version)
        assert (draft.queue_offset, draft.body, draft.prepared_transaction_offset) == (expected, b"", 700)
        assert draft.sys_flag == ROLLBACK | COMPRESSED
    assert commit_record_of(prepared).queue_offset is None


def test_a_damaged_body_is_not_copied() -> None:
    prepared = Message(topic="orders", sys_flag=PREPARED, crc=17).record(0)
    with pytest.raises(FormatError, match="CRC"):
        commit_record_of(prepared)
