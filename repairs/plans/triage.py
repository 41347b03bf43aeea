"""Triage: an operator's answers for transactions, each tested by the guards, kept in a file, and drafted as a plan.

The file of answers is beside the plan file. One JSON object per line; lines are only appended and are on disk when an
answer is taken, so an interruption loses none. The last line about a transaction counts. A crash can leave the last
line torn: it is ignored, and the next answer starts on a new line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.model import clock
from rmqtx.readers.model.declared_json import JsonForm, list_of, needed, shown
from rmqtx.readers.model.errors import BadRequest, BadText, UnreadableFile, UnwritableFile
from rmqtx.repairs.acts.situation import ActRequest, Situation
from rmqtx.repairs.plans.draft_plan import PlanDraft, drafted
from rmqtx.repairs.receipts.act_words import PLANNED, ActKind
from rmqtx.repairs.receipts.receipts import whoever

#: What an answer may be besides an act: not answered now, and an answer that was taken back.
SKIP, OPEN = "skip", "open"
_WORDS = (*PLANNED, SKIP, OPEN)
_VERSION = 1
_HEAD = JsonForm(
    "file of answers",
    pa.struct([needed("answers_version", pa.int64()), needed("stores", list_of(pa.string()))]),
)
_LINE = JsonForm(
    "answer",
    pa.struct(
        [needed(name, pa.string()) for name in ("transaction_id", "answer", "reason", "user")]
        + [needed("answered_time_ms", pa.int64())]
    ),
)


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """What an operator answered for a transaction; `answer`: an act, SKIP or OPEN."""

    transaction_id: str
    answer: str
    reason: str
    user: str
    answered_time_ms: int

    @property
    def action(self) -> ActKind | None:
        """The act; None for SKIP and OPEN."""
        return ActKind(self.answer) if self.answer in PLANNED else None


class AnswersFile:
    """The answers beside a plan file."""

    def __init__(self, plan: Path) -> None:
        self.path = plan.with_name(f"{plan.name}.answers")

    @property
    def exists(self) -> bool:
        """Whether an earlier run has begun it."""
        return self.path.exists()

    def forget(self) -> None:
        """Remove the answers of earlier runs."""
        self.path.unlink(missing_ok=True)

    def read(self, stores: Sequence[str]) -> dict[str, GivenAnswer]:
        """Return the last answer for each transaction; none without a file. `stores`: what is read now.

        Raises: UnreadableFile; BadText for anything else than answers; BadRequest if they are about other stores.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UnreadableFile(f"cannot read {self.path}: {error.strerror}", file=self.path) from error
        lines = data.split(b"\n")
        lines.pop()  # torn; empty after a whole line
        if not lines:
            return {}
        head = _HEAD.read(lines[0], f"{self.path}, line 1")
        if head["answers_version"] != _VERSION:
            raise _HEAD.bad(str(self.path), "answers_version", str(_VERSION), shown(head["answers_version"]))
        if sorted(head["stores"]) != sorted(stores):
            raise BadRequest(
                f"{self.path} has answers for {', '.join(head['stores'])}, not for {', '.join(stores)}",
                advice="give the same stores or brokers, or another plan file",
            )
        found: dict[str, GivenAnswer] = {}
        for number, line in enumerate(lines[1:], 2):
            if not line.strip():
                continue
            where = f"{self.path}, line {number}"
            try:
                values = _LINE.read(line, where)
            except BadText:
                if _is_torn(line):
                    continue
                raise
            if values["answer"] not in _WORDS:
                raise _LINE.bad(where, "answer", f"one of {', '.join(_WORDS)}", shown(values["answer"]))
            found[values["transaction_id"]] = GivenAnswer(**values)
        return found

    def add(self, answers: Iterable[GivenAnswer], stores: Sequence[str]) -> None:
        """Append answers; they are on disk when this returns. Raises: UnwritableFile."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                if b"\n" not in os.pread(descriptor, size, 0):  # the first line is torn
                    os.ftruncate(descriptor, 0)
                    size = 0
                head = [] if size else [{"answers_version": _VERSION, "stores": list(stores)}]
                is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                rows: list[dict[str, object]] = [*head, *(asdict(one) for one in answers)]
                text = ("\n" if is_torn else "") + "".join(f"{json.dumps(row, ensure_ascii=True)}\n" for row in rows)
                data = text.encode("ascii")
                while data:
                    data = data[os.write(descriptor, data) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UnwritableFile(f"cannot write {self.path}: {error.strerror or error}", file=self.path) from error


def _is_torn(line: bytes) -> bool:
    """Whether a crash cut the line: it begins as an answer, and does not end as one."""
    return line.startswith(b"{") and not line.rstrip().endswith(b"}")


@dataclass(slots=True)
class Triage:
    """Transactions that wait for an answer, and the answers.

    Shape: `situations` by transaction id, in the order in which they are asked about; `answers`: those that count.
    """

    situations: Mapping[str, Situation]
    file: AnswersFile
    stores: Sequence[str]
    reason: str
    answers: dict[str, GivenAnswer] = field(default_factory=dict)
    _undone: list[list[GivenAnswer]] = field(default_factory=list)

    def left(self) -> list[str]:
        """The transactions without an answer."""
        return [name for name in self.situations if name not in self.answers or self.answers[name].answer == OPEN]

    def group_of(self, name: str) -> tuple[str | None, str | None]:
        """The producer group and the topic of a transaction."""
        transaction = self.situations[name].transaction
        return transaction.producer_group, transaction.topic

    def left_with(self, name: str) -> list[str]:
        """The transactions without an answer that have the group and the topic of this one."""
        return [one for one in self.left() if self.group_of(one) == self.group_of(name)]

    def tested(self, names: Sequence[str], action: ActKind) -> PlanDraft:
        """The steps that an act has for some transactions, and what the guards refuse."""
        return drafted([self.situations[name] for name in names], ActRequest(action), self.reason, whoever())

    def answer(self, names: Sequence[str], word: str) -> PlanDraft:
        """Take an answer for some transactions: those that a guard refuses stay without one, and are in the draft.

        Raises: UnwritableFile.
        """
        draft = self.tested(names, ActKind(word)) if word in PLANNED else PlanDraft()
        refused = {name for name, _ in draft.refused}
        taken = [name for name in names if name not in refused]
        if taken:
            self._undone.append([self.answers.get(name) or self._given(name, OPEN) for name in taken])
            self._keep([self._given(name, word) for name in taken])
        return draft

    def take_back(self) -> list[str]:
        """Take back the last answer of this run; return its transactions. Raises: UnwritableFile."""
        if not self._undone:
            return []
        before = self._undone.pop()
        self._keep(before)
        return [one.transaction_id for one in before]

    def _given(self, name: str, word: str) -> GivenAnswer:
        return GivenAnswer(name, word, self.reason, whoever(), clock.now_ms())

    def _keep(self, answers: Sequence[GivenAnswer]) -> None:
        self.file.add(answers, self.stores)
        self.answers.update((one.transaction_id, one) for one in answers)


def draft_of(answers: Iterable[GivenAnswer], situations: Mapping[str, Situation]) -> tuple[PlanDraft, list[str]]:
    """Return the steps of answers for the situations as they are now, and the transactions that are gone since.

    Guards that refuse by now are in the draft. Order: that of the situations.
    """
    given = {one.transaction_id: one for one in answers if one.action is not None}
    draft = PlanDraft()
    for name, situation in situations.items():
        one = given.pop(name, None)
        if one is not None and one.action is not None:
            step = drafted([situation], ActRequest(one.action), one.reason, one.user)
            draft.steps += step.steps
            draft.refused += step.refused
            draft.to_override += step.to_override
    return draft, list(given)
