"""What rmqtx says of a stopped store, compared with what happened and with what the same classes do next."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.rocksdb.database_slots import UnknownSlots
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.check.check_rules import Action, Round
from rmqtx.verdicts.check.half_queue_check import play_round
from rmqtx.verdicts.check.timers_without_copies import Asking
from rmqtx.verdicts.simulation.beside_simulated import BesideSimulated
from rmqtx.verdicts.simulation.simulation import Simulated
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks
from rmqtx.verdicts.verify.verify import next_start_findings
from tests.conftest import MOMENT
from tests.forge import damage
from tests.histories.futures import Future
from tests.histories.steps import GROUPS
from tests.histories.truth import Observed, Transaction, Truth
from tests.verdicts.deadlines.one_future import READ

Row = dict[str, Any]
ROUNDS = 5


@dataclass(slots=True)
class Compared:
    """How many answers were compared, by kind, and what differed; the rows of the audit.

    `is_raced`: a round ended before the store had dispatched all its copies, so it met fewer than rmqtx assumes.
    """

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list, repr=False)
    is_raced: bool = False

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
    check: Simulated | BesideSimulated | None
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
        try:
            checks, findings, _ = simulated_checks(store, [as_is], check_cursors(store), now_ms)
        except UnknownSlots:  # of queues in RocksDB
            checks, findings = [], []
        starts = next_start_findings(store, settings)
    kind = BesideSimulated if conf.get("transRocksDBEnable") == "true" else Simulated
    check = next((one for one in checks if isinstance(one, kind)), None)
    return Said(rows, looked_up, check, [one.code for one in (*report.findings, *findings, *starts)])


def compare(root: Path, truth: Truth, future: Future) -> Compared:
    """Compare what is said of a stopped store with its truth and its future; `truth` gets the rounds."""
    result = Compared()
    said = said_of(root, truth.version, truth.conf, truth.now_ms)
    result.rows = said.rows
    truth.refusal = future.refusal
    result.take("start", "", "start-refused" in said.findings, future.refusal is not None)
    if future.refusal is None:
        if said.check is None:
            result.counts["not predicted"] += 1
        truth.rounds = _compare_rounds(result, said, future, truth.now_ms)
        _compare_rows(result, truth, said, _slots(root))
    if "record-damaged" in said.findings and "start-cuts-log" not in said.findings:
        # The release accepts a record that rmqtx does not read, for example one with another place in its header.
        result.counts["unread by rmqtx"] += 1
        result.differences.clear()
    return result


def _compare_rounds(result: Compared, said: Said, future: Future, now_ms: int) -> list[Observed]:
    """Let the check run, and play each round.

    A round of the broker finds as many of its own copies in the queue as were dispatched meanwhile: any number will do.
    """
    check = said.check
    if check is None:
        return [future.round(now_ms + 30_000 * number) for number in range(1, ROUNDS + 1)]
    if isinstance(check, BesideSimulated):
        return _compare_runs(result, check, future)
    found = []
    state, begin_ms = check.window.state, check.begin_ms
    for number in range(1, ROUNDS + 1):
        happened = future.round(begin_ms)
        found.append(happened)
        facts = _facts(happened)
        played = play_round(state, check.rules, check.settings, begin_ms)
        for visible in range(len(played.steps) + 1):
            if _played_facts(check, played) == facts:
                break
            other = play_round(state, check.rules, check.settings, begin_ms, visible)
            if _played_facts(check, other) == facts:
                played, result.is_raced = other, True
        result.take("round", f"{number}", _played_facts(check, played), facts)
        state, begin_ms = played.state, happened.end_ms + check.settings.interval_ms
    return found


def _compare_runs(result: Compared, check: BesideSimulated, future: Future) -> list[Observed]:
    """Compare the runs of the check of transactions in RocksDB: who is asked about which half message."""
    found = []
    groups = check.words["producer_group"].to_pylist()
    for number, played in enumerate(islice(check.rounds(), ROUNDS), 1):
        happened = future.round(played.begin_ms)
        found.append(happened)
        asked = [step.record for step in played.steps if step.action is Asking.ASKED]
        said = sorted(one.commit_log_offset for one in asked if groups[one.row] in GROUPS)
        result.take("run", f"{number}", said, sorted(place for _, place in happened.asked))
    return found


def _facts(happened: Observed) -> dict[str, object]:
    # The copy of a record of another topic goes to that topic.
    elsewhere = {one.commit_log_offset for one in happened.written if one.topic != HALF_TOPIC}
    return {
        "asked": sorted(queue_offset for queue_offset, place in happened.asked if place not in elsewhere),
        "asked elsewhere": sum(place in elsewhere for _, place in happened.asked),
        # Before an expired slot the store returns the next half, so one half can be discarded several times.
        "gone": len(set(happened.discarded)),
        "half cursor": happened.half_cursor,
        "op cursor": happened.op_cursor,
        "half end": happened.half_end,
        "seconds": (happened.end_ms - happened.begin_ms) // 1_000,
    }


def _played_facts(check: Simulated, played: Round) -> dict[str, object]:
    gone = (step.half for step in played.steps if step.action in (Action.DISCARDED, Action.EXPIRED))
    groups = check.window.words["producer_group"].to_pylist()
    # A flipped byte can make another group, which has no producer.
    are_asked = [
        known and group in GROUPS for known, group in zip(check.window.are_askable.tolist(), groups, strict=True)
    ]
    asked = [
        step.written
        for step in played.steps
        if step.action is Action.CHECKED and step.written and are_asked[step.written.row]
    ]
    return {
        "asked": sorted(copy.queue_offset for copy in asked if not copy.is_elsewhere),
        "asked elsewhere": sum(copy.is_elsewhere for copy in asked),
        "gone": len({(half.row, half.queue_offset) for half in gone if half is not None}),
        "half cursor": played.state.half_cursor,
        "op cursor": played.state.op_cursor,
        "half end": played.state.half_end,
        "seconds": (played.end_ms - played.begin_ms) // 1_000,
    }


def _slots(root: Path) -> dict[int, int]:
    """The slots of the half queue by the place of the log to which they lead; the last one of a place."""
    return {
        place: int(file.name) // SLOT.size_bytes + row
        for file in damage.queue_files(root, HALF_TOPIC)
        for row, (place, length, _) in enumerate(struct.iter_unpack(">qiq", file.read_bytes())) if length
    }


def _compare_rows(result: Compared, truth: Truth, said: Said, slots: dict[int, int]) -> None:
    by_place = {copy["commit_log_offset"]: row for row in said.rows for copy in row["half_copies"]}
    open_rows = [
        row for row in said.rows
        if row["state"] == "PENDING" or row["advice"] in ("close", "wait") or row["next_event"] in READ
    ]
    result.take("pending", "all", [_key(r) for r in said.looked_up], [_key(r) for r in open_rows])
    for one in truth.transactions:
        one.copies = [(number, place) for number, place in one.copies if place >= truth.log_begin]
        if one.copies:
            row = by_place.get(one.copies[-1][1])
            said_states = [other["state"] for other in said.rows if row and other["transaction_id"] == one.unique_key]
            _compare_row(result, truth, one, row, said_states, slot=slots.get(one.copies[-1][1]))


def _compare_row(
    result: Compared, truth: Truth, one: Transaction, row: Row | None, said_states: list[str], *, slot: int | None
) -> None:
    where = f"tx-{one.number}"
    may_lack = "flipped byte of the log" in truth.damages  # a damaged record is a finding, and no copy
    if row is None:
        result.take("listed", where, None, None if may_lack else one.copies)
        return
    places = [copy["commit_log_offset"] for copy in row["half_copies"]]
    happened = [place for _, place in one.copies if place in places or not may_lack]
    if row["state"] == "UNDECIDABLE" and truth.damages:
        result.counts["undecidable"] += 1
        return
    result.take("copies", where, places, happened)
    _compare_causes(result, truth, where, row["causes"] or [])
    compare_own_causes(result, truth, one, row)
    first = first_event(one, truth.rounds)
    states = true_states(truth, one, first, slot=slot)
    if "LOST" in states and (
        row["next_event"] in ("skipped", "stopped", "cut")
        or (row["next_event"] in ("none", "unknown") and truth.damages)
    ):
        states.add("PENDING")  # it is lost only by the next start, and the row says so
    if truth.op_numbers and _is_named_by_another(truth, one):
        states.add("ROLLED_BACK")  # the op message of another record has its number, and nothing else in it
    if may_lack and states.intersection(said_states):
        states.add(row["state"])  # with a byte of its group or topic flipped, one of its records has a row of its own
    said_state = row["state"] if row["state"] in states else "/".join(sorted(states))
    result.take("state", f"{where} {row['reason_code']}", row["state"], said_state)
    if row["next_event"] != "unknown" and row["state"] != "UNDECIDABLE":
        event = row["next_event"]
        if event == "asked" and may_lack and row["producer_group"] not in GROUPS:
            event = "put_back"  # a group without a producer
        is_unseen = event == "dropped" and truth.conf.get("transRocksDBEnable") == "true"
        # A run of the check of RocksDB puts nothing back: about an immune half it asks later than it was played.
        is_unseen |= event == "asked" and bool(truth.rounds) and row["next_event_at_ms"] > truth.rounds[-1].end_ms
        happened_event = _as_said(first, row, is_unseen=is_unseen)
        if result.is_raced and event != happened_event:
            result.counts["raced"] += 1
            return
        result.take("event", f"{where} {row['state']} {row['reason_code']}", event, happened_event)
        if row["advice"] == "close" and not is_unseen and event in ("skipped", "none"):
            result.take("close", where, "a copy that the check reads", first)


#: 5.0.0 and 5.1.0 refused a half message after they gave it a number: no file is damaged.
RENUMBERED = "number taken by no record"
#: The event without which a cause cannot be, by the words of causes.
_NEEDED = {
    "ops-lost-in-memory": "kill", "ops-lost-at-stop": "stop", "check-spoils-compressed": "compressed",
    "delay-diverts-half": "DELAY", "schedule-drops-half": "DELAY", "immunity-longer-than-checks":
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "no-room-for-check": "note",
}
#: What makes one end of a broker look like the other.
_FAKED = frozenset({"abort", "no abort"})
#: Families of causes of which no history has the event: roles, proxies, resumes, earlier designs, clients, broker logs.
_IMPOSSIBLE = (
    "acting-slave", "proxy-", "resume-", "prepared-", "state-table-", "rocksdb-slave", "light-queue", "topic-refused",
    "sent-to-half-topic", "producer-clock-ahead", "producer-answered", "put-back-failed", "check-pool",
)


def _compare_causes(result: Compared, truth: Truth, where: str, causes: list[str]) -> None:
    """Compare the causes that are given with certainty with what happened, and what a broker did at its checks."""
    if truth.happened is None:
        return
    for cause in causes:
        needed = _NEEDED.get(cause)
        if cause.endswith("?") or "flipped byte of the log" in truth.damages or (
            needed in ("kill", "stop") and _FAKED.intersection(truth.damages)
        ):
            continue
        is_possible = (needed is None or needed in truth.happened) and not cause.startswith(_IMPOSSIBLE)
        result.take("cause", where, cause, cause if is_possible else f"no {needed or 'event of this kind'}")


#: The events of a transaction without which a cause cannot be.
_OWN_NEEDED = {
    "decided-twice": "decided twice", "decision-names-old-copy": "old copy decided",
    "decision-names-discard-copy": "discard copy decided", "decided-after-discard": "decided after discard",
    "op-written-late": "asked with its op message in memory", "op-waits-twice": "asked with its op message in memory",
}


#: The causes that the COMMIT record shows, because it has the place of the record that was decided.
_CERTAIN = {"decision-names-discard-copy", "decided-after-discard"}


def compare_own_causes(result: Compared, truth: Truth, one: Transaction, row: Row) -> None:
    """Compare causes with what happened to the transaction itself: those that are certain, and those that must be.

    Not where files were damaged, which takes the records of what happened.
    """
    if one.happened is None or set(truth.damages) - {RENUMBERED}:
        return
    where, causes = f"tx-{one.number}", row["causes"] or []
    # Nothing tells which record a decision of another one named; the machine holds op messages longer than a broker.
    is_like_old_copy = _is_named_by_another(truth, one) or "asked with its op message in memory" in one.happened
    for cause, needed in _OWN_NEEDED.items():
        if cause in causes and not (is_like_old_copy and cause == "decision-names-old-copy"):
            result.take("own cause", where, cause, cause if needed in one.happened else f"no {needed}")
    for cause, is_possible in _possible(truth, one).items():
        if cause in causes:
            result.take("own cause", where, cause, cause if is_possible else "not possible")
    for due in _due_causes(truth, one):
        is_given = any(word in due or word.removesuffix("?") in {*due} - _CERTAIN for word in causes)
        result.take("missing cause", where, due if is_given else causes, due)


def _possible(truth: Truth, one: Transaction) -> dict[str, bool]:
    """Which causes can be, by other facts of the history."""
    has_lost_op = any(number not in truth.op_numbers for _, number in one.accepted)
    return {
        "discarded-without-copy": bool(one.dropped), "no-decision-in-time": not one.accepted or bool(one.discarded),
        "ops-lost-in-memory": has_lost_op, "ops-lost-at-stop": has_lost_op, "op-write-failed": False,
        "cursor-went-back": "kill" in (truth.happened or ()), "cursors-unreadable": False,
        "hidden-by-another-decision": _is_named_by_another(truth, one) or _is_renumbered(truth),
        "op-names-another-slot": _is_renumbered(truth),
    }


def _due_causes(truth: Truth, one: Transaction) -> Iterator[tuple[str, ...]]:
    """Yield the causes of which records must show one, of a transaction to which nothing else happened."""
    happened = set(one.happened or ())
    commits = [number for decision, number in one.accepted if decision == "commit"]
    are_written = all(number in truth.op_numbers for _, number in one.accepted)
    if happened == {"decided twice"} and len(one.copies) == 1 and len(commits) > 1:
        yield ("decided-twice",)
    if len(one.accepted) != 1 or len(commits) != 1:
        return
    if happened == {"discard copy decided"}:
        yield ("decision-names-discard-copy",)
    if happened == {"decided after discard"} and one.copies[-1][0] == commits[0]:
        yield ("decided-after-discard",)
    if not happened and not are_written and one.copies[-1][0] == commits[0] and not one.dropped:
        yield "ops-lost-in-memory", "ops-lost-at-stop"


def _key(row: Row) -> tuple[Any, ...]:
    return (row["transaction_id"], row["state"], row["advice"], row["next_event"], row["next_event_at_ms"])


def first_event(one: Transaction, rounds: list[Observed]) -> str:
    """What the next rounds do first with a transaction."""
    number, places = one.number, {offset for _, offset in one.copies}
    for happened in rounds:
        asked = {offset for _, offset in happened.asked}
        # Where the start cut the log, other records are written.
        places -= {record.commit_log_offset for record in happened.written if record.number != number}
        new = {record.commit_log_offset for record in happened.written if record[1:] == (HALF_TOPIC, number)}
        # Of two copies in one round, the question counts.
        if asked & (new | places):
            return "asked"
        if new:
            return "put_back"
        if any(offset in places for _, offset in happened.discarded):
            return "discarded"
    return "none"


def _as_said(first: str, row: Row, *, is_unseen: bool) -> str:
    """The word that the row uses for an event that the machine does not tell from another one.

    `is_unseen`: the row has an event that rounds do not show: a check drops the transaction, which leaves no record in
    RocksDB, or it happens later.
    """
    if first == "discarded" and row["next_event"] in ("expired", "discarded"):
        return str(row["next_event"])
    if first == "none" and (row["next_event"] in ("stopped", "skipped", "cut", "none") or is_unseen):
        return str(row["next_event"])
    return first


def _is_named_by_another(truth: Truth, one: Transaction) -> bool:
    """Whether an op message with the number of its half copy was written for a decision of another transaction."""
    numbers = {queue_offset for queue_offset, _ in one.copies}.intersection(truth.op_numbers)
    return any(number in numbers for other in truth.transactions if other is not one for _, number in other.accepted)


def _is_renumbered(truth: Truth) -> bool:
    """Whether the broker refused a half message that had a number: the next ones are in other slots."""
    return RENUMBERED in truth.damages


def true_states(truth: Truth, one: Transaction, first: str, *, slot: int | None) -> set[str]:
    """The states that agree with what happened to a transaction; several if it met several ends.

    `slot`: that of the stored half queue which leads to its newest copy; it has another number where the broker refused
    a half message that had one.
    """
    numbers = {queue_offset for queue_offset, _ in one.copies}
    rolled = {queue_offset for decision, queue_offset in one.accepted if decision == "rollback"} & numbers
    found = set()
    if one.delivered:
        found.add("COMMITTED")
    elif rolled & set(truth.op_numbers):
        found.add("ROLLED_BACK")
    if one.discarded:
        found.add("DISCARDED")
    if one.dropped and not one.discarded:
        found |= {"DISCARDED", "LOST"}  # before 4.5.2 a discard leaves no record, and a kill can undo it
        found |= set() if first == "none" else {"PENDING"}
    if found:
        return found
    if first != "none":
        return {"PENDING"}
    if truth.conf.get("transRocksDBEnable") == "true":
        return {"DISCARDED", "LOST", "PENDING"}  # a check that drops a transaction in RocksDB leaves no record
    newest = one.copies[-1][0] if slot is None or not _is_renumbered(truth) else slot
    if any(one.half_cursor > newest for one in truth.rounds):
        return {"LOST"}
    # Where the check stops before, rounds do not show it.
    return {"PENDING"} if slot is not None else {"PENDING", "LOST"}
