"""`rmqtx audit --into TABLE`: brings a table of verdicts up to the present state of its stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from readers.model.errors import BadRequest
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.text import count, grouped, size

if TYPE_CHECKING:
    from rmqtx_cli.options.engine import EngineOptions
    from rmqtx_cli.options.options import StoreOptions
    from rmqtx_cli.words.say import Voice
    from verdicts.growing.grow import Grown
    from verdicts.growing.tables import TableName


def refuse_with_into(options: Mapping[str, Any]) -> None:
    """Refuse options that a table does not support. `options`: values by name.

    Raises: BadRequest for the first that is given.
    """
    for name, value in options.items():
        if value not in (None, False, [], ()):
            raise BadRequest(
                f"{name} does not go with --into: a table has all transactions with all columns",
                advice="select when you read it",
            )


@dataclass(frozen=True, slots=True)
class Growing:
    """One run of an audit into a table."""

    places: Sequence[str]
    table: TableName
    engine_options: EngineOptions
    files: StoreOptions
    checkpoint: Path | None
    voice: Voice

    def run(self) -> int:
        """Bring the table up to date; return the exit status."""
        from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header
        from rmqtx_cli.words.progress import shown
        from spark_tasks.session.signals import interruptible
        from verdicts.follow.checkpoint_db import FollowDatabase
        from verdicts.growing.grow import grow
        from verdicts.growing.tables import opened_table

        opened = open_stores(self.places, self.files)
        checkpoint = self.checkpoint or self.table.checkpoint()
        for place in (checkpoint, self.table.folder):
            refuse_inside(place, opened.stores)
        say_header(opened, self.voice)
        with interruptible(), opened_table(self.table) as table:
            database = FollowDatabase(str(checkpoint), opened.stores)
            try:
                with shown("auditing", self.voice) as progress:
                    grown = grow(
                        table, database, opened.stores, opened.settings_of,
                        processes=self.engine_options.processes, progress=progress,
                    )
            finally:
                database.close()
        self._say(grown)
        is_doubtful = grown.states.get("UNDECIDABLE") or any(one.kind.severity == "error" for one in grown.findings)
        return exit_status.INCOMPLETE if is_doubtful else exit_status.DONE

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
