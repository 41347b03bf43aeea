"""Acts of rmqtx on a stopped store, and what the machine does then: what the act says, and nothing else?"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from rmqtx.repairs.acts.guards import GUARD_NAMES
from tests.conftest import MOMENT
from tests.fuzz.asking import ask
from tests.histories.comparing import Compared, first_event
from tests.histories.futures import Fork
from tests.histories.steps import TOPICS
from tests.histories.truth import Truth
from tests.histories.world import World

ACTS = ("commit", "commit", "rollback", "discard", "resume")
ROUNDS = 3
_SHARE_OF_OPEN = 0.8
#: An act leaves `abort`, so the start recovers the log and enters what the queues lack; a clean start does not.
_REBUILT = frozenset({
    "no half queue", "no op queue", "no queues", "zeroed end of the half queue", "zeroed end of the op queue",
})


def force(result: Compared, world: World, truth: Truth, work: Path, random: Random) -> None:
    """Act on one transaction of a store, and compare what the machine does with what it does without the act."""
    named = [row for row in result.rows if row["transaction_id"] and row["half_copies"]]
    if not named or truth.refusal is not None or "flipped byte of the log" in truth.damages:
        return  # what the start cuts off is delivered no more, with the act or without it
    open_ones = [row for row in named if row["state"] == "PENDING"]
    row = random.choice(open_ones if open_ones and random.random() < _SHARE_OF_OPEN else named)
    act = random.choice(ACTS)
    status, words = acted(world, truth, row["transaction_id"], act, work)
    if status:
        result.counts[f"refused {act}: {words}"] += 1
        return
    result.counts[f"forced {act}"] += 1
    places = {copy["commit_log_offset"] for copy in row["half_copies"]}
    ours = next((one.number for one in truth.transactions if one.copies and one.copies[-1][1] in places), None)
    where = f"{act} tx-{ours} {row['state']}"
    future = Fork(world.machine, work, truth.conf, truth.now_ms)
    if future.refusal is not None:
        result.differences.append(f"force {where}: the broker does not start: {future.refusal}")
        future.end()
        return
    interval_ms = int(truth.conf["transactionCheckInterval"])
    rounds = [future.round(truth.now_ms + interval_ms * turn) for turn in range(1, ROUNDS + 1)]
    delivered = Counter(one.number for one in future.records() if one.is_delivered)
    future.end()
    shutil.rmtree(work)
    for one in truth.transactions:
        is_ours = one.number == ours
        wanted = sum(place >= truth.log_begin for place in one.delivered) + (is_ours and act == "commit")
        # The check puts the record of a slot that leads to another topic back into that topic, with the act or without.
        wanted += sum(
            record.topic in TOPICS and record.number == one.number
            for happened in truth.rounds[:ROUNDS] for record in happened.written
        )  # fmt: skip
        result.take("force delivers", f"{where}: tx-{one.number}", wanted, delivered[one.number])
        event = first_event(one, rounds)
        if is_ours and act != "resume":
            result.take("force ends", where, "none", event)
        elif not is_ours and not _REBUILT.intersection(truth.damages):
            result.take("force leaves", f"{where}: tx-{one.number}", first_event(one, truth.rounds[:ROUNDS]), event)


def acted(world: World, truth: Truth, transaction_id: str, act: str, to: Path) -> tuple[int, str]:
    """Act on a copy of the store, as a user does; the exit status, and the guards that refuse."""
    shutil.rmtree(to, ignore_errors=True)
    conf = world.root.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in world.conf.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOMENT, lambda _: truth.now_ms)
        patch.setattr("rmqtx.repairs.acts.file_medium._now_ms", lambda: truth.now_ms)
        answer = ask([
            act, transaction_id, "--store", str(world.root), "--to", str(to), "--broker-conf", str(conf),
            "--broker-version", truth.version, "--reason", "history", "--yes", "--format", "json",
        ])  # fmt: skip
    return answer.status, _refusals(answer.err)


def _refusals(text: str) -> str:
    """The names of the guards in an answer, else the first words of its error."""
    names = sorted(name for name in GUARD_NAMES if f"{name}:" in text or f"{name} " in text)
    lines: Mapping[str, None] = dict.fromkeys(line for line in text.splitlines() if "error" in line)
    return ", ".join(names) or next(iter(lines), "")[:60]
