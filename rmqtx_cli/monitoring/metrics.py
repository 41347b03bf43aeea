"""The metrics of rmqtx: names, kinds, labels and meanings, declared once for textfiles, the exporter and dashboards.

Their text is that of Prometheus, as node_exporter's textfile collector takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.words.text import fully_escaped


class Kind(StrEnum):
    """What the value of a metric does: a gauge goes up and down, a counter only grows until the exporter restarts."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A name that ends in _seconds is in seconds, one in _total is a counter."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE

    @property
    def unit(self) -> str:
        """The unit as OpenMetrics has it: the end of the name; empty for a number of things."""
        return "seconds" if self.name.endswith("_seconds") else ""


#: Labels and value of each sample, by the name of the metric. A label whose value is empty is unknown, and left out.
Samples = dict[str, list[tuple[Mapping[str, str], float]]]

#: `cluster` and `node_id` (the broker's name) as in the metrics of RocketMQ itself, where they are known.
OF_STORE = ("store", "cluster", "node_id")
#: Topic and producer group as RocketMQ names these labels.
OF_GROUP = (*OF_STORE, "topic", "producer_group")
#: This number of pairs of topic and group have samples of their own; the rest has OTHER in both labels.
GROUPS_MAX = 50
OTHER = "__other__"


def _of_run(what: str) -> tuple[Metric, ...]:
    return (
        Metric(f"rmqtx_{what}_status", f"Outcome of the last {what}: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."),
        Metric(f"rmqtx_{what}_timestamp_seconds", f"When the last {what} ran."),
    )


