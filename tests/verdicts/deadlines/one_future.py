"""Every answer about the next minutes, compared with the simulation: all stores, six settings, three clocks.

`python -m tests.verdicts.deadlines.one_future [STORE...]` prints what was compared, and each difference. A STORE is a
name of the corpus, or DIRECTORY=RELEASE for a store of a broker of this release.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.check.check_stops import check_stops
from rmqtx.verdicts.evidence.store_facts import FLUSH_LAG_MS_MAX, known_until_ms
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, has_half_queue, simulated_checks
from rmqtx.verdicts.simulation.simulation_tables import transaction_rows
from rmqtx.verdicts.verify.verify import next_start_findings
from tests.brokers import corpus
from tests.conftest import MOMENT
from tests.forge.stores import opened

Row = dict[str, Any]
DAY_MS = 86_400_000
#: What is changed in the configuration that the broker had.
SETTINGS: dict[str, dict[str, str]] = {
    "as it was": {},
    "an hour of fileReservedTime": {"fileReservedTime": "1"},
    "eleven years of fileReservedTime": {"fileReservedTime": "100000"},
    "one check": {"transactionCheckMax": "1"},
    "five checks, one a second": {"transactionCheckMax": "5", "transactionCheckInterval": "1000"},
    "no check": {"transactionCheckMax": "0"},
}
#: The next events of copies that the check reads.
READ = ("asked", "put_back", "expired", "discarded", "dropped")
#: How long after its last record a store is read.
CLOCKS: dict[str, int] = {
    "when written": FLUSH_LAG_MS_MAX + 1_000, "two days later": 2 * DAY_MS, "a year later": 365 * DAY_MS,
}
#: The events after which a transaction is gone without a question to a producer.
_ENDS = {"expired": "expired", "discarded": "discarded", "dropped": "dropped", "unreadable": "dropped"}
#: Which of several copies counts if they reach their events at one time.
_ORDER = ("asked", "expired", "discarded", "dropped", "unreadable")


@dataclass(frozen=True, slots=True)
class Case:
    """One store under one configuration at one time."""

    name: str
    changes: str
    clock: str

    def store(self) -> Store:
        """The store, of the corpus or of a directory."""
        directory, _, version = self.name.partition("=")
        return open_store(directory) if version else opened(self.name)

    def settings(self, store: Store) -> BrokerSettings:
        """The settings that its broker had, with the changes."""
        _, _, given = self.name.partition("=")
        if given:
            return broker_settings(store, conf=SETTINGS[self.changes], version=given)
        recipe = corpus.recipe(self.name)
        conf = {str(key): str(value) for key, value in recipe["broker_conf"].items()}
        version = str(recipe.get("upgrade", recipe["version"]))
        return broker_settings(store, conf=conf | SETTINGS[self.changes], version=version)


def cases(names: Iterable[str]) -> Iterator[Case]:
    """Each store with each setting and clock."""
    for name in names:
        for changes in SETTINGS:
            for clock in CLOCKS:
                yield Case(name, changes, clock)


@dataclass(slots=True)
class Compared:
    """How many answers were compared, by their kind, and what differed."""

    counts: Counter[str]
    differences: list[str]


def compared(case: Case) -> Compared:
    """Compare what a store's rows say of the next minutes with the simulation of the same store at the same time."""
    store = case.store()
    now_ms = known_until_ms(store) + CLOCKS[case.clock]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOMENT, lambda _: now_ms)
        settings = case.settings(store)
        rows = audit([store], lambda _: settings).table().to_pylist()
        looked_up = pending([store], lambda _: settings).table().to_pylist()
        found = _simulated(store, settings, now_ms)
        stops = check_stops(store, settings, now_ms=now_ms)
        notes = [finding.actual for finding in next_start_findings(store, settings)]
    result = Compared(Counter(), [])
    for row in rows:
        mine = [one for copy in row["half_copies"] for one in found.get(copy["commit_log_offset"], [])]
        for kind, said, foretold in _answers(row, mine, is_stopped=bool(stops)):
            result.counts[kind] += 1
            if said != foretold:
                where = f"{case.name}, {case.changes}, {case.clock}: {row['transaction_id']} {row['state']}"
                result.differences.append(f"{where}: {kind} {said}, simulated {foretold}")
    open_rows = [
        row for row in rows
        if row["state"] == "PENDING" or row["advice"] in ("close", "wait") or row["next_event"] in READ
        or "open_after_decision" in row["flags"]
    ]
    result.counts["pending"] += 1
    if looked_up != open_rows:
        result.differences.append(f"{case.name}, {case.changes}, {case.clock}: pending is not the open part of audit")
    decided = [row for row in rows if row["state"] in ("COMMITTED", "ROLLED_BACK", "DISCARDED")]
    again = sum(bool(row["answer_effect"]) for row in decided)
    result.counts["start-checks-again"] += 1
    counted = sum(int(word) for text in notes for word in (text or "").replace(",", "").split() if word.isdigit())
    is_counted = store.has("consumequeue") and has_half_queue(store)  # of a state table table-remade has them
    if is_counted and not any("PENDING" in (text or "") for text in notes) and counted != again:
        result.differences.append(f"{case.name}, {case.changes}, {case.clock}: verify says {notes}, {again} are asked")
    return result


