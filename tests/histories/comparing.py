"""What rmqtx says of a stopped store, compared with what happened and with what the same classes do next."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from readers.cursors.cursors import check_cursors
from readers.store.broker_settings import broker_settings
from readers.store.store import HALF_TOPIC, open_store
from remoting.protocol.codes import RequestCode
from tests.conftest import MOMENT
from tests.forge import damage
from tests.histories.machine import Machine
from tests.histories.world import (
    Record,
    Transaction,
    World,
    clock_of,
    copied,
    greet,
    op_numbers,
    parsed_records,
)
from verdicts.audit.local_audit import audit
from verdicts.audit.lookups import pending
from verdicts.check.half_queue_check import play_round
from verdicts.check.steps import Action, Round
from verdicts.simulation.simulation import Simulated
from verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks
from verdicts.verify.next_start import next_start_findings

Row = dict[str, Any]
ROUNDS = 5
_BATCH_MS = 3_000


@dataclass(frozen=True, slots=True)
class Observed:
    """One round of the check by the machine."""

    begin_ms: int
    end_ms: int
    asked: tuple[tuple[int, int], ...]
    written: tuple[Record, ...]
    discarded: tuple[tuple[int, int], ...]
    half_cursor: int
    op_cursor: int
    half_end: int


@dataclass(slots=True)
class Compared:
    """How many answers were compared, by kind, and what differed; the rows of the audit, and the next rounds."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list, repr=False)
    future: list[Observed] = field(default_factory=list, repr=False)

    def take(self, kind: str, where: str, said: object, happened: object) -> None:
        """Compare one answer."""
        self.counts[kind] += 1
        if said != happened:
            self.differences.append(f"{kind} {where}: said {said}, happened {happened}")


@dataclass(slots=True)
class Said:
    """What rmqtx says of a store at a time."""

    rows: list[Row]
    looked_up: list[Row]
    check: Simulated | None
    findings: list[str]


def said_of(root: Path, version: str, conf: Mapping[str, str], now_ms: int) -> Said:
    """Ask the audit, the fast path and the simulation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOMENT, lambda _: now_ms)
        store = open_store(str(root))
        settings = broker_settings(store, conf=conf, version=version)
        report = audit([store], lambda _: settings)
        rows = report.table().to_pylist()
        looked_up = pending([store], lambda _: settings).table().to_pylist()
        as_is = SimulatedConfiguration("as is", settings, dict(conf))
        checks, findings, _ = simulated_checks(store, [as_is], check_cursors(store), now_ms)
        starts = next_start_findings(store, settings)
    check = next((one for one in checks if isinstance(one, Simulated)), None)
    return Said(rows, looked_up, check, [one.code for one in (*findings, *starts)])


class Fork:
    """A copy of a store on which the machine goes on; `refusal` says why the release does not start on it."""

    def __init__(self, machine: Machine, root: Path, conf: Mapping[str, str], now_ms: int) -> None:
        self._machine = machine
        machine.clock(now_ms)
        self.refusal = machine.start(root, conf).refusal
        self._log_end = 0
        if self.refusal is None:
            greet(machine)
            self._new()

    def round(self, begin_ms: int) -> Observed:
        """Let the check run once."""
        machine = self._machine
        machine.clock(begin_ms)
        effects = machine.step("check")
        records = self._new()
        words = next(line for line in machine.step("cursors").lines if line.startswith("cursors")).split("\t")
        half_cursor, op_cursor, half_end = (max(int(word), 0) for word in words[1:4])
        asked = tuple(
            (int(frame.fields["tranStateTableOffset"]), int(frame.fields["commitLogOffset"]))
            for _, frame in effects.asked
            if frame.code == RequestCode.CHECK_TRANSACTION_STATE
        )
        discarded = tuple(
            (int(words[1]), int(words[2]))
            for words in (line.split("\t") for line in effects.lines)
            if words[0] == "discard"
        )
        end_ms = clock_of(effects)
        machine.clock(end_ms + _BATCH_MS)
        machine.step("batch")
        self._new()
        return Observed(begin_ms, end_ms, asked, tuple(records), discarded, half_cursor, op_cursor, half_end)

    def _new(self) -> list[Record]:
        records = parsed_records(self._machine.step("records", self._log_end))
        self._log_end = max((one.commit_log_offset + one.size_bytes for one in records), default=self._log_end)
        return records

    def end(self) -> None:
        """End the machine's broker."""
        self._machine.step("abandon")


def compare(world: World, version: str, work: Path, now_ms: int) -> Compared:
    """Compare what is said of a world's store, which is stopped, with its truth and its future."""
    result = Compared()
    said = said_of(world.root, version, world.conf, now_ms)
    root = copied(world.root, work)
    fork = Fork(world.machine, root, world.conf, now_ms)
    result.take("start", "", "start-refused" in said.findings, fork.refusal is not None)
    if fork.refusal is not None:
        fork.end()
        return result
    future = _compare_rounds(result, said, fork, now_ms)
    fork.end()
    shutil.rmtree(root)
    _compare_rows(result, world, said, future)
    result.rows, result.future = said.rows, future
    return result