#: Of a run of `rmqtx check`, and what it found compared with the run before.
OF_CHECK = (
    *_of_run("check"),
    Metric("rmqtx_newly_lost_transactions", "LOST since the last run of rmqtx check."),
    Metric("rmqtx_newly_discarded_transactions", "Discarded since the last run of rmqtx check."),
    Metric(
        "rmqtx_newly_vanished_transactions",
        "Pending at the last run of rmqtx check, and no longer in the commit log although the log begins before them.",
    ),
)
#: Of a run of `rmqtx probe`.
OF_PROBE = (
    *_of_run("probe"),
    Metric("rmqtx_probe_proved", "Whether every step was proved at this broker.", ("store",)),
    Metric("rmqtx_probe_step_seconds", "How long a step of the last probe took.", ("store", "scenario", "step")),
)
#: Of each store or broker, by `rmqtx check` and by the exporter. A number that missing evidence may hide is absent.
OF_STORES = (
    Metric("rmqtx_pending_transactions", "Transactions in the state PENDING.", OF_STORE),
    Metric(
        "rmqtx_oldest_pending_seconds", "Age of the oldest pending transaction; 0 if none is pending.", OF_STORE,
    ),
    Metric(
        "rmqtx_commit_without_op_transactions",
        "Committed transactions that no op message names and that the check will ask about again.", OF_STORE,
    ),
    Metric(
        "rmqtx_never_asked_transactions", "Pending transactions that the broker's check never reaches.", OF_STORE,
    ),
    Metric(
        "rmqtx_undecidable_transactions", "Transactions whose state missing or damaged evidence hides.", OF_STORE,
    ),
    Metric(
        "rmqtx_check_stopped",
        "1 if the broker's check is stopped at a message and never checks what follows, else 0.", OF_STORE,
    ),
    Metric("rmqtx_held", "1 if settings of a live broker are as rmqtx hold or drain sets them, else 0.", OF_STORE),
    Metric("rmqtx_half_queue_next_offset", "Queue offset of the half message that the check reads next.", OF_STORE),
    Metric("rmqtx_half_queue_max_offset", "Queue offset after the last half message.", OF_STORE),
    Metric("rmqtx_op_queue_next_offset", "Queue offset of the op message that the check reads next.", OF_STORE),
    Metric("rmqtx_op_queue_max_offset", "Queue offset after the last op message.", OF_STORE),
    Metric("rmqtx_discard_queue_max_offset", "Queue offset after the last copy in the discard topic.", OF_STORE),
    Metric(
        "rmqtx_seconds_until_first_discard",
        "Seconds until a running broker discards a pending transaction; absent if never, and while it is stopped.",
        OF_STORE,
    ),
    Metric(
        "rmqtx_seconds_from_start_to_first_discard",
        "Seconds from the start of a stopped broker until it discards a pending transaction; absent if never, and "
        "while it runs.", OF_STORE,
    ),
    Metric(
        "rmqtx_transactions_by_cause",
        "Transactions pending, committed without an op message, or newly lost or discarded, that a cause explains or "
        "could explain.",
        ("cause", "strength", "store"),
    ),
    Metric(
        "rmqtx_decisions_lost_transactions",
        "Pending or newly discarded transactions that their producer decided, by its message trace, and of whose "
        "decision the broker has no record; absent without message traces.", OF_STORE,
    ),
)
#: Of each store or broker, by the exporter only.
OF_EXPORTED_STORES = (
    Metric("rmqtx_group_pending_transactions", f"Pending transactions of the {GROUPS_MAX} pairs of topic and producer "
           "group that have most, and of all others together.", OF_GROUP),
    Metric("rmqtx_group_oldest_pending_seconds", "Age of the oldest pending transaction of the same pairs.", OF_GROUP),
    Metric("rmqtx_evidence_missing", "1 for each kind of missing or damaged evidence that the last reading met; "
           "counted transactions are then lower bounds.", ("code",)),
    Metric("rmqtx_store_shortened", "1 if log or half queue end before where they ended at an earlier reading, "
           "else 0.", OF_STORE),
    Metric("rmqtx_lost_transactions_total", "Transactions that were pending and became LOST.", OF_STORE,
           Kind.COUNTER),
    Metric("rmqtx_discarded_transactions_total", "Transactions that were pending and became DISCARDED.", OF_STORE,
           Kind.COUNTER),
    Metric("rmqtx_delivered_twice_transactions_total", "Transactions that were pending and then committed more than "
           "once.", OF_STORE, Kind.COUNTER),
    Metric("rmqtx_discarded_though_decided_transactions_total", "Transactions that were pending and then discarded "
           "although they were decided.", OF_STORE, Kind.COUNTER),
    Metric("rmqtx_vanished_transactions_total", "Transactions that were pending and that a commit log which begins "
           "before them does not contain.", (), Kind.COUNTER),
    Metric("rmqtx_unanswered_transactions_total", "Transactions that were pending and whose end could not be looked "
           "up; they are in no other counter.", (), Kind.COUNTER),
)
#: Of the exporter itself.
OF_EXPORTER = (
    Metric("rmqtx_build_info", "1; the release of rmqtx.", ("version",)),
    Metric("rmqtx_up", "1 if the last reading succeeded and the next one is not overdue, else 0."),
    Metric("rmqtx_readings_total", "Readings by result: ok, failed, timed_out.", ("result",), Kind.COUNTER),
    Metric("rmqtx_reading_duration_seconds", "How long the last finished reading took."),
    Metric("rmqtx_reading_timestamp_seconds", "When the last successful reading began."),
    Metric("rmqtx_reading_age_seconds", "Time since the last successful reading began."),
    Metric("rmqtx_reading_running_seconds", "For how long the present reading has run; 0 between two readings."),
)
#: Flags of transactions that were pending → the counter that they add to.
FLAG_COUNTERS = {
    "duplicate_commit": "rmqtx_delivered_twice_transactions_total",
    "discarded_though_decided": "rmqtx_discarded_though_decided_transactions_total",
}
#: States of transactions that were pending → the counter that they add to.
STATE_COUNTERS = {
    State.LOST: "rmqtx_lost_transactions_total",
    State.DISCARDED: "rmqtx_discarded_transactions_total",
}
METRICS = (*OF_CHECK, *OF_PROBE, *OF_STORES, *OF_EXPORTED_STORES, *OF_EXPORTER)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
#: What the exporter serves, in this order.
EXPORTED: Sequence[Metric] = (*OF_EXPORTER, *OF_STORES, *OF_EXPORTED_STORES)


def as_text(samples: Samples) -> str:
    """Return the whole file, with the metrics that are among the samples, also those without any sample."""
    return "".join(
        f"{line}\n" for metric in METRICS if metric.name in samples for line in _lines(metric, samples)
    )


def of_run(what: str, status: int, now_ms: int) -> Samples:
    """Return the samples of every run of a check or a probe, also of one that failed."""
    return {f"rmqtx_{what}_status": [({}, status)], f"rmqtx_{what}_timestamp_seconds": [({}, now_ms / 1000)]}


def _lines(metric: Metric, samples: Samples) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.meaning}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in samples[metric.name]:
        pairs = ",".join(_label(name, labels[name]) for name in metric.labels if labels.get(name))
        yield f"{metric.name}{f'{{{pairs}}}' if pairs else ''} {value!r}"


def _label(name: str, value: str) -> str:
    text = fully_escaped(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}="{text}"'
