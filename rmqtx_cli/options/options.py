"""The options that commands share, each declared once, so that they mean the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rmqtx_cli.options import completion
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import stored_text


class OutputFormat(StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


class BodyForm(StrEnum):
    """What is shown of message bodies."""

    NONE = "none"
    RAW = "raw"
    TEXT = "text"


StoreArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="STORE", autocompletion=completion.stores,
        help="Root of a broker's store, the directory that holds commitlog/: a path, s3://BUCKET/PATH, a pattern, or "
        "a name of the configuration file; RMQTX_STORE names it too.",
    ),
]
OptionalStoreArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[STORE]", autocompletion=completion.stores,
        help="Root of a broker's store, the directory that holds commitlog/: a path, s3://BUCKET/PATH, a pattern, or "
        "a name of the configuration file; RMQTX_STORE names it too. Or live brokers, by -n or --broker.",
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--max-requests-per-second", min=0.1, metavar="N",
        help="With live brokers: at most so many requests for records, to spare a busy broker.",
    ),
]
CommitLogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--commitlog", metavar="DIR",
        help="Where the commit log is, if not below STORE; repeat it for a multi-path commit log.",
    ),
]
BrokerConfOption = Annotated[
    Path | None,
    typer.Option("--broker-conf", metavar="FILE", help="The broker's configuration; without it defaults are assumed."),
]


def _say_treated_as(context: typer.Context, text: str | None) -> str | None:
    """Say of a release that is not known what it is treated as. What is no version is refused where it is used."""
    if text is None or context.resilient_parsing:
        return text
    from readers.model.errors import BadRequest
    from readers.model.releases import dotted, parse_version, release_before, release_text

    try:
        given = parse_version(text)
    except BadRequest:
        return text
    known = release_before(given)
    if known is not None and known != given:
        voice = Voice(quiet=bool(context.params.get("quiet")))
        voice.note(f"{dotted(given)} is not known: treated as {release_text(known)}")
    return text


BrokerVersionOption = Annotated[
    str | None,
    typer.Option(
        "--broker-version", metavar="X.Y.Z", callback=_say_treated_as,
        help="The broker's version; without it the store's own signs decide.",
    ),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIME",
        help="Judge as of this time: ISO 8601, a date, yesterday, -1h, or epoch seconds or milliseconds.",
    ),
]
NewStoreOption = Annotated[
    Path, typer.Option("--to", metavar="DIR", help="Where the new store goes: a directory that is not there yet.")
]
FormatOption = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format", show_default=False,
        help="How rows are written; by the suffix of --output, else table. --json is --format json.",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the rows to a file, complete or not at all."),
]
FieldsOption = Annotated[
    str | None,
    typer.Option(
        "--fields", metavar="NAME,NAME", autocompletion=completion.fields,
        help="The columns to give, in this order; 'all' for every one.",
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where", parser=stored_text, metavar="EXPR", autocompletion=completion.condition_fields,
        help="Only rows that fulfil this: \"topic = orders and queue_id > 2\"; operators = != < <= > >= ~ !~.",
    ),
]
FailOnOption = Annotated[
    str | None,
    typer.Option(
        "--fail-on", parser=stored_text, metavar="EXPR", help="Exit with status 1 if a listed row fulfils this."
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=0, metavar="N", help="Stop after so many rows.")
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", parser=stored_text, metavar="TOPIC", help="Only this topic.")
]
GroupOption = Annotated[
    str | None, typer.Option("--group", parser=stored_text, metavar="GROUP", help="Only this producer group.")
]
FindingsOption = Annotated[
    bool, typer.Option("--findings", help="List what is wrong with the files instead of their rows.")
]
HashOption = Annotated[
    bool,
    typer.Option("--hash", help="Digest all bytes of the logs for the custody, not only heads, tails and lengths."),
]
WithMetaOption = Annotated[
    bool,
    typer.Option(
        "--with-meta", help="Begin JSON lines with what they were made from; Parquet and Arrow always say it."
    ),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say every finding and every assumption.")]
#: Eager: what another option has to say is said once this is known.
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", is_eager=True, help="Say nothing but errors.")]


@dataclass(frozen=True, slots=True)
class VoiceOptions(Voice):
    """What a command says beside its results."""

    verbose: VerboseOption = False
    quiet: QuietOption = False


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How rows are written, and where to."""

    fields: FieldsOption = None
    output_format: FormatOption = None
    output: OutputOption = None


@dataclass(frozen=True, slots=True)
class ProvenanceOptions:
    """What a result says of what it was made from."""

    hash_all: HashOption = False
    with_meta: WithMetaOption = False


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a command line says of stores in files, beside where they are."""

    commit_log: CommitLogOption = None
    broker_conf: BrokerConfOption = None
    broker_version: BrokerVersionOption = None
