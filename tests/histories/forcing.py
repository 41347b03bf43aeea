"""Acts of rmqtx on a stopped store, carried out by the machine's next start: does each do what it says, and only that?"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.conftest import MOMENT
from tests.fuzz.asking import ask
from tests.histories.comparing import Compared, Fork, Observed, first_event
from tests.histories.world import TOPICS, World, parsed_records

Row = dict[str, Any]
ACTS = ("commit", "commit", "rollback", "discard", "resume")
ROUNDS = 3


def force(
    result: Compared, world: World, version: str, rows: list[Row], future: list[Observed], work: Path, now_ms: int,
    random: Random,
) -> None:  # fmt: skip
    """Act on one transaction of a store, and compare what the machine does with what it does without the act."""
    named = [row for row in rows if row["transaction_id"] and row["half_copies"] and row["state"] != "UNDECIDABLE"]
    if not named:
        return
    open_ones = [row for row in named if row["state"] == "PENDING"]
    row = random.choice(open_ones if open_ones and random.random() < 0.8 else named)
    act = random.choice(ACTS)
    status, words = acted(world, version, row["transaction_id"], act, work, now_ms)
    if status:
        result.counts[f"refused {act}: {words}"] += 1
        return
    result.counts[f"forced {act}"] += 1
    number = next(
        (one.number for one in world.transactions.values() if one.copies and one.copies[-1][1] in _places(row)), None
    )
    delivered = {one.number: len(one.delivered) for one in world.transactions.values()}
    fork = Fork(world.machine, work, world.conf, now_ms)
    where = f"{act} tx-{number} {row['state']}"
    if fork.refusal is not None:
        result.differences.append(f"force {where}: the broker does not start: {fork.refusal}")
        fork.end()
        return
    rounds = [fork.round(now_ms + int(world.conf["transactionCheckInterval"]) * turn) for turn in range(1, ROUNDS + 1)]
    after: dict[int, int] = {}
    for record in parsed_records(world.machine.step("records", 0)):
        if record.topic in TOPICS and record.number is not None:
            after[record.number] = after.get(record.number, 0) + 1
    fork.end()
    shutil.rmtree(work)
    for one in world.transactions.values():
        is_ours = one.number == number
        wanted = delivered[one.number] + (is_ours and act == "commit")
        result.take("force delivers", f"{where}: tx-{one.number}", wanted, after.get(one.number, 0))
        event = first_event(one, rounds)
        if is_ours and act != "resume":
            result.take("force ends", where, "none", event)
        elif not is_ours and len(future) >= ROUNDS:
            result.take("force leaves", f"{where}: tx-{one.number}", first_event(one, future[:ROUNDS]), event)


def _places(row: Row) -> set[int]:
    return {copy["commit_log_offset"] for copy in row["half_copies"]}


def acted(
    world: World, version: str, transaction_id: str, act: str, to: Path, now_ms: int
) -> tuple[int, str]:  # fmt: skip
    """Act on a copy of the store, as a user does; the exit status, and the guards that refuse."""
    shutil.rmtree(to, ignore_errors=True)
    conf = world.root.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in world.conf.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOMENT, lambda _: now_ms)
        patch.setattr("repairs.acts.file_medium._now_ms", lambda: now_ms)
        answer = ask([
            act, transaction_id, "--store", str(world.root), "--to", str(to), "--broker-conf", str(conf),
            "--broker-version", version, "--reason", "history", "--yes", "--format", "json",
        ])  # fmt: skip
    return answer.status, _refusals(answer.err)


def _refusals(text: str) -> str:
    """The names of the guards in an answer, else the first words of its error."""
    from repairs.acts.guards import GUARDS

    names = sorted(name for name in (guard.name for guard in GUARDS) if f"{name}:" in text or f"{name} " in text)
    lines: Mapping[str, None] = dict.fromkeys(line for line in text.splitlines() if "error" in line)
    return ", ".join(names) or next(iter(lines), "")[:60]
