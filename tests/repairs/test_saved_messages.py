"""Messages kept beside receipts: byte for byte, decoded, and readable again by the ordinary commands."""

from __future__ import annotations

import base64
import json
import stat
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_layout import COMPRESSED
from rmqtx.readers.log.record_values import message_of
from rmqtx.readers.model.errors import FormatError, UnwritableFile
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.receipts.receipts import new_receipt_id
from rmqtx.repairs.receipts.saved_messages import save_message
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import corpus
from tests.forge.stores import copy_of

NAME = "common-5.3.3"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return open_store(copy_of(NAME, tmp_path_factory.mktemp("store")))


def records(store: Store) -> list[tuple[dict[str, Any], bytes]]:
    """Every half copy of the store: what the client said of it, and its bytes."""
    log = store.log()
    found = []
    for row in corpus.expected(NAME):
        for copy in row["half_copies"]:
            block = block_at(log, copy["commit_log_offset"])
            if block is not None:
                start = int(block.starts[0])
                found.append((row, block.raw[start : start + int(block.lengths[0])]))
    log.close()
    assert len(found) > 50
    return found


def test_every_half_of_a_real_broker_can_be_kept_and_read_again(store: Store, tmp_path: Path) -> None:
    compressed = 0
    for row, record in records(store):
        file = save_message(record, new_receipt_id(), tmp_path)
        again = file.with_suffix(".record").read_bytes()
        assert again == record
        facts = message_of(again)
        written = json.loads(file.read_text())
        assert {name: written[name] for name in facts} == facts
        assert written["transaction_id"] == row["transaction_id"]
        assert (written["real_topic"], written["keys"]) == (row["topic"], row["keys"])
        body = base64.b64decode(written["body_base64"])
        assert len(body) == written["body_length_bytes"]
        assert written["body_is_readable"]
        assert written["body_crc_matches"]
        if written["sys_flag"] & COMPRESSED:
            compressed += 1
        else:
            assert zlib.crc32(body) & 0x7FFFFFFF == written["body_crc"]
        if written["body_text"] is not None:
            assert written["body_text"].encode() == body
    assert compressed or not any(int(r[36:40].hex(), 16) & COMPRESSED for _, r in records(store))


def test_only_its_owner_can_read_it(store: Store, tmp_path: Path) -> None:
    file = save_message(records(store)[0][1], new_receipt_id(), tmp_path)
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for one in (file, file.with_suffix(".record")):
        assert stat.S_IMODE(one.stat().st_mode) == 0o600


def test_the_record_alone_is_a_log_that_every_command_reads(store: Store, tmp_path: Path) -> None:
    row, record = records(store)[0]
    file = save_message(record, new_receipt_id(), tmp_path)
    facts = json.loads(file.read_text())
    log = tmp_path / "one" / "commitlog"
    log.mkdir(parents=True)
    (log / f"{facts['commit_log_offset']:020d}").write_bytes(file.with_suffix(".record").read_bytes())
    from rmqtx.readers.store.broker_settings import broker_settings

    rows = audit([open_store(tmp_path / "one")], lambda one: broker_settings(one)).table().to_pylist()
    assert [one["transaction_id"] for one in rows] == [row["transaction_id"]]


def test_nothing_is_written_over(store: Store, tmp_path: Path) -> None:
    record, name = records(store)[0][1], new_receipt_id()
    save_message(record, name, tmp_path)
    with pytest.raises(UnwritableFile, match="nothing was discarded"):
        save_message(record, name, tmp_path)


def test_what_cannot_be_written_stops_the_act(store: Store, tmp_path: Path) -> None:
    (tmp_path / "messages").write_text("a file in the way")
    with pytest.raises(UnwritableFile, match="cannot save the message"):
        save_message(records(store)[0][1], new_receipt_id(), tmp_path)


def test_a_body_that_is_no_stream_is_kept_as_it_is(store: Store, tmp_path: Path) -> None:
    record = bytearray(next(data for _, data in records(store) if not int(data[36:40].hex(), 16) & COMPRESSED))
    record[36:40] = (int(record[36:40].hex(), 16) | COMPRESSED).to_bytes(4, "big")
    written = json.loads(save_message(bytes(record), new_receipt_id(), tmp_path).read_text())
    assert not written["body_is_readable"]
    assert zlib.crc32(base64.b64decode(written["body_base64"])) & 0x7FFFFFFF == written["body_crc"]


@pytest.mark.parametrize("cut", [0, 3, 40, 91, -1])
def test_what_is_no_record_is_refused(cut: int, store: Store, tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        save_message(records(store)[0][1][:cut], new_receipt_id(), tmp_path)
    assert not (tmp_path / "messages").exists()


@pytest.mark.parametrize("name", ["../../x", "x", ""])
def test_only_names_of_receipts_become_files(name: str, store: Store, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^"):
        save_message(records(store)[0][1], name, tmp_path)
