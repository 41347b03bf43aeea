"""What names a transaction: its id in any case, a key as it is written, and a part of an id that is long enough."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.identities import are_short_for, is_named, offset_of
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.evidence.witness_collector import CollectedWitnesses
from tests.forge.logs import Forge
from tests.forge.records import Message


@pytest.mark.parametrize(
    ("name", "is_one"), [("ID-1", True), ("id-1", True), ("ORDER-7", True), ("order-7", False), ("ORDER", False)]
)
def test_an_id_is_named_in_any_case_and_a_key_as_it_is_written(tmp_path: Path, name: str, is_one: bool) -> None:
    """So for what was read by queues and index, of files and of live brokers, and for the rows of a scan."""
    forge = Forge(tmp_path / "store")
    properties = (("REAL_TOPIC", "orders"), ("UNIQ_KEY", "ID-1"), ("KEYS", "A ORDER-7"), ("PGROUP", "shop"))
    forge.append(Message(topic=HALF_TOPIC, body=b"x", properties=properties))
    found = CollectedWitnesses("store")
    for block in SegmentScan(open_store(forge.write()).commit_log[0]):
        found.add(block)
    assert list(found.named_by({name: None})) == [name] * is_one
    assert is_named(name, "ID-1", "A ORDER-7") == is_one


def test_a_short_id_has_four_characters_of_an_end() -> None:
    ids = pa.array(["ABCD1234", "xxABCD", None, "1234ABC"])
    assert are_short_for("abcd", ids).to_pylist() == [True, True, None, False]
    assert are_short_for("abc", ids).to_pylist() == [False] * 4


def test_a_message_id_ends_with_an_offset() -> None:
    assert offset_of("0A00000100002A9F" + "00000000000001F4") == 500
    assert offset_of("0A00000100002A9F" + "1F4") is None
