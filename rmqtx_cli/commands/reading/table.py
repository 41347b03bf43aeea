"""`rmqtx table`: brings a table of verdicts up to the present state of its stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import FileChanged, UnreadableFile
from rmqtx.readers.storage.file_systems import expand
from rmqtx.verdicts.growing.tables import TableName, grow_table, table_name
from rmqtx_cli.commands.declared.data import TableCommand
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.sources.engine_port import StoreEngine
from rmqtx_cli.sources.engines import asked_for_spark, chosen_engine
from rmqtx_cli.sources.opening import Opened, open_stores, refuse_inside, say_header
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.text import count, grouped, size

if TYPE_CHECKING:
    from rmqtx.readers.jobs.workers import Progress
    from rmqtx.verdicts.growing.grow import Grown
    from rmqtx_cli.options.options import StoreOptions
    from rmqtx_cli.words.say import Voice


def run(options: TableCommand) -> int:
    """Run the command; return its exit status."""
    return Growing(
        expand(options.store), table_name(options.into), options.engine, options.files, options.checkpoint,
        options.voice,
    ).run()


@dataclass(frozen=True, slots=True)
class Growing:
    """One run for a table."""

    places: Sequence[str]
    table: TableName
    engine_options: EngineOptions
    files: StoreOptions
    checkpoint: Path | None
    voice: Voice

    def run(self) -> int:
        """Bring the table up to date; return the exit status."""
        opened = open_stores(self.places, self.files)
        for place in (self.table.folder, self.checkpoint or self.table.checkpoint()):
            refuse_inside(place, opened.stores)
        say_header(opened, self.voice)
        with (
            chosen_engine(self._engine(), opened.stores, self.voice) as engine,
            shown("auditing", self.voice) as progress,
        ):
            try:
                grown = self._grown(opened, engine, progress)
            except (UnreadableFile, FileChanged) as error:
                # A broker may delete an expired file during the reading; only an error that happens twice is reported.
                self.voice.detail(f"reading again after an error: {error}")
                grown = self._grown(open_stores(self.places, self.files), engine, progress)
        self._say(grown)
        return exit_status.INCOMPLETE if grown.is_incomplete else exit_status.DONE

    def _grown(self, opened: Opened, engine: StoreEngine, progress: Progress | None) -> Grown:
        return grow_table(
            self.table, str(self.checkpoint) if self.checkpoint else None, opened.stores, opened.settings_of,
            make_reader=engine.make_reader, progress=progress,
        )

    def _engine(self) -> EngineOptions:
        """The options of the engine: Spark only where it is asked for, because a run reads little of large stores."""
        is_open = self.engine_options.engine is EngineName.AUTO and not asked_for_spark(self.engine_options)
        return replace(self.engine_options, engine=EngineName.LOCAL) if is_open else self.engine_options

    def _say(self, grown: Grown) -> None:
        self.voice.findings(grown.findings)
        if grown.was_completed:
            self.voice.note(f"{self.table}: completed the changes of a run that was killed")
        expired = f", {size(grown.bytes_forgotten)} expired" if grown.bytes_forgotten else ""
        gone = f", {grouped(grown.gone_count)} gone" if grown.gone_count else ""
        states = "".join(f", {grouped(number)} {state}" for state, number in sorted(grown.states.items()))
        self.voice.note(
            f"{self.table}: {size(grown.bytes_read)} read{expired}; {grouped(grown.new_count)} new, "
            f"{grouped(grown.changed_count)} changed{gone}; "
            f"now {count(sum(grown.states.values()), 'transaction')}{states}"
        )
