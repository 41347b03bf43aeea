"""Acts of rmqtx on a stopped store, and what the machine does then: what the act says, and nothing else?

A refused act is sometimes carried out with the refusing guards overridden: would it have done harm?
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from rmqtx.readers.model import exit_status
from rmqtx.remoting.protocol.errors import NoAnswer
from rmqtx.repairs.acts.guards import ABSOLUTE_GUARDS, GUARD_NAMES
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from tests.conftest import MOMENT
from tests.fuzz.asking import ask
from tests.histories import living
from tests.histories.comparing import Compared, Row, first_event
from tests.histories.futures import Fork
from tests.histories.steps import TOPICS
from tests.histories.truth import Observed, Transaction, Truth
from tests.histories.world import World, copied

ACTS = ("commit", "rollback", "discard", "resume")
#: How many acts are tried on each store, each on a copy of its own; more while a history is made short.
ACTS_OF_A_STORE, ACTS_TO_SHRINK = 2, 8
ROUNDS = 3
_SHARE_OF_OPEN = 0.7
#: The share of the refused acts that are carried out nevertheless.
_SHARE_TRIED = 0.3
#: Acts over the wire, on the machine that runs on a copy.
LIVE_ACTS = (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.RESUME)
#: An act leaves `abort`, so the start recovers the log and enters what the queues lack; a clean start does not.
_REBUILT = frozenset({
    "no half queue", "no op queue", "no queues", "zeroed end of the half queue", "zeroed end of the op queue",
    "zeroed slots of the half queue", "zeroed slots of the op queue", "last file of the half queue deleted",
    "last file of the op queue deleted",
})


@dataclass(slots=True)
class _Acted:
    """An act and its effects. Shape: `status` of the command; `refused_by`: guards, or the words of an error."""

    act: str
    row: Row
    status: int
    refused_by: tuple[str, ...]
    refusal: str | None = None
    rounds: list[Observed] = field(default_factory=list)
    delivered: Counter[int | None] = field(default_factory=Counter)

    def owner(self, truth: Truth) -> Transaction | None:
        """The transaction that it acts on."""
        places = {copy["commit_log_offset"] for copy in self.row["half_copies"]}
        return next((one for one in truth.transactions if one.copies and one.copies[-1][1] in places), None)


def force(result: Compared, world: World, truth: Truth, work: Path, random: Random, acts_count: int) -> None:
    """Act on transactions of a store, and compare what the machine does with what it does without each act."""
    named = [row for row in result.rows if row["transaction_id"] and row["half_copies"]]
    if not named or truth.refusal is not None or "flipped byte of the log" in truth.damages:
        return  # what the start cuts off is delivered no more, with the act or without it
    for act, row in _chosen(named, random, acts_count):
        done = _acted(world, truth, row, act, work)
        if not done.status:
            result.counts[f"forced {act}"] += 1
            _compare(result, truth, done)
            continue
        words = ", ".join(done.refused_by)
        result.counts[f"refused {act}: {words}"] += 1
        can_be_tried = set(done.refused_by) <= set(GUARD_NAMES) - ABSOLUTE_GUARDS and done.refused_by
        if can_be_tried and random.random() < _SHARE_TRIED:
            tried = _acted(world, truth, row, act, work, overridden=done.refused_by)
            result.counts[f"tried {act}: {words}: {_harm(truth, tried)}"] += 1
    if acts_count and truth.conf.get("transRocksDBEnable") != "true":
        _, row = next(_chosen(named, random, 1))
        done = _acted_live(world, truth, row, random.choice(LIVE_ACTS), work)
        words = ", ".join(done.refused_by)
        result.counts[f"{done.act}: {words or 'done'}"] += 1
        if not done.refused_by:
            _compare(result, truth, done)


def _chosen(rows: Sequence[Row], random: Random, count: int) -> Iterator[tuple[str, Row]]:
    """Some pairs of an act and a transaction, each once, mostly pending ones."""
    left = [(act, row) for row in rows for act in ACTS]
    for _ in range(min(count, len(left))):
        pending = [pair for pair in left if pair[1]["state"] == "PENDING"]
        pair = random.choice(pending if pending and random.random() < _SHARE_OF_OPEN else left)
        left.remove(pair)
        yield pair


def _acted(
    world: World, truth: Truth, row: Row, act: str, to: Path, overridden: Sequence[str] = ()
) -> _Acted:
    """Act on a copy of the store, as a user does, and let the machine go on from there."""
    shutil.rmtree(to, ignore_errors=True)
    conf = world.root.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in world.conf.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOMENT, lambda _: truth.now_ms)
        patch.setattr("rmqtx.repairs.acts.file_medium.clock", SimpleNamespace(now_ms=lambda: truth.now_ms))
        answer = ask([
            act, row["transaction_id"], "--store", str(world.root), "--to", str(to), "--broker-conf", str(conf),
            "--broker-version", truth.version, "--reason", "history", "--yes", "--format", "json",
            *(word for name in overridden for word in ("--override", name)),
        ])
    done = _Acted(act, row, answer.status, _refusals(answer.err) if answer.status else ())
    if to.exists():
        _go_on(done, Fork(world.machine, to, truth.conf, truth.now_ms), truth)
        shutil.rmtree(to)
    return done


def _go_on(done: _Acted, future: Fork, truth: Truth) -> None:
    """Let the check run after an act, and end the machine's broker."""
    done.refusal = future.refusal
    if future.refusal is None:
        interval_ms = int(truth.conf["transactionCheckInterval"])
        done.rounds = [future.round(truth.now_ms + interval_ms * turn) for turn in range(1, ROUNDS + 1)]
        done.delivered = Counter(one.number for one in future.records() if one.is_delivered)
    future.end()


