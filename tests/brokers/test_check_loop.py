"""The next rounds of a real broker's check, foreseen from a copy of its store.

A store with a lagging op cursor, immune halves, batched ops (5.1.0 and later) and transactions whose checks are nearly
spent is copied while its broker is stopped. The broker then makes its rounds; what it put back, asked, gave up on, and
its cursors after each round are compared with the rounds that were simulated on the copy.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model import clock
from rmqtx.readers.model.releases import parse_version
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.check.check_rules import Action, CheckRules, CheckSettings, Round, check_rules
from rmqtx.verdicts.check.half_queue_check import play_round
from rmqtx.verdicts.check.state import CheckState
from rmqtx.verdicts.check.window import CheckWindow, check_window
from tests.brokers import maven
from tests.brokers.histories import IMMUNITY
from tests.brokers.rig import CHECK_GROUP, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Event, Rig
from tests.brokers.rocks_recipes import QUEUES_IN_ROCKSDB
from tests.brokers.script import Script
from tests.brokers.stage import Play

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split()
WHY_NOT = maven.why_not()
CHECK_MAX, INTERVAL_MS, TIME_OUT_MS = 4, 2_500, 1_000
SETTINGS = CheckSettings(TIME_OUT_MS, CHECK_MAX, INTERVAL_MS, 48 * 3_600_000)
ROUNDS_MIN = 3
#: Records further apart than this belong to different rounds; within one the loop may wait a second for ops.
APART_MS = 1_800
PATIENCE_MS = 60_000
LOGGED = re.compile(r"Before check, the queue=.*topic=" + HALF_TOPIC + r".* msgOffset=(\d+) opOffset=(\d+)")
NEVER_MS = "600000"
Stop = Literal["clean", "kill"]

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def write_store(version: str, out: Path, how: Stop = "clean", more: Mapping[str, str] | None = None) -> Path:
    """Have a broker write the store, and stop it; gives the store's root. `more`: settings of the broker."""
    conf = {"transactionCheckMax": "100", "transactionTimeOut": "1000", "transactionOpBatchInterval": "300"}
    conf |= more or {}
    play = Play(Script(version, 11, {}, conf=conf, topics={"orders": 2}), out)
    rng = Random(version)
    with play.rig as rig:
        rig.start_names()
        play.boot()
        play.send_all("commit", 2, rng, first="COMMIT")
        play.until_checked(play.send_all("unanswered", 3, rng), 2)
        play.config(transactionTimeOut=NEVER_MS)
        time.sleep(1.5)  # no round with the old setting is under way any more
        decided = []
        for number, first in enumerate(("UNKNOWN", "COMMIT", "ROLLBACK", "UNKNOWN", "COMMIT", "COMMIT", "UNKNOWN")):
            one = play.send("mixed", number, rng, first=first)
            play.until_sent([one])
            decided += [one] if first != "UNKNOWN" else []
            if number in (2, 5):
                immune = play.send("immune", number, rng, **{f"p.{IMMUNITY}": 3_600 if number == 2 else 12})
                play.until_sent([immune])
        time.sleep(1.5)  # the ops of the decisions are written in batches
        play.halt(how)
    return play.rig.store


@dataclass(frozen=True)
class Seen:
    """What the broker did in its rounds.

    Shape: `cursors`: half and op cursor before each round, as the broker logs them. `asked`: the checks that its
           producer got. `copies` and `discards`: the records of the half topic and of the discard topic, as it serves
           them.
    """

    cursors: list[tuple[int, int]]
    asked: list[Event]
    copies: list[Event]
    discards: list[Event]


