"""Simulated rounds of the check against those that real brokers made on copies of the corpus's stores.

The truth of each store ends with what the same broker put back when it was started on a copy of it, with producers that
answer nothing and a check every second: every copy with its place, its time and its properties, and the cursors.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.releases import parse_version
from rmqtx.verdicts.check.check_rules import Action, CheckRules, CheckSettings, Round, check_rules
from rmqtx.verdicts.check.half_queue_check import play_round
from rmqtx.verdicts.check.state import CheckState
from rmqtx.verdicts.check.window import CheckWindow, check_window
from tests.brokers import corpus
from tests.brokers.rig import HALF_TOPIC, OP_TOPIC
from tests.forge.stores import opened
from tests.representatives import each_store

Row = dict[str, Any]
#: With a check every second, copies further apart than this belong to different rounds.
APART_MS = 400
#: Halves with a delay level go through the schedule topic each time that they are put back (to 4.6.0).
THROUGH_ANOTHER_TOPIC = {"delayed-4.3.0", "delayed-4.4.0"}
NAMES = [name for name in corpus.corpus_names() if name not in THROUGH_ANOTHER_TOPIC]


def rules_of(name: str) -> CheckRules:
    return check_rules(parse_version(str(corpus.recipe(name)["version"])))


def real_rounds(lines: list[Row]) -> list[list[Row]]:
    """The copies that the broker put back, round by round."""
    rounds: list[list[Row]] = []
    for line in lines:
        if line["event"] == "after_put_back":
            if not rounds or line["store_time_ms"] - rounds[-1][-1]["store_time_ms"] > APART_MS:
                rounds.append([])
            rounds[-1].append(line)
    return rounds


def said(copy: Row) -> tuple[Any, ...]:
    """What the broker wrote of a copy."""
    words = copy["properties"]
    prepared = words.get("TRAN_PREPARED_QUEUE_OFFSET")
    return (
        copy["queue_offset"], copy["transaction_id"], int(words["TRANSACTION_CHECK_TIMES"]),
        None if prepared is None else int(prepared),
    )


def simulated(window: CheckWindow, played: Round, real: list[Row]) -> list[tuple[Any, ...]]:
    """The same of the copies of a simulated round; without an id where the broker shows none."""
    rows = []
    for number, copy in enumerate(step.written for step in played.steps if step.written is not None):
        name = window.words["transaction_id"][copy.row].as_py()
        if number < len(real) and real[number]["transaction_id"] is None:
            name = None
        rows.append((copy.queue_offset, name, copy.checks_count, copy.prepared_queue_offset))
    return rows


def at_its_time(state: CheckState, name: str, first_ms: int) -> Round:
    """The round whose first copy the broker stored at a time: from 5.1.0 on it may have waited a second for ops."""
    reserved_hours = int(corpus.recipe(name)["broker_conf"]["fileReservedTime"])
    settings, rules = CheckSettings(1_000, 100_000, 1_000, reserved_hours * 3_600_000), rules_of(name)
    played = play_round(state, rules, settings, first_ms - 1)
    waited_ms = next((step.time_ms for step in played.steps if step.written), first_ms - 1) - (first_ms - 1)
    return play_round(state, rules, settings, first_ms - 1 - waited_ms) if waited_ms else played


@pytest.mark.parametrize("name", each_store(NAMES))
def test_every_round_is_that_of_the_broker(name: str) -> None:
    lines = corpus.truth(name)
    store = opened(name)
    known = check_cursors(store)
    assert known.half is not None
    assert known.op is not None
    window = check_window(store, rules_of(name), 0, known.half.get(0), known.op.get(0))
    state = window.state
    cursors = {(state.half_cursor, state.op_cursor)}
    for number, real in enumerate(real_rounds(lines)):
        played = at_its_time(state, name, real[0]["store_time_ms"])
        assert simulated(window, played, real) == [said(copy) for copy in real], f"round {number + 1}: {played.stop}"
        copies = [step for step in played.steps if step.written is not None]
        for (here, following), step in zip(pairwise(real), copies, strict=False):
            length = following["commit_log_offset"] - here["commit_log_offset"]
            assert length == step.written_bytes or is_at_an_end(name, following), f"round {number + 1}: {here}"
        assert {step.action for step in copies} <= {Action.CHECKED, Action.IMMUNE}
        state = played.state
        cursors.add((state.half_cursor, state.op_cursor))
    last = {line["topic"]: line["queue_offset"] or 0 for line in lines if line["event"] == "after_cursor"}
    assert (last[HALF_TOPIC], last[OP_TOPIC]) in cursors


def is_at_an_end(name: str, record: Row) -> bool:
    """Whether a record is the first of its segment: a blank record stands before it."""
    size = int(corpus.recipe(name)["broker_conf"]["mappedFileSizeCommitLog"])
    return bool(record["commit_log_offset"] % size == 0)
