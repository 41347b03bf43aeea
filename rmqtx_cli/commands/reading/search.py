"""`rmqtx search`: find records in the commit log."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.commitlog import BodyOption
from rmqtx_cli.commands.decode.shared import RangeOptions
from rmqtx_cli.options.bodies import DecoderOption, decoded_bodies, decoder_words
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    BodyForm,
    CommitLogOption,
    FailOnOption,
    LimitOption,
    OutputOptions,
    ProvenanceOptions,
    StoreArguments,
    StoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import stored_text

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.jobs.body_decoder import BodyDecoder
    from rmqtx.readers.jobs.search_conditions import SearchConditions
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.store.store import Store
    from rmqtx_cli.options.bounds import Bounds
    from rmqtx_cli.output.views import View

NAME = "search"
EXAMPLES = (
    Example("rmqtx search STORE --key order-21020", "all records with a business key, half copies included"),
    Example("rmqtx search STORE --id 7F00000100002A9F000000000003FC21", "one record, by its message id"),
    Example("rmqtx search STORE --topic orders --body-contains 'order 17' --body text", "text in bodies of a topic"),
    Example("rmqtx search STORE --property 'case=late*' --from 2026-01-02T03:00:00Z", "by a property, from a time on"),
    Example("rmqtx search STORE --body-regex '\"amount\": ?9{4,}' --limit 10", "by a regular expression, the first 10"),
)

KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", parser=stored_text, metavar="KEY",
        help="Records with this business key (a word of the property KEYS)",
    ),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id", parser=stored_text, metavar="ID",
        help="Records with this UNIQ_KEY, transaction id or offset message id",
    ),
]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic", parser=stored_text, metavar="TOPIC",
        help="Records of this topic, and records meant for it: half copies, discard copies, delayed messages",
    ),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property", parser=stored_text, metavar="NAME=VALUE",
        help="Records with this property; VALUE can contain * ? [] as in file names; repeatable, all must match",
    ),
]
BodyContainsOption = Annotated[
    str | None,
    typer.Option(
        "--body-contains", parser=stored_text, metavar="TEXT|0xHEX",
        help="Records with this text or these bytes in the body, decompressed if necessary",
    ),
]
BodyRegexOption = Annotated[
    str | None,
    typer.Option(
        "--body-regex", parser=stored_text, metavar="RE",
        help="Records whose body matches this Python regular expression; an expression with nested repetitions, like "
        "(a+)+, can run without end",
    ),
]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Conditions on records; all that are given must hold."""

    key: KeyOption = None
    identity: IdOption = None
    topic: TopicOption = None
    properties: PropertyOption = None
    body_contains: BodyContainsOption = None
    body_regex: BodyRegexOption = None
    within: RangeOptions = field(default_factory=RangeOptions)

    def conditions(self, bounds: Bounds) -> SearchConditions:
        """Return the parsed conditions.

        Raises: BadRequest.
        """
        from rmqtx.readers.jobs.search_conditions import SearchConditions

        pairs = []
        for text in self.properties or ():
            name, equals, value = text.partition("=")
            if not name or not equals or not value:
                raise BadRequest(f"--property {text!r} is not NAME=VALUE")
            pairs.append((name, value))
        return SearchConditions(
            self.key, self.identity, self.topic, bounds.from_time_ms, bounds.to_time_ms, tuple(pairs),
            None if self.body_contains is None else _bytes(self.body_contains),
            None if self.body_regex is None else self.body_regex.encode(),
        )


@dataclass(frozen=True, slots=True)
class BodiesOptions:
    """How bodies are printed."""

    body: BodyOption = BodyForm.NONE
    body_decoder: DecoderOption = None

    @property
    def decoder(self) -> list[str] | None:
        """The words of the filter for bodies; None without one.

        Raises: BadRequest.
        """
        if self.body_decoder is None:
            return None
        if self.body is BodyForm.RAW:
            raise BadRequest("--body raw and --body-decoder contradict each other: a filter gets decompressed bodies")
        return decoder_words(self.body_decoder)


@with_option_groups
def command(
    context: typer.Context,
    store: StoreArguments,
    *,
    asked: SearchOptions,
    bodies: BodiesOptions,
    where: WhereOption = None,
    limit: LimitOption = None,
    fail_on: FailOnOption = None,
    output: OutputOptions,
    engine: EngineOptions,
    provenance: ProvenanceOptions,
    commit_log: CommitLogOption = None,
    voice: VoiceOptions,
) -> int:
    """Find the records of the commit log that meet all given conditions.

    Reads the whole log. --body text prints decompressed bodies, --body raw prints them as stored.

    --body-decoder CMD runs a filter once and prints what it makes of each body: it reads one line of base64 for each
    body, and prints one line of text for each, in the same order and at once (flushed), or an empty line. A filter that
    fails, or takes longer than 10 s for an answer, is ended with a note; the records are printed without its text.
    """
    from rmqtx.readers.jobs.search import Search
    from rmqtx.readers.storage.file_systems import expand
    from rmqtx_cli.sources.engine_run import engine_run

    bounds = asked.within.bounds(voice)
    conditions = asked.conditions(bounds)
    if conditions.is_empty and where is None and asked.within == RangeOptions():
        words = [word for word in store if "/" not in word and not Path(word).exists()]
        tried = f"rmqtx search STORE --key {quoted(words[0])}, or " if words and len(store) > 1 else ""
        raise BadRequest("no search condition given", advice=f"{tried}add --key, --id, --topic or another condition")
    decoder = bodies.decoder
    places = expand(store)
    found = _Found(bodies.body, output.fields, with_store=len(places) > 1, is_decoded=decoder is not None)
    listing = Listing(found.schema, found.view, output, where, fail_on, limit, voice, provenance.with_meta)
    listing.refuse_unread(found.unread)
    stores = _opened(places, commit_log, output.output, voice)
    with engine_run(context, "searching", stores, listing, engine, provenance) as run:
        reading = run.engine.run_job(
            Search(conditions, found.columns(listing), inflates=found.is_text or found.is_decoded), stores,
            from_offset=bounds.from_offset, to_offset=bounds.to_offset, progress=run.progress,
        )
        if decoder is None:
            _write(unread_batches(reading, is_text=found.is_text), listing)
        else:
            _write_decoded(reading, listing, decoder, found)
    _say(listing, reading, asked.topic, stores, voice)
    return listing.conclude(reading)