def let_it_check(version: str, store: Path, out: Path, more: Mapping[str, str] | None = None) -> Seen:
    """Start the broker on a store with a producer that answers nothing, for some rounds, and stop it."""
    shutil.copytree(store, out / "store")
    conf = {
        "transactionCheckMax": str(CHECK_MAX), "transactionTimeOut": str(TIME_OUT_MS),
        "transactionCheckInterval": str(INTERVAL_MS), **(more or {}),
    }
    asked: list[Event] = []
    with Rig(version, out, conf) as rig:
        rig.start_names()
        agent = rig.agent(on_event=lambda event: asked.append(event) if event["event"] == "check" else None)
        rig.start_broker()
        rig.wait_broker(agent)
        agent.do("producer", group="shop", topic="orders")
        # a 5.x client tells a broker of its group only after it has sent something there
        agent.start("send", group="shop", topic="orders", kind="ordinary", case="hello", plan="hello", body="aGVsbG8=")
        end_ms = clock.now_ms() + PATIENCE_MS
        while len(logged_cursors(out)) <= ROUNDS_MIN and clock.now_ms() < end_ms:
            time.sleep(0.2)
        discards, copies = rig.pull(agent, DISCARD_TOPIC), rig.pull(agent, HALF_TOPIC)
    return Seen(logged_cursors(out), asked, copies, discards)


def logged_cursors(out: Path) -> list[tuple[int, int]]:
    """What the broker logs before each round; where it logs that differs by version."""
    for log in sorted(out.rglob("*.log")):
        found = LOGGED.findall(log.read_text(encoding="utf-8", errors="replace"))
        if found:
            return [(int(half), int(op)) for half, op in found]
    return []


def set_op_cursor_back(store: Path) -> None:
    """Let the op cursor lag, as after a restore of config/ from a backup."""
    pattern = re.compile(r'("' + OP_TOPIC + "@" + CHECK_GROUP + r'":\s*\{\s*"?0"?:\s*)(\d+)')
    for path in (store / "config").glob("consumerOffset.json*"):
        path.write_text(pattern.sub(lambda found: found.group(1) + "0", path.read_text()))


Did = list[tuple[Any, ...]]


def real_rounds(seen: Seen, half_end: int) -> list[list[Event]]:
    """What the broker wrote, round by round, in the order of the log."""
    written = [copy for copy in seen.copies if copy["queue_offset"] >= half_end] + seen.discards
    rounds: list[list[Event]] = []
    for record in sorted(written, key=lambda record: int(record["commit_log_offset"])):
        if not rounds or record["store_time_ms"] - rounds[-1][-1]["store_time_ms"] > APART_MS:
            rounds.append([])
        rounds[-1].append(record)
    return rounds


def said(records: list[Event]) -> Did:
    """What a round of the broker wrote."""
    rows: Did = []
    for record in records:
        words = record["properties"]
        checks, prepared = int(words["TRANSACTION_CHECK_TIMES"]), words.get("TRAN_PREPARED_QUEUE_OFFSET")
        if record["topic"] == DISCARD_TOPIC:
            rows.append(("given up", record["transaction_id"], checks))
        else:
            prepared = None if prepared is None else int(prepared)
            rows.append(("put back", record["transaction_id"], checks, record["queue_offset"], prepared))
    return rows


def foreseen(window: CheckWindow, rules: CheckRules, played: Round) -> Did:
    """The same of a simulated round; giving up leaves no trace before 4.5.2."""
    names = window.words["transaction_id"].to_pylist()
    rows: Did = []
    for step in played.steps:
        if step.written is not None:
            copy = step.written
            rows.append(
                ("put back", names[copy.row], copy.checks_count, copy.queue_offset, copy.prepared_queue_offset)
            )
        elif step.action is Action.DISCARDED and rules.writes_discard_copy:
            assert step.half is not None
            rows.append(("given up", names[step.half.row], step.half.checks_count))
    return rows


