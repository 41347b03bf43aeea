"""Where a stand-in's answers come from: a plan, or a business ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from readers.model.errors import BadRequest
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from repairs.stand_in.answer_source import Words


def answer_words(
    plan: Path | None, ledger: str | None, table: str | None, match: str | None, done: str | None, not_done: str | None,
    missing_is_not_done: bool, voice: Voice,
) -> tuple[Words, dict[str, str] | None]:
    """Who says what to answer, a plan or a ledger; and how receipts name the plan.

    Raises: BadRequest; what reading the plan or the ledger raises.
    """
    if (plan is None) == (ledger is None):
        raise BadRequest("who says what to answer?", advice="--plan FILE or --ledger PLACE, one of them")
    if plan is not None:
        return _plan_words(plan, voice)
    assert ledger is not None
    missing = [name for name, value in (("--match", match), ("--done", done), ("--not-done", not_done)) if not value]
    if missing:
        raise BadRequest(f"--ledger needs {', '.join(missing)}", advice="which row is meant, and what it says")
    return _ledger_words(ledger, table, match or "", done or "", not_done or "", missing_is_not_done), None


def _plan_words(file: Path, voice: Voice) -> tuple[Words, dict[str, str]]:
    from repairs.plans.draft_plan import digest_of
    from repairs.receipts.plan_file import read_plan
    from repairs.stand_in.answer_source import PlanWords

    words = PlanWords(read_plan(file), str(file))
    if words.others_count:
        voice.note(f"{file}: {count(words.others_count, 'step')} of it no answer can carry out: rmqtx apply does that")
    return words, {"file": str(file), "digest": digest_of(file.read_bytes())}


def _ledger_words(
    location: str, table: str | None, match: str, done: str, not_done: str, missing_is_not_done: bool
) -> Words:
    from readers.ledger.ledger import open_ledger
    from repairs.stand_in.answer_source import LedgerWords
    from rmqtx_cli.options.ledgers import Question
    from verdicts.ledger.join import reconcile

    question = Question(location, table, match, done, not_done)
    if question.is_jdbc:
        raise BadRequest(
            "--ledger jdbc: is read by Spark, which is too slow for answers",
            advice="rmqtx reconcile --plan FILE, then --plan FILE here",
        )
    understood = question.understood(open_ledger(location, table, question.text_columns).schema)

    def compare(batches: Any) -> Iterator[Any]:
        ledger = open_ledger(location, table, question.text_columns)  # as it is now
        return reconcile(
            batches, ledger, understood.match, understood.done.mask, understood.not_done.mask, understood.columns,
            missing_is_not_done=missing_is_not_done,
        )

    return LedgerWords(compare, question.name)
