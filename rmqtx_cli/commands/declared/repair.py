"""Commands that find damage in stores and repair it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rmqtx.readers.model.units import parse_size_bytes
from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options.act_options import DryRunOption, OfflineOptions, YesOption
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.options import (
    BrokerConfOption,
    FailOnOption,
    LimitOption,
    NewStoreOption,
    OutputOptions,
    ProvenanceOptions,
    ReceiptOptions,
    StoreArguments,
    StoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.options.source_options import DatabaseOptions
from rmqtx_cli.words.command_names import LINES


@dataclass(frozen=True, slots=True)
class DepthOptions:
    """How much of a store is read, and for which start."""

    quick: Annotated[
        bool, typer.Option(
            "--quick",
            help="Read only headers and the ends of queues and index; files are not compared, and body CRCs are not "
            "tested (a wrong CRC can end a broker's recovery early)",
        ),
    ] = False
    full: Annotated[
        bool, typer.Option("--full", help="Also decompress bodies and decode all properties")
    ] = False
    max_duration: Annotated[
        str | None,
        typer.Option(
            "--max-duration", metavar="DURATION",
            help="Read only as many log files as fit into this time, least recently verified first",
        ),
    ] = None
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="FILE",
            help="With --max-duration: file that keeps when each log file was verified; default: in $RMQTX_STATE_DIR "
            "or $XDG_STATE_HOME/rmqtx",
        ),
    ] = None
    start_with: Annotated[
        str | None,
        typer.Option(
            "--start-with", metavar="X.Y.Z",
            help="Predict the start of this release, which did not write the store, before an upgrade or a downgrade: "
            "what it cuts off, and what it does with each open transaction that the present release does not; the exit "
            "status is 1 where they differ, 3 where that is unknown",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyCommand(Command):
    """Find damage in stores: broken records and CRCs, contradictions between log, queues, index, checkpoint, cursors.

    Each row is one finding: what is wrong, where, and the consequence for transactions. Findings whose code begins with
    start- predict what the broker's next start would truncate, skip or delete, by the rules of its version. The lines
    on stderr advise what to do. The exit status is 1 if there is an error or a warning, or with --fail-on if a row
    meets that condition.
    """

    NAME = "verify"
    MODULE = "reading.verify"
    EXAMPLES = (
        Example("rmqtx verify STORE", "compare all records, queue slots and index entries"),
        Example("rmqtx verify STORE --quick", "only headers, and the ends of queues and index"),
        Example("rmqtx verify STORE --start-with 5.3.3", "before an upgrade or a downgrade: what that release does"),
        Example("rmqtx verify STORE --max-duration 10m", "nightly from cron: a part of a large store each night"),
        Example("rmqtx verify s3://evidence/broker-a/store --engine spark", "a store in object storage, with Spark"),
    )

    context: typer.Context
    store: StoreArguments
    depth: DepthOptions
    where: WhereOption = None
    limit: LimitOption = None
    fail_on: FailOnOption = None
    output: OutputOptions
    engine: EngineOptions
    provenance: ProvenanceOptions
    files: StoreOptions
    voice: VoiceOptions
    database: DatabaseOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvageCommand(Command):
    """Build a store that a broker can open from all records found in damaged, misnamed or loose files.

    Each record contains its own place in the log, so the names of the files and the positions in them do not matter. If
    copies of a record contradict each other, the copy with a valid body CRC is taken. Holes between records are filled,
    so that a broker reads past them; queues, index and checkpoint are rebuilt. The new store is verified: what is still
    wrong in it is printed, and the exit status is 3. The files given are not changed.
    """

    NAME = "salvage"
    MODULE = "repairing.salvage"
    EXAMPLES = (
        Example("rmqtx salvage STORE --to NEW", "a damaged store: fill holes in the log, rebuild the rest"),
        Example("rmqtx salvage disk.img --to NEW --segment-size 1GiB --config etc/config", "a disk image"),
        Example("rmqtx salvage lost+found STORE --to NEW", "loose files and the rest of the store together"),
    )

    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files with any name, devices, directories of files, roots of stores"),
    ]
    to: NewStoreOption
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="DIR", help="The broker's config/ to copy; default: that of the store given"),
    ] = None
    segment_bytes: Annotated[
        int | None,
        typer.Option(
            "--segment-size", parser=parse_size_bytes, metavar="SIZE",
            help="Length of the log files (mappedFileSizeCommitLog); default: from the files, --broker-conf or blank "
            "records, else 1GiB",
        ),
    ] = None
    broker_conf: BrokerConfOption = None
    voice: VoiceOptions


class Part(StrEnum):
    """Parts that can be rebuilt."""

    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    STATE_TABLE = "statetable"
    REDO_LOG = "redolog"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildCommand(Command):
    """Copy a store and rebuild its queues, index or checkpoint from the commit log.

    Each record contains its queue, its queue offset and its keys, so these files can be made again, byte for byte as
    the broker wrote them. Everything else is copied. Queues without a record in the log are copied too, so that their
    offsets continue.

    In a rebuilt state table (3.0, 3.1) each undecided transaction has the slot that its prepared record names: only
    then does a broker accept an answer. A broker that did not stop cleanly destroys its state table at its next start;
    for such a store all parts are rebuilt, and the copy looks like the store of a broker that stopped cleanly.
    """

    NAME = "rebuild"
    MODULE = "repairing.rebuild"
    EXAMPLES = (
        Example("rmqtx rebuild queues STORE --to NEW", "the consume queues"),
        Example(
            "rmqtx rebuild index STORE --to NEW --broker-conf broker.conf",
            "the index, with the broker's file lengths",
        ),
        Example("rmqtx rebuild all STORE --to NEW", "queues, index and checkpoint"),
        Example(
            "rmqtx rebuild statetable STORE --to NEW",
            "a state table (3.0, 3.1), so that transactions can be decided again",
        ),
    )

    part: Annotated[
        Part,
        typer.Argument(
            metavar="PART",
            help="Part to rebuild: queues, index, checkpoint, statetable, redolog, or all that the store has",
        ),
    ]
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="Root of a stopped broker's store; it is not changed")
    ]
    to: NewStoreOption
    files: StoreOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorCommand(Command):
    """Set the cursors of the transaction check (CID_RMQ_SYS_TRANS) in the files of a stopped broker.

    Changes config/consumerOffset.json and its backup, with enableLmq config/lmqConsumerOffset.json. The rows list the
    transactions that the broker would then treat differently: abandoned ones are undecided and no longer checked,
    asked-again ones are decided and checked again, discarded-unasked ones are too old or checked too often: the broker
    discards a copy without asking. Taken-up ones are undecided or discarded and checked again; never-asked ones are
    read by the check with the present cursors only: a line names the place where the check is then stopped. Abandoned
    and asked-again ones are refused, unless overridden; without --broker-conf also decided ones that are discarded
    unasked, because a broker with a longer fileReservedTime checks them. If you set the half cursor back, set the op
    cursor back too, to before the op messages of the decided transactions. `rmqtx simulate` predicts the next rounds.
    """

    NAME = "set"
    SHORT = LINES["cursor"]
    MODULE = "repairing.cursor"
    EXAMPLES = (
        Example(
            "rmqtx cursor set --half 4711 --store STORE --to COPY --dry-run",
            "list the transactions that this would affect",
        ),
        Example("rmqtx cursor set --half 4712 --store STORE --to COPY", "skip a half message that stops the check"),
        Example(
            "rmqtx cursor set --half 4000 --op 900 --store STORE --in-place --undo cursors.undo",
            "check passed transactions again, with the op messages of decided ones",
        ),
    )

    half: Annotated[
        int | None, typer.Option("--half", min=0, metavar="N", help="Half queue offset that the check reads next")
    ] = None
    op: Annotated[
        int | None, typer.Option("--op", min=0, metavar="M", help="Op queue offset that the check reads next")
    ] = None
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Reason, kept in the receipt")
    ] = None
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override", metavar="EFFECT",
            help="Accept this effect: abandoned or asked-again; needs --reason; repeatable"
        ),
    ] = None
    dry_run: DryRunOption = False
    yes: YesOption = False
    output: ReceiptOptions
    voice: VoiceOptions
    offline: OfflineOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoCommand(Command):
    """Restore the files of a store to their content before rmqtx changed them in place.

    Refused if a changed byte, or the name, length or time of another file differs from the record in the undo file, for
    example because a broker has run on the store since. The command can be interrupted and repeated at any time.
    --resume makes the changes again. The rows on stdout list the changes.
    """

    NAME = "undo"
    MODULE = "settling.undo"
    EXAMPLES = (
        Example("rmqtx undo before.undo --dry-run", "show what was changed, and whether it can be undone"),
        Example("rmqtx undo before.undo", "restore the files; asks for confirmation"),
        Example("rmqtx undo before.undo --resume", "complete a change that a crash interrupted, or redo it"),
        Example("rmqtx undo before.undo --store /mnt/copy/store --ignore-times", "undo in a copy of the store"),
    )

    file: Annotated[Path, typer.Argument(metavar="FILE", help="Undo file, written by --in-place --undo FILE")]
    store: Annotated[
        Path | None, typer.Option(
            "--store", metavar="STORE", help="Present place of the store, if it was moved or copied"
        )
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Complete the changes, or redo them after an undo")
    ] = False
    ignore_times: Annotated[
        bool,
        typer.Option(
            "--ignore-times",
            help="Ignore modification times, compare names, lengths and contents: for a copy of the store"
        ),
    ] = False
    dry_run: DryRunOption = False
    yes: YesOption = False
    output: ReceiptOptions
    voice: VoiceOptions


GROUP_HELP = "Set the cursors of the transaction check in a stopped broker's files."
IN_GROUP: tuple[type[Command], ...] = (CursorCommand,)
COMMANDS: tuple[type[Command], ...] = (
    VerifyCommand,
    SalvageCommand,
    RebuildCommand,
    UndoCommand,
)
