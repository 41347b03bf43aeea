"""A decision on a record outside the half topic, whose number is damaged: its queue knows better; its op is doubted.

On stores that real brokers wrote, in which such a decision's op hides a half that never was decided.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.comparing import COLUMNS, flipped
from tests.forge.stores import copy_of, settings_of
from tests.representatives import rest_is_slow
from tests.verdicts.following import Followed
from tests.verdicts.truth import wrong_states


def named_by_others(root: Path) -> list[tuple[Path, int, int]]:
    """Records outside the half topic that another record names: their file, position, and commit-log offset."""
    records = scan_records(open_store(root), columns=COLUMNS).table().to_pylist()
    named = {record["prepared_transaction_offset"] for record in records if record["topic"] != HALF_TOPIC} - {0}
    return [
        (Path(record["file"]), record["position_bytes"], record["commit_log_offset"]) for record in records
        if record["commit_log_offset"] in named and record["topic"] not in (HALF_TOPIC, OP_TOPIC)
    ]


@pytest.mark.parametrize("field", ["queue_offset", "queue_id"])
@pytest.mark.parametrize(
    "name", rest_is_slow(["masked-4.3.0", "masked-5.3.3", "masked-4.4.0", "masked-4.9.7"], quick=1)
)
def test_a_damaged_number_hides_no_lost_transaction(name: str, field: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    before = {row["transaction_id"]: row["state"] for row in audit([open_store(root)], settings_of(name)).table()
              .to_pylist()}
    places = named_by_others(root)
    assert places
    for file, position, offset in places:
        size = 8 if field == "queue_offset" else 4
        for byte, mask in ((0, 0x01), (size - 2, 0x10), (size - 1, 0x01)):
            with flipped(file, position + AT[field] + byte, mask):
                reading = audit([open_store(root)], settings_of(name))
                after = {row["transaction_id"]: row["state"] for row in reading.table().to_pylist()}
                errors = [one for one in reading.findings if one.kind.severity == "error"]
            assert wrong_states(before, after) == {}, f"{offset} {byte}"
            assert errors or after == before, f"{offset} {byte}"


def test_an_audit_that_follows_knows_it_too(tmp_path: Path) -> None:
    name = "masked-5.3.3"
    root = copy_of(name, tmp_path)
    file, position, _ = named_by_others(root)[0]
    with flipped(file, position + AT["queue_offset"], 0x01):
        Followed([root], tmp_path / "checkpoint", settings_of(name)).assert_finds("slot-mismatch")
