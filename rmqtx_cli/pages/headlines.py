"""The lines above a list of pending transactions: number, age, groups, stopped check, first discard, next command.

They name no command that the store's kind of log or queues refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.storage.places import is_uri
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.check.check_stops import remedies
from rmqtx.verdicts.model.predicted import EFFECTS, EVENTS, REFUSED, SLAVE, Prediction
from rmqtx.verdicts.model.verdict_words import NextEvent, State
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.words.text import count, escaped, group_words, of_group
from rmqtx_cli.words.times import duration_text, time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.verdicts.model.predicted import Deadline
    from rmqtx.verdicts.model.verdict_inputs import CheckStop


_NAMED_MAX = 3
#: What a prediction assumes, in a few words.
_ASSUMED = {"settings": "settings", "version": "release", "log": "a log without damage"}
#: The condition under which a deadline is true while the broker is stopped.
IF_STARTED = "if the broker starts now"


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


def deadline_text(deadline: Deadline, now_ms: int) -> str:
    """When the broker discards a transaction, and why; or why it never does, or why that is unknown."""
    if deadline.discard_at_ms is None:
        assert deadline.why is not None
        return f"{'never' if deadline.why.is_known else 'unknown'}: {deadline.why.text}"
    when = f"{time_text(deadline.discard_at_ms)}, {in_text(deadline.discard_at_ms, now_ms)}"
    cause = "it is then older than fileReservedTime" if deadline.is_expired else "all its checks are then used up"
    started = "" if deadline.is_running else f", {IF_STARTED}"
    later = " or a round later" if deadline.may_be_later else ""
    asked = ", and no producer is asked before"
    if deadline.checks_to_come:
        asked = f", after {count(deadline.checks_to_come, 'more check')} without an answer"
    return f"{when}{later}{started}: {cause}{asked}"


def _event_text(event: str | None) -> str | None:
    """What happens next, in words; nothing if the deadline has all, or if it is not known."""
    return None if event in (None, NextEvent.NONE, NextEvent.UNKNOWN) else EVENTS[NextEvent(event)]


def next_text(transaction: Mapping[str, Any], deadline: Deadline, now_ms: int) -> str:
    """What the broker does next with a transaction, when, what an answer does then, and what is assumed; or nothing."""
    event = _event_text(transaction["next_event"])
    if event is None:
        return ""
    time_ms = transaction["next_event_at_ms"]
    when = "" if time_ms is None else f"{',' if ',' in event else ''} {in_text(time_ms, now_ms)}"
    started = f" {IF_STARTED}" if when and not deadline.is_running else ""
    answer = EFFECTS.get(transaction["answer_effect"])
    effect = "" if answer is None else f"; {answer}"
    assumed = ", ".join(_ASSUMED[name] for name in deadline.assumed)
    return f"{event}{when}{started}{effect}{f' (assumed: {assumed})' if assumed else ''}"


def in_text(time_ms: int, now_ms: int) -> str:
    """The time until a moment: "in 5m", or "now" where it has passed."""
    return f"in {duration_text(time_ms - now_ms)}" if time_ms > now_ms else "now"


def deadline_lines(rows: pa.Table, predicted: Mapping[str, Prediction], now_ms: int) -> Iterator[str]:
    """The first deadline of pending transactions: one line for running brokers, one for stopped ones."""
    pending = rows.filter(pc.equal(rows["state"], State.PENDING)).select(["store", "transaction_id", "discard_at_ms"])
    for is_running in (True, False):
        roots = [root for root, known in predicted.items() if known.is_running is is_running]
        mine = [row for row in pending.to_pylist() if row["store"] in roots and row["discard_at_ms"] is not None]
        if not mine:
            continue
        first = min(mine, key=lambda row: (row["discard_at_ms"], row["transaction_id"]))
        started = "" if is_running else f", {IF_STARTED}"
        time_ms = first["discard_at_ms"]
        yield f"the broker discards the first of them {in_text(time_ms, now_ms)}, at {time_text(time_ms)}{started}"


_REBUILD = "rmqtx rebuild queues"
_DLEDGER = "start this member of the DLedger group with an empty store: it copies the log from the other members"
_ROCKSDB = (
    "the queues are in RocksDB: move the directory of their database out of the store, and the broker's start writes "
    "it from the log"
)


def instead_of_rebuild(root: str) -> str | None:
    """What to do where `rmqtx rebuild queues` refuses a store; None where it works, or nothing is known."""
    if (instead := instead_of_salvage(root)) is not None:
        return instead
    try:
        return _ROCKSDB if not is_uri(root) and open_store(root).has_rocksdb_queues else None
    except RmqtxError:
        return None


def instead_of_salvage(root: str) -> str | None:
    """What to do where `rmqtx salvage` refuses a store; None where it works, or nothing is known."""
    try:
        return _DLEDGER if not is_uri(root) and open_store(root).is_dledger else None
    except RmqtxError:
        return None


def usable_advice(advice: str, roots: Iterable[str]) -> str:
    """Advice about findings of some stores; without the rebuild of queues if each of the stores refuses it."""
    if _REBUILD not in advice:
        return advice
    found = [instead_of_rebuild(root) for root in roots]
    refusals = list(dict.fromkeys(one for one in found if one is not None))
    if not found or None in found:
        return advice
    before = advice.split(_REBUILD)[0].rstrip(" :;,")
    return "; ".join([*([before] if before else []), *refusals])


def with_usable_advice(findings: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of findings, each with the advice that works on its store."""
    advice, stores = findings["advice"].to_pylist(), findings["store"].to_pylist()
    if not any(_REBUILD in (one or "") for one in advice):
        return findings
    known: dict[tuple[str | None, str], str | None] = {}
    for one, store in zip(advice, stores, strict=True):
        if (one, store) not in known:
            known[one, store] = one if one is None else usable_advice(one, [store])
    usable = pa.array([known[pair] for pair in zip(advice, stores, strict=True)], findings.schema.field("advice").type)
    return findings.set_column(findings.schema.get_field_index("advice"), findings.schema.field("advice"), usable)
