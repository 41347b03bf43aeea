"""`rmqtx plan`: write a plan of actions on many transactions, as a file for review."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.traces import Decision
from rmqtx.repairs.acts.situation import ActRequest, Situation
from rmqtx.repairs.plans.draft_plan import PlanDraft, drafted
from rmqtx.repairs.plans.plan_sources import PlanSource, rows_for, selectable
from rmqtx.repairs.receipts.act_words import PLANNED, ActKind
from rmqtx.repairs.receipts.plan_file import PLAN_STEPS, read_plan
from rmqtx.repairs.receipts.receipts import whoever
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.trace_evidence import last_said
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx_cli.acting.plan_writing import plan_from, plan_inputs, refuse_file, say_refused, write_plan
from rmqtx_cli.commands.declared.plans import PlanCommand, PlanSelection
from rmqtx_cli.options.options import OutputFormat, OutputOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.streams import open_stream
from rmqtx_cli.output.views import ALWAYS, Column, Row, View, plain, transactions_view
from rmqtx_cli.pages.plan_page import plan_lines
from rmqtx_cli.words import say
from rmqtx_cli.words.near import did_you_mean
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import parse_duration_ms
from rmqtx_cli.words.unknown_names import say_unknown_names

#: The decisions that traces have, by action.
_TRACED = {ActKind.COMMIT: Decision.COMMIT, ActKind.ROLLBACK: Decision.ROLLBACK}
SHOW = "show"


def run(options: PlanCommand) -> int:
    """Run the command; return its exit status."""
    output = options.output
    reason = options.reason
    if options.action == SHOW:
        return _shown(
            options.asked.ids or [], options.shown, options.voice, is_written=output is not None or reason is not None
        )
    output, reason = _needed(options.action, output, reason)
    refuse_file(output, force=options.force)
    wanted = _Asked(ActKind(options.action), options.asked)
    listing = Listing(PLAN_STEPS, steps_view(), options.shown, voice=options.voice)
    if options.files.trace_topic is not None and not options.asked.from_trace:
        raise BadRequest("--trace-topic needs --from-trace")
    with plan_inputs(
        options.store or [], options.files, options.live,
        f"rmqtx plan {options.action} ... -n HOST:PORT, or --store STORE",
    ) as source:
        source.refuse_inside(output)
        reading, situations = wanted.found(source, options.voice)
        draft = _draft(wanted, situations, reason, options.voice)
        if not draft.steps:
            say.error(f"no plan written: {_why_empty(situations, draft)}")
            return exit_status.REFUSED_BY_GUARD if draft.refused else exit_status.NO_SUCH_TRANSACTION
        plan = plan_from(options.context, draft, source)
    write_plan(plan, output, listing, situations, options.voice)
    status = listing.conclude(reading)
    return exit_status.SOME_REFUSED if status == exit_status.DONE and draft.refused and options.asked.ids else status


def _needed(action: str, output: Path | None, reason: str | None) -> tuple[Path, str]:
    """Return file and reason of a plan. Raises: BadRequest if one of them is not given, or for an unknown action."""
    if action not in PLANNED:
        raise BadRequest(f"no action {action!r}", advice=did_you_mean(action, [*PLANNED, SHOW]))
    for option, value in (("--output", output), ("--reason", reason)):
        if value is None:
            raise BadRequest(f"{option} is required", advice="see rmqtx plan --help")
    assert output is not None
    assert reason is not None
    return output, reason


def _draft(wanted: _Asked, situations: list[Situation], reason: str, voice: Voice) -> PlanDraft:
    """Return the steps that the guards allow; print the refused transactions."""
    draft = drafted(situations, ActRequest(wanted.action, wanted.options.group), reason, whoever())
    say_refused(draft, voice)
    return draft


def _shown(files: list[str], shown: OutputOptions, voice: Voice, *, is_written: bool) -> int:
    """Print a plan as a page, or its steps as rows."""
    if is_written:
        raise BadRequest("plan show writes no plan", advice="leave out -o and --reason")
    if len(files) != 1:
        raise BadRequest("plan show takes one file", advice="rmqtx plan show plan.json")
    file = Path(files[0])
    listing = Listing(PLAN_STEPS, steps_view(), shown, voice=voice)
    plan = read_plan(file)
    if listing.format is OutputFormat.TABLE and shown.fields is None:
        with open_stream(None) as stream:
            stream.write("".join(f"{line}\n" for line in plan_lines(plan, file)).encode())
    listing.write(iter(plan.table().to_batches()))
    return exit_status.DONE


# -- what is asked for ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """The action of a plan, and which transactions it selects.

    Raises: BadRequest if neither ids nor conditions are given.
    """

    action: ActKind
    options: PlanSelection

    def __post_init__(self) -> None:
        asked = self.options
        has_condition = any(one is not None for one in (asked.group, asked.topic, asked.older_than, asked.where))
        if asked.from_trace and (asked.ids or self.action not in _TRACED):
            raise BadRequest("--from-trace selects pending transactions for commit or rollback: it takes no ids")
        if not (asked.ids or has_condition or asked.every or asked.from_trace):
            raise BadRequest(
                "no transactions selected", advice="add ids, --group, --topic, --older-than or --where; or --all"
            )
        if self.action == ActKind.REDELIVER and not asked.ids:
            raise BadRequest(
                "redeliver needs ids: most rolled back transactions were rolled back rightly",
                advice="a ledger finds the others: rmqtx reconcile --plan FILE",
            )
        if asked.every and (asked.ids or has_condition):
            raise BadRequest("--all excludes ids and conditions", advice="leave out --all")

    def found(self, source: PlanSource, voice: Voice) -> tuple[VerdictReading, list[Situation]]:
        """Return the reading of the selected transactions, and the situation of each."""
        asked = self.options
        reading = rows_for(source, self.action, asked.ids or [])
        read = reading.table()
        found = self._chosen(read)
        if asked.from_trace:
            found = self._traced(found, reading)
        if not asked.ids:
            named = {"--topic": ("topic", asked.topic), "--group": ("producer_group", asked.group)}
            say_unknown_names(read, named, voice)
        if asked.limit is not None and asked.limit < found.num_rows:
            voice.note(f"{asked.limit} of {count(found.num_rows, 'transaction')} selected (--limit)")
        return reading, source.situations([Transaction.of(row) for row in found.slice(0, asked.limit).to_pylist()])

    def _chosen(self, rows: pa.Table) -> pa.Table:
        """Return the selected rows."""
        asked = self.options
        if not asked.ids:
            rows = selectable(rows, self.action)
        # With ids, the guard wrong-group refuses a wrong group, with its sentence.
        if asked.group is not None and not asked.ids:
            rows = rows.filter(pc.equal(rows["producer_group"], asked.group))
        if asked.topic is not None:
            rows = rows.filter(pc.equal(rows["topic"], asked.topic))
        if asked.older_than is not None:
            before_ms = clock.now_ms() - parse_duration_ms(asked.older_than)
            rows = rows.filter(pc.less_equal(rows["half_store_time_ms"], before_ms))
        return _fulfilling(rows, asked.where) if asked.where else rows

    def _traced(self, rows: pa.Table, reading: VerdictReading) -> pa.Table:
        """Return the rows whose producers decided so at last."""
        said = last_said(
            (one.traces for one in reading.evidence.values()), rows["transaction_id"].to_pylist()
        )
        reading.add_trace_findings()
        wanted = [identity for identity, decision in said.items() if decision == _TRACED[self.action]]
        return rows.filter(pc.is_in(rows["transaction_id"], pa.array(wanted, pa.string())))


def _fulfilling(rows: pa.Table, where: str) -> pa.Table:
    """Return the rows that meet a condition, which may use the columns of the printed table."""
    now_ms = clock.now_ms()
    view = transactions_view(now_ms, with_state=True, with_store=True)
    return Listing(rows.schema, view, where=where, now_ms=now_ms).fulfilling(rows)


# -- output -----------------------------------------------------------------------------------------------------------


def _why_empty(rows: Sequence[Situation], draft: PlanDraft) -> str:
    if draft.refused:
        return "a guard refuses the transaction" if len(rows) == 1 else f"a guard refuses all {len(rows)} transactions"
    return "no transaction meets the conditions - list the pending ones: rmqtx pending"


def steps_view() -> Any:
    """Return the view of plan steps."""
    def named(row: Row) -> str:
        record = row["discard_copy"] if row["action"] == ActKind.RESUME else row["half_copy"]
        return f"{record['queue_offset']}@{record['commit_log_offset']}"

    return View(
        (
            plain("transaction_id", ALWAYS), plain("action", ALWAYS), plain("state", ALWAYS),
            Column("names", ("action", "half_copy", "discard_copy"), named, 4), plain("topic", 2, may_be_cut=True),
            plain("producer_group", 3, "group", may_be_cut=True), plain("keys", 1, may_be_cut=True, least_cells=24),
            plain("flags", 5, may_be_cut=True), plain("reason", 6, may_be_cut=True),
        ),
        "no steps",
    )
