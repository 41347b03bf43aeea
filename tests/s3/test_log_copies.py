"""Copies of one broker's log in object storage: their newest bytes are compared, and what was not compared is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit import log_copies as module
from rmqtx.verdicts.audit.log_copies import glance_at_copies, log_copies
from tests.field import field_stores
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.s3.conftest import Run
from tests.s3.server import S3Server


def forged(to: Path, name: str, common: int, own: int) -> Path:
    forge = Forge(to / name)
    for number in range(common):
        forge.half(f"COMMON{number}")
    for number in range(own):
        forge.half(f"{name.upper()}{number}")
    return forge.write()


@pytest.mark.parametrize("command", ["audit", "pending", "verify", "diff"])
def test_a_slave_in_object_storage_is_compared(
    command: str, s3: S3Server, rmqtx: Run, tmp_path: Path
) -> None:
    root = field_stores("partial-slave", tmp_path)
    uris = [s3.upload(root / name, f"evidence/copies/{name}") for name in ("master", "slave")]
    result = rmqtx(command, *uris)
    assert "copy-lacks-pending" in result.out + result.err
    assert "38 of them are not in this copy" in result.out + result.err
    assert "logs-differ" not in result.out + result.err
    assert "that both have were compared" in result.err


def test_logs_that_differ_are_found_by_their_newest_bytes(s3: S3Server, tmp_path: Path) -> None:
    places = [forged(tmp_path, "new", 5, 2), forged(tmp_path, "old", 5, 2)]
    [here] = log_copies([open_store(place) for place in places])
    uris = [s3.upload(place, f"evidence/differing/{place.name}") for place in places]
    for stores in ([uris[0], uris[1]], [uris[0], str(places[1])]):
        [group] = log_copies([open_store(place) for place in stores])
        found = [replace(one, root="") for one in group.differences]
        assert found == [replace(one, root="") for one in here.differences]
        [finding] = group.findings()
        assert "of the newest 64 MiB that both have: older ones may differ too" in (finding.actual or "")


def test_older_bytes_in_object_storage_are_not_read(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A difference before the newest bytes is not found, and the note says that it was not searched for."""
    monkeypatch.setattr(module, "_REMOTE_BYTES", 64)
    place = forged(tmp_path, "new", 7, 0)
    uris = [s3.upload(place, "evidence/early/one")]
    data = bytearray((place / "commitlog" / ("0" * 20)).read_bytes())
    data[30] ^= 1
    (place / "commitlog" / ("0" * 20)).write_bytes(data)
    uris.append(s3.upload(place, "evidence/early/other"))
    [group] = log_copies([open_store(uri) for uri in uris])
    assert group.differences == ()
    assert group.note is not None


def test_a_glance_at_long_logs_reads_their_ends_only(s3: S3Server, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "long", segment_bytes=32 << 20)
    for number in range(24):
        forge.append(Message(topic=HALF_TOPIC, body=f"{number:02}".encode() * (1 << 19)))
    place = forge.write()
    stores = [open_store(s3.upload(place, f"evidence/long/{name}")) for name in ("one", "other")]
    s3.requests()
    firsts, _ = glance_at_copies(stores, 1 << 20)
    assert list(firsts.values()) == [stores[0].root]
    words = [request.split() for request in s3.requests() if "/commitlog/" in request and request.startswith("GET")]
    spans = [one[2].removeprefix("bytes=").split("-") for one in words if len(one) > 2]
    read_bytes = sum(int(last) - int(first) + 1 for first, last in spans)
    assert 0 < read_bytes < 2 * (6 << 20), (read_bytes, words)
