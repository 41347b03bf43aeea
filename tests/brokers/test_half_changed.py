"""Brokers on the stores that crashes of `rmqtx apply --in-place` left, as if nobody had heard of the undo file.

Every half changed store that differs for a broker, and the one that is undone, and the one that is completed. It must
start, lose nothing that was there, deliver no commit twice; and rmqtx must find the rest to do. `make test-crashes`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from rmqtx.readers.store.store import BEGUN_MARK, OWN_PREFIX, open_store
from rmqtx.repairs.acts.log_tail import log_end
from tests.brokers import corpus, maven
from tests.brokers.rig import Rig
from tests.brokers.watching import CALM, Seen, booted, finding_codes
from tests.repairs.applied import ACTIONS, STORE, Scene, Story
from tests.repairs.crash_states import State

WHY_NOT = maven.why_not()
IS_WHOLE = bool(os.environ.get("RMQTX_CRASHES"))
VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "4.9.7 5.1.4 5.3.3").split()
KINDS = os.environ.get("RMQTX_OFFLINE_STORES", "multipath killed").split()

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}"),
    pytest.mark.skipif(not IS_WHOLE, reason="make test-crashes runs it"),
]


def as_a_broker_reads_it(state: State) -> frozenset[tuple[str, bytes]]:
    """The store without what waits for its name under one of ours, which is nothing to a broker."""
    return frozenset(
        (path, data) for path, data in state.content.items()
        if path.startswith(f"{STORE}/") and not Path(path).name.startswith(OWN_PREFIX)
    )


def distinct(states: list[State]) -> list[State]:
    """States whose stores a broker can tell apart: the first of each, and half changed rather than not."""
    found: dict[frozenset[tuple[str, bytes]], State] = {}
    for state in sorted(states, key=lambda one: f"{STORE}/{BEGUN_MARK}" not in one.content):
        found.setdefault(as_a_broker_reads_it(state), state)
    return list(found.values())


class Boot:
    """What a broker made of a store."""

    def __init__(self, rig: Rig, scene: Scene) -> None:
        cases = {name: case for case, name in scene.ids().items()}
        seen = self.seen = Seen(cases)
        shutil.rmtree(rig.store, ignore_errors=True)
        shutil.copytree(scene.store, rig.store)
        with booted(rig, seen.take) as agent:
            seen.meet_clients(agent, corpus.recipe(scene.name))
        shutil.rmtree(scene.store)
        shutil.copytree(rig.store, scene.store)


def kept(scene: Scene, before: dict[str, bytes], end: int, size: int) -> Iterator[str]:
    """Files of the log that are not as they were, up to where it ended."""
    now = scene.content()
    for path, data in before.items():
        if path.startswith("commitlog"):
            length = max(0, min(size, end - int(path[-20:])))
            if now.get(path, b"")[:length] != data[:length]:
                yield path


@pytest.mark.parametrize("name", [f"{kind}-{version}" for kind in KINDS for version in VERSIONS])
def test_a_broker_that_is_started_on_half_a_change(name: str, tmp_path: Path) -> None:
    story = Story(tmp_path / "scene", name)
    rows_before = {row["case"]: row for row in corpus.expected(name)}
    states = distinct(story.states)
    scene = story.scene
    for _ in story.laid_out(story.applying[:1]):
        log = open_store(scene.store)
        end, size = log_end(log).offset, log.commit_log[-1].size_bytes
    with Rig(scene.version, tmp_path / "rig", {**scene.conf, **CALM}) as rig:
        rig.start_names()
        for state, _ in story.laid_out(states):
            is_half = scene.content() not in (story.before, story.after)
            boot = Boot(rig, scene)
            assert list(kept(scene, story.before, end, size)) == [], state.what
            rows = scene.rows()
            asked = {
                case for case, row in rows.items()
                for copy in row["half_copies"] if copy["commit_log_offset"] >= end and copy["checks_count"] > 0
            }
            for case, row in rows_before.items():
                ours = ACTIONS.get(case) == "commit" and len(rows[case]["final_records"]) == 1
                assert boot.seen.delivered[case] == len(row["final_records"]) + ours, (state.what, case)
            done = {case: len(rows[case]["final_records"]) + len(rows[case]["op_marks"]) for case in ACTIONS}
            mine = {case: ("asked " if case in asked else "") + str(rows[case]["state"]) for case in ACTIONS}
            print(f"{name}: {state.what}: {mine}; {done}")
            was_open = {case for case, row in rows_before.items() if row["open"]}
            assert was_open - ACTIONS.keys() <= asked <= was_open | {"never_answered.0"}, state.what
            told = ["half-changed"] if (scene.store / BEGUN_MARK).exists() else []  # nobody removes it before `finish`
            assert finding_codes(scene.store, tmp_path) == told, state.what
            finish(scene, is_half=is_half, what=state.what)


def finish(scene: Scene, *, is_half: bool, what: str) -> None:
    """After a broker nothing is taken back or completed, and the plan goes on where the log says it is."""
    if scene.undo_file.exists():
        for way in ((), ("--resume",)):
            told = scene.undo(*way)
            assert told.status == exit_status.STALE_PLAN, (what, told.err)
    told = scene.apply(scene.undo_file.with_name("another"), "--skip-stale")
    print(f"    apply again: {told.status} {told.err.splitlines()[-3:]}" if is_half else "")
    rows = scene.rows()
    for case, action in ACTIONS.items():
        assert len(rows[case]["final_records"]) == int(action == "commit"), (what, case, told.err)
