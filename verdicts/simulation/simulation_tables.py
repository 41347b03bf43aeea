"""The tables of a simulated check of any design: each half in each round, each round, the outcome of each open half."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from rmqtx.readers.model.tables import column
from rmqtx.verdicts.check.check_rules import Action
from rmqtx.verdicts.check.timers_without_copies import Asking
from rmqtx.verdicts.model.predicted import ROUNDS_MAX

_STORE = column("store", pa.string(), "root directory of the store that the check was simulated on")
_CONFIGURATION = column("configuration", pa.string(), "as is, or the settings that --with changed")
_DESIGN = column("design", pa.string(), "half_topic, state_table or rocksdb: where open transactions are stored")
_TABLE_FILE = column(
    "table_file", pa.string(), "file of the state table (3.0, 3.1), each with its own timer; null for other designs"
)
_QUEUE_ID = column("queue_id", pa.int32(), "number of the half queue; null for a state table")
_WRITTEN = column(
    "written_bytes", pa.int64(), "bytes of the records that the action, or the round, appends to the commit log"
)
_LATER = column(
    "may_be_a_round_later", pa.bool_(),
    "true if the round reaches a copy that it put back itself; if the queue lags behind the log, only the next does",
)
_WORDS = [
    column("transaction_id", pa.string(), "property UNIQ_KEY, else the offset message id of the stored copy"),
    column("producer_group", pa.string(), "property PGROUP, the producer group that is checked"),
    column("topic", pa.string(), "property REAL_TOPIC, the topic that a commit delivers to"),
]

#: One half copy in one round of a simulated check.
SIMULATED_CHECKS = pa.schema(
    [
        _STORE,
        _CONFIGURATION,
        _DESIGN,
        _TABLE_FILE,
        column("round", pa.int32(), "number of the round, from 1"),
        column("round_time_ms", pa.int64(), "when the broker reaches this half"),
        _QUEUE_ID,
        *_WORDS,
        column(
            "action", pa.string(),
            "checked, put back unasked, put back immune, discarded, expired, ended, unreadable or skipped; in designs "
            "that put no copies back: asked, unanswerable, dropped or unreadable",
            values=dict.fromkeys((*Action, *Asking)),
        ),
        column("checks_count", pa.int32(), "number of checks of the transaction at that time"),
        column("half_queue_offset", pa.int64(), "queue offset, or slot number, of the half that the round reaches"),
        column("commit_log_offset", pa.int64(), "global byte position in the commit log of the stored copy"),
        column("new_half_queue_offset", pa.int64(), "queue offset of the copy that is put back; null if none"),
        _WRITTEN,
        _LATER,
    ]
)

#: One round of a simulated check.
SIMULATED_ROUNDS = pa.schema(
    [
        _STORE,
        _CONFIGURATION,
        _DESIGN,
        _TABLE_FILE,
        column("round", pa.int32(), "number of the round, from 1"),
        _QUEUE_ID,
        column("begin_time_ms", pa.int64(), "when the round begins"),
        column("end_time_ms", pa.int64(), "when it ends, counting only the waiting time"),
        column("checked_count", pa.int64(), "halves that are checked; in half topics they are put back for this"),
        column("unasked_count", pa.int64(), "halves that are put back without asking: they name no producer to ask"),
        column("immune_count", pa.int64(), "halves that are immune and not checked; in half topics they are put back"),
        column("discarded_count", pa.int64(), "halves that are discarded, or dropped: their checks are used up"),
        column("expired_count", pa.int64(), "halves that are discarded: older than fileReservedTime"),
        column("ended_count", pa.int64(), "halves that an op has ended"),
        column("unreadable_count", pa.int64(), "slots of the half queue, or of a table, that the broker cannot read"),
        column("half_cursor", pa.int64(), "half cursor after the round"),
        column("half_cursor_before", pa.int64(), "half cursor before it"),
        column("op_cursor", pa.int64(), "op cursor after the round"),
        column("op_cursor_before", pa.int64(), "op cursor before it"),
        column("half_end", pa.int64(), "queue offset after the last half copy at that time"),
        _WRITTEN,
        column("stop", pa.string(), "where the round stops"),
        column(
            "skipped_count", pa.int64(),
            "halves that the read of the store skips behind a slot without a record: no round reads them",
        ),
    ]
)

#: The outcome of an open half copy.
SIMULATED_TRANSACTIONS = pa.schema(
    [
        _STORE,
        _CONFIGURATION,
        _DESIGN,
        _TABLE_FILE,
        _QUEUE_ID,
        *_WORDS,
        column("half_queue_offset", pa.int64(), "queue offset of the stored half copy, or number of its slot"),
        column("commit_log_offset", pa.int64(), "global byte position of that copy in the commit log"),
        column("checks_count", pa.int32(), "number of checks so far"),
        column("next_check_time_ms", pa.int64(), "time of its next check; null if never"),
        column("checks_to_come_count", pa.int32(), "number of checks to come; null without a limit"),
        column("is_answerable", pa.bool_(), "no if slot and record have different numbers: answers are refused (3.1)"),
        column(
            "end", pa.string(), "discarded, expired, dropped, unreadable, skipped; null if no simulated round ends it",
            values=(Action.DISCARDED, Action.EXPIRED, Asking.DROPPED, Action.UNREADABLE, Action.SKIPPED),
        ),
        column("end_round", pa.int32(), "the round that ends it"),
        column("end_time_ms", pa.int64(), "time of that round"),
        column("written_bytes", pa.int64(), "bytes that its copies take in the commit log until the end"),
        _LATER,
    ]
)
_BATCH_ROWS = 65_536
Row = dict[str, object]


class WithRows(Protocol):
    """One check under one configuration, ready to be played, and its values in the rows."""

    @property
    def store(self) -> str:
        """The root of its store."""

    @property
    def configuration(self) -> str:
        """The name of its configuration."""

    @property
    def design(self) -> str:
        """Where its open transactions are stored."""

    @property
    def file(self) -> str | None:
        """Its file of the state table; None in other designs."""

    @property
    def queue_id(self) -> int | None:
        """The number of its half queue; None for a state table."""

    def check_row(self, step: Any) -> Row | None:
        """Return one action of a round as values of SIMULATED_CHECKS; None if an op has ended the half."""

    def round_row(self, played: Any) -> Row:
        """Return what a round did, as values of SIMULATED_ROUNDS."""

    def transaction_rows(self, rounds_max: int) -> list[Row]:
        """Return the outcome of each half that is open, as values of SIMULATED_TRANSACTIONS."""


def names(transaction_id: str | None, words: Mapping[str, Any]) -> Row:
    """Return the names of a transaction. `words`: values of a half."""
    return {"transaction_id": transaction_id, "producer_group": words["producer_group"], "topic": words["real_topic"]}


def _identity(simulated: WithRows) -> Row:
    return {
        "store": simulated.store, "configuration": simulated.configuration, "design": simulated.design,
        "table_file": simulated.file, "queue_id": simulated.queue_id,
    }


def check_rows(simulated: WithRows, rounds: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Yield rows of SIMULATED_CHECKS: the actions of the rounds on halves that no op has ended."""
    rows: list[Row] = []
    for number, played in enumerate(rounds, 1):
        for step in played.steps:
            row = simulated.check_row(step)
            if row is None:
                continue
            rows.append(
                _identity(simulated)
                | {"round": number, "round_time_ms": step.time_ms, "action": str(step.action)} | row
            )
            if len(rows) == _BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(rows, schema=SIMULATED_CHECKS)
                rows = []
    yield pa.RecordBatch.from_pylist(rows, schema=SIMULATED_CHECKS)


def round_rows(simulated: WithRows, rounds: Iterable[Any]) -> pa.RecordBatch:
    """Return rows of SIMULATED_ROUNDS."""
    rows = [
        _identity(simulated)
        | {"round": number, "begin_time_ms": played.begin_ms, "stop": str(played.stop)} | simulated.round_row(played)
        for number, played in enumerate(rounds, 1)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SIMULATED_ROUNDS)


def transaction_rows(simulated: WithRows, rounds_max: int = ROUNDS_MAX) -> pa.RecordBatch:
    """Return rows of SIMULATED_TRANSACTIONS: every half that the check has not reached yet and that no op ends.

    Order: that of the queue or the table.
    """
    rows = [_identity(simulated) | row for row in simulated.transaction_rows(rounds_max)]
    return pa.RecordBatch.from_pylist(rows, schema=SIMULATED_TRANSACTIONS)
