"""Whether the broker's check is alive, in a sentence: where it is stopped, since when, what it never asks for."""

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
    """Where a check is stopped, since when and why. `counts`: of how many pending ones how many it never comes to."""
    since = "" if stop.since_ms is None else f" since {time_text(stop.since_ms)}"
    whose = "" if stop.transaction_id is None else f", transaction {stop.transaction_id}"
    what = "halves from there on will never be asked for"
    if counts is not None:
        never, pending = counts
        what = f"{never} of {pending} pending will never be asked for"
    return f"the check is stopped at {stop.place}{since} ({stop.why}{whose}): {what}"


def check_lines(
    stops: Sequence[CheckStop], counts_of: Callable[[str], tuple[int, int]] | None, live: str | None = None
) -> Iterator[str]:
    """What to say about stopped checks, and what to type next; nothing where all go on.

    `counts_of`: of how many pending ones of a store how many the check never comes to; None where that is not known.
    `live`: the options that lead to the brokers again, None for files.
    """
    for stop in stops:
        yield f"{stop.store}: {check_sentence(stop, None if counts_of is None else counts_of(stop.store))}"
        yield f"next: {next_command(stop, live)}"


def next_command(stop: CheckStop, live: str | None = None) -> str:
    """What to type where a check is stopped. `live`: the options that lead to the broker again, None for files."""
    from verdicts.check.check_stops import remedy

    if live is not None:
        return remedy(stop, live, None)
    place = f"--store {shlex.quote(escaped(stop.store))}"
    return remedy(stop, place, f" {place} --to DIR")


def never_asked_counts(rows: pa.Table | pa.RecordBatch, store: str) -> tuple[int, int]:
    """Of a store's pending ones: how many the check never comes to, and how many there are."""
    import pyarrow.compute as pc

    pending = rows.filter(pc.and_(pc.equal(rows["store"], store), pc.equal(rows["state"], "PENDING")))
    never = sum("never_asked" in flags for flags in pending["flags"].to_pylist())
    return never, pending.num_rows
