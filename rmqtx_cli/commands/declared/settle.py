"""Commands that settle transactions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options import act_options, completion
from rmqtx_cli.options.act_options import (
    ActOptions,
    CopyOption,
    DryRunOption,
    HoldOverrideOption,
    IdArguments,
    OfflineOptions,
    OverrideOption,
    ReasonOption,
    YesOption,
)
from rmqtx_cli.options.ledger_options import AnswerOptions, LedgerAnswerOptions
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    BrokerConfOption,
    BrokerVersionOption,
    FailOnOption,
    GroupOption,
    LimitOption,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ActCommand(Command):
    """An action on one or several transactions."""

    MODULE = "settling.act"

    ids: IdArguments
    group: act_options.GroupOption = None
    copy: CopyOption = None
    reason: act_options.ReasonOption = None
    override: OverrideOption = None
    act: ActOptions
    output: ReceiptOptions
    voice: VoiceOptions
    offline: OfflineOptions
    live: LiveOptions


class CommitCommand(ActCommand):
    """Commit transactions: each message is delivered once.

    For pending, lost and discarded transactions. All records of the transaction are read again before anything is sent.
    A transaction that is decided already, or that may be decided elsewhere at the same time, is refused (see `rmqtx
    explain GUARD`): a broker does not test this, and a second commit delivers twice. With --store the commit is written
    into the files of a stopped broker, which delivers at its next start.
    """

    __slots__ = ()

    NAME = ActKind.COMMIT
    EXAMPLES = (
        Example(
            "rmqtx commit 7F000001000118B4AAC216E2B3E40000 -n NAMESRV --reason OPS-4711",
            "verify, confirm, commit, prove",
        ),
        Example(
            "rmqtx commit ORDER-4711 -n 10.0.0.1:9876 --dry-run", "show what would be done, and which guard refuses"
        ),
        Example(
            "rmqtx commit ID -n 10.0.0.1:9876 --reason OPS-4711 --yes --format jsonl",
            "for a script, with the receipt as JSON",
        ),
        Example(
            "rmqtx commit ID --store /data/store --to /data/settled --broker-version 5.3.3 --reason OPS-4711",
            "the broker is down: commit in a copy of its store, delivered at its start",
        ),
    )


class RollbackCommand(ActCommand):
    """Roll transactions back: nothing is delivered, and the broker no longer checks them.

    The message stays in the commit log until the log expires; `rmqtx discard` keeps a copy beside the receipt. A
    message that was delivered cannot be taken back: that is refused.
    """

    __slots__ = ()

    NAME = ActKind.ROLLBACK
    EXAMPLES = (
        Example(
            "rmqtx rollback 7F000001000118B4AAC216E2B3E40000 -n NAMESRV --reason OPS-4711",
            "verify, confirm, roll back, prove",
        ),
        Example(
            "rmqtx rollback ORDER-4711 --group shop -n 10.0.0.1:9876 --reason OPS-4711 --yes",
            "for a script, if the group is shop",
        ),
    )


class DiscardCommand(ActCommand):
    """Discard transactions: save a copy of each message beside its receipt, then roll the transaction back.

    On a live broker this is a rollback: no broker offers more, and TRANS_CHECK_MAX_TIME_TOPIC gets no copy. With
    --store that topic gets a copy, as when the broker itself discards (4.5.2 and later).
    """

    __slots__ = ()

    NAME = ActKind.DISCARD
    EXAMPLES = (
        Example(
            "rmqtx discard ORDER-4711 -n 10.0.0.1:9876 --reason 'duplicate order'", "save the message, then roll back"
        ),
        Example("rmqtx receipts --action discard", "list where the saved messages are"),
    )


class ResumeCommand(ActCommand):
    """Make the broker check discarded or lost transactions again: it asks their producer.

    The receipt has the outcome `accepted` once the new half copy is stored; --wait-for also waits for the producer's
    decision. Brokers before 4.5.2 cannot resume, and brokers before 5.3.2 damage compressed bodies: both are refused.
    With --store a new half copy with the unchanged body is appended, from 4.3.0 on; a compressed body is refused
    before 4.6.0.
    """

    __slots__ = ()

    NAME = ActKind.RESUME
    EXAMPLES = (
        Example("rmqtx resume ORDER-4711 -n 10.0.0.1:9876 --reason 'shop is back'", "write a new half copy"),
        Example(
            "rmqtx resume ORDER-4711 -n 10.0.0.1:9876 --reason OPS-4711 --wait-for 2m --yes",
            "and watch for its decision",
        ),
    )


class CloseCommand(ActCommand):
    """Write the missing op message of decided transactions, so that the broker does not check them again.

    Without it the broker asks the producer again, and if the answer is commit again, the message is delivered twice.
    The op message is written by a rollback of the newest half copy: it delivers nothing and takes nothing back.
    """

    __slots__ = ()

    NAME = ActKind.CLOSE
    EXAMPLES = (
        Example("rmqtx pending -n 10.0.0.1:9876 --all-open", "list decided ones that will be checked again"),
        Example(
            "rmqtx close 7F000001000118B4AAC216E2B3E40000 -n NAMESRV --reason OPS-4711",
            "write the missing op message",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliverCommand(Command):
    """Deliver transactions that were rolled back, discarded, dropped or lost, although their application did its part.

    The broker gets a COMMIT for the half message, which must still be in its log. With --store it gets an ordinary
    message instead: a copy from these files, for another cluster, or where the broker cannot deliver the half message
    itself. Use it only if the application proves that the local transaction was done: a rollback is right in most
    cases. A transaction that was delivered, by a decision or by a copy, or that the broker still checks, is refused: so
    a second redeliver is refused too, from any machine. --as-half moves what is pending: nothing is delivered, and the
    other cluster asks the producer. --reason is required. The first redelivery that the broker does not accept ends the
    run.
    """

    NAME = ActKind.REDELIVER
    MODULE = "settling.redeliver"
    EXAMPLES = (
        Example("rmqtx redeliver ORDER-4711 -n NAMESRV --reason 'paid, OPS-4711' --dry-run", "show what would be done"),
        Example("rmqtx redeliver ORDER-4711 -n 10.0.0.1:9876 --reason 'paid, OPS-4711'", "verify, ask, deliver, prove"),
        Example(
            "rmqtx redeliver ORDER-4711 --store /rescue/store -n 10.0.0.2:9876 --reason 'paid, OPS-4711'",
            "its broker no longer starts: send a copy from its files to another cluster",
        ),
        Example(
            "rmqtx redeliver ID1 ID2 ID3 -n NAMESRV --reason OPS-4711 --max-per-second 5 --yes --format jsonl",
            "for a script: slowly, with the receipts as JSON",
        ),
    )

    ids: IdArguments
    group: act_options.GroupOption = None
    reason: ReasonOption = None
    override: OverrideOption = None
    store: Annotated[
        list[str] | None,
        typer.Option(
            "--store", metavar="STORE",
            help="Send a copy of the message from these files, for example of a broker that no longer starts; "
            "repeatable",
        ),
    ] = None
    to_broker: Annotated[
        str | None,
        typer.Option("--to-broker", metavar="NAME", help="With --store: the broker that gets the copies, of several"),
    ] = None
    as_half: Annotated[
        bool,
        typer.Option(
            "--as-half",
            help="With --store: send pending transactions of a dead broker as new half messages, which the broker "
            "checks",
        ),
    ] = False
    act: ActOptions
    output: ReceiptOptions
    voice: VoiceOptions
    files: StoreOptions
    live: LiveOptions


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
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="DURATION",
            help="Only transactions whose first half copy is older, like 10m or 2h",
        ),
    ] = None
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
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="DURATION", help="Only transactions whose first half copy is older, like 10m or 2h"
        ),
    ] = None
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


_LEDGER = "--ledger orders.parquet --match 'keys = order_id' --done 'status = PAID' --not-done 'status = CANCELLED'"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCommand(Command):
    """Join a producer group whose processes no longer run, and answer the broker's checks with commit or rollback.

    The answers come from a plan or a ledger; other transactions get no answer, and the broker asks again. This is the
    repair with the least risk: the broker's own protocol, for the transactions that it checks. Each transaction is read
    before and after its answer, and each answer has a receipt. Refused while members of the group are connected.
    Discarded transactions, and those that the check has passed, are not checked: use commit or rollback.
    """

    NAME = "answer"
    MODULE = "settling.answer"
    EXAMPLES = (
        Example(
            "rmqtx answer -n 10.0.0.1:9876 --group shop --plan plan.json --dry-run",
            "list the answers without sending them",
        ),
        Example(
            "rmqtx answer -n 10.0.0.1:9876 --group shop --plan plan.json --until-done "
            "--reason 'shop-3 is dead, INC-4711'",
            "answer by the plan, prove it, and exit",
        ),
        Example(
            f"rmqtx answer -n 10.0.0.1:9876 --group shop {_LEDGER} --for 2h --yes",
            "answer by the business ledger, for 2 hours, in a script",
        ),
    )

    group: Annotated[
        str, typer.Option("--group", parser=stored_text, metavar="GROUP", help="The producer group to answer for")
    ]
    source: AnswerOptions
    duration: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Exit after this time; default: run until Ctrl-C")
    ] = None
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Exit when all transactions that have an answer are settled")
    ] = False
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override", metavar="GUARD",
            help="Answer although this guard refuses: producer-connected, another-rmqtx or group-shared. Needs "
            "--reason",
        ),
    ] = None
    reason: Annotated[
        str | None, typer.Option("--reason", parser=stored_text, metavar="TEXT", help="Reason, kept in the receipts")
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the answers without sending them")] = False
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation; for scripts")] = False
    max_per_second: Annotated[
        float | None, typer.Option("--max-per-second", min=0.01, metavar="N", help="Send at most N answers per second")
    ] = None
    output: ReceiptOptions
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldCommand(Command):
    """Hold brokers: they discard no open transaction while its producers are repaired.

    Raises transactionCheckMax, and fileReservedTime where half messages would be discarded unasked because of their
    age, from the next round of the check on. The checks go on. Each setting is read back, and a round of the check is
    awaited: a half message that was discarded before is named (exit status 18). rmqtx release puts back the values of
    before: the end of --for changes nothing by itself. A second hold extends the first. With --store the lines for the
    configuration file of a stopped broker are printed, and nothing is written.
    """

    NAME = ActKind.HOLD
    MODULE = "settling.hold"
    EXAMPLES = (
        Example(
            "rmqtx hold -n 10.0.0.1:9876 --for 4h --reason 'shop is down, OPS-4711' --dry-run", "what would change"
        ),
        Example("rmqtx hold -n 10.0.0.1:9876 --for 4h --reason 'shop is down, OPS-4711'", "hold all brokers"),
        Example(
            "rmqtx hold --broker 10.0.0.2:10911 --for 2h --reason OPS-4711 --yes", "one broker, without a name server"
        ),
        Example("rmqtx hold --store STORE --for 4h", "a stopped broker: print the lines for its configuration file"),
    )

    duration: Annotated[
        str,
        typer.Option(
            "--for", metavar="DURATION",
            help="How long the hold should last, like 4h; then rmqtx holds shows it as overdue"
        ),
    ]
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Reason for the receipt; required for live brokers.")
    ] = None
    dry_run: DryRunOption = False
    yes: YesOption = False
    wait: Annotated[
        bool, typer.Option(
            "--wait/--no-wait", help="Wait for a round of the check, and name what was discarded before it"
        )
    ] = True
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="STORE",
            help="A stopped broker's store: print the lines for its configuration file, and write nothing.",
        ),
    ] = None
    files: StoreOptions
    output: ReceiptOptions
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCommand(Command):
    """Drain live brokers before a planned stop: wait until a stop loses no decision and no transaction is open.

    The broker refuses new transactions (rejectTransactionMessage) and writes its op messages at once
    (transactionOpBatchInterval 100, from 5.1.0 on). Then the command waits until each half message has an op message
    that can be read, lists the others with their deadlines, and prints that the broker is safe to stop now. If the time
    of --for is over before, the exit status is 1. What is set stays set, also after the start of the broker and after
    an interrupt: rmqtx release puts back the values of before.
    """

    NAME = ActKind.DRAIN
    MODULE = "settling.drain"
    EXAMPLES = (
        Example("rmqtx drain -n 10.0.0.1:9876 --broker broker-a --dry-run", "what would change, and what is open"),
        Example(
            "rmqtx drain -n 10.0.0.1:9876 --broker broker-a --reason 'kernel update'", "wait until it can be stopped"
        ),
        Example("rmqtx drain --broker 10.0.0.2:10911 --for 30m --yes", "wait longer, without a name server"),
        Example("rmqtx release --broker 10.0.0.2:10911", "after its start: accept transactions again"),
    )

    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long to wait until no transaction is open")
    ] = "10m"
    reason: ReasonOption = None
    dry_run: DryRunOption = False
    yes: YesOption = False
    output: ReceiptOptions
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCommand(Command):
    """Release held or drained brokers: put back the values that their settings had before.

    The values are those in the journal of rmqtx hold and rmqtx drain; both end. Refused where a setting has neither the
    value that was set nor the one of before, and where the next round of the check would then discard open
    transactions: decide them first. Each setting is read back.
    """

    NAME = ActKind.RELEASE
    MODULE = "settling.release"
    EXAMPLES = (
        Example("rmqtx release -n 10.0.0.1:9876 --dry-run", "what would change, and what the check would then discard"),
        Example("rmqtx release -n 10.0.0.1:9876", "put back the settings of all held and drained brokers"),
        Example(
            "rmqtx release -n 10.0.0.1:9876 --override discards-pending --reason 'orders were cancelled'",
            "although the next check discards open transactions",
        ),
    )

    reason: ReasonOption = None
    override: HoldOverrideOption = None
    dry_run: DryRunOption = False
    yes: YesOption = False
    output: ReceiptOptions
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsCommand(Command):
    """List the holds and drains that were not released, and whether the brokers still have the values.

    With -n or --broker each broker is read: brokers with a value as a hold or a drain sets it are listed too if the
    journal has neither of them, because another operator may have set it. Without, the journal alone is read.
    """

    NAME = "holds"
    MODULE = "settling.holds"
    EXAMPLES = (
        Example("rmqtx holds -n 10.0.0.1:9876", "what is held or drained, and the brokers' present settings"),
        Example(
            "rmqtx holds -n 10.0.0.1:9876 --fail-on 'hold_state != held'", "status 1 if one is overdue or was changed"
        ),
        Example("rmqtx holds", "from the journal alone"),
    )

    where: WhereOption = None
    limit: LimitOption = None
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal", metavar="FILE", help="Read this journal; default: receipts.jsonl in the state directory"
        ),
    ] = None
    fail_on: FailOnOption = None
    output: OutputOptions
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True)
class ChosenOptions:
    """Which receipts to list."""

    name: Annotated[
        str | None,
        typer.Argument(parser=stored_text, metavar="ID", help="Receipt id or its first characters, or transaction id"),
    ] = None
    action: Annotated[
        list[str] | None, typer.Option("--action", metavar="ACTION", help="Only this action; repeatable")
    ] = None
    outcome: Annotated[
        list[str] | None,
        typer.Option("--outcome", metavar="OUTCOME", help="Only this outcome; repeatable (values: rmqtx explain)"),
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only actions begun since: 2h, 1d, or a time with a zone"),
    ] = None
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="PLAN", help="Only acts of this plan file; print how far the plan is"),
    ] = None


@dataclass(frozen=True, slots=True)
class RecheckOptions:
    """Whether transactions are read again, and where."""

    recheck: Annotated[
        bool, typer.Option("--recheck", help="Read each transaction again and test whether the effect still holds")
    ] = False
    record: Annotated[
        bool, typer.Option("--record", help="With --recheck: record the result in the journal")
    ] = False
    store: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="STORE", help="With --recheck: read this store instead of live brokers"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptsCommand(Command):
    """List the actions on transactions, newest first, or print one receipt in full.

    With --recheck each transaction is read again: does the effect still hold, and was the transaction decided otherwise
    since? The exit status is 1 if a transaction contradicts its receipt. With --plan the last lines print how far the
    plan is (done, unknown, refused, not begun), and the command that goes on.
    """

    NAME = "receipts"
    MODULE = "settling.receipts"
    EXAMPLES = (
        Example("rmqtx receipts", "all actions, newest first"),
        Example("rmqtx receipts --since 1d --outcome unknown --outcome contradicted", "actions to look into"),
        Example("rmqtx receipts 20261121T112900.123456Z-4f3a9c", "one receipt in full; or give a transaction id"),
        Example("rmqtx receipts --plan plan.json", "how far a plan is"),
        Example(
            "rmqtx receipts --since 1d --recheck -n 10.0.0.1:9876",
            "test the effects again; exit status 1 if one is gone",
        ),
    )

    asked: ChosenOptions
    where: WhereOption = None
    limit: LimitOption = None
    again: RecheckOptions
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal", metavar="FILE", help="Read this journal; default: receipts.jsonl in the state directory"
        ),
    ] = None
    fail_on: FailOnOption = None
    output: OutputOptions
    broker_conf: BrokerConfOption = None
    broker_version: BrokerVersionOption = None
    voice: VoiceOptions
    live: LiveOptions


COMMANDS: tuple[type[Command], ...] = (
    CommitCommand,
    RollbackCommand,
    DiscardCommand,
    ResumeCommand,
    CloseCommand,
    RedeliverCommand,
    PlanCommand,
    TriageCommand,
    ApplyCommand,
    AnswerCommand,
    HoldCommand,
    DrainCommand,
    ReleaseCommand,
    HoldsCommand,
    ReceiptsCommand,
)
