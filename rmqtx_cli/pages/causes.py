"""The causes of `rmqtx diagnose`: the page, its table, and the lines above and below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model.findings import few
from rmqtx.readers.model.shell_words import quoted
from rmqtx.verdicts.causes.groups import group_causes
from rmqtx.verdicts.model.verdict_words import Strength
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.output.views import ALWAYS, Page, Row, View, plain
from rmqtx_cli.output.views import Column as ViewColumn
from rmqtx_cli.words.of_old_stores import copies_text, has_only_prepared
from rmqtx_cli.words.text import count, escaped, grouped
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.verdicts.causes.diagnosing import Diagnosis
    from rmqtx.verdicts.model.reading import VerdictReading

#: How a strength is printed.
STRENGTH_WORDS = {
    Strength.EXPLAINS: "explains", Strength.COULD_EXPLAIN: "could explain", Strength.RULED_OUT: "ruled out",
}
_LABEL_CELLS = 16
_PAGE_SOURCES = (
    "store", "cause", "strength", "title", "transactions_count", "half_copies_count", "first_time_ms", "last_time_ms",
    "examples", "consequence", "would_decide", "act", "change", "releases",
)


def group_cause_lines(reading: VerdictReading, arguments: str) -> Iterator[str]:
    """A line for each cause of whole producer groups, which the rows do not have."""
    by_word: dict[str, list[tuple[str, int]]] = {}
    for _, word, group, rows in group_causes(reading.habits):
        by_word.setdefault(word, []).append((group, rows))
    for word, groups in by_word.items():
        names = few([escaped(group) for group, _ in groups], 3)
        yield (
            f"{word} could explain {count(sum(rows for _, rows in groups), 'transaction')} of the producer "
            f"{'group' if len(groups) == 1 else 'groups'} {names}: a cause of whole groups is not in the column "
            "causes"
        )
        yield next_line(f"rmqtx diagnose {arguments} --where 'cause = {word}'")


def causes_view(*, with_store: bool) -> View:
    """The page of causes; the table of the chosen columns, if columns are chosen."""
    return View(
        (
            *([plain("store", ALWAYS, may_be_cut=True)] if with_store else []),
            ViewColumn("strength", ("strength",), lambda row: STRENGTH_WORDS[row["strength"]], ALWAYS),
            plain("cause", ALWAYS),
            plain("transactions_count", ALWAYS, "transactions"),
            plain("title", ALWAYS),
            plain("first_time_ms", ALWAYS, "since"),
        ),
        "no known cause found",
        page=Page(_PAGE_SOURCES, lambda rows: _page_lines(rows, with_store=with_store), _LABEL_CELLS),
    )


def _page_lines(rows: Sequence[Row], *, with_store: bool) -> Iterator[str]:
    """A part for each cause of each store; those that are ruled out follow as lines."""
    found = cause_parts(rows)
    for place, part in enumerate(found):
        if place:
            yield ""
        yield from _part_lines(part, with_store=with_store)
    ruled_out = [row for row in rows if row["strength"] == Strength.RULED_OUT]
    if found and ruled_out:
        yield ""
    for row in ruled_out:
        of_store = f" of {escaped(row['store'])}" if with_store else ""
        yield _labelled(
            "ruled out",
            f"{row['cause']}: the records of {count(row['transactions_count'], 'transaction')}{of_store} would fit, "
            f"but not the release of the broker, or its configuration (releases: {row['releases']})",
        )


def cause_parts(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each cause of each store, the best strength first.

    Order: causes that explain transactions come first; then as the rows.
    """
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["strength"] != Strength.RULED_OUT:
            parts.setdefault((row["store"], row["cause"]), []).append(row)
    return sorted((sorted(part, key=_by_strength) for part in parts.values()), key=lambda part: _by_strength(part[0]))