def _simulated(store: Store, settings: BrokerSettings, now_ms: int) -> Mapping[int, list[Row]]:
    """Rows of SIMULATED_TRANSACTIONS by commit-log offset."""
    cursors = check_cursors(store) if has_half_queue(store) else None
    if cursors is not None and (cursors.half is None or cursors.op is None):
        cursors = None
    as_is = SimulatedConfiguration("as is", settings, settings.given or {})
    checks, _, _ = simulated_checks(store, [as_is], cursors, now_ms)
    found: dict[int, list[Row]] = defaultdict(list)
    for check in checks:
        for row in transaction_rows(check).to_pylist():
            found[row["commit_log_offset"]].append(row)
    return found


def _answers(row: Row, simulated: list[Row], *, is_stopped: bool) -> Iterator[tuple[str, object, object]]:
    """What a row says, and what the simulation of its copies shows: kind of answer, said, simulated."""
    if "delayed_half" in row["flags"] or row["state"] == "UNDECIDABLE" or row["next_event"] == "unknown":
        return  # a diverted copy is not simulated
    asked = [one["next_check_time_ms"] for one in simulated if one["next_check_time_ms"] is not None]
    ends = [(one["end_time_ms"], one["end"]) for one in simulated if one["end"] in _ENDS]
    is_refused = any(one["next_check_time_ms"] is not None and not one["is_answerable"] for one in simulated)
    is_answered = bool(asked) and not is_refused
    is_behind_stop = "never_asked" in row["flags"] and is_stopped
    if row["state"] == "PENDING" and "masked" not in row["flags"] and not is_behind_stop and simulated:
        yield "wait", row["advice"] == "wait", is_answered
        yield "decide", row["advice"] == "decide", not is_answered
    if row["state"] == "LOST":
        yield "lost", bool(asked or ends), False
    if not is_behind_stop:
        yield "answer_effect", row["answer_effect"] is not None, is_answered
    yield "never_asked", "never_asked" in row["flags"] and bool(asked) and not is_stopped, False
    if row["next_event"] == "cut":
        yield "cut", bool(asked), False
        return  # a table still has its key, which leads to no record
    if is_behind_stop:
        return
    last = max((time_ms for time_ms, _ in ends), default=None)
    yield "discard_at", row["discard_at_ms"], last
    events = [*((time_ms, "asked") for time_ms in asked), *ends]
    first = min(events, key=lambda one: (one[0], _ORDER.index(one[1])), default=None)
    if first is not None and row["next_event"] != "put_back":
        yield "next_event", row["next_event"], "asked" if first[1] == "asked" else _ENDS[first[1]]
        yield "next_event_at", row["next_event_at_ms"], first[0]
    if first is None:
        yield "no event", row["next_event"] in ("none", "stopped", "skipped", "put_back", "cut"), True
    is_expired = row["state"] == "PENDING" and not asked and any(end == "expired" for _, end in ends)
    yield "expired", "expired" in row["flags"], is_expired


def main(names: list[str]) -> int:
    """Print the counts and the differences; 1 if there are any."""
    counts: Counter[str] = Counter()
    differences: list[str] = []
    runs = list(cases(names or corpus.corpus_names()))
    for case in runs:
        one = compared(case)
        counts += one.counts
        differences += one.differences
        print(*one.differences, sep="\n", end="\n" if one.differences else "", flush=True)
    print(f"{len(runs)} runs; {counts.total()} answers: {dict(sorted(counts.items()))}; {len(differences)} differences")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
