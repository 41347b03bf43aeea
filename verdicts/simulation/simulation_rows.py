"""The rows of a simulated check, of any design: by half, by round, and the outcome of each open half."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa

from rmqtx.verdicts.model.predicted import ROUNDS_MAX
from rmqtx.verdicts.simulation.simulation_tables import SIMULATED_CHECKS, SIMULATED_ROUNDS, SIMULATED_TRANSACTIONS

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
    }  # fmt: skip


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
