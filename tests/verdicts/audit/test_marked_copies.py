"""Copies that `rmqtx redeliver --store` sent, in the files: listed, and no command delivers a second time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx.readers.log.properties import ORIGIN
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.carry_out import checked_acts
from rmqtx.repairs.acts.log_tail import log_end
from rmqtx.repairs.acts.orders import ActOrder, Conduct
from rmqtx.repairs.acts.request import ActRequest
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import show
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, timeline
from tests.brokers import corpus
from tests.forge.records import Message
from tests.forge.stores import copy_of, settings_of
from tests.repairs.acting import medium_of

NAME = "common-5.3.3"
ORIGIN_ID = "7F00000100002AC70000000000001937"


def with_copy(tmp_path: Path, identity: str, topic: str, *, is_marked: bool = True) -> Path:
    """A store in whose log a message with this id follows, as a broker stores it before it indexes it."""
    root = copy_of(NAME, tmp_path)
    end = log_end(open_store(root)).offset
    properties = (("UNIQ_KEY", identity), *(((ORIGIN, f"{ORIGIN_ID}:0123456789abcdef"),) if is_marked else ()))
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(end)
        file.write(Message(topic=topic, queue_id=1, queue_offset=77, properties=properties).record(end))
    return root


def rows_by_id(root: Path) -> dict[str, dict[str, object]]:
    found: pa.Table = audit([open_store(root)], settings_of(NAME)).table()
    return {row["transaction_id"]: row for row in found.to_pylist()}


def one_of(plan: str) -> tuple[str, str]:
    """Id and topic of a transaction of the store."""
    row = next(row for row in corpus.expected(NAME) if row["plan"] == plan)
    return row["transaction_id"], row["topic"]


@pytest.mark.parametrize(("plan", "state"), [("never_answered", "DISCARDED"), ("rollback", "ROLLED_BACK")])
def test_a_copy_is_listed_and_no_second_delivery_is_advised(tmp_path: Path, plan: str, state: str) -> None:
    identity, topic = one_of(plan)
    root = with_copy(tmp_path, identity, topic)
    rows = rows_by_id(root)
    assert [name for name, row in rows.items() if "redelivered" in row["flags"]] == [identity]  # type: ignore[operator]
    assert (rows[identity]["state"], rows[identity]["advice"]) == (state, "none")
    store = open_store(root)
    shown = show([store], settings_of(NAME), identity).table().to_pylist()
    assert [row["flags"] for row in shown] == [rows[identity]["flags"]]
    events = timeline(shown[0], [StoreTimelineSource(store, settings_of(NAME)(store))]).to_pylist()
    (copy,) = [event for event in events if event["event"] == "redelivered"]
    assert (copy["topic"], copy["queue_id"], copy["queue_offset"]) == (topic, 1, 77)
    assert ORIGIN_ID in copy["detail"]


def test_a_message_without_the_mark_is_no_copy(tmp_path: Path) -> None:
    """An application that sends it again uses a new id; this one is of another tool, and nothing is known of it."""
    identity, topic = one_of("never_answered")
    row = rows_by_id(with_copy(tmp_path, identity, topic, is_marked=False))[identity]
    assert (row["advice"], "redelivered" in row["flags"]) == ("resume", False)  # type: ignore[operator]


def test_acts_on_the_files_are_refused(tmp_path: Path) -> None:
    identity, topic = one_of("never_answered")
    root = with_copy(tmp_path, identity, topic)
    medium = medium_of(root, "5.3.3", Destination(undo_file=tmp_path / "undo"))
    for action in (ActKind.COMMIT, ActKind.RESUME):
        (found,) = checked_acts([ActOrder(identity, ActRequest(action), "because")], medium, Conduct())
        assert "already-delivered" in [refusal.guard for refusal in found.refusals]
