"""The stores of old brokers: their rows follow from their truth, what was planned happened, and what the clients, the
consumers and the broker said of each transaction fits together.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.brokers import corpus
from tests.brokers.expectation import expected_rows
from tests.brokers.store_files import log_end
from tests.brokers.test_corpus import MACHINE

DESIGNS = ("state_table", "prepared_records")
OUTCOMES: tuple[tuple[str, set[str]], ...] = (
    ("first_committed|commit|many_keys|delayed_commit|double_commit|.*_then_.*|late_commit", {"COMMITTED"}),
    ("rollback|double_rollback|rollback_at_check_1|later_rollback", {"ROLLED_BACK"}),
    ("commit_at_check_.|later_commit", {"COMMITTED"}),
    ("first_pending|wrong_.*|group_gone|asked_forever|later_pending", {"PENDING"}),
    ("local_transaction_throws", {"PENDING", "COMMITTED"}),
    ("pending", {"PENDING", "COMMITTED", "ROLLED_BACK"}),
    ("compressed|bare|last_second", {"COMMITTED", "ROLLED_BACK", "PENDING"}),
    ("first_decided_late", {"COMMITTED"}),
    ("late_end|decided_late", {"COMMITTED", "ROLLED_BACK"}),
    ("recovered", {"COMMITTED", "PENDING"}),
)
"""What may become of each plan."""
LATER_PLANS = re.compile("recovered|leftover$")
"""With these, transactions of another plan are decided, too."""


@pytest.fixture(params=[name for design in DESIGNS for name in corpus.corpus_names(design)])
def name(request: pytest.FixtureRequest) -> str:
    """Each store in turn."""
    return str(request.param)


def old(name: str) -> list[corpus.Row]:
    """The rows of prepared records: a store that was upgraded to half topics has others, too."""
    return [row for row in corpus.expected(name) if "design" in row]


def test_rows_follow_from_the_truth(name: str) -> None:
    assert corpus.expected(name) == expected_rows(corpus.truth(name))


def test_what_was_planned_happened(name: str) -> None:
    recipe = corpus.recipe(name)
    histories = {**recipe["histories"], **recipe.get("later", {})}
    undecided = not any(LATER_PLANS.match(history) for history in histories)
    for row in old(name):
        allowed = [outcomes for pattern, outcomes in OUTCOMES if re.fullmatch(pattern, row["plan"])]
        assert allowed, row["plan"]
        assert row["state"] in set().union(*allowed), row
        if row["plan"] in ("pending", "local_transaction_throws") and undecided:
            assert row["state"] == "PENDING", row


def test_each_witness_says_the_same(name: str) -> None:
    for row in old(name):
        handle = {"queue_id": row["queue_id"], "queue_offset": row["half_queue_offset"]}
        assert row["half_copies"] == [
            {**handle, "commit_log_offset": row["half_commit_log_offset"], "checks_count": 0}
        ], row
        assert row["deliveries_count"] == len(row["final_records"]), row
        assert all(record["topic"] == row["topic"] for record in row["final_records"]), row
        decided = {"COMMITTED": row["final_records"], "ROLLED_BACK": row["op_marks"], "PENDING": [None]}
        assert decided[row["state"]], row


def test_an_answer_of_refusal_left_nothing_behind(name: str) -> None:
    refused = {line["case"] for line in corpus.truth(name) if line["event"] == "decision_answer" and line["code"] != 0}
    rows = {row["case"]: row for row in old(name)}
    for case in refused & set(rows):
        assert rows[case]["state"] == "PENDING", rows[case]
    plans = {rows[case]["plan"] for case in refused & set(rows)}
    wanted = {"wrong_group", "wrong_number"} & set(corpus.recipe(name)["histories"])
    assert wanted <= plans


def test_nothing_of_the_machine_is_in_it(name: str, tmp_path: Path) -> None:
    root = corpus.unpack(name, tmp_path)
    files = [path for path in root.rglob("*") if path.is_file()]
    found = {(path.relative_to(root), match.group()) for path in files for match in MACHINE.finditer(path.read_bytes())}
    assert not found
    assert not MACHINE.search((corpus.CORPUS / name / corpus.RECIPE).read_bytes())
    ends = [line["commit_log_offset"] for line in corpus.truth(name) if line["event"] == "log_end"]
    assert log_end(root) == ends[-1]
