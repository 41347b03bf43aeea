"""The steps of a canary's transactions, the times that they may take, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from rmqtx.readers.model.tables import TRANSACTIONS, column
from rmqtx.readers.store.broker_settings import BrokerSettings

SCENARIOS: dict[str, str] = {
    "commit": "committed at once",
    "rollback": "rolled back at once",
    "check": "undecided until the broker checks it, then committed",
}
STEPS: dict[str, str] = {
    "store": "the half is stored and can be read",
    "ask": "the broker checks the transaction",
    "decide": "the broker accepts the decision",
    "deliver": "exactly one COMMIT record can be read where consumers find it",
    "mark": "the op message is written, so that the broker does not check it again",
    "end": "at the end there is still exactly one COMMIT record, or none after a rollback",
}

#: One step of one of a canary's transactions.
PROBE_STEPS = pa.schema(
    [
        TRANSACTIONS.field("store"),
        column(
            "scenario", pa.string(), f"{', '.join(SCENARIOS)}: the course of the transaction", values=SCENARIOS
        ),
        column("step", pa.string(), f"one of {', '.join(STEPS)}", values=STEPS),
        column("is_proved", pa.bool_(), "whether it was seen to happen"),
        column("duration_ms", pa.int64(), "how long it took, from the end of the previous step"),
        column("allowed_ms", pa.int64(), "how long the broker's settings allow it to take"),
        TRANSACTIONS.field("transaction_id"),
        column("proof", pa.string(), "the evidence, or what is missing"),
        column("begun_time_ms", pa.int64(), "when it began"),
    ]
)


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One step; see PROBE_STEPS."""

    store: str
    scenario: str
    step: str
    is_proved: bool
    duration_ms: int
    allowed_ms: int
    transaction_id: str
    proof: str
    begun_time_ms: int

    @property
    def late_ms(self) -> int:
        """How much longer it took than the broker's settings allow."""
        return max(0, self.duration_ms - self.allowed_ms)


@dataclass(slots=True)
class ProbeRun:
    """The run of one canary at one broker.

    Shape: `left_open`: transactions that it could not decide; `swept`: transactions of earlier canaries that it rolled
           back.
    """

    store: str
    steps: list[ProbeStep] = field(default_factory=list)
    left_open: list[str] = field(default_factory=list)
    swept: list[str] = field(default_factory=list)
    failure: str | None = None
    is_interrupted: bool = False

    @property
    def is_proved(self) -> bool:
        """Whether every step was seen to happen, and nothing is left behind."""
        return self.failure is None and not self.left_open and all(step.is_proved for step in self.steps)


def steps_table(runs: Sequence[ProbeRun]) -> pa.Table:
    """The steps of some probe runs. Shape: PROBE_STEPS."""
    rows = [{name: getattr(step, name) for name in PROBE_STEPS.names} for run in runs for step in run.steps]
    return pa.Table.from_pylist(rows, schema=PROBE_STEPS)


def allowed_times_ms(settings: BrokerSettings) -> dict[str, int]:
    """How long a broker's settings allow the steps that wait for the broker to take. Units: milliseconds.

    The check reaches a half in the first round after transactionTimeOut; ops are written after
    transactionOpBatchInterval (5.1.0 and later). At the end a copy may have to be closed, whose op takes as long again,
    and then the check must pass it: other halves before it delay the check for their transactionTimeOut.
    """
    batch = settings.transaction_op_batch_interval_ms
    ask = settings.transaction_time_out_ms + settings.transaction_check_interval_ms
    return {"ask": ask, "mark": batch, "end": 2 * batch + ask}