def _opened(paths: list[str], commit_log: list[str] | None, output: Path | None, voice: Voice) -> list[Store]:
    """The stores, with a line about each."""
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_consistency

    stores = open_stores(paths, StoreOptions(commit_log)).stores
    refuse_inside(output, stores)
    say_consistency(stores, voice)
    return stores


def _write_decoded(reading: Reading, listing: Listing, words: list[str], found: _Found) -> None:
    """Write the records that were found, with what a filter makes of their bodies."""
    from rmqtx.readers.jobs.body_decoder import BodyDecoder

    with BodyDecoder(words) as decoder:
        batches = unread_batches(reading, is_text=False)
        _write(found.decoded(batches, decoder), listing)
        batches.close()
    if (note := decoder.note()) is not None:
        listing.voice.note(note)


def _write(batches: Generator[pa.RecordBatch, None, None], listing: Listing) -> None:
    """Write the records that were found, with their number above."""
    listing.write(batches, answer=lambda: listing.rows_lines("record"))
    batches.close()  # at a limit the rest stays unread


def _say(listing: Listing, reading: Reading, topic: str | None, stores: list[Store], voice: Voice) -> None:
    """Print how much was found, and a note if no queue has the topic that was given."""
    from rmqtx_cli.output.accounting import accounting
    from rmqtx_cli.words.unknown_names import say_unknown_name

    if not listing.found_count:
        topics = [name for one in stores for name in one.topics()]
        say_unknown_name("--topic", topic, topics, "no queue here has this topic", voice)
    if (amounts := accounting(reading)) is not None:
        voice.note(amounts)


class _Found:
    """How the records found are listed."""

    def __init__(self, body: BodyForm, fields: str | None, *, with_store: bool, is_decoded: bool) -> None:
        from rmqtx.readers.jobs.body_decoder import DECODED_FIELD
        from rmqtx.readers.model.tables import RECORDS
        from rmqtx_cli.options.bodies import text_schema

        self.is_text = body is BodyForm.TEXT
        self.schema = text_schema() if self.is_text else RECORDS
        self.is_decoded = is_decoded
        self._with_body = body is not BodyForm.NONE or "body" in (fields or "").split(",")
        if is_decoded:
            self.schema = self.schema.append(DECODED_FIELD)
        self.view = _view(with_body=self._with_body, with_store=with_store, is_decoded=is_decoded)

    @property
    def unread(self) -> dict[str, str]:
        """The columns that are not read, and the option that reads them."""
        return {} if self._with_body else {"body": "--body text"}

    def columns(self, listing: Listing) -> tuple[str, ...]:
        """Return the columns to read; bodies only if they are printed."""
        read = [name for name in listing.needed if name != "body_decoded" and (name != "body" or self._with_body)]
        return tuple(dict.fromkeys([*read, *(["body"] if self.is_decoded else [])]))

    def decoded(
        self, batches: Iterator[pa.RecordBatch], decoder: BodyDecoder
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches with the texts of a filter."""
        for batch in batches:
            yield decoded_bodies(batch, decoder, is_text=self.is_text, with_body=self._with_body)


def _view(*, with_body: bool, with_store: bool, is_decoded: bool) -> View:
    from rmqtx_cli.output.views import ALWAYS, VIEWS, View, plain

    more = [plain("body", ALWAYS, may_be_cut=True)] if with_body else []
    more += [plain("body_decoded", ALWAYS, may_be_cut=True)] if is_decoded else []
    more += [plain("store", 4, may_be_cut=True)] if with_store else []
    return View((*VIEWS["records"].columns, *more), "no such records")


def unread_batches(reading: Reading, *, is_text: bool) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a reading, with bodies as text if wanted; closing the generator closes the reading."""
    from rmqtx_cli.options.bodies import with_text_bodies

    batches = iter(reading)
    try:
        for batch in batches:
            yield with_text_bodies(batch) if is_text else batch
    finally:
        if isinstance(batches, Generator):  # here, not at garbage collection: the engine ends before that
            batches.close()


def _bytes(text: str) -> bytes:
    """Return the bytes of an argument: hexadecimal after 0x, else UTF-8."""
    if not text.startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise BadRequest(f"--body-contains {text!r} is not hexadecimal") from error
