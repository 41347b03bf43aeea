"""Plans, and their application: `.plan` and `.apply` of stores and brokers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.api.results import html_table
from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.errors import BadRequest, StalePlan, UnwritableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.repairs.acts.carry_out import carry_out
from rmqtx.repairs.acts.guards import Refusal, overridden
from rmqtx.repairs.acts.medium import Medium
from rmqtx.repairs.acts.orders import CheckedAct, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.plans.apply_plan import Application, application, missing_stores
from rmqtx.repairs.plans.approval import approval
from rmqtx.repairs.plans.draft_plan import KnownPlan, PlanDraft, drafted, plan_of
from rmqtx.repairs.plans.plan_sources import AskedAs, PlanSource, rows_for, selectable
from rmqtx.repairs.receipts.act_words import PLANNED, ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_file import PLAN_STEPS, Step
from rmqtx.repairs.receipts.plan_file import Plan as PlanContent
from rmqtx.repairs.receipts.receipts import Receipt, status_of, table, whoever
from rmqtx.repairs.receipts.recheck import record_recheck
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.transaction import Transaction

__all__ = [
    "Act", "ActKind", "ActOutcome", "Applied", "Expression", "NotPlanned", "Orders", "Plan", "Receipt", "Step", "Where",
    "apply_known", "known_plan", "planned",
]


class Expression(Protocol):
    """An expression of Arrow, as far as its type is known: pyarrow declares none."""

    def is_valid(self) -> Any:
        """See `pyarrow.compute.Expression`."""


#: Which transactions a plan selects: a condition on a typed row, or an expression of Arrow on the columns.
Where: TypeAlias = Callable[[Transaction], bool] | Expression


@dataclass(frozen=True, slots=True)
class NotPlanned:
    """A transaction without a step, or one that `apply` refuses unless `guard` is overridden."""

    transaction_id: str
    guard: str
    why: str
    advice: str


class Plan:
    """Actions on transactions, as `rmqtx plan` writes them: nothing is done before `apply`.

    `write` makes the file that another person reviews and signs, and that `apply` carries out.
    """

    schema = PLAN_STEPS

    def __init__(
        self, content: PlanContent, draft: PlanDraft, reading: VerdictReading,
        refuse: Callable[[Path], None],
    ) -> None:
        self._content, self._reading, self._refuse = content, reading, refuse
        #: One step for each transaction that is acted on.
        self.steps: tuple[Step, ...] = tuple(content.steps)
        #: Transactions that a guard refuses; they have no step.
        self.refused = _not_planned(draft.refused)
        #: Transactions with a step that `apply` refuses without an override.
        self.to_override = _not_planned(draft.to_override)
        #: Where it was written.
        self.file: Path | None = None

    @property
    def findings(self) -> list[Finding]:
        """What is damaged, missing or contradictory in what was read."""
        return self._reading.findings

    @property
    def is_complete(self) -> bool:
        """Whether all evidence was read and is sound."""
        return not any(one.is_error for one in self.findings) and not self._reading.undecidable_count

    @property
    def status(self) -> int:
        """The exit status of the command: 12 if guards refuse all, 16 if no transaction is selected, 3, or 0."""
        if not self.steps:
            return exit_status.REFUSED_BY_GUARD if self.refused else exit_status.NO_SUCH_TRANSACTION
        return exit_status.DONE if self.is_complete else exit_status.INCOMPLETE

    def write(self, file: str | PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the plan to a file, and return its path.

        Raises: BadRequest if the plan has no steps, for a file inside a store, and for one that exists, unless
                `overwrite`; UnwritableFile.
        """
        place = Path(file)
        if not self.steps:
            raise BadRequest("the plan has no steps", advice="see .refused, or select other transactions")
        self._refuse(place)
        try:
            with place.open("w" if overwrite else "x", encoding="utf-8") as stream:
                stream.write(self._content.text())
        except FileExistsError as error:
            raise BadRequest(f"{place} already exists", advice="give another file, or overwrite=True") from error
        except OSError as error:
            raise UnwritableFile(f"cannot write {place}: {error.strerror}", file=place) from error
        self.file = place
        return place

    def to_arrow(self) -> pa.Table:
        """Return the steps as rows of PLAN_STEPS."""
        return self._content.table()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the steps as a capsule of the Arrow C stream interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        where = "" if self.file is None else f" in {self.file}"
        return f"<rmqtx plan: {len(self.steps)} steps, {len(self.refused)} refused{where}>"

    def _repr_html_(self) -> str:
        """The first steps for a notebook; all text is escaped."""
        return html_table(self.to_arrow(), f"{len(self.refused)} refused")


