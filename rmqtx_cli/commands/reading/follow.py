"""`rmqtx follow`: reads growing stores step by step and prints each verdict that is new or has changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.readers.jobs.signals import interruptible
from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.errors import BadRequest, SourceError
from rmqtx.readers.model.tables import FUTURE_COLUMNS, TRANSACTIONS
from rmqtx.readers.storage.file_systems import expand
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.follow.follower import Follower, FollowStep
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.commands.declared.watch import FollowCommand
from rmqtx_cli.options.filters import all_of
from rmqtx_cli.options.options import OutputFormat, OutputOptions, StoreOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.streams import pause
from rmqtx_cli.output.views import transactions_view
from rmqtx_cli.sources.opening import Opened, open_stores, refuse_inside, say_header
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.text import count, size
from rmqtx_cli.words.times import parse_duration_ms, time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.model.findings import Finding
    from rmqtx_cli.words.say import Voice

#: The formats that can be written row by row without an end.
STREAMING_FORMATS = (OutputFormat.TABLE, OutputFormat.JSONL, OutputFormat.CSV)
_RETRY_AFTER_SECONDS = 1.0


def run(options: FollowCommand) -> int:
    """Run the command; return its exit status."""
    places, steps = expand(options.store), options.steps
    now_ms = clock.now_ms()
    view = transactions_view(now_ms, with_state=True, with_store=len(places) > 1)
    filled = tuple(column for column in view.columns if not set(column.sources) <= set(FUTURE_COLUMNS))
    listing = Listing(
        TRANSACTIONS, replace(view, columns=filled, nothing="nothing new or changed"),
        OutputOptions(options.fields, options.output_format, form=options.form),
        all_of((options.where, "flags ~ ." if options.flagged else None)), options.fail_on, voice=options.voice,
        now_ms=now_ms,
    )
    return Following(
        places, options.files, steps.checkpoint, parse_duration_ms(steps.interval), steps.until_idle, options.voice,
        steps.processes, steps.temporary_directory,
    ).run(listing)


def refuse_columns_not_followed(listing: Listing) -> None:
    """Refuse conditions on columns that are null in every followed row, and --fields that name one.

    Raises: BadRequest for the first that is named.
    """
    for option, columns in listing.named_by_options.items():
        for name in columns:
            if name in FUTURE_COLUMNS:
                raise BadRequest(
                    f"{option}: rmqtx follow leaves {name} empty", advice="run rmqtx audit, which fills this column"
                )


@dataclass(slots=True)
class Following:
    """An audit that follows growing stores. Units: milliseconds."""

    places: Sequence[str]
    files: StoreOptions
    checkpoint: Path | None
    interval_ms: int
    until_idle: bool
    voice: Voice
    processes: int | None = None
    temporary_directory: str | None = None
    _printed: set[str] = field(default_factory=set)
    _settings: dict[str, str] = field(default_factory=dict)
    _last: FollowStep | None = None

    def run(self, listing: Listing) -> int:
        """Follow until idle or interrupted; returns the exit status."""
        refuse_columns_not_followed(listing)
        if listing.format not in STREAMING_FORMATS:
            names = ", ".join(STREAMING_FORMATS)
            raise BadRequest(f"rmqtx follow cannot write {listing.format}, which needs an end", advice=f"use {names}")
        opened = self._open()
        refuse_inside(self.checkpoint, opened.stores)
        with interruptible(), ExitStack() as stack:
            path = self._checkpoint(stack)
            database = FollowDatabase(path, opened.stores)
            stack.callback(database.close)
            listing.write(self._batches(database, opened), at_once=True)
            states = database.states()
        named = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        self.voice.note(f"{count(sum(states.values()), 'transaction')} followed{': ' + named if named else ''}")
        return self._status(listing, states)

    def _checkpoint(self, stack: ExitStack) -> str:
        if self.checkpoint is not None:
            return str(self.checkpoint)
        self.voice.note("without --checkpoint FILE the next start reads everything again")
        directory = RunFolder(directory=self.temporary_directory)
        return str(Path(stack.enter_context(directory)) / "follow.sqlite")

    def _open(self) -> Opened:
        return open_stores(self.places, self.files)

    def _status(self, listing: Listing, states: dict[str, int]) -> int:
        findings = self._last.findings if self._last is not None else []
        if states.get(State.UNDECIDABLE) or any(finding.is_error for finding in findings):
            return exit_status.INCOMPLETE
        return exit_status.FINDINGS if listing.has_failed else exit_status.DONE

    def _batches(self, database: FollowDatabase, opened: Opened) -> Iterator[pa.RecordBatch]:
        follower = Follower(database, processes=self.processes)
        failed = False
        while True:
            self._say_settings(opened)
            begun = time.monotonic()
            try:
                with shown("reading", self.voice) as progress:
                    step = follower.step(opened.stores, opened.settings_of, progress)
                    rows = next(step.batches, None)
                while rows is not None:
                    yield rows
                    rows = next(step.batches, None)
                failed = False
            except SourceError as error:
                # A broker may delete a file during the reading; only an error that happens twice is reported.
                if failed:
                    raise
                failed = True
                self.voice.detail(f"reading again after an error: {error}")
                time.sleep(_RETRY_AFTER_SECONDS)
                opened = self._open()
                continue
            self._last = step
            self._say(step, database, time.monotonic() - begun)
            is_new = step.has_grown or step.new_count or step.changed_count
            if self.until_idle and not (is_new and any(store.in_use for store in opened.stores)):
                return
            pause(self.interval_ms / 1000)
            opened = self._open()

    def _say_settings(self, opened: Opened) -> None:
        """Print the line about each store if it has changed."""
        now = {
            store.root: f"{store.in_use} {store.aborted} {opened.settings_of(store).describe()}"
            for store in opened.stores
        }
        if now != self._settings:
            say_header(opened, self.voice)
        self._settings = now

    def _say(self, step: FollowStep, database: FollowDatabase, seconds: float) -> None:
        self.voice.findings(self._news(step.findings))
        forgotten = f", {size(step.bytes_forgotten)} expired" if step.bytes_forgotten else ""
        gone = f", {step.gone_count} gone" if step.gone_count else ""
        pending = database.states().get(State.PENDING, 0) if self.voice.verbose else 0
        self.voice.detail(
            f"{time_text(clock.now_ms())} {size(step.bytes_read)} read{forgotten}; {step.judged_count} "
            f"judged: {step.new_count} new, {step.changed_count} changed{gone}; {pending} PENDING; {seconds:.1f} s"
        )

    def _news(self, findings: list[Finding]) -> list[Finding]:
        news = [finding for finding in findings if finding.line() not in self._printed]
        self._printed = {finding.line() for finding in findings}
        return news
