"""The lines above a list of pending transactions: number, age, groups, stopped check, first discard, next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from rmqtx.readers.model.shell_words import quoted
from rmqtx.verdicts.model.predicted import REFUSED, SLAVE, Prediction
from rmqtx.verdicts.model.state import State
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.pages.check_alive import check_lines, check_sentence, next_lines
from rmqtx_cli.pages.usable_repairs import instead_of_rebuild
from rmqtx_cli.words.durations import duration_text
from rmqtx_cli.words.text import count, escaped, group_words, of_group

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.verdicts.model.check_stop import CheckStop

_NAMED_MAX = 3


def pending_sentence(
    rows: pa.Table, now_ms: int, pending_count: int, unknown_count: int = 0, *, is_incomplete: bool
) -> str:
    """The number of pending transactions, their groups and topics, and the age of the oldest.

    `rows`: transactions that fulfil the conditions; `pending_count`: all pending transactions; `unknown_count`: all
    UNDECIDABLE ones. `is_incomplete`: whether evidence is missing or damaged, so that more may be pending.
    """
    pending = rows.filter(pc.equal(rows["state"], State.PENDING))
    others = rows.num_rows - pending.num_rows
    more = f"; also listed: {others} decided, discarded or UNDECIDABLE, with open copies"
    more = more if others else ""
    if not pending.num_rows:
        others_pending = count(pending_count, "pending transaction")
        known = "no pending transaction found, but evidence is missing or damaged: more may be pending"
        if unknown_count:
            what = "whether it is" if unknown_count == 1 else "which of them are"
            known = f"{count(unknown_count, 'UNDECIDABLE transaction')}: evidence is missing or damaged, and {what} "
            known += "pending is unknown"
        elif not is_incomplete:
            known = "nothing is pending"
        return (f"no match among {others_pending}" if pending_count else known) + more
    oldest_ms = pc.min(pending["half_store_time_ms"]).as_py()
    age = "" if oldest_ms is None else f", oldest {duration_text(now_ms - oldest_ms)}"
    which = "" if pending.num_rows == pending_count else f" (of {pending_count})"
    return f"{count(pending.num_rows, 'pending transaction')}{which}{age}, {_whose(pending)}{more}"


def _whose(pending: pa.Table) -> str:
    pairs = Counter(zip(pending["producer_group"].to_pylist(), pending["topic"].to_pylist(), strict=True))
    groups = {group for group, _ in pairs}
    (most_group, most_topic), most_count = pairs.most_common(1)[0]
    if len(pairs) == 1:
        return of_group(most_group, most_topic)
    if len(groups) > 1:
        return f"in {len(groups)} groups, most in {of_group(most_group, most_topic)} ({most_count})"
    named = ", ".join(f"{topic or 'unknown'} ({number})" for (_, topic), number in pairs.most_common(_NAMED_MAX))
    more = f" and {count(len(pairs) - _NAMED_MAX, 'more topic')}" if len(pairs) > _NAMED_MAX else ""
    return f"{group_words(most_group)}, topics {named}{more}"


def refused_sentences(predicted: Mapping[str, Prediction]) -> Iterator[str]:
    """Which brokers do not start on their store, so that nothing happens to its transactions until it is repaired."""
    for root, known in predicted.items():
        if known.why == REFUSED:
            yield f"{escaped(root)}: the broker does not start on this store, so it checks nothing"


def refused_lines(predicted: Mapping[str, Prediction]) -> Iterator[str]:
    """The same, and the command that names the file."""
    yield from refused_sentences(predicted)
    for root, known in predicted.items():
        if known.why == REFUSED:
            yield next_line(f"rmqtx verify {quoted(root)}", "names the file that prevents the start")


def slave_sentences(predicted: Mapping[str, Prediction]) -> Iterator[str]:
    """Which brokers are slaves, so that their masters check these transactions and take decisions on them."""
    for root, known in predicted.items():
        if known.why == SLAVE:
            yield f"{escaped(root)}: this broker is a slave: its master checks these transactions; decide them there"


def passed_sentences(predicted: Mapping[str, Prediction]) -> Iterator[str]:
    """Where the check passes slots of the half queue without reading them."""
    for root, known in predicted.items():
        if known.passed_count:
            whose = f"{escaped(root)}: " if len(predicted) > 1 else ""
            slots = f"{count(known.passed_count, 'slot')} of the half queue"
            yield f"{whose}the check passes {slots} without reading them: open transactions in them are LOST"


def passed_lines(predicted: Mapping[str, Prediction]) -> Iterator[str]:
    """The same, and the command that makes the slots again."""
    yield from passed_sentences(predicted)
    for root in (root for root, known in predicted.items() if known.passed_count and not known.is_running):
        if (instead := instead_of_rebuild(root)) is not None:
            yield f"advice: {instead}"
            continue
        yield next_line(f"rmqtx rebuild queues {quoted(root)} --to NEW", "a copy with a slot for each half message")


def answer_lines(
    sentence: str, stops: Sequence[CheckStop], counts_of: Callable[[str], tuple[int, int]], live: str | None,
    next_line: str | None, *, is_one_store: bool, is_urgent: bool = False,
) -> Iterator[str]:
    """The sentence, with the stopped check of a single store appended, then the next commands.

    `next_line`: the command if no check is stopped; the first one if it `is_urgent`; None for no line.
    """
    is_of_this_store = len(stops) == 1 and is_one_store
    yield f"{sentence}; {check_sentence(stops[0], counts_of(stops[0].store))}" if is_of_this_store else sentence
    if next_line is not None and (is_urgent or not stops):
        yield next_line
    yield from next_lines(stops[0], live) if is_of_this_store else check_lines(stops, counts_of, live)
