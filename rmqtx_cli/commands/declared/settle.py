"""Commands that settle transactions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx_cli.commands import Command, Example
from rmqtx_cli.commands.declared.holds import DrainCommand, HoldCommand, HoldsCommand, ReleaseCommand
from rmqtx_cli.commands.declared.plans import ApplyCommand, PlanCommand, TriageCommand
from rmqtx_cli.options import act_options
from rmqtx_cli.options.act_options import (
    ActOptions,
    CopyOption,
    IdArguments,
    OfflineOptions,
    OverrideOption,
    ReasonOption,
)
from rmqtx_cli.options.ledger_options import AnswerOptions
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    BrokerConfOption,
    BrokerVersionOption,
    FailOnOption,
    JournalOption,
    LimitOption,
    OutputOptions,
    ReceiptOptions,
    StoreOptions,
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
    MODULE = "settling.act"
    FUNCTION = "run_redeliver"
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
    journal: JournalOption = None
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
