"""Sentences about a stopped check: where, since when, why, how many transactions it never reaches, what to type."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqtx_cli.words.text import escaped
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from verdicts.model.check_stop import CheckStop


def check_sentence(stop: CheckStop, counts: tuple[int, int] | None = None) -> str:
    """Where a check is stopped, since when and why.

    `counts`: the pending transactions that it never reaches, and all pending transactions of the store.
    """
    since = "" if stop.since_ms is None else f" since {time_text(stop.since_ms)}"
    whose = "" if stop.transaction_id is None else f", transaction {stop.transaction_id}"
    what = "no half message from there on is checked"
    if counts is not None:
        never, pending = counts
        what = f"{never} of {pending} pending transactions are never checked"
    return f"the check is stopped at {stop.place}{since} ({stop.why}{whose}): {what}"


def check_lines(
    stops: Sequence[CheckStop], counts_of: Callable[[str], tuple[int, int]] | None, live: str | None = None
) -> Iterator[str]:
    """A sentence about each stopped check, and the command to type next; nothing if no check is stopped.

    `counts_of`: see `never_asked_counts`; None where the counts are unknown.
    `live`: the options that connect to the same brokers, None for files.
    """
    for stop in stops:
        yield f"{stop.store}: {check_sentence(stop, None if counts_of is None else counts_of(stop.store))}"
        yield f"next: {next_command(stop, live)}"


def next_command(stop: CheckStop, live: str | None = None) -> str:
    """The command to type for a stopped check. `live`: options that connect to the same brokers, None for files."""
    from verdicts.check.check_stops import remedy

    if live is not None:
        return remedy(stop, live, None)
    place = f"--store {shlex.quote(escaped(stop.store))}"
    return remedy(stop, place, f" {place} --to DIR")


def never_asked_counts(rows: pa.Table | pa.RecordBatch, store: str) -> tuple[int, int]:
    """The pending transactions of a store that the check never reaches, and all its pending transactions."""
    import pyarrow.compute as pc

    pending = rows.filter(pc.and_(pc.equal(rows["store"], store), pc.equal(rows["state"], "PENDING")))
    never = sum("never_asked" in flags for flags in pending["flags"].to_pylist())
    return never, pending.num_rows