def _not_planned(found: Iterable[tuple[str, Refusal]]) -> tuple[NotPlanned, ...]:
    return tuple(NotPlanned(name, one.guard, one.why, one.advice) for name, one in found)


def planned(
    source: PlanSource, action: str, ids: Iterable[str], where: Where | None, group: str | None, reason: str,
    settings: Mapping[str, Any],
) -> Plan:
    """Return a plan of one action on some transactions.

    Raises: BadRequest for an unknown action, if no transaction is selected, or without a reason.
    """
    if action not in PLANNED:
        raise BadRequest(f"no action {action!r}", advice=f"one of {', '.join(PLANNED)}")
    if not reason.strip():
        raise BadRequest("a reason is required", advice="reason='OPS-4711'")
    kind, named = ActKind(action), list(ids)
    if not named and where is None and group is None:
        raise BadRequest(
            "no transactions selected", advice="give ids, where or group; where=lambda one: True is all of them"
        )
    if kind is ActKind.REDELIVER and not named:
        raise BadRequest("redeliver needs ids: most rolled back transactions were rolled back rightly")
    reading = rows_for(source, kind, named)
    rows = reading.table()
    if not named:  # with ids, the guard wrong-group refuses a wrong group
        rows = selectable(rows, kind)
        rows = rows if group is None else rows.filter(pc.equal(rows["producer_group"], group))
    if where is not None and not callable(where):
        rows = rows.filter(where)
    chosen = [Transaction.of(row) for row in rows.to_pylist()]
    if callable(where):
        chosen = [one for one in chosen if where(one)]
    draft = drafted(source.situations(chosen), ActRequest(kind, group), reason, whoever())
    asked = AskedAs("rmqtx.plan", {"action": str(kind), **({"group": group} if group else {}), **settings})
    stores, made_from = source.facts(asked, {root for step in draft.steps for root in step.stores})
    content = plan_of(draft, stores, made_from, clock.now_ms())
    return Plan(content, draft, reading, source.refuse_inside)


@dataclass(frozen=True, slots=True)
class Act:
    """One step of a plan that was left to do: what guards refuse it, and its receipt if it was tried."""

    transaction_id: str
    action: ActKind
    refusals: tuple[str, ...]
    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan.

    `acts`: the steps that were left to do; `done`: receipts of steps that an earlier run did; `stale`: ids of
    transactions that differ from what the plan relied on, with the difference; `notes`: sentences. `journal`: the file
    with all receipts. `status`: the exit status of the command.
    """

    acts: tuple[Act, ...]
    done: tuple[Receipt, ...]
    stale: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    journal: Path
    status: int

    @property
    def receipts(self) -> list[Receipt]:
        """The receipts of this run."""
        return [one.receipt for one in self.acts if one.receipt is not None]

    def __iter__(self) -> Iterator[Receipt]:
        return iter(self.receipts)

    def to_arrow(self) -> pa.Table:
        """Return the receipts of this run as rows of RECEIPTS."""
        return table(self.receipts)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the receipts as a capsule of the Arrow C stream interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """The receipts for a notebook; all text is escaped."""
        return html_table(self.to_arrow(), f"status {self.status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How a plan is applied, as the options of `rmqtx apply`.

    `yes`: the confirmation for which the command asks. `require_approval`: the allowed-signers file by which FILE.sig
    must be a signature of a second person. `override`: guards to override, which needs a reason.
    """

    reason: str | None = None
    yes: bool = False
    dry_run: bool = False
    require_approval: str | PathLike[str] | None = None
    override: Sequence[str] = ()
    skip_stale: bool = False
    exact: bool = False
    wait: bool = True
    max_per_second: float | None = None

    def conduct(self) -> Conduct:
        """Return them as the rules for carrying out acts.

        Raises: BadRequest without a confirmation, and for overrides that are not possible.
        """
        if not self.yes and not self.dry_run:
            raise BadRequest(
                "nothing was done: an act needs a confirmation",
                advice="yes=True; dry_run=True returns what it would do",
            )
        if self.max_per_second is not None and self.max_per_second <= 0:
            raise BadRequest("max_per_second must be more than 0")
        names = overridden(self.override, self.reason, lambda _, known: f"one of {', '.join(known)}")
        return Conduct(overrides=names, prove=self.wait, max_per_second=self.max_per_second)


