"""Brings a table of verdicts up to the present state of its stores: reads what is new, then changes the table once.

The checkpoint and the table are two places, and a run can be killed between any two writes. Changes are recorded in the
checkpoint together with the verdicts; when they are complete, the step is ready; the table commits it together with its
token; then the checkpoint forgets it. A run that finds a ready step asks the table for the token, and commits the
step or only forgets it. If the table has the token of no step that the checkpoint lists (one of them is new, or was
restored), all verdicts are compared with all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.jobs.workers import Progress
from rmqtx.readers.model.errors import FileChanged
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.follow.change_log import ChangeLog
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase
from rmqtx.verdicts.follow.follower import Follower, MakeReader
from rmqtx.verdicts.growing.table_step import TableStep, step_token
from rmqtx.verdicts.model.verdict_words import State


class VerdictTable(Protocol):
    """A table of verdicts that is open for one run."""

    def step_of(self, store: str) -> int | None:
        """Return the token of the last step of a store; None if it has no row of the store from a step."""

    def current(self, stores: Sequence[str]) -> pa.Table:
        """Return the current rows of some stores (`table_step.CURRENT`)."""

    def apply(self, step: TableStep) -> None:
        """Commit a step with its token: readers find all of it or nothing of it.

        Raises: FileChanged if the table lacks rows that the step ends; UnwritableFile.
        """


@dataclass(slots=True)
class Grown:
    """What a run did.

    Shape: `rows_count`: transactions whose rows changed. `was_completed`: it first completed a step of a run that was
           killed. `is_compared`: all rows of the table were compared.
    Units: bytes of the logs.
    """

    bytes_read: int = 0
    bytes_forgotten: int = 0
    new_count: int = 0
    changed_count: int = 0
    gone_count: int = 0
    rows_count: int = 0
    was_completed: bool = False
    is_compared: bool = False
    states: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_incomplete(self) -> bool:
        """Whether evidence is missing or damaged, or a transaction is UNDECIDABLE."""
        return bool(self.states.get(State.UNDECIDABLE)) or any(one.is_error for one in self.findings)


def grow(
    table: VerdictTable, database: FollowDatabase, stores: list[Store], settings_of: SettingsOf, *,
    make_reader: MakeReader | None = None, progress: Progress | None = None,
) -> Grown:
    """Bring the table up to the present state of the stores.

    `make_reader`: see `rmqtx.verdicts.follow.follower.Follower`.
    Raises: FileChanged if a log is another one than before; SourceError; UnwritableFile.
    """
    grown = Grown()
    roots = tuple(sorted(store.root for store in stores))
    log = ChangeLog(database)
    with database.naming_the_file():
        _complete(table, log, database, roots, grown)
        if not log.is_whole and not _has(table, log, roots, log.applied_ms):
            with database.transaction():
                log.begin_whole()
        follower = Follower(database, changes=log, make_reader=make_reader)
        step = follower.step(stores, settings_of, progress)
        for _ in step.batches:
            pass
        grown.bytes_read, grown.bytes_forgotten = step.bytes_read, step.bytes_forgotten
        grown.new_count, grown.changed_count, grown.gone_count = step.new_count, step.changed_count, step.gone_count
        grown.findings, grown.states = step.findings, database.states()
        grown.rows_count, grown.is_compared = log.count(), log.is_whole
        if grown.rows_count or log.is_whole:
            with database.transaction():
                log.make_ready(max(min(store.taken_time_ms for store in stores), (log.applied_ms or 0) + 1))
            _apply(table, log, database, roots)
    return grown


def _complete(
    table: VerdictTable, log: ChangeLog, database: FollowDatabase, roots: tuple[str, ...], grown: Grown
) -> None:
    """Commit a step that an earlier run made ready, or only forget it if the table has it."""
    if log.ready_ms is None:
        return
    if _has(table, log, roots, log.ready_ms):
        with database.transaction():
            log.finish()
    elif log.is_whole or _has(table, log, roots, log.applied_ms):
        _apply(table, log, database, roots)
    else:
        return  # the changes do not fit the table
    grown.was_completed = True


def _apply(table: VerdictTable, log: ChangeLog, database: FollowDatabase, roots: tuple[str, ...]) -> None:
    at_ms, current = log.ready_ms or 0, None
    if log.is_whole:
        current = table.current(roots)
        last = pc.max(current["valid_from"].cast(pa.int64())).as_py()
        if last is not None and last >= at_ms:
            at_ms = last + 1
            with database.transaction():
                log.make_ready(at_ms)
    try:
        table.apply(TableStep(log, at_ms, roots, current))
    except FileChanged:  # the rows of the table are not those of the last step
        with database.transaction():
            log.begin_whole()
        raise
    with database.transaction():
        log.finish()


def _has(table: VerdictTable, log: ChangeLog, roots: tuple[str, ...], at_ms: int | None) -> bool:
    """Whether the last step of all stores in the table is this checkpoint's step of a time."""
    return at_ms is not None and {table.step_of(root) for root in roots} == {step_token(log.id, at_ms)}
