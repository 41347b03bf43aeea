"""Commands that change how a broker checks and accepts half messages for a while: hold, drain, release, holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options.act_options import DryRunOption, HoldOverrideOption, ReasonOption, YesOption
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    FailOnOption,
    JournalOption,
    LimitOption,
    OutputOptions,
    ReceiptOptions,
    StoreOptions,
    VoiceOptions,
    WhereOption,
)


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
    MODULE = "settling.holds"
    FUNCTION = "run_hold"
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
    MODULE = "settling.holds"
    FUNCTION = "run_release"
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
    journal: JournalOption = None
    fail_on: FailOnOption = None
    output: OutputOptions
    voice: VoiceOptions
    live: LiveOptions