def _acted_live(world: World, truth: Truth, row: Row, action: ActKind, to: Path) -> _Acted:
    """Act over the wire on the broker that runs on a copy of the store; its producers come back afterwards."""
    future = Fork(world.machine, copied(world.root, to), truth.conf, truth.now_ms, has_producers=False)
    try:
        outcome, refused_by = living.acted(world.machine, action, row["transaction_id"], to.with_name("receipts.jsonl"))
    except NoAnswer:
        if not living.may_stay_silent(truth):
            raise
        outcome, refused_by = ActOutcome.NOT_SENT, ("no answer",)
    is_done = outcome in (ActOutcome.PROVED, ActOutcome.ACCEPTED)
    done = _Acted(f"live {action}", row, exit_status.DONE if is_done else exit_status.UNKNOWN_OUTCOME, refused_by)
    if not refused_by and not is_done:
        done.refused_by = (str(outcome),)
    future.greet()
    _go_on(done, future, truth)
    shutil.rmtree(to)
    return done


def _compare(result: Compared, truth: Truth, done: _Acted) -> None:
    """Compare the effects of an act with what it promises: its own decision once, and nothing else."""
    ours = done.owner(truth)
    where = f"{done.act} tx-{None if ours is None else ours.number} {done.row['state']}"
    if done.refusal is not None:
        result.differences.append(f"force {where}: the broker does not start: {done.refusal}")
        return
    reopened = {row["transaction_id"] for row in result.rows if "open_after_decision" in row["flags"]}
    for one in truth.transactions:
        wanted = sum(place >= truth.log_begin for place in one.delivered) + (
            one is ours and done.act.endswith("commit")
        )
        # The check puts the record of a slot that leads to another topic back into that topic, with the act or without.
        wanted += sum(
            record.topic in TOPICS and record.number == one.number
            for happened in truth.rounds[:ROUNDS] for record in happened.written
        )
        result.take("force delivers", f"{where}: tx-{one.number}", wanted, done.delivered[one.number])
        before, event = first_event(one, truth.rounds[:ROUNDS]), first_event(one, done.rounds)
        if one is ours and not done.act.endswith("resume"):
            result.take("force ends", where, "none", event)
        elif (
            one is not ours and not _REBUILT.intersection(truth.damages)
            and not _is_better(one, before, event, reopened)
        ):
            result.take("force leaves", f"{where}: tx-{one.number}", before, event)


def _is_better(one: Transaction, before: str, event: str, reopened: set[str]) -> bool:
    """Whether the act ends what stops a check: it reads no decided copy again, or it reaches an open one.

    `reopened`: ids of decided transactions of which `audit` says that the check reads them again, and so are open.
    """
    is_decided = bool(one.accepted)
    if is_decided and event == "none":
        return True
    return before == "none" and (not is_decided or one.unique_key in reopened)


def _harm(truth: Truth, tried: _Acted) -> str:
    """What an act did that a guard had refused, in a word."""
    ours = tried.owner(truth)
    if tried.status not in (exit_status.DONE, exit_status.UNKNOWN_OUTCOME) or not tried.rounds:
        return "not done"
    if ours is None:
        return "unknown"
    decisions = {decision for decision, _ in ours.accepted}
    if tried.act == "commit" and (tried.delivered[ours.number] > 1 or "rollback" in decisions):
        return "harm: delivered wrongly"
    if tried.act in ("rollback", "discard") and ("commit" in decisions or ours.delivered):
        return "harm: contradicts its decision"
    asked = [place for happened in tried.rounds[:1] for _, place in happened.asked]
    copies = {record.commit_log_offset for happened in tried.rounds for record in happened.written
              if record.number == ours.number} | {place for _, place in ours.copies}
    if tried.act == "resume" and (decisions or ours.delivered or len(copies.intersection(asked)) > 1):
        return "harm: two copies, or a decided one"
    found = Compared()
    _compare(found, truth, tried)
    if not found.differences:
        return "no harm"
    return f"harm: {found.differences[0].split(' ')[1]}"


def _refusals(text: str) -> tuple[str, ...]:
    """The names of the guards in an answer, else the first words of its last line."""
    names = sorted(name for name in GUARD_NAMES if f"{name}:" in text or f"{name} " in text)
    words = text.strip().rpartition("\n")[2].removeprefix("rmqtx: ")
    return tuple(names) or (words[:60],)
