"""`rmqtx search`: the records that fulfil some conditions."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.commitlog import BodyOption
from rmqtx_cli.commands.decode.shared import RangeOptions
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
from rmqtx_cli.words.text import count, stored_text

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.jobs.search_conditions import SearchConditions
    from readers.model.reading import Reading
    from readers.store.store import Store
    from rmqtx_cli.options.bounds import Bounds
    from rmqtx_cli.output.views import View

NAME = "search"
SHORT = "the records that fulfil some conditions"
EXAMPLES = (
    Example("rmqtx search STORE --key order-21020", "every record with a business key, half copies included"),
    Example("rmqtx search STORE --id 7F00000100002A9F000000000003FC21", "one record, by its message id"),
    Example("rmqtx search STORE --topic orders --body-contains 'order 17' --body text", "what was said, and by whom"),
    Example("rmqtx search STORE --property 'case=late*' --from 2026-01-02T03:00:00Z", "a property, from a time on"),
    Example("rmqtx search STORE --body-regex '\"amount\": ?9{4,}' --limit 10", "an expression, the first ten"),
    Example("rmqtx search STORE --body-contains 0x0801120f", "bytes that are no text"),
)

KeyOption = Annotated[
    str | None, typer.Option("--key", parser=stored_text, metavar="KEY", help="A word of the property KEYS.")
]
IdOption = Annotated[
    str | None,
    typer.Option("--id", parser=stored_text, metavar="ID", help="UNIQ_KEY, transaction id, or offset message id."),
]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic", parser=stored_text, metavar="TOPIC",
        help="Records of this topic, and those on their way to it: half copies, discard copies, delayed ones.",
    ),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property", parser=stored_text, metavar="NAME=VALUE",
        help="A property's value, with * ? [] as in file names; several must all hold.",
    ),
]
BodyContainsOption = Annotated[
    str | None,
    typer.Option(
        "--body-contains", parser=stored_text, metavar="TEXT|0xHEX",
        help="Text or bytes in the body, inflated where the producer compressed it.",
    ),
]
BodyRegexOption = Annotated[
    str | None,
    typer.Option(
        "--body-regex", parser=stored_text, metavar="RE",
        help="A regular expression of Python over the body's bytes; one that backtracks without end takes as long.",
    ),
]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What is searched for; all that is given must hold."""

    key: KeyOption = None
    identity: IdOption = None
    topic: TopicOption = None
    properties: PropertyOption = None
    body_contains: BodyContainsOption = None
    body_regex: BodyRegexOption = None
    within: RangeOptions = field(default_factory=RangeOptions)

    def conditions(self, bounds: Bounds) -> SearchConditions:
        """The same, understood.

        Raises: BadRequest.
        """
        from readers.jobs.search_conditions import SearchConditions

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


@with_option_groups
def command(
    context: typer.Context,
    store: StoreArguments,
    *,
    asked: SearchOptions,
    body: BodyOption = BodyForm.NONE,
    where: WhereOption = None,
    limit: LimitOption = None,
    fail_on: FailOnOption = None,
    output: OutputOptions,
    engine: EngineOptions,
    provenance: ProvenanceOptions,
    commit_log: CommitLogOption = None,
    voice: VoiceOptions,
) -> int:
    """Search the whole log for records; all conditions that are given must hold.

    With --body text bodies are inflated, with --body raw they are as stored.
    """
    from readers.jobs.search import Search
    from readers.storage.file_systems import expand
    from rmqtx_cli.sources.engine_run import engine_run
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_consistency

    bounds = asked.within.bounds(voice)
    conditions = asked.conditions(bounds)
    if conditions.is_empty and where is None and asked.within == RangeOptions():
        raise BadRequest("nothing is searched for", advice="give --key, --id, --topic, --property or another condition")
    places = expand(store)
    found = _Found(body, output.fields, with_store=len(places) > 1)
    listing = Listing(found.schema, found.view, output, where, fail_on, limit, voice, provenance.with_meta)
    opened = open_stores(places, StoreOptions(commit_log))
    refuse_inside(output.output, opened.stores)
    say_consistency(opened.stores, voice)
    with engine_run(context, "searching", opened.stores, listing, engine, provenance) as run:
        reading = run.engine.run_job(
            Search(conditions, found.columns(listing), inflates=found.is_text), opened.stores,
            from_offset=bounds.from_offset, to_offset=bounds.to_offset, progress=run.progress,
        )
        batches = unread_batches(reading, is_text=found.is_text)
        listing.write(batches)
        batches.close()  # at a limit the rest stays unread
    _say(listing, reading, asked.topic, opened.stores, voice)
    return listing.conclude(reading)


def _say(listing: Listing, reading: Reading, topic: str | None, stores: list[Store], voice: Voice) -> None:
    """How much was found, and whether a topic that was named is any."""
    from rmqtx_cli.output.accounting import accounting
    from rmqtx_cli.words.unknown_names import say_unknown_name

    if not listing.found_count:
        topics = [name for one in stores for name in one.topics()]
        say_unknown_name("--topic", topic, topics, "no queue here is of this topic", voice)
    amounts = accounting(reading)
    voice.note(f"{count(listing.rows_count, 'record')}" + (f"; {amounts}" if amounts else ""))


class _Found:
    """How records that were found are listed."""

    def __init__(self, body: BodyForm, fields: str | None, *, with_store: bool) -> None:
        from readers.model.tables import RECORDS
        from rmqtx_cli.options.bodies import text_schema

        self.is_text = body is BodyForm.TEXT
        self.schema = text_schema() if self.is_text else RECORDS
        self._with_body = body is not BodyForm.NONE or "body" in (fields or "").split(",")
        self.view = _view(with_body=self._with_body, with_store=with_store)

    def columns(self, listing: Listing) -> tuple[str, ...]:
        """What is read of each: bodies only where they are shown."""
        return tuple(name for name in listing.needed if name != "body" or self._with_body)


def _view(*, with_body: bool, with_store: bool) -> View:
    from rmqtx_cli.output.views import ALWAYS, VIEWS, View, plain

    more = [plain("body", ALWAYS, may_be_cut=True)] if with_body else []
    more += [plain("store", 4, may_be_cut=True)] if with_store else []
    return View((*VIEWS["records"].columns, *more), "no such records")


def unread_batches(reading: Reading, *, is_text: bool) -> Generator[pa.RecordBatch, None, None]:
    """The reading's batches, bodies as text where that is asked; to close it closes the reading."""
    from rmqtx_cli.options.bodies import with_text_bodies

    batches = iter(reading)
    try:
        for batch in batches:
            yield with_text_bodies(batch) if is_text else batch
    finally:
        if isinstance(batches, Generator):  # here, not when it is collected: the engine ends before that
            batches.close()


def _bytes(text: str) -> bytes:
    """Bytes as they were given: in hexadecimal after 0x, else as UTF-8."""
    if not text.startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise BadRequest(f"--body-contains {text!r} is no hexadecimal") from error
