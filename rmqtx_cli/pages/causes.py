"""The causes of `rmqtx diagnose`: the table, and the lines above and below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rmqtx_cli.output.views import ALWAYS, Row, View, plain
from rmqtx_cli.output.views import Column as ViewColumn
from rmqtx_cli.words.text import count, escaped

if TYPE_CHECKING:
    import pyarrow as pa

    from verdicts.causes.diagnosing import Diagnosis

#: How a strength stands in the table.
_STRENGTHS = {"explains": "explains", "could_explain": "could explain", "ruled_out": "ruled out"}


def _strength(row: Row) -> str:
    return _STRENGTHS[row["strength"]]


def _example(row: Row) -> str:
    return escaped(row["examples"][0]["transaction_id"]) if row["examples"] else ""


def causes_view(*, with_store: bool) -> View:
    """The table of causes."""
    return View(
        (
            *([plain("store", ALWAYS, may_be_cut=True)] if with_store else []),
            ViewColumn("strength", ("strength",), _strength, ALWAYS),
            plain("cause", ALWAYS),
            plain("transactions_count", ALWAYS, "transactions"),
            plain("title", ALWAYS, wraps=True, least_cells=24),
            plain("first_time_ms", 2, "since"),
            ViewColumn("example", ("examples",), _example, 3),
            plain("would_decide", 4, wraps=True, least_cells=24),
            plain("act", 5, "do now", wraps=True, least_cells=24),
        ),
        "no known cause found",
    )


def cause_line(row: Mapping[str, Any]) -> str:
    """A cause of one transaction as a line."""
    open_point = f" (would decide: {row['would_decide']})" if row["would_decide"] else ""
    return f"  {_STRENGTHS[row['strength']]} {row['cause']}: {row['title']}{open_point}"


def counts_lines(found: Diagnosis) -> Iterator[str]:
    """How many transactions are unusual, and for how many of them a cause is known."""
    if not found.unusual_count:
        yield f"none of {count(found.transactions_count, 'transaction')} is unusual"
        return
    possible = found.unusual_count - found.explained_count - found.unexplained_count
    parts = [f"causes explain {found.explained_count}"] if found.explained_count else []
    parts += [f"{'' if parts else 'causes '}could explain {possible}"] if possible else []
    parts += [f"no known cause fits {found.unexplained_count}"] if found.unexplained_count else []
    are = "is" if found.unusual_count == 1 else "are"
    yield f"{found.unusual_count} of {count(found.transactions_count, 'transaction')} {are} unusual: {', '.join(parts)}"
    if found.needs_release:
        yield "the store does not show the exact release of its broker: --broker-version makes the answer sharper"
    if found.needed_settings:
        yield f"the store does not show {', '.join(found.needed_settings)}: --broker-conf FILE makes the answer sharper"


def next_lines(rows: pa.Table, arguments: str) -> Iterator[str]:
    """The commands that continue from the first cause of the table. `arguments`: those of the source, for `show`."""
    for row in rows.slice(0, 1).to_pylist():
        if row["strength"] == "ruled_out":
            return
        yield f"next: rmqtx explain {row['cause']}"
        if row["examples"]:
            yield f"next: rmqtx show {escaped(row['examples'][0]['transaction_id'])} {arguments}"