def _part_lines(part: Sequence[Row], *, with_store: bool) -> Iterator[str]:
    """One cause in one store: how much it explains, examples, what follows, what to do; briefly if it explains none."""
    best = part[0]
    is_brief = best["strength"] != Strength.EXPLAINS
    yield f"{best['cause']}: {best['title']}"
    if with_store:
        yield _labelled("store", escaped(best["store"]))
    for row in part:
        yield _labelled(STRENGTH_WORDS[row["strength"]], amount_text(row))
        if row["would_decide"]:
            yield _labelled("would decide", row["would_decide"])
    examples = best["examples"][:1] if is_brief else best["examples"]
    for place, example in enumerate(examples):
        yield _labelled("" if place else "examples" if len(examples) > 1 else "example", example_text(example))
    if not is_brief:
        yield _labelled("follows", best["consequence"])
    yield _labelled("do now", best["act"])
    if best["change"] and not is_brief:
        yield _labelled("change", best["change"])


def _by_strength(row: Mapping[str, Any]) -> int:
    return list(STRENGTH_WORDS).index(row["strength"])


def _labelled(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_CELLS - 2}}{text}"


def amount_text(row: Mapping[str, Any]) -> str:
    """How many transactions and half copies, and from when to when."""
    copies = row["half_copies_count"]
    parts = [count(row["transactions_count"], "transaction")]
    parts += [copies_text(copies, is_prepared=has_only_prepared(row["store"]))] if copies else []
    first, last = row["first_time_ms"], row["last_time_ms"]
    if first is None:
        return ", ".join(parts)
    return f"{', '.join(parts)}, sent {_period(first, last)}"


def _period(first_ms: int, last_ms: int) -> str:
    if first_ms == last_ms:
        return f"at {time_text(first_ms)}"
    return f"from {time_text(first_ms)} to {time_text(last_ms)}"


def example_text(example: Mapping[str, Any]) -> str:
    """The id of an example and the log offset of its half message."""
    offset = example["half_commit_log_offset"]
    return f"{escaped(example['transaction_id'])}{'' if offset is None else f' at log offset {offset}'}"


def cause_line(row: Mapping[str, Any]) -> str:
    """A cause of one transaction as a line."""
    open_point = f" (would decide: {row['would_decide']})" if row["would_decide"] else ""
    return f"  {STRENGTH_WORDS[row['strength']]} {row['cause']}: {row['title']}{open_point}"


def counts_lines(found: Diagnosis) -> Iterator[str]:
    """How many transactions are unusual, and for how many of them a cause is known."""
    yield _counts_line(found)
    if waiting := found.waiting_count:
        who = ("other " if waiting == 1 else "others ") if found.unusual_count else ""
        are_pending = f"{who}{'is' if waiting == 1 else 'are'} pending"
        why = "no broker runs on these files, so no producer is asked"
        yield f"{grouped(waiting)} {are_pending} without an answer: {why}"
    if unknown := found.undecidable_count:
        yield (
            f"{grouped(unknown)} {'is' if unknown == 1 else 'are'} UNDECIDABLE: evidence is missing or damaged; "
            "rmqtx audit --where 'state = UNDECIDABLE' lists the reason of each"
        )
    if found.needs_release:
        yield "the store does not show the exact release of its broker: --broker-version makes the answer sharper"
    if found.needed_settings:
        yield f"the store does not show {', '.join(found.needed_settings)}: --broker-conf FILE makes the answer sharper"


def _counts_line(found: Diagnosis) -> str:
    if not found.unusual_count:
        return f"none of {count(found.transactions_count, 'transaction')} is unusual"
    possible = found.unusual_count - found.explained_count - found.unexplained_count
    parts = [f"causes explain {grouped(found.explained_count)}"] if found.explained_count else []
    parts += [f"{'' if parts else 'causes '}could explain {grouped(possible)}"] if possible else []
    parts += [f"no known cause fits {grouped(found.unexplained_count)}"] if found.unexplained_count else []
    are = "is" if found.unusual_count == 1 else "are"
    total = count(found.transactions_count, "transaction")
    return f"{grouped(found.unusual_count)} of {total} {are} unusual: {', '.join(parts)}"


def next_lines(rows: pa.Table, arguments: str) -> Iterator[str]:
    """The commands that continue from the first cause of the page. `arguments`: those of the source, for `show`."""
    for first, *_ in cause_parts(rows.to_pylist())[:1]:
        yield next_line(f"rmqtx explain {first['cause']}")
        if first["examples"]:
            yield next_line(f"rmqtx show {quoted(first['examples'][0]['transaction_id'])} {arguments}")
