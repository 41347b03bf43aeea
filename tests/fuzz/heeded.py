"""What `verify --full` finds about transactions, `audit` and `pending` heed.

A damage is silent if a verification has an error, or a warning, that the undamaged store does not have, and neither
`audit` nor `pending` has it: status 0 (or no worse than before the damage), and no finding of the same code. A finding
may be missing only for a reason of `left_out.py`, which shows in the case at hand that no transaction depends on it.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.model.predicted import open_rows
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.verify.verify import FULL, Verify
from tests.forge.stores import settings_of
from tests.fuzz.asking import SECONDS_MAX, Truth, WrongAnswer
from tests.fuzz.left_out import REASONS, Compared, Row
from tests.fuzz.matrix import CELLS, _write, case_of
from tests.fuzz.rounds import TookTooLong, alarm

#: Columns that the clock changes.
_OF_CLOCK = ("discard_at_ms", "next_event_at_ms")
#: Another code that reports the same.
_SLOTS = ("slot-invalid", "slot-missing", "slot-dangling", "slot-mismatch", "queue-missing", "queue-gap")
SAME: dict[str, tuple[str, ...]] = {
    "cursor-beyond-end": ("queue-missing",),
    "slot-missing": ("queue-missing",),
    # What the next start does with a queue, because of its slots.
    "start-cuts-queue": _SLOTS, "start-skips": _SLOTS, "start-shifts": _SLOTS, "start-adds-hole": _SLOTS,
}


@dataclass(frozen=True)
class Answer:
    """What `audit` or `pending` says: rows by id without times of the clock, findings, and whether it is incomplete.

    `failure`: why a command failed; the exit status is then neither 0 nor 3.
    """

    rows: dict[str, Row]
    findings: tuple[Finding, ...]
    is_incomplete: bool
    stops_count: int = 0
    failure: str = ""

    @property
    def codes(self) -> frozenset[str]:
        """The codes of its findings."""
        return frozenset(finding.code for finding in self.findings)


@dataclass(frozen=True)
class Answers:
    """What the three jobs say about a store; `verified` is None where `verify` gives no answer."""

    store: Store
    verified: tuple[Row, ...] | None
    audited: Answer
    pended: Answer


def answers_of(root: Path, name: str) -> Answers:
    """Verify, audit and list the open transactions of a store with the settings of its broker.

    Raises: any exception that is not one of the project's own: a crash; TookTooLong.
    """
    settings = settings_of(name)
    with alarm(SECONDS_MAX):
        store = open_store(root)
        known = settings(store)
        version = known.version_low if known.version_low == known.version_high else None
        job = Verify(FULL, None if version is None else ".".join(map(str, version)), tuple((known.given or {}).items()))
        verified: tuple[Row, ...] | None = None
        with contextlib.suppress(RmqtxError):  # the command then has status 10
            verified = tuple(run_job(job, plan_splits([store]), processes=1).table().to_pylist())
        return Answers(
            store, verified, _answer(lambda: audit([store], settings)), _answer(lambda: pending([store], settings))
        )


def _answer(read: Callable[[], VerdictReading]) -> Answer:
    try:
        reading = read()
        table = reading.table()
    except RmqtxError as error:
        return Answer({}, (), is_incomplete=True, failure=error.message)
    rows = {row["transaction_id"]: row for row in table.to_pylist()}
    for row in rows.values():
        for column in _OF_CLOCK:
            row.pop(column)
    opened = set(open_rows(table)["transaction_id"].to_pylist())
    for name, row in rows.items():
        row["is_open"] = name in opened
    has_undecidable = reading.undecidable_count > 0 or any(row["state"] == "UNDECIDABLE" for row in rows.values())
    has_error = any(finding.kind.severity == "error" for finding in reading.findings)
    return Answer(rows, tuple(reading.findings), has_error or has_undecidable, len(reading.check_stops))


@cache
def undamaged(root: Path, name: str) -> Answers:
    """The answers for a store of the corpus, as it is when this is first called."""
    return answers_of(root, name)


@dataclass(frozen=True)
class Heeded:
    """A comparison. `silent`: findings that nothing reports; `left_out`: by reason, how many need no report."""

    silent: tuple[str, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()
    crash: str = ""
    found_count: int = 0


def heeded(root: Path, name: str, base: Answers) -> Heeded:
    """Ask all three about a damaged store, and compare."""
    try:
        now = answers_of(root, name)
    except TookTooLong as error:
        return Heeded(crash=f"hang: {error}")
    except Exception as error:
        return Heeded(crash="".join(traceback.format_exception(error))[-1500:])
    return compared(base, now)


def compared(base: Answers, now: Answers) -> Heeded:
    """Compare what a verification finds in a damaged store with what the other two say."""
    old = set(map(_text_of, base.verified or ()))
    new = [row for row in now.verified or () if row["severity"] != "note" and _text_of(row) not in old]
    reasons: Counter[str] = Counter()
    silent: list[str] = []
    for which in ("audited", "pended"):
        before, after = getattr(base, which), getattr(now, which)
        if _is_reported(before, after):
            continue
        case = Compared(
            base.store, now.store, which, before, after, now.audited, tuple(now.verified or ()),
            _is_reported(base.audited, now.audited),
        )
        for row in new:
            if row["code"] in after.codes - before.codes or not after.codes.isdisjoint(SAME.get(row["code"], ())):
                continue
            is_stop = row["code"] == "check-stopped" and after.stops_count > 0
            if is_stop or _is_repeated(row, before, after):
                continue
            reason = next((reason for reason in REASONS if reason.holds(case, row)), None)
            if reason is None:
                silent.append(f"{which}: {sentence(row)}")
            else:
                reasons[reason.name] += 1
    silent.extend(_differences(base, now))
    return Heeded(tuple(silent), tuple(sorted(reasons.items())), found_count=len(new))


def _is_reported(before: Answer, after: Answer) -> bool:
    """Whether an answer is incomplete because of the damage: the undamaged store's was complete, or had fewer errors.
    """
    if after.failure:
        return True
    return after.is_incomplete and (not before.is_incomplete or _errors(after) - _errors(before) != Counter())


def _errors(answer: Answer) -> Counter[str]:
    texts = Counter(
        f"{one.code} {one.file} {one.position_bytes} {one.expected} {one.actual}"
        for one in answer.findings if one.kind.severity == "error"
    )
    return texts + Counter(name for name, row in answer.rows.items() if row["state"] == "UNDECIDABLE")


def _is_repeated(row: Row, before: Answer, after: Answer) -> bool:
    """Whether an answer has more findings of a code that it had before the damage, or the same one with its values."""
    code = row["code"]
    if any(one.code == code and one.actual == row["actual"] is not None for one in after.findings):
        return True
    return bool(sum(one.code == code for one in after.findings) > sum(one.code == code for one in before.findings))


def _differences(base: Answers, now: Answers) -> Iterator[str]:
    """Where `pending` lists other rows than `audit`, and does not say that evidence is missing.

    An audit may doubt what was decided long ago, and `pending` does not read: then its rows are still those of before.
    """
    if now.audited.failure or _is_reported(base.pended, now.pended):
        return
    if _is_reported(base.audited, now.audited) and now.pended.rows == base.pended.rows:
        return
    names = {name for name, row in now.audited.rows.items() if row["is_open"]}
    if names != set(now.pended.rows):
        yield f"pending lists {len(now.pended.rows)}, audit has {len(names)} open ones"
    for name in sorted(names & set(now.pended.rows)):
        one, other = now.audited.rows[name], now.pended.rows[name]
        different = [column for column in ("state", "flags", "next_event") if one[column] != other[column]]
        if different:
            yield f"{name}: " + ", ".join(f"{column} {one[column]} in audit, {other[column]} in pending"
                                          for column in different)


def _text_of(row: Row) -> str:
    return str([row[key] for key in ("code", "severity", "file", "position_bytes", "expected", "actual")])


def sentence(row: Row) -> str:
    """A finding in one line."""
    return f"{row['code']}: {row['file']} at {row['position_bytes']}: {row['expected']} | {row['actual']}"


def asked(truth: Truth, base: Answers) -> Iterator[WrongAnswer]:
    """The comparison as a question of the other campaigns."""
    found = heeded(truth.root, truth.name, base)
    if found.crash:
        yield WrongAnswer("crash", "heeded", found.crash)
    for text in found.silent[:5]:
        yield WrongAnswer("unheeded", "heeded", text)


@dataclass(frozen=True)
class MatrixCase:
    """One case of the damage matrix, compared."""

    number: int
    cell: tuple[str, str, str, str]
    done: str
    silent: tuple[str, ...]
    is_compared: bool = True


def compare(number: int, seed: int = 0, cells: tuple[tuple[str, str, str, str], ...] = CELLS) -> MatrixCase:
    """Play the case with a number, as `matrix.play` does, and compare the verification with the other two."""
    case = case_of(number, seed, cells)
    if case.file is None or case.after == case.before:
        return MatrixCase(number, case.cell, case.done, (), is_compared=False)
    base = undamaged(case.base.root, case.cell[0])
    try:
        _write(case.file, case.after)
        found = heeded(case.base.root, case.cell[0], base)
    finally:
        _write(case.file, case.before)
    return MatrixCase(number, case.cell, case.done, (*found.silent, *filter(None, (found.crash,))))
