"""Sentences about a stopped check: where, since when, why, how many transactions it never reaches, what to type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from rmqtx.readers.model.shell_words import quoted
from rmqtx.verdicts.check.check_stops import remedies
from rmqtx.verdicts.model.state import State
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.verdicts.model.check_stop import CheckStop


def check_sentence(stop: CheckStop, counts: tuple[int, int] | None = None) -> str:
    """Where a check is stopped, since when and why.

    `counts`: the pending transactions that it never reaches, and all pending transactions of the store.
    """
    whose = "" if stop.transaction_id is None else f"transaction {stop.transaction_id}: "
    return stopped_sentence(stop, counts, f" ({whose}{stop.why})")


def stopped_sentence(stop: CheckStop, counts: tuple[int, int] | None, why: str = "") -> str:
    """Where a check is stopped and since when. `counts`: as in `check_sentence`."""
    since = "" if stop.since_ms is None else f" since {time_text(stop.since_ms)}"
    what = "no half message from there on is checked"
    if counts is not None:
        never, pending = counts
        what = f"{never} of {pending} pending transactions are never checked"
    return f"the check is stopped at {stop.place}{since}{why}: {what}"


def check_lines(
    stops: Sequence[CheckStop], counts_of: Callable[[str], tuple[int, int]] | None, live: str | None = None,
    shown: Collection[str] = (), at_ms: int | None = None,
) -> Iterator[str]:
    """A sentence about each stopped check, and the commands to type next; nothing if no check is stopped.

    `counts_of`: see `never_asked_counts`; None where the counts are unknown. `shown`: transactions shown already.
    `live`: the options that connect to the same brokers, None for files. `at_ms`: see `next_line`.
    """
    for stop in stops:
        yield f"{stop.store}: {check_sentence(stop, None if counts_of is None else counts_of(stop.store))}"
        yield from next_lines(stop, live, shown, at_ms)


def next_lines(
    stop: CheckStop, live: str | None = None, shown: Collection[str] = (), at_ms: int | None = None
) -> Iterator[str]:
    """The commands to type for a stopped check, one in each line.

    `live`: the options that connect to the same brokers, None for files. `shown`: transactions shown already.
    """
    if live is not None:
        found = remedies(stop, live, None, shown)
    else:
        place = f"--store {quoted(stop.store)}"
        found = remedies(stop, place, f" {place} --to DIR", shown)
    yield from (next_line(command, comment, at_ms) for command, comment in found)


def never_asked_counts(rows: pa.Table | pa.RecordBatch, store: str) -> tuple[int, int]:
    """The pending transactions of a store that the check never reaches, and all its pending transactions."""
    pending = rows.filter(pc.and_(pc.equal(rows["store"], store), pc.equal(rows["state"], State.PENDING)))
    never = sum("never_asked" in flags for flags in pending["flags"].to_pylist())
    return never, pending.num_rows
