"""An audit that follows growing stores: it keeps a table of verdicts current and returns new and changed verdicts.

After every step the table is equal to the result of `rmqtx.verdicts.audit.local_audit.audit` for the same stores at the
same moment. A step reads the new part of the logs (`log_follower.py`), judges the transactions that new records, a
cursor or the time can affect (`rejudging.py`), and compares with the verdicts before; all data is in one file
(`checkpoint_db.py`). Records that a broker deletes with an expired file are removed: a new audit would not find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.jobs.workers import Progress
from rmqtx.readers.log.commit_log import written_bytes
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import identities, identity_hashes
from rmqtx.readers.model.tables import FUTURE_COLUMNS, TRANSACTIONS
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.causes.judging import Judging
from rmqtx.verdicts.evidence.store_conclusion import Conclusion, conclude
from rmqtx.verdicts.evidence.store_facts import SettingsOf, StoreFacts, facts_of
from rmqtx.verdicts.follow.change_feed import ChangeFeed, require_no_feed
from rmqtx.verdicts.follow.change_log import ChangeLog, Changes, Verdict, forget_table, visible
from rmqtx.verdicts.follow.checkpoint_db import JOINED_WORDS, VERDICT_COLUMNS, FollowDatabase, signed
from rmqtx.verdicts.follow.log_follower import LogFollower
from rmqtx.verdicts.follow.rejudging import mark_unsettled, view_words
from rmqtx.verdicts.follow.split_reader import SplitReader, local_reader
from rmqtx.verdicts.model.verdict_words import EVIDENCE
from rmqtx.verdicts.model.witnesses import tied_groups

#: Transactions that are judged at once.
CHUNK_TRANSACTIONS = 20_000
#: Odd factors that distinguish the offsets of different lists in the digest.
_MIXERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
MakeReader = Callable[[int, Progress | None], SplitReader]
_KEY = tuple(VERDICT_COLUMNS.index(name) for name in ("hash", "transaction_id", "producer_group", "topic"))


@dataclass(slots=True)
class FollowStep:
    """One step: its rows, to be iterated once, and results that are complete after the last row.

    Shape: `batches` of TRANSACTIONS: the new and changed verdicts. If only the reason changed, because it contains a
           cursor, the verdict is updated and not returned, unless its state is UNDECIDABLE. A batch is stored in the
           checkpoint when the next one is requested, so after a kill it is returned again and never lost.
    """

    batches: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))
    findings: list[Finding] = field(default_factory=list)
    bytes_read: int = 0
    bytes_forgotten: int = 0
    has_grown: bool = False
    judged_count: int = 0
    new_count: int = 0
    changed_count: int = 0
    gone_count: int = 0


@dataclass(slots=True)
class _Compared:
    """The verdicts on some transactions before (with their row numbers) and now, and those to report."""

    before: dict[Verdict, int]
    verdicts: pa.Table | None = None
    now: list[Verdict] = field(default_factory=list)
    reported: pa.Table | None = None


class Follower:
    """Follows some stores with an open checkpoint.

    `changes`: where all changes are recorded, for a table or a stream. A table that misses some is out of date.
    `make_reader`: returns what reads a number of new bytes; None: processes of this machine.
    """

    def __init__(
        self, database: FollowDatabase, *, processes: int | None = None, chunk_transactions: int = CHUNK_TRANSACTIONS,
        changes: Changes | None = None, make_reader: MakeReader | None = None,
    ) -> None:
        self._database = database
        self._make_reader = make_reader or partial(local_reader, processes)
        self._chunk_transactions = chunk_transactions
        self._changes = changes

    def step(self, stores: list[Store], settings_of: SettingsOf, progress: Progress | None = None) -> FollowStep:
        """Follow the stores, opened again, to their present state.

        Order:  of the identities; copies in log order, as in an audit.
        Damage: findings of the step; transactions that damage makes unknowable are UNDECIDABLE.
        Raises: while the rows are iterated: FileChanged if a log is another one than before; SourceError if a file
                cannot be read; UnwritableFile if the checkpoint cannot be written.
        """
        step = FollowStep()
        step.batches = self._step(step, stores, settings_of, progress)
        return step

    def _step(
        self, step: FollowStep, stores: list[Store], settings_of: SettingsOf, progress: Progress | None
    ) -> Iterator[pa.RecordBatch]:
        with self._database.naming_the_file():
            if not isinstance(self._changes, ChangeFeed):
                require_no_feed(self._database)
            if not isinstance(self._changes, ChangeLog):
                forget_table(self._database)
            facts = facts_of(stores, settings_of)  # cursors before records
            logs = [LogFollower(self._database, store) for store in stores]
            for log in logs:
                log.begin()
            self._read_on(logs, progress)
            judging = self._conclude(step, logs, facts)
            for log in logs:
                step.bytes_read += log.bytes_read
                step.bytes_forgotten += log.bytes_forgotten
                step.has_grown |= log.has_grown
            yield from self._judge(step, judging, {log.store.root: log for log in logs})
            if step.bytes_forgotten:
                self._database.shrink()

    def _read_on(self, logs: list[LogFollower], progress: Progress | None) -> None:
        total = sum(
            written_bytes(segment) - max(0, min(log.offset - segment.base_offset, segment.size_bytes))
            for log in logs
            for segment in log.store.commit_log
            if segment.end_offset > log.offset
        )
        reader = self._make_reader(total, progress)
        with reader.workers:
            for log in logs:
                # While a broker runs, it is about to write after the last record.
                log.read_on(not log.store.in_use, reader)

    # -- facts of the stores ------------------------------------------------------------------------------------------

    def _conclude(self, step: FollowStep, logs: list[LogFollower], facts: dict[str, StoreFacts]) -> Judging:
        database = self._database
        conclusions: list[tuple[LogFollower, Conclusion]] = []
        for log in logs:
            conclusion = conclude(facts[log.store.root], log.split_facts(), log.unmatched())
            conclusions.append((log, conclusion))
            step.findings.extend(conclusion.facts.findings)
        facts = {conclusion.facts.store.root: conclusion.facts for _, conclusion in conclusions}
        judging = Judging.of(facts, TRANSACTIONS.names)
        with database.transaction():
            self._keep_ties([tie for _, conclusion in conclusions for tie in conclusion.ties])
            for log, conclusion in conclusions:
                self._keep_damaged(log, conclusion)
                root = log.store.root
                words = view_words(judging.views[root], judging.evidence[root], conclusion.facts.seen_copies or ())
                if database.meta("judges_all") is None:
                    mark_unsettled(database, log.number, database.of_store(log.number, "view"), words)
                database.set_of_store(log.number, "view", words)
            if database.meta("judges_all") is not None:
                database.index_witnesses()
                database.mark_all_unjudged()
                database.set_meta("judges_all", None)
        return judging

    def _keep_ties(self, ties: list[tuple[str, str]]) -> None:
        """Store the pairs of identities that must be judged together; new and removed pairs are judged again."""
        run = self._database.connection.execute
        before = set(run("SELECT one, other FROM ties").fetchall())
        now = {(one, other) for one, other in (sorted(signed(identity_hashes(pa.array(tie)))) for tie in ties)}
        changed = before ^ now
        if changed:
            self._database.mark_unjudged({value for pair in changed for value in pair})
            run("DELETE FROM ties")
            self._database.connection.executemany("INSERT INTO ties VALUES (?, ?)", now)

    def _keep_damaged(self, log: LogFollower, conclusion: Conclusion) -> None:
        """Store the damaged half copies, which belong to no split; they are replaced in each step."""
        database = self._database
        before = database.connection.execute(
            "SELECT * FROM damaged_halves WHERE store = ? ORDER BY commit_log_offset", (log.number,)
        ).fetchall()
        if not before and not conclusion.damaged_halves:
            return
        hashes = [identity_hashes(identities(rows)) for rows in conclusion.damaged_halves]
        database.connection.execute("DELETE FROM damaged_halves WHERE store = ?", (log.number,))
        for rows, some in zip(conclusion.damaged_halves, hashes, strict=True):
            database.add("damaged_halves", log.number, [rows], some)
        now = database.connection.execute(
            "SELECT * FROM damaged_halves WHERE store = ? ORDER BY commit_log_offset", (log.number,)
        ).fetchall()
        if now != before:
            database.mark_unjudged({row[0] for row in [*before, *now]})

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def _judge(
        self, step: FollowStep, judging: Judging, logs: Mapping[str, LogFollower]
    ) -> Iterator[pa.RecordBatch]:
        groups = self._groups()
        while chosen := self._chunk(groups):
            self._database.choose(chosen)
            compared = self._compare(step, judging)
            if compared.reported is not None and compared.reported.num_rows:
                yield from compared.reported.combine_chunks().to_batches()
            before, now = compared.before, compared.now
            same = before.keys() & set(now)
            with self._database.transaction():
                self._database.replace_verdicts(
                    [number for row, number in before.items() if row not in same],
                    [row for row in now if row not in same],
                )
                if self._changes is not None:
                    self._changes.add(compared.verdicts, now, before)
                for finding in judging.unread_traces:
                    if finding not in step.findings:
                        step.findings.append(finding)
                        logs[finding.store].keep(finding)

    def _groups(self) -> dict[int, frozenset[int]]:
        """Return for each identity the group that is judged together."""
        return tied_groups(self._database.connection.execute("SELECT one, other FROM ties").fetchall())

    def _chunk(self, groups: Mapping[int, frozenset[int]]) -> set[int]:
        rows = self._database.connection.execute(
            "SELECT hash FROM unjudged ORDER BY hash LIMIT ?", (self._chunk_transactions,)
        ).fetchall()
        chosen = {row[0] for row in rows}
        return chosen.union(*(groups[value] for value in chosen & groups.keys()))

    def _compare(self, step: FollowStep, judging: Judging) -> _Compared:
        """Judge the chosen and compare with the verdicts before."""
        witnesses, lone = self._database.witnesses()
        compared = _Compared(self._database.verdicts())
        before = compared.before
        if any(
            rows.num_rows
            for rows in (witnesses.halves, witnesses.finals, witnesses.discards, witnesses.offset_marks)
        ):
            verdicts = compared.verdicts = _without_times(judging.with_causes(judging.judged(witnesses)))
            now = compared.now = self._kept(verdicts, lone)
            shown = {visible(row) for row in before}
            rows = [number for number, row in enumerate(now) if visible(row) not in shown]
            compared.reported = verdicts.take(pa.array(rows, pa.int64()))
            keys = {tuple(row[place] for place in _KEY) for row in before}
            new = sum(tuple(now[number][place] for place in _KEY) not in keys for number in rows)
            step.new_count += new
            step.changed_count += len(rows) - new
            step.judged_count += len(now)
        step.gone_count += len(
            {tuple(row[place] for place in _KEY) for row in before}
            - {tuple(row[place] for place in _KEY) for row in compared.now}
        )
        return compared

    def _kept(self, verdicts: pa.Table, lone: Mapping[str, int]) -> list[Verdict]:
        """Return verdicts in the form of the table."""
        ids = verdicts["transaction_id"].combine_chunks()
        own = signed(identity_hashes(ids))
        hashes = [lone.get(name, value) for name, value in zip(ids.to_pylist(), own, strict=True)] if lone else own
        values: dict[str, list[Any]] = {"hash": hashes}
        for name in VERDICT_COLUMNS:
            if name in JOINED_WORDS:
                values[name] = pc.binary_join(verdicts[name], ",").to_pylist()
            elif name == "store":
                values[name] = [self._database.numbers[root] for root in verdicts[name].to_pylist()]
            elif name in verdicts.schema.names:
                values[name] = verdicts[name].to_pylist()
        for name in EVIDENCE:
            values[f"{name}_count"] = pc.fill_null(pc.list_value_length(verdicts[name]), 0).to_pylist()
        values["evidence_digest"] = evidence_digests(verdicts).tolist()
        return list(zip(*(values[name] for name in VERDICT_COLUMNS), strict=True))


def _without_times(verdicts: pa.Table) -> pa.Table:
    """Return verdicts without what would change at every step: when things happen next."""
    for name in FUTURE_COLUMNS:
        place = verdicts.schema.get_field_index(name)
        field = verdicts.schema.field(place)
        verdicts = verdicts.set_column(place, field, pa.nulls(verdicts.num_rows, field.type))
    return verdicts


def evidence_digests(verdicts: pa.Table) -> Int64s:
    """Return a digest of the evidence of each verdict; it changes if a witness is added or removed.

    And if the number of checks of a copy changes: its properties may have been read before they were written; and if
    the copy that a COMMIT record names becomes known, or doubtful.
    """
    result = np.zeros(verdicts.num_rows, np.uint64)
    for name, mixer in zip(EVIDENCE, _MIXERS, strict=True):
        lists = verdicts[name].combine_chunks()
        elements = lists.flatten()
        offsets = np.asarray(elements.field("commit_log_offset")).astype(np.uint64)
        names = [field.name for field in elements.type]
        if "checks_count" in names:
            checks = np.asarray(pc.fill_null(elements.field("checks_count"), 0)).astype(np.uint64)
            offsets = offsets ^ (checks << np.uint64(48))
        elif "prepared_transaction_offset" in names:
            named = np.asarray(pc.fill_null(elements.field("prepared_transaction_offset"), -1)).astype(np.uint64)
            offsets = offsets ^ ((named + np.uint64(1)) << np.uint64(20))
        mixed = (offsets + np.uint64(1)) * np.uint64(mixer)
        mixed ^= mixed >> np.uint64(31)
        np.add.at(result, np.asarray(pc.list_parent_indices(lists)).astype(np.int64), mixed)
    return result.view(np.int64)
