"""The options that commands share, each declared once."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PosixPath
from typing import Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.releases import dotted, parse_version, release_before, release_text
from rmqtx.readers.storage.places import is_uri
from rmqtx_cli.options import completion
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import stored_text


class OutputFolder(PosixPath):
    """A folder as it was typed. `place`: its path or URI."""

    place: str


def parse_output(text: str) -> Path:
    """Return the place that `-o` names.

    Shape: an OutputFolder for an existing folder, for a name that ends in a slash, and for a URI.
    """
    if not (text.endswith("/") or is_uri(text) or Path(text).is_dir()):
        return Path(text)
    folder = OutputFolder(text)
    folder.place = text
    return folder


class OutputFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


class BodyForm(StrEnum):
    """How message bodies are printed."""

    NONE = "none"
    RAW = "raw"
    TEXT = "text"


StoreArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="STORE", autocompletion=completion.stores,
        help="Root of a broker's store, the directory that contains commitlog/: a path, s3://BUCKET/PATH, a pattern "
        "(quoted), or a name from the configuration file; default: $RMQTX_STORE",
    ),
]
OptionalStoreArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STORE", autocompletion=completion.stores,
        help="Root of a broker's store, the directory that contains commitlog/: a path, s3://BUCKET/PATH, a pattern "
        "(quoted), or a name from the configuration file; default: $RMQTX_STORE. For live brokers, -n or --broker "
        "instead",
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--max-requests-per-second", min=0.1, metavar="N",
        help="Send at most N requests for records per second to a live broker",
    ),
]
CommitLogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--commitlog", metavar="DIR",
        help="Directory of the commit log, if not STORE/commitlog; repeatable, for a commit log in several directories",
    ),
]
BrokerConfOption = Annotated[
    Path | None,
    typer.Option(
        "--broker-conf", metavar="FILE",
        help="The broker's configuration file; default: the defaults of its version",
    ),
]
ProxyConfOption = Annotated[
    Path | None,
    typer.Option(
        "--proxy-conf", metavar="FILE",
        help="Configuration of the proxies in front of the brokers (rmq-proxy.json); default: the defaults of proxies",
    ),
]


def _say_treated_as(context: typer.Context, text: str | None) -> str | None:
    """Print a note if a release is not known: which known release it is treated as.

    Text that is not a version is left for the command to refuse.
    """
    if text is None or context.resilient_parsing:
        return text
    try:
        given = parse_version(text)
    except BadRequest:
        return text
    known = release_before(given)
    if known is not None and known != given:
        voice = Voice(quiet=bool(context.params.get("quiet")))
        voice.note(f"{dotted(given)} is not a known release: treated as {release_text(known)}")
    return text


BrokerVersionOption = Annotated[
    str | None,
    typer.Option(
        "--broker-version", metavar="X.Y.Z", callback=_say_treated_as,
        help="The broker's version; default: detected from the store's files",
    ),
]
TraceTopicOption = Annotated[
    str | None,
    typer.Option(
        "--trace-topic", parser=stored_text, metavar="NAME",
        help="Topic of the producers' message traces; default: RMQ_SYS_TRACE_TOPIC",
    ),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIME",
        help="Report the state as of this time: ISO 8601, a date, yesterday, -1h, epoch seconds or milliseconds",
    ),
]
NewStoreOption = Annotated[
    Path, typer.Option("--to", metavar="DIR", help="Directory of the new store; it must not exist yet")
]
FormatOption = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format", show_default=False,
        help="Format of the rows; default: by the suffix of --output, else table. --json is short for --format json",
    ),
]
WideOption = Annotated[
    bool, typer.Option("--wide", help="Print all columns in full width on a terminal, as in a pipe or a file")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", parser=parse_output, metavar="FILE",
        help="Write the rows to FILE; FILE appears when it is complete",
    ),
]
FieldsOption = Annotated[
    str | None,
    typer.Option(
        "--fields", metavar="NAME,NAME", autocompletion=completion.fields,
        help="Columns to print, in this order; 'all' for all of them",
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where", parser=stored_text, metavar="EXPR", autocompletion=completion.condition_fields,
        help="Only rows that meet this condition, like \"NAME = VALUE and NAME > N\"; operators: = != < <= > >= ~ !~",
    ),
]
OlderThanOption = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="DURATION",
        help="Only transactions whose first half copy is older, like 10m or 2h",
    ),
]
FlaggedOption = Annotated[bool, typer.Option("--flagged", help="Only transactions that have a flag")]
JournalOption = Annotated[
    Path | None,
    typer.Option(
        "--journal", metavar="FILE", help="Read this journal; default: receipts.jsonl in the state directory"
    ),
]
FailOnOption = Annotated[
    str | None,
    typer.Option(
        "--fail-on", parser=stored_text, metavar="EXPR", help="Exit with status 1 if a listed row meets this condition"
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=0, metavar="N", help="Stop after N rows")
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", parser=stored_text, metavar="TOPIC", help="Only this topic")
]
GroupOption = Annotated[
    str | None, typer.Option("--group", parser=stored_text, metavar="GROUP", help="Only this producer group")
]
FindingsOption = Annotated[
    bool,
    typer.Option(
        "--findings",
        help="List findings (damage and contradictions in the files) instead of rows",
    ),
]
HashOption = Annotated[
    bool,
    typer.Option(
        "--hash",
        help="Compute digests of whole logs for the provenance record, not only of first and last bytes",
    ),
]

BodyOption = Annotated[
    BodyForm, typer.Option(
        "--body", help="Print bodies as bytes (base64 in JSON, hexadecimal in tables) or as text"
    )
]
DecoderOption = Annotated[
    str | None,
    typer.Option(
        "--body-decoder", metavar="CMD",
        help="Filter for bodies: gets each as a line of base64, prints a line of text for each (column body_decoded)",
    ),
]


@dataclass(frozen=True, slots=True)
class VoiceOptions(Voice):
    """What a command prints beside its results."""

    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every finding and every assumed setting")
    ] = False
    #: Eager, so that notes of other options are not printed with --quiet.
    quiet: Annotated[bool, typer.Option("--quiet", "-q", is_eager=True, help="Print errors only")] = False


@dataclass(frozen=True, slots=True)
class RowForm:
    """How values are written: a table in full width, CSV for spreadsheets, times as timestamps."""

    wide: WideOption = False
    #: CSV has values unchanged, for programs. A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@`, and a
    #: producer can write anything into a topic or a business key.
    csv_safe: Annotated[
        bool, typer.Option("--csv-safe", help="In CSV, put ' before text that a spreadsheet would run as a formula")
    ] = False
    timestamps: Annotated[
        bool,
        typer.Option(
            "--timestamps",
            help="Write times as TIMESTAMP columns (ISO 8601 in CSV and JSON) instead of epoch milliseconds; the "
            "column names lose _ms",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Which columns are written, in which order, form and format, and where."""

    fields: FieldsOption = None
    output_format: FormatOption = None
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort", metavar="NAME,NAME", autocompletion=completion.sort_fields,
            help="Sort by these columns, named as in --fields or in the table's head: ages, counts and sizes in "
            "descending order, others in ascending order; -NAME reverses the order",
        ),
    ] = None
    form: RowForm = field(default_factory=RowForm)
    output: OutputOption = None


