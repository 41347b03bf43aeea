"""The agreement campaign: damage a store in one to three ways, ask several commands, and compare what they know.

Status 0 is a promise, so what one command reports about evidence, no other command that reads it leaves out. The
options are drawn too: none, the release, release and configuration, a time in two days. Each rule
of `RULES` compares answers; a difference that must be is a row of `EXPECTED`, with its reason.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC
from rmqtx.verdicts.model.predicted import open_rows
from tests.brokers import corpus
from tests.forge.damage import MORE, RANDOM
from tests.forge.stores import contents, copy_of
from tests.fuzz import any_file, asking
from tests.fuzz.asking import Answer, WrongAnswer
from tests.fuzz.outcomes import CRASH, REPORTED, SILENT, Case, Played

__all__ = ["cases_of", "play"]

cases_of = any_file.cases_of
DAMAGES_MAX = 3
#: Ids that `show` is asked about.
SHOWN_MAX = 4
RESERVED_HOURS = 87_600
_ROWS = ("--all-open", "--verbose", "--format", "jsonl")
#: Command lines, to which the store is appended; `show` is asked after `audit`, which gives the ids.
COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "--full", "--verbose", "--format", "jsonl"),
    "pending": ("pending", *_ROWS),
    "scanned": ("pending", "--scan", *_ROWS),
    "audit": ("audit", "--verbose", "--format", "jsonl"),
    "simulate": ("simulate", "--rounds", "1", "--verbose", "--format", "jsonl"),
    "diagnose": ("diagnose", "--verbose", "--format", "jsonl"),
}
#: The commands that answer about transactions.
ABOUT_TRANSACTIONS = ("pending", "scanned", "audit", "simulate", "diagnose")
#: What rows of one transaction have in common, whichever command gives them.
COMPARED = ("state", "flags", "reason_code", "advice", "next_event", "answer_effect")
#: The event in `audit` for what a round of `simulate` does with a half copy.
EVENT_OF = {
    "checked": "asked", "asked": "asked", "put back unasked": "put_back", "unanswerable": "asked",
    "expired": "expired", "discarded": "discarded", "dropped": "dropped",
}
REFUSED = "start-refused"
_ERROR = re.compile(r"^rmqtx: (error|warning): ([a-z0-9-]+): ", re.MULTILINE)

Row = dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """What a command said: its rows, the codes of its errors and warnings."""

    answer: Answer
    rows: tuple[Row, ...]
    errors: frozenset[str]
    warnings: frozenset[str]

    @classmethod
    def of(cls, answer: Answer) -> Heard:
        """Read an answer."""
        rows = tuple(answer.rows) if answer.status in _ANSWERED else ()
        found = [*_ERROR.findall(answer.err), *((row["severity"], row["code"]) for row in rows if "severity" in row)]
        codes = {word: frozenset(code for one, code in found if one == word) for word in ("error", "warning")}
        return cls(answer, rows, codes["error"], codes["warning"])

    @property
    def status(self) -> int:
        """The exit status."""
        return self.answer.status

    @property
    def by_id(self) -> dict[str, Row]:
        """The rows of transactions by id."""
        return {row["transaction_id"]: row for row in self.rows if row.get("transaction_id")}


_ANSWERED = (exit_status.DONE, exit_status.FINDINGS, exit_status.INCOMPLETE)
#: No store, or one that contradicts an option: then for all commands.
_REFUSED = (exit_status.UNREADABLE, exit_status.USAGE)
Heards = Mapping[str, Heard]


@dataclass(frozen=True)
class Difference:
    """Two commands that do not agree, in words. `rule`: the rule that found it."""

    rule: str
    what: str


@dataclass(frozen=True)
class Rule:
    """What must be. `differences`: sentences about what is not so."""

    name: str
    differences: Callable[[Heards], Iterator[str]]


@dataclass(frozen=True)
class Expected:
    """A difference of a rule that must be, and why. `holds`: whether it is this one."""

    name: str
    rule: str
    why: str
    holds: Callable[[Heards, str], bool] = field(repr=False)


def _statuses(heard: Heards, *names: str) -> str:
    return ", ".join(f"{name} {heard[name].status}" for name in names)


def _readable(heard: Heards) -> Iterator[str]:
    """A store is readable for all that read its log, or for none."""
    names = ("pending", "scanned", "audit", "diagnose")
    if len({heard[name].status in _ANSWERED for name in names}) > 1:
        yield _statuses(heard, *names)


def _of_start(heard: Heards) -> Iterator[str]:
    """A start that harms is an error of each command."""
    of_start = {code for code in heard["verify"].errors if code.startswith("start-")}
    for name in ABOUT_TRANSACTIONS if of_start else ():
        if heard[name].status in (exit_status.DONE, exit_status.FINDINGS):
            yield f"verify has {', '.join(sorted(of_start))}; {name} {heard[name].status}"
    for name in ABOUT_TRANSACTIONS if heard["verify"].status in _ANSWERED else ():
        if REFUSED in heard[name].errors - heard["verify"].errors:
            yield f"{name} has {REFUSED}; verify {heard['verify'].status} has not"


def _both_paths(heard: Heards) -> Iterator[str]:
    """`pending` has one answer, with or without `--scan`."""
    fast, scanned = heard["pending"], heard["scanned"]
    if {fast.status, scanned.status} == {exit_status.DONE, exit_status.INCOMPLETE}:
        yield f"{_statuses(heard, 'pending', 'scanned')}: {', '.join(sorted(fast.errors ^ scanned.errors))}"
    yield from _different_rows("pending", fast.by_id, "scanned", scanned.by_id)


def _scan_and_audit(heard: Heards) -> Iterator[str]:
    """`pending --scan` has the open rows of `audit`, and nothing that `audit` does not know."""
    audited, scanned = heard["audit"], heard["scanned"]
    if audited.status not in _ANSWERED or scanned.status not in _ANSWERED:
        return
    if audited.status != scanned.status:
        yield f"{_statuses(heard, 'audit', 'scanned')}: {', '.join(sorted(audited.errors ^ scanned.errors))}"
    yield from _different_rows("scanned", scanned.by_id, "audit", _open_of(audited.rows))


def _shown(heard: Heards) -> Iterator[str]:
    """`show` has the row of `audit`, and status 3 if that row cannot be decided."""
    known = heard["audit"].by_id
    for name, one in heard.items():
        if not name.startswith("show "):
            continue
        row = known[name.removeprefix("show ")]
        if one.status not in _ANSWERED:
            yield f"{name}: status {one.status}"
            continue
        yield from _different_rows("show", one.by_id, "audit", {row["transaction_id"]: row})
        if row["state"] == "UNDECIDABLE" and one.status != exit_status.INCOMPLETE:
            yield f"{name}: UNDECIDABLE in audit, status {one.status}"
        if one.status == exit_status.INCOMPLETE and heard["audit"].status == exit_status.DONE:
            yield f"{name}: status 3, audit 0: {', '.join(sorted(one.errors))}"


def _diagnosed(heard: Heards) -> Iterator[str]:
    """`diagnose` judges what `audit` judges."""
    if heard["diagnose"].status != heard["audit"].status:
        yield _statuses(heard, "audit", "diagnose")


def _simulated_status(heard: Heards) -> Iterator[str]:
    """`simulate` and `pending` know the same about the check."""
    one, other = heard["simulate"], heard["pending"]
    if one.status not in _ANSWERED or other.status not in _ANSWERED:
        return
    if one.status != other.status:
        yield f"{_statuses(heard, 'pending', 'simulate')}: {', '.join(sorted(one.errors ^ other.errors))}"


def _simulated_rows(heard: Heards) -> Iterator[str]:
    """The next round does with a transaction what its row announces."""
    known = heard["audit"].by_id
    done: dict[str, set[str]] = {}
    for row in heard["simulate"].rows:
        if row["round"] == 1 and row["transaction_id"]:
            done.setdefault(row["transaction_id"], set()).add(row["action"])
    for identity, actions in done.items():
        if identity not in known:
            yield f"{identity}: {', '.join(sorted(actions))} in simulate, no row in audit"
            continue
        events = {EVENT_OF[action] for action in actions if action in EVENT_OF}
        event = known[identity]["next_event"]
        if events and event not in events:
            yield f"{identity}: {', '.join(sorted(events))} in simulate, next event {event} in audit"


def _verified(heard: Heards) -> Iterator[str]:
    """Where a command has an error about a file, `verify` has a finding."""
    if heard["verify"].status != exit_status.DONE:
        return
    for name in ABOUT_TRANSACTIONS:
        if more := heard[name].errors:
            yield f"verify 0, {name} {heard[name].status}: {', '.join(sorted(more))}"


RULES = (
    Rule("readable", _readable), Rule("start", _of_start), Rule("both paths", _both_paths),
    Rule("scan and audit", _scan_and_audit), Rule("show", _shown), Rule("diagnose", _diagnosed),
    Rule("simulate", _simulated_status), Rule("next round", _simulated_rows), Rule("verify", _verified),
)



def _is_of_consumers(heard: Heards, what: str) -> bool:
    """Whether each error about the start is about queues that the check does not read."""
    of_start = [row for row in heard["verify"].rows if row["code"].startswith("start-") and row["severity"] == "error"]
    texts = [f"{row['file']} {row['expected']}" for row in of_start]
    is_other = not any(topic in text for text in texts for topic in CHECKED)
    return what.startswith("verify has") and is_other and {row["code"] for row in of_start} <= OF_QUEUES


def _is_played_anyway(heard: Heards, what: str) -> bool:
    """Whether `simulate` reports that its broker does not start, or damage of what its check reads."""
    is_reported = heard["simulate"].status == exit_status.INCOMPLETE
    ends: tuple[str, ...] = ("stopped in audit", "unknown in audit", "no row in audit")
    if "undecidable" in heard["simulate"].errors:  # slots that lead to records of other topics are read as half copies
        ends = (*ends, "none in audit")
    return is_reported and what.endswith(ends)


def _are_passed(heard: Heards, _what: str) -> bool:
    """Whether an audit is incomplete only because of what the check has passed, and what expired before it."""
    unknown = [row for row in heard["audit"].rows if row["state"] == "UNDECIDABLE"]
    are_passed = all((row["reason_code"], row["next_event"]) == ("log_begins_later", "none") for row in unknown)
    return bool(unknown) and are_passed and not heard["audit"].errors


def _is_cut_at_start(heard: Heards, _what: str) -> bool:
    """Whether `simulate` reports that the start cuts a queue, and the others have errors about its slots alone."""
    return "start-cuts-queue" in heard["simulate"].warnings and heard["pending"].errors <= OF_SLOTS


def _is_refuted(heard: Heards, _what: str) -> bool:
    """Whether only `simulate` believes in lost records, and an audit has the rows of the undamaged store."""
    return heard["simulate"].errors == {"log-missing"} and _is_as_before("audit")(heard, "")


def _has_expired(heard: Heards, _what: str) -> bool:
    """Whether nothing but the age of the log keeps transactions undecidable."""
    codes = {row["reason_code"] for row in heard["audit"].rows if row["state"] == "UNDECIDABLE"}
    return codes == {"log_begins_later"} and not heard["audit"].errors


def _is_as_before(name: str) -> Callable[[Heards, str], bool]:
    """Whether a command that ends with 0 gives the rows of the undamaged store."""
    def holds(heard: Heards, _what: str) -> bool:
        one, before = heard[name], heard[f"undamaged {name}"]
        return one.status == exit_status.DONE and _outline(one) == _outline(before)

    return holds


def _are_rounds_as_before(heard: Heards, what: str) -> bool:
    return what.endswith("simulate 0") and _is_as_before("simulate")(heard, what)


def _is_of_a_record_without_rounds(heard: Heards, _what: str) -> bool:
    """Whether the others have errors about single records, and no round has a transaction that is in doubt."""
    in_doubt = {row["transaction_id"] for row in heard["audit"].rows if row["state"] == "UNDECIDABLE"}
    is_apart = not in_doubt & set(heard["simulate"].by_id)
    return heard["simulate"].status == exit_status.DONE and is_apart and heard["pending"].errors <= OF_RECORDS


def _outline(heard: Heard) -> list[list[Any]]:
    columns = ("transaction_id", "action", "half_queue_offset", *COMPARED)
    return sorted(([row.get(name) for name in columns] for row in heard.rows), key=str)


#: Topics that the check reads, and the findings about a start that concern one queue.
CHECKED = (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
OF_QUEUES = {"start-skips", "start-shifts", "start-adds-hole", "start-cuts-queue", "start-empties-queues"}
OF_SLOTS = {"slot-invalid", "slot-mismatch", "slot-missing", "half-number-taken", "undecidable"}
OF_RECORDS = {"half-unreadable", "words-contradict", "record-header", "undecidable"}
EXPECTED: tuple[Expected, ...] = (
    Expected(
        "queues of consumers", "start", "the start changes queues that no check reads: what consumers read of them is "
        "a question for verify alone", _is_of_consumers,
    ),
    Expected(
        "harms no transaction", "start", "the check has passed what the start takes: the audit has the rows of the "
        "undamaged store, with their next events", _is_as_before("audit"),
    ),
    Expected(
        "no round depends on it", "start", "the rounds of simulate are those of the undamaged store, whatever the "
        "start leaves without a slot", _are_rounds_as_before,
    ),
    Expected(
        "only a scan reads it", "both paths", "the damage lies in what the check has passed: without a scan it is not "
        "read, and the rows are those of the undamaged store", _is_as_before("pending"),
    ),
    Expected(
        "no round reads it", "simulate", "the check does not read what is damaged: the rounds are those of the "
        "undamaged store", _is_as_before("simulate"),
    ),
    Expected(
        "passed", "scan and audit", "what the check has passed is not pending, whatever left the log before it",
        _are_passed,
    ),
    Expected(
        "no round has its record", "simulate", "the damaged record is not in what the start leaves for the check: no "
        "round has its transaction", _is_of_a_record_without_rounds,
    ),
    Expected(
        "cut at the start", "simulate", "the start cuts the damaged slots off, which simulate reports, and it plays "
        "the rounds after that start", _is_cut_at_start,
    ),
    Expected(
        "not scanned", "simulate", "simulate does not scan the log, which refutes what a damaged file claims about it",
        _is_refuted,
    ),
    Expected(
        "rounds need no state", "simulate", "a round does not depend on what left the log, and a state does",
        _has_expired,
    ),
    Expected("expired", "verify", "expired records are not damaged, and may have decided a transaction", _has_expired),
    Expected(
        "played anyway", "next round", "with status 3, simulate plays the rounds as if the broker had started, and "
        "names a half message by what is left of its record", _is_played_anyway,
    ),
)


def _different_rows(one: str, some: Mapping[str, Row], other: str, others: Mapping[str, Row]) -> Iterator[str]:
    for identity in sorted({*some, *others}):
        if identity not in some or identity not in others:
            there, row = (one, some[identity]) if identity in some else (other, others[identity])
            yield f"{identity}: {row['state']} only in {there}"
            continue
        pairs = ((column, some[identity][column], others[identity][column]) for column in COMPARED)
        if words := [f"{column} {left} in {one}, {right} in {other}" for column, left, right in pairs if left != right]:
            yield f"{identity}: {'; '.join(words)}"


def _open_of(rows: tuple[Row, ...]) -> dict[str, Row]:
    """The rows that `pending --all-open` lists."""
    names = ("transaction_id", "state", "flags", "advice", "next_event")
    table = pa.table({name: pa.array([row[name] for row in rows], TRANSACTIONS.field(name).type) for name in names})
    chosen = set(open_rows(table)["transaction_id"].to_pylist())
    return {row["transaction_id"]: row for row in rows if row["transaction_id"] in chosen}


def _options(case: Case, chance: random.Random) -> tuple[str, ...]:
    """The options of a case for all commands; `--at` is not one of `verify`."""
    recipe = corpus.recipe(case.store)
    version = ("--broker-version", str(recipe.get("upgrade", recipe["version"])))
    conf = asking.home() / f"{case.store}.unexpired.conf"
    # Nothing is expired, however old the corpus is: the producers are asked.
    conf.write_text(f"{corpus.broker_conf(case.store)}\nfileReservedTime={RESERVED_HOURS}\n", encoding="utf-8")
    of_broker = ("--broker-conf", str(conf), *version)
    return chance.choice(((), (), version, of_broker, of_broker, (*of_broker, "--at", "+2d")))


@cache
def _undamaged(store: str, name: str, options: tuple[str, ...]) -> Heard:
    return Heard.of(asking.ask([*COMMANDS[name], str(asking.root_of(store)), *options]))


def _ask(case: Case, root: Path, options: tuple[str, ...], chance: random.Random) -> dict[str, Heard]:
    heard: dict[str, Heard] = {
        f"undamaged {name}": _undamaged(case.store, name, options) for name in ("pending", "audit", "simulate")
    }
    for name, words in COMMANDS.items():
        known = options[:options.index("--at")] if name == "verify" and "--at" in options else options
        heard[name] = Heard.of(asking.ask([*words, str(root), *known]))
    identities = sorted(heard["audit"].by_id)
    for identity in chance.sample(identities, min(SHOWN_MAX, len(identities))):
        words = ("show", identity, "--store", str(root), "--verbose", "--format", "jsonl", *options)
        heard[f"show {identity}"] = Heard.of(asking.ask(words))
    return heard


def differences_of(heard: Heards) -> tuple[list[Difference], list[str]]:
    """What does not agree, and the names of the expected differences that were found."""
    found: list[Difference] = []
    expected: list[str] = []
    for rule in RULES:
        for what in rule.differences(heard):
            reason = next((one for one in EXPECTED if one.rule == rule.name and one.holds(heard, what)), None)
            if reason is None:
                found.append(Difference(rule.name, what))
            else:
                expected.append(reason.name)
    return found, expected


def damaged(case: Case, to: Path, chance: random.Random) -> tuple[Path, list[str]]:
    """A damaged copy of a store, and a sentence about each damage."""
    root = copy_of(case.store, to)
    damages = RANDOM | MORE
    names = chance.choices(sorted(damages), k=chance.choice((1, 1, 2, DAMAGES_MAX)))
    return root, [f"{name}: {damages[name](root, chance)}"[:300] for name in names]


def play(case: Case) -> Played:
    """Damage a copy of a store, ask, and compare."""
    chance = random.Random(f"{case} {case.seed}")
    with tempfile.TemporaryDirectory(dir=asking.home()) as home:
        root, damages = damaged(case, Path(home), chance)
        options = _options(case, chance)
        before = contents(root)
        heard = _ask(case, root, options, chance)
        changed = contents(root) != before
    found, expected = differences_of(heard)
    crashes = [
        WrongAnswer("crash", name, one.answer.err[-800:]) for name, one in heard.items()
        if one.status not in (*_ANSWERED, *_REFUSED, exit_status.NO_SUCH_TRANSACTION)
    ]
    wrong = [*crashes, *(WrongAnswer("differ", one.rule, one.what) for one in found[:12])]
    wrong += [WrongAnswer("changed", "store", "a command changed the store")] if changed else []
    outcome = CRASH if crashes else SILENT if wrong else REPORTED
    statuses = ", ".join(
        f"{name.split()[0]} {one.status}" for name, one in heard.items() if not name.startswith("undamaged")
    )
    given = " ".join(word for word in options if not word.startswith("/"))
    what = f"{case} [{given}] {'; '.join(damages)} ({statuses})"
    return Played(
        what, case.store, any_file.design_of(case.store), outcome, tuple(wrong), tuple(sorted(set(expected))), given
    )
