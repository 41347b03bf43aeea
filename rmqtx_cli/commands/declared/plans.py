"""Commands that settle many transactions: plan, triage, apply."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.act_options import ActOptions, OfflineOptions, OverrideOption, ReasonOption
from rmqtx_cli.options.ledger_options import LedgerAnswerOptions
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    GroupOption,
    LimitOption,
    OlderThanOption,
    OptionalStoreArguments,
    OutputOptions,
    ReceiptOptions,
    StoreOptions,
    TopicOption,
    TracedStoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.words.text import stored_text


@dataclass(frozen=True, slots=True)
class PlanSelection:
    """Which transactions to plan for."""

    ids: Annotated[
        list[str] | None,
        typer.Argument(
            parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
            help="Transaction ids, message ids of their records, or unambiguous business keys; without any, select by "
            "options",
        ),
    ] = None
    group: GroupOption = None
    topic: TopicOption = None
    older_than: OlderThanOption = None
    where: WhereOption = None
    limit: LimitOption = None
    every: Annotated[bool, typer.Option("--all", help="All transactions that the action applies to")] = False
    from_trace: Annotated[
        bool,
        typer.Option(
            "--from-trace",
            help="Only transactions whose producers decided so at last, by their message traces; for commit and "
            "rollback",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCommand(Command):
    """Write a plan file: the action, its transactions, the record that each decision names, the evidence, the
    preconditions.

    Nothing is changed in stores or brokers. Transactions that a guard refuses are not planned, and are listed with the
    reason; so are those that are planned, but that `apply` refuses unless their guard is overridden. `apply` tests all
    guards again, and may refuse more. Without IDs the options select among: pending transactions (commit, rollback,
    discard), decided ones that will be checked again (close), discarded ones (resume). `redeliver` needs IDs.

    --from-trace plans what the producers decided last, by their message traces. That is not what their databases did:
    review the plan with the application.
    """

    NAME = "plan"
    MODULE = "settling.plan"
    EXAMPLES = (
        Example(
            "rmqtx plan commit ID ID -n 10.0.0.1:9876 --reason OPS-4711 -o plan.json",
            "two transactions of live brokers",
        ),
        Example(
            "rmqtx plan rollback -n 10.0.0.1:9876 --group shop --older-than 2h --reason OPS-4711 -o plan.json",
            "all pending ones of a group that are older than 2 hours",
        ),
        Example("rmqtx plan close --all --store STORE --reason OPS-4712 -o plan.json", "from files, without a network"),
        Example(
            "rmqtx plan commit --from-trace -n 10.0.0.1:9876 --reason OPS-4713 -o plan.json",
            "pending ones that their producers committed, by message traces",
        ),
        Example("rmqtx apply plan.json -n 10.0.0.1:9876", "after the review: carry it out"),
    )

    context: typer.Context
    action: Annotated[
        str,
        typer.Argument(
            metavar="ACTION", autocompletion=completion.actions,
            help="commit, rollback, discard, resume, close or redeliver; or show, with a plan file",
        ),
    ]
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Plan file to write; required except for show")
    ] = None
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Reason, kept in plan and receipts; required except for show"),
    ] = None
    asked: PlanSelection
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file")] = False
    store: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="STORE", help="Root of a store, read instead of live brokers; repeatable"),
    ] = None
    shown: OutputOptions
    files: TracedStoreOptions
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True)
class TriageSelection:
    """Which transactions to ask about."""

    group: GroupOption = None
    topic: TopicOption = None
    older_than: OlderThanOption = None
    discarded: Annotated[
        bool, typer.Option("--discarded", help="Also ask about discarded transactions, for resume; reads the whole log")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageCommand(Command):
    """Go through the pending transactions on a terminal, one by one or group by group, and write a plan of the answers.

    Each transaction is printed as rmqtx show prints it, with the ledger's answer if a ledger is given. Keys: c commit,
    r rollback, e resume, d discard, s skip, a all of this group, w why, b body, u undo, q quit; each is followed by
    Return. An answer that a guard refuses is not taken. Nothing is sent: rmqtx apply carries out the plan.

    Each answer is on disk at once. After an interruption, or q, the same command goes on; skipped transactions are
    asked about again at the end. Before the plan is written everything is read again: transactions that were decided
    meanwhile are left out, and listed.
    """

    NAME = "triage"
    MODULE = "settling.triage"
    EXAMPLES = (
        Example(
            "rmqtx triage -n 10.0.0.1:9876 -o plan.json --reason OPS-4711", "live brokers, one transaction at a time"
        ),
        Example("rmqtx triage STORE -o plan.json --reason OPS-4711 --by-group", "files of a store, group by group"),
        Example(
            "rmqtx triage STORE -o plan.json --reason OPS-4711 --ledger orders.csv "
            "--match 'keys = order_id' --done 'status = PAID' --not-done 'status = CANCELLED'",
            "with what the ledger has about each",
        ),
        Example("rmqtx plan show plan.json", "afterwards: the plan, for review"),
        Example("rmqtx apply plan.json -n 10.0.0.1:9876", "carry it out"),
    )

    context: typer.Context
    store: OptionalStoreArguments = None
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Plan file to write; FILE.answers keeps the answers")
    ]
    reason: Annotated[
        str, typer.Option("--reason", parser=stored_text, metavar="TEXT", help="Reason, kept in plan and receipts")
    ]
    by_group: Annotated[
        bool, typer.Option("--by-group", help="Ask once for each producer group and topic")
    ] = False
    plain: Annotated[
        bool, typer.Option("--plain", help="Print lines without columns, for a screen reader")
    ] = False
    force: Annotated[
        bool, typer.Option("--force", help="Begin again: forget kept answers and overwrite an existing plan")
    ] = False
    asked: TriageSelection
    given: LedgerAnswerOptions
    files: StoreOptions
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyCommand(Command):
    """Carry out a plan: print it, ask, act on each transaction, prove each effect, write receipts.

    A step is stale if state, op marks, COMMIT or ROLLBACK records or discard copies of its transaction differ from
    those in the plan, or if a record that it names has changed. If a step is stale, nothing is done. The guards are
    evaluated again too. Ctrl-C ends the run after the current transaction, and what was sent is proved. --continue
    finishes a run that was interrupted or killed: completed steps are skipped, and steps with an unknown outcome are
    examined first. Without --continue a repeated run does the same, and also begins a plan that was never applied.
    rmqtx receipts --plan PLAN prints how far a plan is.

    An approval is a signature of the plan file: ssh-keygen -Y sign -f KEY -n rmqtx-plan PLAN writes PLAN.sig. The
    receipts have its authors, its approver and the user of the run.
    """

    NAME = "apply"
    MODULE = "settling.apply"
    EXAMPLES = (
        Example(
            "rmqtx apply plan.json -n 10.0.0.1:9876 --dry-run",
            "show what would be done, and what is stale or refused",
        ),
        Example("rmqtx apply plan.json -n 10.0.0.1:9876", "verify, ask, act, prove; a script adds --yes"),
        Example("rmqtx apply plan.json -n 10.0.0.1:9876 --continue", "finish an interrupted run; nothing is repeated"),
        Example(
            "rmqtx apply plan.json -n 10.0.0.1:9876 --require-approval signers", "only if another person signed it"
        ),
        Example(
            "rmqtx apply plan.json --store /data/store --in-place --undo before.undo --broker-version 5.3.3",
            "in the files of a stopped broker",
        ),
    )

    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file, from rmqtx plan or rmqtx reconcile")]
    reason: ReasonOption = None
    override: OverrideOption = None
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Treat a step as stale even if the check has only put back a half copy since"),
    ] = False
    skip_stale: Annotated[
        bool,
        typer.Option(
            "--skip-stale",
            help="Skip stale steps and carry out the others; default: do nothing if a step is stale",
        ),
    ] = False
    is_continued: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Finish an interrupted run of the same plan; refused if the journal has no act of this plan",
        ),
    ] = False
    require_approval: Annotated[
        Path | None,
        typer.Option(
            "--require-approval", metavar="KEYS",
            help="Require PLAN.sig: a signature by a second person, not by an author; KEYS is an allowed-signers file "
            "of ssh-keygen",
        ),
    ] = None
    act: ActOptions
    output: ReceiptOptions
    voice: VoiceOptions
    offline: OfflineOptions
    live: LiveOptions
