"""Tables of a simulated check, and the lines about its rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqtx.verdicts.check.check_rules import Action, Round, Stop
from rmqtx_cli.output.views import ALWAYS, Column, View, plain
from rmqtx_cli.words.text import count, size
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.model.findings import Finding
    from rmqtx.verdicts.check.timers_without_copies import AskingRound
    from rmqtx.verdicts.simulation.beside_simulated import BesideSimulated


def _which(*, with_store: bool, with_configuration: bool) -> list[Column]:
    return [
        *([plain("store", 4, may_be_cut=True)] if with_store else []),
        *([plain("configuration", ALWAYS)] if with_configuration else []),
    ]


def checks_view(*, with_store: bool, with_configuration: bool) -> View:
    """The view of SIMULATED_CHECKS: each half message in each round."""
    return View(
        (
            *_which(with_store=with_store, with_configuration=with_configuration),
            plain("round", ALWAYS), plain("round_time_ms", 8), plain("transaction_id", ALWAYS),
            plain("action", ALWAYS), plain("checks_count", 1, "checks"), plain("half_queue_offset", 5, "half"),
            plain("new_half_queue_offset", 5, "new_half"), plain("written_bytes", 7, "bytes"),
            plain("topic", 2, may_be_cut=True), plain("producer_group", 3, "group", may_be_cut=True),
            plain("may_be_a_round_later", 4, "or_later"),
        ),
        "",
    )


def rounds_view(*, with_store: bool, with_configuration: bool) -> View:
    """The view of SIMULATED_ROUNDS: each round."""
    return View(
        (
            *_which(with_store=with_store, with_configuration=with_configuration),
            plain("round", ALWAYS), plain("begin_time_ms", 5), plain("checked_count", ALWAYS, "checked"),
            plain("unasked_count", 2, "unasked"), plain("immune_count", 1, "immune"),
            plain("discarded_count", ALWAYS, "discarded"), plain("expired_count", 4, "expired"),
            plain("ended_count", 3, "ended"),
            plain("half_cursor", ALWAYS), plain("op_cursor", ALWAYS), plain("half_end", 6),
            plain("written_bytes", 2, "bytes"), plain("stop", 7, may_be_cut=True),
        ),
        "",
    )


def fates_view(*, with_store: bool, with_configuration: bool) -> View:
    """The view of SIMULATED_TRANSACTIONS: the end of each open half message."""
    return View(
        (
            *_which(with_store=with_store, with_configuration=with_configuration),
            plain("transaction_id", ALWAYS), plain("checks_count", 4, "checks"),
            plain("next_check_time_ms", 6, "next_check"), plain("checks_to_come_count", 5, "to_come"),
            plain("end", ALWAYS), plain("end_time_ms", ALWAYS, "end_time"), plain("end_round", 7, "round"),
            plain("half_queue_offset", 8, "half"), plain("topic", 2, may_be_cut=True),
            plain("producer_group", 3, "group", may_be_cut=True), plain("written_bytes", 9, "bytes"),
            plain("may_be_a_round_later", 10, "or_later"),
        ),
        "",
    )


#: Words for the counts of a round.
_ROUND_COUNTS = {
    "checked_count": "checked", "unasked_count": "put back unasked", "immune_count": "immune",
    "discarded_count": "discarded", "expired_count": "expired", "unreadable_count": "unreadable",
}


class SimulationCounts:
    """Counts of the rows of a simulation as they pass, by configuration; of SIMULATED_TRANSACTIONS only whether it has
    rows.

    `findings`: those of the simulation, which are complete when all rows have passed. `has_half_queues`: whether the
    check of one of the stores reads half messages.
    """

    def __init__(self, findings: Sequence[Finding], *, has_half_queues: bool = True) -> None:
        self._findings = findings
        reached = "the check reaches no open half message"
        self._nothing = reached if has_half_queues else "no open transaction is checked"
        self._counts: dict[str, Counter[str]] = {}
        self._rounds = 0
        self._has_rows = False

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        for batch in batches:
            self._has_rows |= batch.num_rows > 0
            for row in batch.to_pylist() if "round" in batch.schema.names else ():
                counts = self._counts.setdefault(row["configuration"], Counter())
                if "action" in row:
                    counts[row["action"]] += 1
                else:
                    counts.update({word: row[name] or 0 for name, word in _ROUND_COUNTS.items()})
            yield batch

    def add_rounds(self, count: int) -> None:
        """Count the rounds that were played for a store; several stores have the same number, or end earlier."""
        self._rounds = max(self._rounds, count)

    def lines(self) -> Iterator[str]:
        """Counts over all rounds, one line for each configuration."""
        rounds = f"{count(self._rounds, 'round')}: " if self._rounds else ""
        if not self._has_rows:
            is_unknown = any(finding.code == "undecidable" for finding in self._findings)
            yield "what the check does is unknown" if is_unknown else self._nothing
        for name, counts in self._counts.items():
            prefix = f"{name}: " if len(self._counts) > 1 else ""
            done = ", ".join(f"{number} {word}" for word, number in counts.items() if number) or "nothing done"
            yield f"{prefix}{rounds}{done}"


def round_line(number: int, played: Round) -> str:
    """One round in one line."""
    counts = {action: sum(step.action is action for step in played.steps) for action in Action}
    done = ", ".join(f"{number} {action}" for action, number in counts.items() if number) or "nothing done"
    written = size(sum(step.written_bytes for step in played.steps))
    before, after = played.before, played.state
    stop = "the copies that it has put back" if played.stop is Stop.OWN_COPY else played.stop
    return (
        f"round {number} at {time_text(played.begin_ms)}: {done}; half cursor {before.half_cursor} to"
        f" {after.half_cursor}, op cursor {before.op_cursor} to {after.op_cursor}; writes {written}; stops at"
        f" {stop}"
    )


def stuck_line(played: Round) -> str | None:
    """The reason why the check does not advance, if every round ends in an exception; else None."""
    if played.stop is not Stop.ABORTED:
        return None
    where = [step.queue_offset for step in played.steps if step.action is Action.UNREADABLE]
    what = f"half queue offset {where[-1]}" if where else "an op message"
    return (
        f"every round ends in an exception at {what}, which the broker cannot read: no cursor moves, and each round"
        " writes the same copies again"
    )


def ends_line(ends: list[str | None], last_ms: int | None, written_bytes: int) -> str:
    """The number of open half messages, of those that the check ends, and the time of the last end, in one line."""
    if not ends:
        return "the check reaches no open half message"
    ended = sum(end is not None for end in ends)
    parts = [f"{count(len(ends), 'open half message')}: {ended} ended by the check"]
    parts += [f"the last at {time_text(last_ms)}"] if last_ms is not None else []
    parts += [f"{len(ends) - ended} still open after these rounds"] if ended < len(ends) else []
    return ", ".join([*parts, f"{size(written_bytes)} written until then"])


# --- designs whose check puts nothing back ---------------------------------------------------------------------------


def table_name(simulated: BesideSimulated) -> str:
    """The name of a check that puts nothing back: its design, and the file of the table."""
    if simulated.file is None:
        return "RocksDB"
    return f"state table {simulated.file.rsplit('/', 1)[-1]}"


def asking_line(number: int, played: AskingRound) -> str:
    """One run of a check that puts nothing back, in one line."""
    counts = Counter(str(step.action) for step in played.steps)
    parts = [f"{number} {action}" for action, number in counts.items()]
    parts += [f"{played.immune_count} still immune"] if played.immune_count else []
    parts += [f"{played.young_count} too young"] if played.young_count else []
    done = ", ".join(parts) or "nothing done"
    return f"round {number} at {time_text(played.begin_ms)}: {done}; stops at {played.stop}"


def endless_line(rows: pa.RecordBatch) -> str:
    """The number of open slots in a file of the state table, and how the broker checks them, in one line."""
    if not rows.num_rows:
        return "no open slot"
    asked = sum(time is not None for time in rows["next_check_time_ms"].to_pylist())
    refused = rows.num_rows - sum(rows["is_answerable"].to_pylist())
    parts = [f"{count(rows.num_rows, 'open slot')}: {asked} checked once in each run, without a limit"]
    parts += [f"every answer about {refused} of them is refused"] if refused else []
    return "; ".join(parts)
