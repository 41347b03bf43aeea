"""`rmqtx decode KIND`: the structures in the files of a store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import (
    BodyForm,
    BodyOption,
    CommitLogOption,
    FindingsOption,
    GroupOption,
    LimitOption,
    OptionalStoreArguments,
    OutputOptions,
    RangeOptions,
    RateOption,
    StoreArguments,
    TopicOption,
    TraceTopicOption,
    VoiceOptions,
    WhereOption,
)

QueueOption = Annotated[int | None, typer.Option("--queue", min=0, metavar="N", help="Only the queue with this number")]
CoverageOption = Annotated[
    bool,
    typer.Option(
        "--coverage", help="List the bytes of each file instead of rows: decoded + filler + damaged + unread = size"
    ),
]


@dataclass(frozen=True, slots=True)
class RowsOptions:
    """Options about the rows to list."""

    where: WhereOption = None
    limit: LimitOption = None
    coverage: CoverageOption = False
    findings: FindingsOption = False
    output: OutputOptions = field(default_factory=OutputOptions)


@dataclass(frozen=True, slots=True)
class UncoveredRowsOptions:
    """The same without `--coverage`, for sources that are not files of fixed units."""

    where: WhereOption = None
    limit: LimitOption = None
    findings: FindingsOption = False
    output: OutputOptions = field(default_factory=OutputOptions)


@dataclass(frozen=True, slots=True)
class ContentsOptions:
    """How bodies are read."""

    body: BodyOption = BodyForm.NONE
    decompress: Annotated[bool, typer.Option("--decompress", help="Decompress bodies")] = False
    check_crc: Annotated[bool, typer.Option("--check-crc", help="Compute and compare the CRC of each body")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCommitlog(Command):
    """Decode the records of the commit log; damaged parts are skipped and reported."""

    NAME = "commitlog"
    SHORT = "records of the commit log"
    MODULE, FUNCTION = "decode.decode_log", "commitlog"
    EXAMPLES = (
        Example("rmqtx decode commitlog STORE --limit 20", "the first records"),
        Example("rmqtx decode commitlog STORE --topic orders --body text", "messages of a topic, bodies as text"),
        Example(
            "rmqtx decode commitlog STORE --from 2026-01-02T03:00:00Z --where 'keys ~ ^A42'", "by key, from a time on"
        ),
        Example("rmqtx decode commitlog STORE --coverage", "decoded, filler, damaged and unread bytes of each file"),
        Example("rmqtx decode commitlog STORE -o records.parquet", "all records, for other tools"),
    )

    store: StoreArguments
    within: RangeOptions
    topic: TopicOption = None
    queue: QueueOption = None
    where: WhereOption = None
    limit: LimitOption = None
    contents: ContentsOptions
    coverage: CoverageOption = False
    findings: FindingsOption = False
    output: OutputOptions
    commit_log: CommitLogOption = None
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConsumequeue(Command):
    """Decode the entries of consume queues: in files, batch queues, and in RocksDB (needs the extra rocksdb)."""

    NAME = "consumequeue"
    SHORT = "entries of the consume queues"
    MODULE, FUNCTION = "decode.decode_files", "consumequeue"
    EXAMPLES = (
        Example("rmqtx decode consumequeue STORE --topic orders --queue 0", "one queue"),
        Example(
            "rmqtx decode consumequeue STORE --topic RMQ_SYS_TRANS_HALF_TOPIC --from 1000",
            "half messages from 1000 on",
        ),
    )

    store: StoreArguments
    begin: Annotated[
        int | None, typer.Option("--from", min=0, metavar="OFFSET", help="First queue offset")
    ] = None
    end: Annotated[
        int | None, typer.Option("--to", min=0, metavar="OFFSET", help="End before this queue offset")
    ] = None
    topic: TopicOption = None
    queue: QueueOption = None
    rows: RowsOptions
    commit_log: CommitLogOption = None
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeHalf(Command):
    """Decode the half queue: each half copy that was sent, put back or resumed."""

    NAME = "half"
    SHORT = "half copies of transactions"
    MODULE, FUNCTION = "decode.decode_log", "half"
    EXAMPLES = (
        Example("rmqtx decode half STORE --topic orders", "half copies for a topic"),
        Example("rmqtx decode half -n 10.0.0.1:9876 --from @1767322985000", "from live brokers, from a time on"),
        Example("rmqtx decode half STORE --where 'checks_count >= 10' --format jsonl", "copies with 10 checks or more"),
    )

    store: OptionalStoreArguments = None
    within: RangeOptions
    topic: TopicOption = None
    group: GroupOption = None
    rows: RowsOptions
    commit_log: CommitLogOption = None
    rate: RateOption = None
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOp(Command):
    """Decode the op queue: the half queue offsets that each op message settles."""

    NAME = "op"
    SHORT = "op messages, and the half copies that they settle"
    MODULE, FUNCTION = "decode.decode_log", "op"
    EXAMPLES = (
        Example("rmqtx decode op STORE", "all op messages"),
        Example("rmqtx decode op -n 10.0.0.1:9876", "from live brokers"),
        Example("rmqtx decode op STORE --where 'half_queue_offsets = 17'", "op messages of half queue offset 17"),
    )

    store: OptionalStoreArguments = None
    within: RangeOptions
    rows: RowsOptions
    commit_log: CommitLogOption = None
    rate: RateOption = None
    voice: VoiceOptions
    live: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeIndex(Command):
    """Decode the entries of the index: the hash of a key and the record that has it."""

    NAME = "index"
    SHORT = "entries of the index files"
    MODULE, FUNCTION = "decode.decode_files", "index"
    EXAMPLES = (
        Example("rmqtx decode index STORE --where 'commit_log_offset = 4711'", "the entries of one record"),
        Example("rmqtx decode index STORE --coverage", "decoded, filler, damaged and unread bytes of each file"),
    )

    store: StoreArguments
    rows: RowsOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCheckpoint(Command):
    """Decode the checkpoint: up to which time log, queues and index were flushed."""

    NAME = "checkpoint"
    SHORT = "how far log, queues and index were flushed"
    MODULE, FUNCTION = "decode.decode_files", "checkpoint"
    EXAMPLES = (
        Example("rmqtx decode checkpoint STORE", "its values"),
        Example("rmqtx decode checkpoint STORE --format json", "for a script"),
    )

    store: StoreArguments
    rows: RowsOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCursors(Command):
    """Decode the cursors of the consumer groups and of the check.

    They are in config/consumerOffset.json, or where the broker keeps them instead (enableLmq, RocksDB).
    """

    NAME = "cursors"
    SHORT = "cursors of the consumer groups and of the check"
    MODULE, FUNCTION = "decode.decode_files", "cursors"
    EXAMPLES = (
        Example("rmqtx decode cursors STORE", "all cursors"),
        Example("rmqtx decode cursors STORE --where 'group = CID_RMQ_SYS_TRANS'", "cursors of the transaction check"),
    )

    store: StoreArguments
    topic: TopicOption = None
    rows: RowsOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStatetable(Command):
    """Decode transaction/statetable of 3.0 and 3.1: one slot for each prepared record.

    A slot belongs to the prepared record at its commit-log offset, whatever the slot's number.
    """

    NAME = "statetable"
    SHORT = "slots of the state table (3.0, 3.1)"
    MODULE, FUNCTION = "decode.decode_files", "statetable"
    EXAMPLES = (
        Example("rmqtx decode statetable STORE", "all slots"),
        Example(
            "rmqtx decode statetable STORE --where 'state = PREPARED'", "the transactions that a broker of 3.1 checks"
        ),
    )

    store: StoreArguments
    rows: RowsOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRedolog(Command):
    """Decode transaction/redolog of 3.0 and 3.1: an entry for each prepared, COMMIT or ROLLBACK record.

    After a crash the broker rebuilds its state table from these entries.
    """

    NAME = "redolog"
    SHORT = "entries of the redo log (3.0, 3.1)"
    MODULE, FUNCTION = "decode.decode_files", "redolog"
    EXAMPLES = (
        Example("rmqtx decode redolog STORE", "all entries"),
        Example(
            "rmqtx decode redolog STORE --where 'half_commit_log_offset = 4711'", "the entries of one prepared record"
        ),
    )

    store: StoreArguments
    rows: RowsOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRocksdb(Command):
    """Decode the column family trans of rocksdbstore/: the transactions that the broker will check.

    The database of a running or killed broker can be behind the commit log, so `rmqtx pending` uses the log. Needs the
    extra rocksdb.
    """

    NAME = "rocksdb"
    SHORT = "open transactions in RocksDB (5.4.0+)"
    MODULE, FUNCTION = "decode.decode_files", "rocksdb"
    EXAMPLES = (
        Example("rmqtx decode rocksdb STORE", "all open transactions in the database, with their checks"),
        Example("rmqtx decode rocksdb STORE --where 'checks_count > 10'", "transactions with more than 10 checks"),
    )

    store: StoreArguments
    topic: TopicOption = None
    rows: UncoveredRowsOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeDledger(Command):
    """Decode the entries of dledger-*/data, which contain the records of a DLedger commit log.

    The other commands read records, queues and transactions of a DLedger store as of any other store.
    """

    NAME = "dledger"
    SHORT = "entries of a DLedger commit log (4.5.0+)"
    MODULE, FUNCTION = "decode.decode_files", "dledger"
    EXAMPLES = (
        Example("rmqtx decode dledger STORE", "all entries: number, term, and place of the record"),
        Example("rmqtx decode commitlog STORE", "the records in a DLedger log"),
        Example("rmqtx decode dledger STORE --where 'body_crc_matches = false'", "entries whose record has changed"),
    )

    store: StoreArguments
    within: RangeOptions
    topic: TopicOption = None
    rows: RowsOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeEpochs(Command):
    """Decode epochFileCheckpoint: the commit-log offset at which each master of the replica group began to write."""

    NAME = "epochs"
    SHORT = "epochs of a controller's replica (5.0.0+)"
    MODULE, FUNCTION = "decode.decode_files", "epochs"
    EXAMPLES = (
        Example("rmqtx decode epochs STORE", "begin offset of each epoch"),
        Example("rmqtx decode epochs STORE --format json", "for a script"),
    )

    store: StoreArguments
    rows: UncoveredRowsOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeTrace(Command):
    """Decode message traces: one row per half message that a producer sent, and per decision.

    A producer with trace writes the decision before it sends the request to the broker, so a decision can be here
    that never arrived. That a line is missing shows nothing: the trace is off by default, may be lost, and no gRPC
    client writes one.
    """

    NAME = "trace"
    SHORT = "what producers wrote about their transactions (client 4.9.0+)"
    MODULE, FUNCTION = "decode.decode_log", "trace"
    EXAMPLES = (
        Example("rmqtx decode trace STORE", "all lines"),
        Example("rmqtx decode trace STORE --last -o decisions.csv", "the last decision of each, for rmqtx reconcile"),
        Example(
            "rmqtx decode trace STORE --trace-topic AuditTrace --group pay_tx", "from a topic of your own, one group"
        ),
    )

    store: StoreArguments
    within: RangeOptions
    trace_topic: TraceTopicOption = None
    topic: TopicOption = None
    group: GroupOption = None
    last: Annotated[
        bool,
        typer.Option("--last", help="Only the last decision of each transaction, as a ledger for rmqtx reconcile"),
    ] = False
    rows: RowsOptions
    commit_log: CommitLogOption = None
    voice: VoiceOptions


GROUP_HELP = (
    "Decode the files of one kind in a store: one row per structure. `rmqtx decode KIND --help` has examples."
)
IN_GROUP: tuple[type[Command], ...] = (
    DecodeCommitlog,
    DecodeConsumequeue,
    DecodeHalf,
    DecodeOp,
    DecodeIndex,
    DecodeCheckpoint,
    DecodeCursors,
    DecodeStatetable,
    DecodeRedolog,
    DecodeRocksdb,
    DecodeDledger,
    DecodeEpochs,
    DecodeTrace,
)