def play(state: CheckState, rules: CheckRules, first_ms: int, in_sight: int | None) -> Round:
    """The round whose first record was stored at a time: the loop may have waited a second for ops before."""
    begin_ms = first_ms - 1
    played = play_round(state, rules, SETTINGS, begin_ms, in_sight)
    waited_ms = next((step.time_ms for step in played.steps if step.written_bytes), begin_ms) - begin_ms
    return play_round(state, rules, SETTINGS, begin_ms - waited_ms, in_sight) if waited_ms else played


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_rounds_are_those_that_were_foreseen(version: str, tmp_path: Path) -> None:
    root = write_store(version, tmp_path / "written")
    set_op_cursor_back(root)
    store = open_store(root)
    known = check_cursors(store)
    assert known.half is not None
    assert known.op == {0: 0}
    rules = check_rules(parse_version(version))
    window = check_window(store, rules, 0, known.half[0], known.op[0])
    state = window.state
    ops = [state.ops.op_at(place) for place in range(state.op_end)]
    assert any(not op.numbers for op in ops if op), "an op that names only what lies before the half cursor"
    assert any(len(op.numbers) > 1 for op in ops if op) or not rules.reads_lists, "a batch"
    seen = let_it_check(version, root, tmp_path / "checked")
    actions = require_foreseen(window, rules, seen, version)
    assert actions == {Action.CHECKED, Action.IMMUNE, Action.DISCARDED, Action.ENDED}


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize("version", os.environ.get("RMQTX_ROCKSDB_VERSIONS", "5.5.0").split())
def test_the_same_with_queues_in_rocksdb(version: str, how: Stop, tmp_path: Path) -> None:
    """A killed broker has lost what its database did not have yet: the next start writes it again from the log."""
    root = write_store(version, tmp_path / "written", how, QUEUES_IN_ROCKSDB)
    store = open_store(root)
    assert store.has_rocksdb_queues
    known = check_cursors(store)
    assert known.half is not None
    assert known.op is not None
    rules = check_rules(parse_version(version))
    window = check_window(store, rules, 0, known.half.get(0), known.op.get(0))
    seen = let_it_check(version, root, tmp_path / "checked", QUEUES_IN_ROCKSDB)
    assert Action.CHECKED in require_foreseen(window, rules, seen, f"{version}, {how}")


def require_foreseen(window: CheckWindow, rules: CheckRules, seen: Seen, what: str) -> set[Action]:
    """Require that the first rounds did what a simulation foresees, and return what they did."""
    state = window.state
    rounds = real_rounds(seen, state.half_end)
    assert len(rounds) >= ROUNDS_MIN
    assert seen.cursors[0] == (state.half_cursor, state.op_cursor)
    actions: set[Action] = set()
    asked: list[set[int]] = []
    for number, real in enumerate(rounds[:ROUNDS_MIN], 1):
        first_ms = real[0]["store_time_ms"]
        wanted = said(real)
        possible = [play(state, rules, first_ms, in_sight) for in_sight in (None, *range(len(wanted) + 1))]
        # How many of its own copies a round comes upon is a matter of chance; one such number must explain all of it.
        fitting = [one for one in possible if foreseen(window, rules, one) == wanted]
        assert fitting, f"round {number}"
        ends = [(one.state.half_cursor, one.state.op_cursor) for one in fitting]
        assert seen.cursors[number] in ends, f"round {number}"
        played = fitting[ends.index(seen.cursors[number])]
        later = foreseen(window, rules, possible[0])[len(wanted) :]
        own = [step for step in possible[0].steps if step.is_own_copy]
        assert len(later) <= len(own), "only what it put back in the same round may come a round later"
        state = played.state
        actions |= {step.action for step in played.steps}
        checked = [step.written for step in played.steps if step.action is Action.CHECKED]
        asked.append({copy.queue_offset for copy in checked if copy is not None})
    checks = {event["queue_offset"] for event in seen.asked}
    # Clients take their time, on a busy machine all of it.
    connected = next((number for number, copies in enumerate(asked) if copies & checks), len(asked))
    for number, copies in enumerate(asked[connected + 1 :], connected + 2):
        assert copies <= checks, f"round {number}"
    every = set().union(*asked)
    assert {copy for copy in checks if copy <= max(every)} <= every
    print(f"{what}: {ROUNDS_MIN} rounds, {[len(one) for one in rounds[:ROUNDS_MIN]]} records, as foreseen")
    return actions