def known_plan(plan: Plan | str | PathLike[str]) -> KnownPlan:
    """Return a plan as its file is now, so that what is applied is what was reviewed.

    Raises: BadRequest for a plan that was not written; UnreadableFile, BadText.
    """
    file = plan.file if isinstance(plan, Plan) else Path(os.fspath(plan))
    if file is None:
        raise BadRequest("the plan was not written", advice="plan.write('plan.json') first: apply carries out a file")
    return KnownPlan.read(file)


def apply_known(
    known: KnownPlan, medium: Medium, roots: Sequence[str], is_earlier: Callable[[Receipt], bool], orders: Orders
) -> Applied:
    """Carry out a plan on opened brokers or files. `is_earlier`: whether a receipt is of an act on the same ones.

    Raises: BadRequest, NotApproved, StalePlan before anything is done; UnwritableFile if no receipt can be written.
    """
    conduct = orders.conduct()
    keys = orders.require_approval
    approved_by = None if keys is None else approval(known.plan, known.text, known.file, Path(os.fspath(keys)))
    journal = Journal()
    if missing := missing_stores(known.plan, roots):
        raise StalePlan(f"the plan is stale: it is for {', '.join(missing)}, and this is {', '.join(roots)}")
    earlier = [one for one in journal.read().receipts if is_earlier(one)]
    found = application(
        known.plan, known.known_as(approved_by), earlier, medium, conduct, reason=orders.reason, is_exact=orders.exact
    )
    if found.stale and not orders.skip_stale and not orders.dry_run:
        name, why = found.stale[0]
        raise StalePlan(
            f"the plan is stale: {len(found.stale)} of {len(known.plan.steps)} steps; nothing was done: {name}: {why}",
            advice="write the plan again, or skip_stale=True",
        )
    return _carried_out(found, medium, journal, conduct, dry_run=orders.dry_run)


def _carried_out(
    found: Application, medium: Medium, journal: Journal, conduct: Conduct, *, dry_run: bool
) -> Applied:
    notes = list(found.notes)
    if dry_run:
        status = exit_status.combined(
            exit_status.DONE if one.is_allowed else exit_status.REFUSED_BY_GUARD for one in found.acts
        )
    else:
        for receipt, standing in (*found.settled, *found.disputed):
            record_recheck(journal, receipt, standing)
        if found.acts:
            carry_out(found.acts, medium, journal, conduct, notes.append)
        status = status_of(
            [one.receipt for one in found.acts if one.receipt is not None], is_proof_wanted=conduct.prove
        )
    return Applied(
        tuple(map(_act, found.acts)), tuple(found.done), tuple(found.stale), tuple(notes), journal.path,
        found.status_after(status),
    )


def _act(one: CheckedAct) -> Act:
    return Act(
        one.order.transaction_id, one.order.request.action, tuple(map(str, one.refusals)), one.receipt
    )
