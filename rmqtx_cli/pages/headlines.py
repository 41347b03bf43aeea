"""The answer to what was asked, in the line above a table: how many hang, whose they are, how old the oldest is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rmqtx_cli.pages.check_alive import check_lines, check_sentence, next_command
from rmqtx_cli.pages.deadlines import deadline_lines
from rmqtx_cli.words.durations import duration_text
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    import pyarrow as pa

    from verdicts.model.check_stop import CheckStop
    from verdicts.model.predicted import Prediction

_NAMED_MAX = 3
_UNKNOWN = "an unknown group"


def pending_sentence(rows: pa.Table, now_ms: int, pending_count: int) -> str:
    """How many transactions hang, of which groups and topics, and how old the oldest is.

    `pending_count`: how many hang at all; `rows` are those that fulfil the conditions.
    """
    import pyarrow.compute as pc

    pending = rows.filter(pc.equal(rows["state"], "PENDING"))
    others = rows.num_rows - pending.num_rows
    more = f"; and {others} that are decided or not known, which the broker has before it" if others else ""
    if not pending.num_rows:
        none = f"none of {pending_count} pending fulfils the conditions" if pending_count else "nothing is pending"
        return none + more
    oldest_ms = pc.min(pending["half_store_time_ms"]).as_py()
    age = "" if oldest_ms is None else f", oldest {duration_text(now_ms - oldest_ms)}"
    which = "" if pending.num_rows == pending_count else f"of {pending_count} "
    return f"{pending.num_rows} {which}pending, {_whose(pending)}{age}{more}"


def _whose(pending: pa.Table) -> str:
    pairs = Counter(zip(pending["producer_group"].to_pylist(), pending["topic"].to_pylist(), strict=True))
    groups = {group for group, _ in pairs}
    (most_group, most_topic), most_count = pairs.most_common(1)[0]
    if len(pairs) == 1:
        return f"all of {most_group or _UNKNOWN} → {most_topic}"
    if len(groups) > 1:
        return f"in {len(groups)} groups, most of {most_group or _UNKNOWN} → {most_topic} ({most_count})"
    named = ", ".join(f"{topic} ({number})" for (_, topic), number in pairs.most_common(_NAMED_MAX))
    more = f" and {count(len(pairs) - _NAMED_MAX, 'more topic')}" if len(pairs) > _NAMED_MAX else ""
    return f"all of {most_group or _UNKNOWN} → {named}{more}"


def pending_lines(
    rows: pa.Table, pending_count: int, stops: Sequence[CheckStop], counts_of: Callable[[str], tuple[int, int]],
    predicted: Mapping[str, Prediction], now_ms: int, live: str | None, next_line: str | None,
    *, is_one_store: bool,
) -> Iterator[str]:
    """What hangs, whether the check is alive, what the broker discards first, and what to type next.

    `live`: the options that lead to the brokers again, None for files. `next_line`: for where all checks go on.
    """
    sentence = pending_sentence(rows, now_ms, pending_count)
    yield from answer_lines(sentence, stops, counts_of, live, None, is_one_store=is_one_store)
    yield from deadline_lines(rows, predicted, now_ms)
    if next_line is not None and not stops:
        yield next_line


def answer_lines(
    sentence: str, stops: Sequence[CheckStop], counts_of: Callable[[str], tuple[int, int]], live: str | None,
    next_line: str | None, *, is_one_store: bool,
) -> Iterator[str]:
    """A sentence, behind it where the check of the one store is stopped, and what to type next.

    `next_line`: for where all checks go on, None where nothing is to be typed.
    """
    if len(stops) == 1 and is_one_store:
        yield f"{sentence}; {check_sentence(stops[0], counts_of(stops[0].store))}"
        yield f"next: {next_command(stops[0], live)}"
        return
    yield sentence
    yield from check_lines(stops, counts_of, live)
    if next_line is not None and not stops:
        yield next_line