@dataclass(frozen=True, slots=True)
class ReceiptOptions:
    """The same for receipts, which are printed in the order of the acts."""

    fields: FieldsOption = None
    output_format: FormatOption = None
    form: RowForm = field(default_factory=RowForm)
    output: OutputOption = None

    @property
    def rows(self) -> OutputOptions:
        """The options of a listing."""
        return OutputOptions(self.fields, self.output_format, form=self.form, output=self.output)


ProofOption = Annotated[
    Path | None,
    typer.Option(
        "--proof", metavar="FILE.json",
        help="Write a proof of the verdicts, which rmqtx prove and others can check on a copy of the store (also .gz)",
    ),
]


@dataclass(frozen=True, slots=True)
class ProvenanceOptions:
    """The provenance record of a result: what it was made from."""

    hash_all: HashOption = False
    with_meta: Annotated[
        bool,
        typer.Option(
            "--with-meta", help="Begin JSON lines with the provenance record; Parquet and Arrow always contain it"
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options about stores in files, beside their places."""

    commit_log: CommitLogOption = None
    broker_conf: BrokerConfOption = None
    broker_version: BrokerVersionOption = None


@dataclass(frozen=True, slots=True)
class TracedStoreOptions(StoreOptions):
    """The same, for commands that read message traces, also those of live brokers."""

    trace_topic: TraceTopicOption = None


@dataclass(frozen=True, slots=True)
class RangeOptions:
    """The range to read, as commit-log offsets or times."""

    begin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="OFFSET|TIME", help="First offset, or ISO 8601 time with a zone (@ms for epoch)"
        ),
    ] = None
    end: Annotated[
        str | None, typer.Option("--to", metavar="OFFSET|TIME", help="End before this offset or time")
    ] = None
