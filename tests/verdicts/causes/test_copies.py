"""Causes in half copies: spoiled by a resume, without room, in light queues."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from rmqtx.readers.log.light_queues import halves_in_light_queues
from rmqtx.readers.store.store import open_store
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened
from tests.verdicts.causes.diagnosed import diagnosed, strengths


def test_half_messages_that_light_queues_show(tmp_path: Path) -> None:
    name = "lmqhalf-5.5.0"
    halves = halves_in_light_queues(opened(name))
    light = [row for row in corpus.expected(name) if row["plan"] == "light_half"]
    assert set(halves.tolist()) == {copy["commit_log_offset"] for row in light for copy in row["half_copies"]}
    assert np.array_equal(halves, np.sort(halves))
    assert strengths(diagnosed(name, "5.5.0")[1])["light-queue-shows-half"] == {"explains": len(light)}
    root = copy_of(name, tmp_path / "store")
    for queue in root.glob("consumequeue/%LMQ%*"):
        shutil.rmtree(queue)
    assert not len(halves_in_light_queues(open_store(root)))


def test_ordinary_messages_in_light_queues_are_no_cause() -> None:
    for name in ("lmq-4.9.3", "lmq-5.3.2"):
        assert any(opened(name).topics())
        assert not len(halves_in_light_queues(opened(name)))


def test_nothing_behind_a_half_message_without_room_is_checked() -> None:
    name = "noroom-5.5.0"
    behind = [row for row in corpus.expected(name) if row["state"] == "PENDING"]
    assert {row["plan"] for row in behind} == {"no_room_for_properties", "before_no_room", "behind_no_room"}
    assert not any(row["checks_seen"] for row in behind if row["plan"] != "before_no_room")
    found = strengths(diagnosed(name, "5.5.0")[1])
    assert found["no-room-for-check"] == {"explains": len(behind)}
    assert "half-unreadable-exception" not in found

def test_a_resume_spoils_compressed_bodies() -> None:
    name = "discards-4.9.7"
    spoiled = [row for row in corpus.expected(name) if row["plan"] == "resumed_compressed"]
    for version, strength in (("4.9.7", "explains"), ("5.3.2", "ruled_out")):
        assert strengths(diagnosed(name, version)[1])["resume-spoils-compressed"] == {strength: len(spoiled)}
