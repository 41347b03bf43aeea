"""One reading of stores or brokers, as the live screen needs it."""

from __future__ import annotations

import io
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.monitoring.measure import measured_rows
from rmqtx_cli.sources.transaction_page import write_page
from rmqtx_cli.words.text import escaped

if TYPE_CHECKING:
    from rmqtx_cli.monitoring.numbers import Numbers
    from rmqtx_cli.sources.source import Source, SourceOpener

#: Ended transactions that one reading looks up; each costs a live broker a request or two.
LOOKED_UP_MAX = 20
#: In place of a state: the log contains no record of the transaction.
GONE = "GONE"
_COLUMNS = ("store", "transaction_id", "state", "producer_group", "topic", "half_store_time_ms",
            "checks_count", "discard_at_ms", "flags")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pending:
    """One pending transaction. Units: milliseconds since 1970; `discard_at_ms`: None where unknown or never.

    `starts_ms`: of a stopped broker, the time at which `discard_at_ms` assumes that it starts; None of a running one.
    """

    store: str
    transaction_id: str
    group: str
    topic: str
    stored_time_ms: int
    checks_count: int
    discard_at_ms: int | None
    is_never_asked: bool = False
    starts_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading. Shape: `pending` by transaction id; `ended`: states of some that were pending earlier, or GONE."""

    time_ms: int
    duration_ms: int
    pending: Mapping[str, Pending]
    numbers: Numbers
    ended: Mapping[str, str] = field(default_factory=dict)


def take(opener: SourceOpener, before: Collection[str]) -> Snapshot:
    """Read everything again. `before`: the ids whose end is looked up if they are not pending now.

    Raises: SourceError if a store cannot be read; Unreachable, NoAnswer, Refused.
    """
    begun = time.monotonic()
    now_ms = time.time_ns() // 1_000_000
    with opener.opened() as source:
        numbers, rows = measured_rows(source, now_ms)
        found = [row for row in rows.select(_COLUMNS).to_pylist() if row["state"] == State.PENDING]
        stopped = {one.store for one in numbers.stores if not one.is_in_use}
        pending = {row["transaction_id"]: _pending(row, now_ms, stopped) for row in found}
        ended = _states(source, [one for one in before if one not in pending][:LOOKED_UP_MAX])
    return Snapshot(now_ms, round(1000 * (time.monotonic() - begun)), pending, numbers, ended)


def _pending(row: Mapping[str, Any], now_ms: int, stopped: Collection[str]) -> Pending:
    return Pending(
        row["store"], row["transaction_id"], row["producer_group"] or "", row["topic"] or "",
        row["half_store_time_ms"], row["checks_count"] or 0, row["discard_at_ms"], "never_asked" in row["flags"],
        now_ms if row["store"] in stopped else None,
    )


def _states(source: Source, ids: list[str]) -> dict[str, str]:
    if not ids:
        return {}
    rows = source.lookup(ids).table()
    found = dict(zip(rows["transaction_id"].to_pylist(), rows["state"].to_pylist(), strict=True))
    return {identity: found.get(identity, GONE) for identity in ids}


def timeline(opener: SourceOpener, identity: str) -> list[str]:
    """Return the lines of `rmqtx show` for one transaction. Raises: the same, and NoSuchTransaction."""
    stream = io.BytesIO()
    write_page(opener, identity, stream)
    return [escaped(line) for line in stream.getvalue().decode().splitlines()]