def _compare_rounds(result: Compared, said: Said, fork: Fork, now_ms: int) -> list[Observed]:
    """Let the check run, and play each round.

    A round of the broker finds as many of its own copies in the queue as were dispatched meanwhile: any number will do.
    """
    found = []
    check = said.check
    if check is None:
        return [fork.round(now_ms + 30_000 * number) for number in range(1, ROUNDS + 1)]
    state, begin_ms = check.window.state, check.begin_ms
    for number in range(1, ROUNDS + 1):
        happened = fork.round(begin_ms)
        found.append(happened)
        played = play_round(state, check.rules, check.settings, begin_ms)
        facts = _facts(happened)
        for visible in range(len(played.steps) + 1):
            if _played_facts(check, played) == facts:
                break
            other = play_round(state, check.rules, check.settings, begin_ms, visible)
            if _played_facts(check, other) == facts:
                played = other
        result.take("round", f"{number}", _played_facts(check, played), facts)
        state, begin_ms = played.state, happened.end_ms + check.settings.interval_ms
    return found


def _facts(happened: Observed) -> dict[str, object]:
    return {
        "asked": sorted(queue_offset for queue_offset, _ in happened.asked),
        "gone": len(happened.discarded),
        "half cursor": happened.half_cursor,
        "op cursor": happened.op_cursor,
        "half end": happened.half_end,
        "seconds": (happened.end_ms - happened.begin_ms) // 1_000,
    }


def _played_facts(check: Simulated, played: Round) -> dict[str, object]:
    actions = Counter(step.action for step in played.steps)
    are_askable = check.window.are_askable.tolist()
    return {
        "asked": sorted(
            step.written.queue_offset
            for step in played.steps
            if step.action is Action.CHECKED and step.written and are_askable[step.written.row]
        ),
        "gone": actions[Action.DISCARDED] + actions[Action.EXPIRED],
        "half cursor": played.state.half_cursor,
        "op cursor": played.state.op_cursor,
        "half end": played.state.half_end,
        "seconds": (played.end_ms - played.begin_ms) // 1_000,
    }


def _compare_rows(result: Compared, world: World, said: Said, future: list[Observed]) -> None:
    by_place = {copy["commit_log_offset"]: row for row in said.rows for copy in row["half_copies"]}
    open_rows = [row for row in said.rows if row["state"] == "PENDING" or row["advice"] in ("close", "wait")]
    result.take("pending", "all", [_key(r) for r in said.looked_up], [_key(r) for r in open_rows])
    begin = min((int(file.name) for file in damage.log_files(world.root)), default=0)
    for one in world.transactions.values():
        one.copies = [(number, place) for number, place in one.copies if place >= begin]
        if not one.copies:
            continue
        row = by_place.get(one.copies[-1][1])
        where = f"tx-{one.number}"
        if row is None:
            result.take("listed", where, None, one.copies)
            continue
        places = [copy["commit_log_offset"] for copy in row["half_copies"]]
        # A damaged record is a finding, and no copy.
        may_lack = "flipped byte of the log" in world.damages
        happened = [place for _, place in one.copies if place in places or not may_lack]
        result.take("copies", where, places, happened)
        first = first_event(one, future)
        if row["state"] == "UNDECIDABLE" and world.damages:
            result.counts["undecidable"] += 1
            continue
        states = true_states(world, one, first, future)
        said_state = row["state"] if row["state"] in states else "/".join(sorted(states))
        result.take("state", f"{where} {row['reason_code']}", row["state"], said_state)
        if row["next_event"] != "unknown" and row["state"] != "UNDECIDABLE":
            result.take(
                "event", f"{where} {row['state']} {row['reason_code']}", row["next_event"], _as_said(first, row)
            )


def _key(row: Row) -> tuple[Any, ...]:
    return (row["transaction_id"], row["state"], row["advice"], row["next_event"], row["next_event_at_ms"])


def first_event(one: Transaction, future: list[Observed]) -> str:
    """What the next rounds do first with a transaction."""
    places = {offset for _, offset in one.copies}
    for happened in future:
        if any(offset in places for _, offset in happened.discarded):
            return "discarded"
        for record in happened.written:
            if record.number == one.number and record.topic == HALF_TOPIC:
                places.add(record.commit_log_offset)
                if any(offset == record.commit_log_offset for _, offset in happened.asked):
                    return "asked"
                return "put_back"
        if any(offset in places for _, offset in happened.asked):
            return "asked"
    return "none"


def _as_said(first: str, row: Row) -> str:
    """The word that the row uses for an event that the machine does not tell from another one."""
    if first == "discarded" and row["next_event"] in ("expired", "discarded"):
        return str(row["next_event"])
    if first == "none" and row["next_event"] in ("stopped", "skipped", "cut", "none"):
        return str(row["next_event"])
    return first


def true_states(world: World, one: Transaction, first: str, future: list[Observed]) -> set[str]:
    """The states that agree with what happened to a transaction; several if it met several ends."""
    numbers = {queue_offset for queue_offset, _ in one.copies}
    rolled = {queue_offset for decision, queue_offset in one.accepted if decision == "rollback"} & numbers
    written = {number for record in world.records.values() for number in op_numbers(record)}
    found = set()
    if one.delivered:
        found.add("COMMITTED")
    elif rolled & written:
        found.add("ROLLED_BACK")
    if one.discarded:
        found.add("DISCARDED")
    if one.dropped and not one.discarded:
        found |= {"DISCARDED", "LOST"}  # before 4.5.2 a discard leaves no record, and a kill can undo it
        found |= set() if first == "none" else {"PENDING"}
    if found:
        return found
    newest = one.copies[-1][0]
    return {"LOST" if first == "none" and any(one.half_cursor > newest for one in future) else "PENDING"}


def differences_of(world: World, version: str, work: Path, now_ms: int) -> Iterator[str]:
    """The differences alone, for shrinking."""
    yield from compare(world, version, work, now_ms).differences
