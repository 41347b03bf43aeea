"""One bit of an id in a record: other records or the index contradict it, and nothing is invented silently.

Each on stores that real brokers wrote, for every kind of record that bears an id.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_layout import NAME_END
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.comparing import COLUMNS, flipped
from tests.forge.stores import copy_of, settings_of
from tests.representatives import rest_is_slow
from tests.verdicts.following import Followed

Row = dict[str, Any]
FLIPS_OF_A_KIND = 4
STORES = ("common-4.9.7", "masked-5.3.3", "prepared-4.2.0", "common-5.5.0", "killed-4.4.0", "fifteen-4.9.7")
KINDS = {4: "prepared", 8: "final", 12: "rollback"}


def id_places(root: Path) -> dict[str, list[tuple[Row, int, int]]]:
    """The records that bear an id, by kind: where in the file its first letter is, and its length."""
    found: dict[str, list[tuple[Row, int, int]]] = {}
    for record in scan_records(open_store(root), columns=COLUMNS).table().to_pylist():
        in_topic = {HALF_TOPIC: "half", DISCARD_TOPIC: "discard"}.get(record["topic"])
        kind = in_topic or KINDS.get(record["sys_flag"] & 0xC)
        identity = dict(record["properties"] or []).get(UNIQ_KEY)
        if kind is None or identity is None:
            continue
        data = Path(record["file"]).read_bytes()
        name = UNIQ_KEY.encode() + bytes([NAME_END])
        begin = data.rindex(name, record["position_bytes"], record["position_bytes"] + record["length_bytes"])
        found.setdefault(kind, []).append((record, begin, len(identity)))
    return found


def read(root: Path, name: str) -> tuple[dict[str, Row], list[Finding]]:
    """The verdicts by id, and the findings."""
    reading = audit([open_store(root)], settings_of(name))
    return {row["transaction_id"]: row for row in reading.table().to_pylist()}, reading.findings


def flips(root: Path, *, of_name: bool) -> Iterator[tuple[str, Row, int, int]]:
    """A kind, a record, a byte of its file, and a bit: of the id, or of the name of the property."""
    chance = random.Random(f"{root} {of_name}".rsplit("/", 1)[-1])
    for kind, records in id_places(root).items():
        for record, begin, length in chance.sample(records, min(FLIPS_OF_A_KIND, len(records))):
            place = chance.randrange(len(UNIQ_KEY)) if of_name else len(UNIQ_KEY) + 1 + chance.randrange(length)
            yield kind, record, begin + place, 1 << chance.randrange(6)


def wrong_states(before: dict[str, Row], after: dict[str, Row], touched: int) -> list[str]:
    """What is said for certain that was not so; only the transaction of the touched record may be gone."""
    found = []
    for identity, row in before.items():
        now = after.get(identity)
        cites = any(entry["commit_log_offset"] == touched for name in ("half_copies", "final_records", "discard_copies",
                                                                      "op_marks") for entry in row[name])
        if now is None and not cites:
            found.append(f"{identity} is gone")
        elif now is not None and now["state"] not in (row["state"], "UNDECIDABLE"):
            found.append(f"{identity}: {row['state']} -> {now['state']}: {now['reason']}")
    for identity in after.keys() - before.keys():
        if after[identity]["state"] != "UNDECIDABLE":
            found.append(f"invented: {identity} {after[identity]['state']}: {after[identity]['reason']}")
    return found


@pytest.mark.parametrize("of_name", [False, True])
@pytest.mark.parametrize("name", rest_is_slow(STORES))
def test_an_id_that_others_contradict_is_found(name: str, of_name: bool, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    before, sound = read(root, name)
    assert "words-contradict" not in {finding.code for finding in sound}
    violations = []
    for kind, record, place, mask in flips(root, of_name=of_name):
        offset = record["commit_log_offset"]
        with flipped(Path(record["file"]), place, mask):
            after, findings = read(root, name)
        what = f"{kind} at {offset}, byte {place} ^ {mask:#x}"
        if not any(one.kind.severity == "error" for one in findings):
            violations.append(f"{what}: nothing was found")
        violations += [f"{what}: {line}" for line in wrong_states(before, after, offset)]
    assert violations == []


def test_an_audit_that_follows_knows_it_too(tmp_path: Path) -> None:
    name = "common-4.9.7"
    root = copy_of(name, tmp_path)
    record, begin, _ = id_places(root)["discard"][0]
    with flipped(Path(record["file"]), begin + len(UNIQ_KEY) + 20, 0x02):
        Followed([root], tmp_path / "checkpoint", settings_of(name)).assert_finds("words-contradict")


def test_an_index_that_is_damaged_takes_nothing_from_the_log(tmp_path: Path) -> None:
    """A hash in the index flips: its chain no longer leads to the entry, and the record is believed."""
    name = "common-4.9.7"
    root = copy_of(name, tmp_path)
    before, _ = read(root, name)
    (file,) = (root / "index").iterdir()
    places = [begin for record, begin, _ in id_places(root)["half"]]
    offsets = [record["commit_log_offset"] for record, _, _ in id_places(root)["half"]]
    assert places
    data = file.read_bytes()
    tried = 0
    for offset in offsets[::9]:
        entry = data.find(offset.to_bytes(8, "big"), 40 + 4 * 1000) - 4
        if entry < 0:
            continue
        with flipped(file, entry + 3, 0x10):
            after, findings = read(root, name)
        assert {key: row["state"] for key, row in after.items()} == {key: row["state"] for key, row in before.items()}
        assert "words-contradict" not in {finding.code for finding in findings}
        tried += 1
    assert tried > 3
