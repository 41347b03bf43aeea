"""A decided transaction whose COMMIT record the next start cuts off: the check reads its half copy again."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit import lookups
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.model.verdict_words import NextEvent, State
from tests.forge import damage
from tests.forge.stores import copy_of, settings_of
from tests.histories.damages import DAMAGES

#: Where the body of a record begins.
_BODY_AT = 88


def test_a_look_up_of_one_that_has_no_event_yet_reads_what_the_start_reads(tmp_path: Path) -> None:
    """Nothing else is open in what is looked up, so the log was not read, and the advice was `none`."""
    name = "common-5.3.3"
    root = copy_of(name, tmp_path)
    for kind in ("half cursor set", "op cursor set"):
        DAMAGES[kind](root, 0.0)
    before = audit([open_store(root)], settings_of(name)).table().to_pylist()
    one = max(
        (
            row for row in before
            if row["state"] == State.COMMITTED and row["next_event"] == NextEvent.NONE and len(row["op_marks"]) == 1
        ),
        key=lambda row: row["final_records"][-1]["commit_log_offset"],
    )
    place = one["final_records"][-1]["commit_log_offset"]
    file = next(file for file in reversed(damage.log_files(root)) if int(file.name) <= place)
    damage.flip_byte(file, place - int(file.name) + _BODY_AT)
    store = open_store(root)
    rows = {row["transaction_id"]: row for row in audit([store], settings_of(name)).table().to_pylist()}
    wanted = rows[one["transaction_id"]]
    assert wanted["next_event"] != NextEvent.NONE
    (found,) = lookups.lookup([store], settings_of(name), [one["transaction_id"]]).table().to_pylist()
    for column in ("state", "advice", "next_event", "next_event_at_ms"):
        assert found[column] == wanted[column]
