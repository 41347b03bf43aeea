"""`rmqtx triage`: go through the pending transactions one by one, and write the answers as a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.errors import EvidenceMissing, NoSuchTransaction
from rmqtx.repairs.acts.situation import Situation
from rmqtx.repairs.plans.plan_sources import PlanSource
from rmqtx.repairs.plans.triage import SKIP, AnswersFile, Triage, draft_of
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.stand_in.answer_source import GivenAnswer, LedgerAnswers
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.acting.plan_writing import plan_from, plan_inputs, refuse_file, say_refused, write_plan
from rmqtx_cli.acting.triage_desk import NO_TERMINAL, Desk
from rmqtx_cli.commands.declared.plans import TriageCommand, TriageSelection
from rmqtx_cli.options.asking import require_terminal
from rmqtx_cli.output.listing import concluded
from rmqtx_cli.sources.answer_sources import ledger_answers
from rmqtx_cli.sources.source import AskedSource, SourceOpener, chosen_opener
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import parse_duration_ms


def run(options: TriageCommand) -> int:
    """Run the command; return its exit status."""
    require_terminal(NO_TERMINAL)
    kept = AnswersFile(options.output)
    refuse_file(options.output, force=options.force or kept.exists)
    advice = "rmqtx triage STORE -o FILE --reason TEXT, or rmqtx triage -n HOST:PORT -o FILE --reason TEXT"
    opener = chosen_opener(
        AskedSource(options.store or [], options.live, options.files), Voice(quiet=True), advice
    )
    ledger = ledger_answers(options.given, TriageCommand.NAME)
    if options.force:
        kept.forget()
    with plan_inputs(options.store or [], options.files, options.live, advice) as source:
        source.refuse_inside(options.output)
        _say_sources(opener, options.voice)
        reading, situations = _read(options.asked, source, options.voice)
        triage = _triage(situations, kept, source.roots, options.reason)
        _say_begin(triage, options.voice)
        words = {} if ledger is None else _ledger_words(ledger, opener, [one.transaction for one in situations])
        desk = Desk(
            triage, opener, reading.predicted, words, options.voice, is_plain=options.plain, by_group=options.by_group
        )
        try:
            is_over = desk.run()
        except KeyboardInterrupt:
            say.prompt("\n")
            say.line(f"rmqtx: {kept.path} keeps the answers; no plan was written - the same command goes on")
            raise
    status = concluded(reading, options.voice)
    _say_end(triage, options.voice, is_over=is_over)
    with plan_inputs(options.store or [], options.files, options.live, advice) as source:
        written = _write(options.context, triage, source, options.output, options.voice)
    return status if written == exit_status.DONE else written


def _read(asked: TriageSelection, source: PlanSource, voice: Voice) -> tuple[VerdictReading, list[Situation]]:
    """Return the reading, and the situations of the transactions that meet the conditions."""
    reading = source.everything() if asked.discarded else source.pending()
    rows = [Transaction.of(row) for row in reading.table().to_pylist()]
    rows = [row for row in rows if row.state == State.PENDING or (asked.discarded and row.state == State.DISCARDED)]
    names = Counter(row.transaction_id for row in rows)
    if several := [name for name, number in names.items() if number > 1]:
        voice.note(f"left out, because several transactions have the id: {', '.join(several)}")
    before_ms = None if asked.older_than is None else clock.now_ms() - parse_duration_ms(asked.older_than)
    chosen = [
        row for row in rows
        if names[row.transaction_id] == 1 and asked.group in (None, row.producer_group)
        and asked.topic in (None, row.topic)
        and (before_ms is None or (row.half_store_time_ms or 0) <= before_ms)
    ]
    return reading, source.situations(chosen)


def _say_sources(opener: SourceOpener, voice: Voice) -> None:
    with opener.opened() as source:
        for line in source.describe():
            voice.note(line)


def _triage(situations: Sequence[Situation], kept: AnswersFile, roots: Sequence[str], reason: str) -> Triage:
    """Return what is left to ask: by group, the nearest discard first; what was skipped before comes last."""
    answers = kept.read(roots)
    skipped = {name for name, one in answers.items() if one.answer == SKIP}
    rows = [one.transaction for one in situations]
    order = _GroupOrder.of(rows)
    ordered = sorted(
        situations, key=lambda one: (one.transaction_id in skipped, order.place(one.transaction))
    )
    counted = {name: one for name, one in answers.items() if one.action is not None}
    return Triage({one.transaction_id: one for one in ordered}, kept, roots, reason, counted)


@dataclass(frozen=True, slots=True)
class _GroupOrder:
    """The order of groups: by their nearest discard, then by their oldest transaction."""

    first: Mapping[tuple[str, str], tuple[int, int]]

    @classmethod
    def of(cls, rows: Sequence[Transaction]) -> _GroupOrder:
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for row in rows:
            found[_group(row)] = min(found.get(_group(row), _times(row)), _times(row))
        return cls(found)

    def place(self, row: Transaction) -> tuple[object, ...]:
        return (*self.first[_group(row)], _group(row), _times(row), row.transaction_id)


_NEVER_MS = 1 << 62


def _times(row: Transaction) -> tuple[int, int]:
    return row.discard_at_ms or _NEVER_MS, row.half_store_time_ms or _NEVER_MS


def _group(row: Transaction) -> tuple[str, str]:
    return row.producer_group or "", row.topic or ""


def _ledger_words(
    ledger: LedgerAnswers, opener: SourceOpener, rows: Sequence[Transaction]
) -> dict[str, GivenAnswer]:
    """Return what the ledger has about each transaction; others with its keys are looked up, as `answer` does."""
    def with_key(key: str) -> list[Transaction]:
        with opener.opened() as source:
            try:
                return [Transaction.of(row) for row in source.show(key).table().to_pylist()]
            except (NoSuchTransaction, EvidenceMissing):
                return []

    ledger.with_key = with_key
    return {row.transaction_id: one for row, one in zip(rows, ledger.of(rows), strict=True)} if rows else {}


def _say_begin(triage: Triage, voice: Voice) -> None:
    total, left = len(triage.situations), len(triage.left())
    if left < total:
        voice.note(f"{triage.file.path}: {count(total - left, 'answer')} of an earlier run, {left} of {total} left")
    elif not total:
        voice.note("no transaction meets the conditions - list the pending ones: rmqtx pending")


def _say_end(triage: Triage, voice: Voice, *, is_over: bool) -> None:
    words = Counter(triage.answers[name].answer for name in triage.situations if name in triage.answers)
    left = len(triage.left())
    counts = [f"{number} {word}" for word, number in words.most_common() if word != "open"]
    voice.note(f"answers: {', '.join(counts) or 'none'}{f', {left} left' if left else ''}")
    if not is_over:
        voice.note(f"{triage.file.path} keeps the answers: the same command goes on")


def _write(
    context: typer.Context, triage: Triage, source: PlanSource, output: Path, voice: Voice
) -> int:
    """Read everything again, and write the plan of the answers, also of earlier runs; return the exit status."""
    acts = [one.action for one in triage.answers.values() if one.action is not None]
    if not acts:
        return _no_plan("no answer is an act", output, voice)
    _, situations = _read(TriageSelection(discarded=ActKind.RESUME in acts), source, voice)
    draft, gone = draft_of(triage.answers.values(), {one.transaction_id: one for one in situations})
    decided = [name for name in gone if name in triage.situations]
    for name in decided:
        say.line(f"rmqtx: {name}: not planned: its state is not PENDING now")
    if len(gone) > len(decided):
        voice.note(f"left out: {count(len(gone) - len(decided), 'answer')} of earlier runs, no longer pending")
    say_refused(draft, voice)
    if not draft.steps:
        return _no_plan("no answered transaction is left", output, voice)
    planned = [one for one in situations if one.transaction_id in {step.transaction_id for step in draft.steps}]
    write_plan(plan_from(context, draft, source), output, None, planned, voice)
    return exit_status.SOME_REFUSED if draft.refused or decided else exit_status.DONE


def _no_plan(why: str, output: Path, voice: Voice) -> int:
    output.unlink(missing_ok=True)  # that of an earlier run has steps whose answers were taken back, or are done
    voice.note(f"no plan written: {why}")
    return exit_status.DONE
