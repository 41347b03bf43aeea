"""The source of a stand-in's answers: a plan, or a business ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.options.ledger_options import (
    MATCH_OPTION,
    LedgerTableOption,
    MissingOption,
    done_option,
    not_done_option,
)
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from rmqtx.repairs.stand_in.answer_source import AnswerSource, LedgerAnswers


PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Answer what this plan commits or rolls back, and nothing else"),
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger", metavar="PLACE", help="The ledger that has the answers: a Parquet or CSV file, or sqlite:///FILE"
    ),
]
MatchOption = Annotated[str | None, MATCH_OPTION]
DoneOption = Annotated[str | None, done_option(": answer commit")]
NotDoneOption = Annotated[str | None, not_done_option(": answer rollback")]


#: What takes the plan that `reconcile` writes, by command.
_WITH_PLAN = {"answer": "answer --plan", "triage": "plan show"}


@dataclass(frozen=True, slots=True)
class LedgerAnswerOptions:
    """A ledger as a source of answers."""

    ledger: LedgerOption = None
    ledger_table: LedgerTableOption = None
    match: MatchOption = None
    done: DoneOption = None
    not_done: NotDoneOption = None
    missing_is_not_done: MissingOption = False

    def words(self, command: str) -> LedgerAnswers | None:
        """The answers of the ledger; None if no ledger is given. `command`: whose help names the options.

        Raises: BadRequest; what reading the ledger raises.
        """
        needed = {"--match": self.match, "--done": self.done, "--not-done": self.not_done}
        if self.ledger is None:
            if given := [name for name, value in needed.items() if value]:
                raise BadRequest(f"{given[0]} needs --ledger", advice=f"rmqtx {command} --help")
            return None
        if missing := [name for name, value in needed.items() if not value]:
            raise BadRequest(f"--ledger needs {', '.join(missing)}", advice=f"rmqtx {command} --help")
        return self._ledger_words(command)

    def _ledger_words(self, command: str) -> LedgerAnswers:
        from rmqtx.readers.ledger.ledger import open_ledger
        from rmqtx.repairs.stand_in.answer_source import LedgerAnswers
        from rmqtx.verdicts.ledger.join import reconcile
        from rmqtx_cli.options.ledgers import LedgerQuery

        query = LedgerQuery(
            self.ledger or "", self.ledger_table, self.match or "", self.done or "", self.not_done or ""
        )
        if query.is_jdbc:
            raise BadRequest(
                "--ledger jdbc: needs Spark, which is too slow for answers",
                advice=f"rmqtx reconcile --plan FILE, then rmqtx {_WITH_PLAN[command]} FILE",
            )
        parsed = query.parsed(
            open_ledger(query.location, query.table, query.text_columns).schema
        )

        def compare(batches: Any) -> Iterator[Any]:
            ledger = open_ledger(query.location, query.table, query.text_columns)  # as it is now
            return reconcile(
                batches, ledger, parsed.match, parsed.done.mask, parsed.not_done.mask, parsed.columns,
                missing_is_not_done=self.missing_is_not_done,
            )

        return LedgerAnswers(compare, query.name)


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """The source of answers: a plan or a ledger."""

    plan: PlanOption = None
    given: LedgerAnswerOptions = field(default_factory=LedgerAnswerOptions)

    def words(self, voice: Voice) -> tuple[AnswerSource, dict[str, str] | None]:
        """The answers of the plan or the ledger; and file and digest of the plan for receipts.

        Raises: BadRequest; what reading the plan or the ledger raises.
        """
        if (self.plan is None) == (self.given.ledger is None):
            raise BadRequest("give exactly one source of answers", advice="--plan FILE or --ledger PLACE")
        if self.plan is not None:
            return _plan_words(self.plan, voice)
        words = self.given.words("answer")
        assert words is not None
        return words, None


def _plan_words(file: Path, voice: Voice) -> tuple[AnswerSource, dict[str, str]]:
    from rmqtx.repairs.plans.draft_plan import digest_of
    from rmqtx.repairs.receipts.plan_file import read_plan
    from rmqtx.repairs.stand_in.answer_source import PlanAnswers

    words = PlanAnswers(read_plan(file), str(file))
    if words.others_count:
        voice.note(f"{file}: {count(words.others_count, 'step')} not for answers; carry out with rmqtx apply")
    return words, {"file": str(file), "digest": digest_of(file.read_bytes())}
