"""The source of a stand-in's answers: a plan, or a business ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqtx.readers.ledger.ledger import open_ledger
from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.plans.draft_plan import digest_of
from rmqtx.repairs.receipts.plan_file import read_plan
from rmqtx.repairs.stand_in.answer_source import AnswerSource, LedgerAnswers, PlanAnswers
from rmqtx.verdicts.ledger.join import reconcile
from rmqtx_cli.options.ledger_options import AnswerOptions, LedgerAnswerOptions
from rmqtx_cli.options.ledgers import LedgerQuery
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

#: What takes the plan that `reconcile` writes, by command.
_WITH_PLAN = {"answer": "answer --plan", "triage": "plan show"}


def ledger_answers(options: LedgerAnswerOptions, command: str) -> LedgerAnswers | None:
    """The answers of the ledger; None if no ledger is given. `command`: whose help names the options.

    Raises: BadRequest; what reading the ledger raises.
    """
    needed = {"--match": options.match, "--done": options.done, "--not-done": options.not_done}
    if options.ledger is None:
        if given := [name for name, value in needed.items() if value]:
            raise BadRequest(f"{given[0]} needs --ledger", advice=f"rmqtx {command} --help")
        return None
    if missing := [name for name, value in needed.items() if not value]:
        raise BadRequest(f"--ledger needs {', '.join(missing)}", advice=f"rmqtx {command} --help")
    return _ledger_words(options, command)


def _ledger_words(options: LedgerAnswerOptions, command: str) -> LedgerAnswers:
    query = LedgerQuery(
        options.ledger or "", options.ledger_table, options.match or "", options.done or "", options.not_done or ""
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
        terms = parsed.terms(missing_is_not_done=options.missing_is_not_done)
        return reconcile(batches, ledger, terms, parsed.columns)

    return LedgerAnswers(compare, query.name)


def answers_of(options: AnswerOptions, voice: Voice) -> tuple[AnswerSource, dict[str, str] | None]:
    """The answers of the plan or the ledger; and file and digest of the plan for receipts.

    Raises: BadRequest; what reading the plan or the ledger raises.
    """
    if (options.plan is None) == (options.given.ledger is None):
        raise BadRequest("give exactly one source of answers", advice="--plan FILE or --ledger PLACE")
    if options.plan is not None:
        return _plan_words(options.plan, voice)
    words = ledger_answers(options.given, "answer")
    assert words is not None
    return words, None


def _plan_words(file: Path, voice: Voice) -> tuple[AnswerSource, dict[str, str]]:
    words = PlanAnswers(read_plan(file), str(file))
    if words.others_count:
        voice.note(f"{file}: {count(words.others_count, 'step')} not for answers; carry out with rmqtx apply")
    return words, {"file": str(file), "digest": digest_of(file.read_bytes())}
