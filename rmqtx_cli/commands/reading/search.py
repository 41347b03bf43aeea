"""`rmqtx search`: find records in the commit log."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.jobs.body_decoder import DECODED_FIELD, BodyDecoder
from rmqtx.readers.jobs.search import Search, SearchConditions
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.reading import Bounds, Reading
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import RECORDS
from rmqtx.readers.storage.file_systems import expand
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.claims.records_read import with_lost_records
from rmqtx_cli.commands.declared.survey import BodiesOptions, SearchCommand, SearchOptions
from rmqtx_cli.commands.decode.shared import bounds_of
from rmqtx_cli.options.bodies import decoded_bodies, decoder_words, text_schema, with_text_bodies
from rmqtx_cli.options.options import BodyForm, RangeOptions, StoreOptions
from rmqtx_cli.output.accounting import accounting
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import ALWAYS, VIEWS, View, plain
from rmqtx_cli.sources.engine_run import engine_run
from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_consistency
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.unknown_names import say_unknown_name


def run(options: SearchCommand) -> int:
    """Run the command; return its exit status."""
    bounds = bounds_of(options.asked.within, options.voice)
    conditions = _conditions(options.asked, bounds)
    if conditions.is_empty and options.where is None and options.asked.within == RangeOptions():
        words = [word for word in options.store if "/" not in word and not Path(word).exists()]
        tried = f"rmqtx search STORE --key {quoted(words[0])}, or " if words and len(options.store) > 1 else ""
        raise BadRequest("no search condition given", advice=f"{tried}add --key, --id, --topic or another condition")
    decoder = _decoder(options.bodies)
    places = expand(options.store)
    found = _Found(
        options.bodies.body, options.output.fields, with_store=len(places) > 1, is_decoded=decoder is not None
    )
    listing = Listing(
        found.schema, found.view, options.output, options.where, options.fail_on, options.limit, options.voice,
        options.provenance.with_meta,
    )
    listing.refuse_unread(found.unread)
    stores = _opened(places, options.commit_log, options.output.output, options.voice)
    with engine_run(options.context, "searching", stores, listing, options.engine, options.provenance) as run:
        reading = run.engine.run_job(
            Search(conditions, found.columns(listing), inflates=found.is_text or found.is_decoded), stores,
            from_offset=bounds.from_offset, to_offset=bounds.to_offset, progress=run.progress,
        )
        reading = with_lost_records(reading, stores, bounds.to_offset)
        if decoder is None:
            _write(unread_batches(reading, is_text=found.is_text), listing)
        else:
            _write_decoded(reading, listing, decoder, found)
    _say(listing, reading, options.asked.topic, stores, options.voice)
    return listing.conclude(reading)


def _conditions(asked: SearchOptions, bounds: Bounds) -> SearchConditions:
    """Return the parsed conditions. Raises: BadRequest."""
    pairs = []
    for text in asked.properties or ():
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise BadRequest(f"--property {text!r} is not NAME=VALUE")
        pairs.append((name, value))
    return SearchConditions(
        asked.key, asked.identity, asked.topic, bounds.from_time_ms, bounds.to_time_ms, tuple(pairs),
        None if asked.body_contains is None else _bytes(asked.body_contains),
        None if asked.body_regex is None else asked.body_regex.encode(),
    )


def _decoder(bodies: BodiesOptions) -> list[str] | None:
    """The words of the filter for bodies; None without one. Raises: BadRequest."""
    if bodies.body_decoder is None:
        return None
    if bodies.body is BodyForm.RAW:
        raise BadRequest("--body raw and --body-decoder contradict each other: a filter gets decompressed bodies")
    return decoder_words(bodies.body_decoder)


def _opened(paths: list[str], commit_log: list[str] | None, output: Path | None, voice: Voice) -> list[Store]:
    """The stores, with a line about each."""
    stores = open_stores(paths, StoreOptions(commit_log)).stores
    refuse_inside(output, stores)
    say_consistency(stores, voice)
    return stores


def _write_decoded(reading: Reading, listing: Listing, words: list[str], found: _Found) -> None:
    """Write the records that were found, with what a filter makes of their bodies."""
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
    if not listing.found_count:
        topics = [name for one in stores for name in one.topics()]
        say_unknown_name("--topic", topic, topics, "no queue here has this topic", voice)
    if (amounts := accounting(reading)) is not None:
        voice.note(amounts)


class _Found:
    """How the records found are listed."""

    def __init__(self, body: BodyForm, fields: str | None, *, with_store: bool, is_decoded: bool) -> None:
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
    more = [plain("body", ALWAYS, may_be_cut=True)] if with_body else []
    more += [plain("body_decoded", ALWAYS, may_be_cut=True)] if is_decoded else []
    more += [plain("store", 4, may_be_cut=True)] if with_store else []
    return View((*VIEWS["records"].columns, *more), "no such records")


def unread_batches(reading: Reading, *, is_text: bool) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a reading, with bodies as text if wanted; closing the generator closes the reading."""
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
