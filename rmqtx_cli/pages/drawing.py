"""One transaction as a page for people: state and reason, timeline, cursors of the check and of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from rmqtx.readers.model.identities import is_of_grpc_client
from rmqtx.readers.model.tables import NOBODY, PRODUCER, PROXY
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.verdicts.audit.timeline import CONSUMERS, LOGGED_TIMELINE, TIMELINE, TimelineSource, consumers_past, timeline
from rmqtx.verdicts.causes.diagnosing import DIAGNOSES
from rmqtx.verdicts.model.predicted import Deadline, deadline_of
from rmqtx.verdicts.model.verdict_words import State, advice_sentence
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx_cli.output.page import write_lines
from rmqtx_cli.output.table import write_table
from rmqtx_cli.output.views import ALWAYS, Column, View, plain
from rmqtx_cli.pages.causes import cause_line
from rmqtx_cli.pages.headlines import deadline_text, next_text
from rmqtx_cli.words.of_old_stores import flag_text, has_only_prepared
from rmqtx_cli.words.text import escaped
from rmqtx_cli.words.times import age_text, since_text, time_text

if TYPE_CHECKING:
    from rmqtx.verdicts.audit.logged_events import Event
    from rmqtx.verdicts.model.predicted import Prediction

Transaction = dict[str, Any]
_LABEL_CELLS = 8
_ASKED: dict[str | None, str] = {
    PRODUCER: ", with a connected producer",
    PROXY: ", asked through a proxy: whether the application is connected to it is unknown",
    NOBODY: ", without a connected producer: no process answers the checks",
}


@dataclass(frozen=True, slots=True)
class PageForm:
    """How a page is written: tables in full width; a line for each fact and event, without tables; without notes."""

    is_wide: bool = False
    is_plain: bool = False
    is_quiet: bool = False


_TABLES = PageForm()


@dataclass(frozen=True, slots=True)
class Known:
    """What a page shows of a transaction beside its row.

    `places`: the stores or brokers. `deadline`: the predicted discard, for a transaction that the check will still
    reach. `causes`: rows of DIAGNOSES. `logged`: lines of the broker's logs as events; None if no logs were read.
    """

    places: Sequence[TimelineSource]
    deadline: Deadline | None
    now_ms: int
    causes: Sequence[Mapping[str, Any]] = ()
    logged: Sequence[Event] | None = None


def draw(transaction: Transaction, known: Known, stream: IO[bytes], form: PageForm = _TABLES) -> None:
    """Write the page."""
    if form.is_plain:
        _write(stream, map(escaped, _plain_lines(transaction, known)))
        return
    places = known.places
    _write(stream, _head(transaction, known.deadline, known.now_ms, _age(transaction, places, known.now_ms)))
    events = timeline(transaction, places, known.logged)
    events_view = _timeline_view(_sent_ms(transaction), len(places) > 1, bool(known.logged))
    write_table(stream, events, replace(events_view, is_wide=form.is_wide, is_quiet=form.is_quiet))
    checks = list(check_cursor_lines(transaction, places))
    _write(stream, ["", *checks] if checks else [])
    consumers = consumers_past(transaction, places)
    if consumers.num_rows:
        _write(stream, ["", "consumer groups (a commit does not prove consumption)"])
        write_table(stream, consumers, replace(_CONSUMERS_VIEW, is_wide=form.is_wide, is_quiet=form.is_quiet))
    elif transaction["final_records"]:
        _write(stream, ["", "consumption unknown: no consumer group has a cursor on the queue of its COMMIT record"])
    if known.causes:
        _write(stream, ["", "causes (rmqtx explain WORD)", *map(cause_line, known.causes)])


def _plain_lines(transaction: Transaction, known: Known) -> Iterator[str]:
    """The page in lines that a screen reader reads one after the other."""
    places, now_ms = known.places, known.now_ms
    yield f"transaction {transaction['transaction_id']}, state {transaction['state']}"
    for label, text in facts_of(transaction, known.deadline, now_ms, _age(transaction, places, now_ms)):
        yield f"{label}: {text}"
    for number, event in enumerate(timeline(transaction, places, known.logged).to_pylist(), 1):
        parts = [event["event"], time_text(event["time_ms"]), event["detail"], event.get("log_text")]
        parts += [f"{name} offset {event[f'{key}_offset']}" for name, key in (("queue", "queue"), ("log", "commit_log"))
                  if event[f"{key}_offset"] is not None]
        yield f"event {number}: {', '.join(part for part in parts if part)}"
    yield from check_cursor_lines(transaction, places)
    for row in consumers_past(transaction, places).to_pylist():
        is_past = "past it" if row["is_past"] else "not past it"
        yield f"consumer group {row['group']}, topic {row['topic']}, queue {row['queue_id']}: {is_past}"
    yield from (f"cause: {cause_line(cause).strip()}" for cause in known.causes)


def with_events(
    transactions: list[Transaction], places: Sequence[TimelineSource], schema: pa.Schema,
    predicted: Mapping[str, Prediction], causes: Sequence[Sequence[Mapping[str, Any]]],
    logged: Sequence[Sequence[Event] | None],
) -> pa.Table:
    """The transactions as rows with more columns: `timeline` (list of events), `consumers` (list of consumer groups),
    `discard_reason` (why a transaction that the check will still reach has no `discard_at_ms`) and `causes` (with
    strength, and what would decide).

    `causes`: for each transaction rows of DIAGNOSES. `logged`: lines of its brokers' logs as events; None
    if no logs were read.
    """
    cause_type = pa.struct([DIAGNOSES.field(name) for name in ("cause", "strength", "would_decide")])
    wider = schema.remove(schema.get_field_index("causes"))
    for name, part in (("timeline", TIMELINE if None in logged else LOGGED_TIMELINE), ("consumers", CONSUMERS)):
        wider = wider.append(pa.field(name, pa.list_(pa.struct(list(part)))))
    wider = wider.append(pa.field("discard_reason", pa.string())).append(pa.field("causes", pa.list_(cause_type)))
    rows = [
        transaction
        | {
            "timeline": timeline(transaction, places, lines).to_pylist(),
            "consumers": consumers_past(transaction, places).to_pylist(),
            "discard_reason": _why_not(transaction, predicted),
            "causes": [{field.name: cause[field.name] for field in cause_type} for cause in found],
        }
        for transaction, found, lines in zip(transactions, causes, logged, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=wider)


def _why_not(transaction: Transaction, predicted: Mapping[str, Prediction]) -> str | None:
    deadline = deadline_of(transaction, predicted)
    return None if deadline is None or deadline.why is None else deadline.why.text


def views() -> tuple[View, View]:
    """The columns of the two lists in the page: events, and consumer groups."""
    return _timeline_view(None, with_store=True, with_logs=True), _CONSUMERS_VIEW


def _sent_ms(transaction: Transaction) -> int | None:
    stored: int | None = transaction["half_store_time_ms"]
    return stored


def _age(transaction: Transaction, places: Sequence[TimelineSource], now_ms: int) -> str:
    """The age of a pending transaction, now and when its broker stopped (flags use the second); else empty."""
    sent_ms = _sent_ms(transaction)
    if sent_ms is None or transaction["state"] != State.PENDING:
        return ""
    stopped = next((place.stopped_time_ms() for place in places if place.root == transaction["store"]), None)
    return age_text(sent_ms, now_ms, stopped)


def _is_grpc(transaction: Transaction) -> bool:
    """Whether a gRPC client sent it: a proxy takes the topic as the group."""
    is_topic: bool = transaction["producer_group"] == transaction["topic"]
    return is_topic and is_of_grpc_client(transaction["transaction_id"])


def facts_of(
    transaction: Transaction, deadline: Deadline | None, now_ms: int, age: str
) -> Iterator[tuple[str, str]]:
    """The labels of the page and their texts, not escaped: why, flags, advice, age, next, discard, group, topic, keys.

    `age`: a sentence; empty where there is nothing to state.
    """
    yield "why", transaction["reason"]
    flags = transaction["flags"]
    is_prepared = bool(flags) and has_only_prepared(transaction["store"])
    for flag in flags:
        yield "flag", f"{flag}: {flag_text(flag, FLAGS.get(flag, ''), is_prepared=is_prepared)}"
    advice = transaction["advice"]
    yield "advice", f"{advice}: {advice_sentence(advice, transaction['state'])}"
    if age:
        yield "age", age
    if deadline is not None:
        if following := next_text(transaction, deadline, now_ms):
            yield "next", following
        yield "discard", deadline_text(deadline, now_ms)
    if transaction["producer_group"] is not None:
        same = ", the name of the topic: sent by a gRPC client through a proxy" if _is_grpc(transaction) else ""
        asked = _ASKED.get(transaction.get("asked_through"), "")
        yield "group", f"{transaction['producer_group']}{same}{asked}"
    if transaction["topic"] is not None:
        queue = "" if transaction["queue_id"] is None else f", queue {transaction['queue_id']}"
        yield "topic", f"{transaction['topic']}{queue}"
    if transaction["keys"]:
        yield "keys", transaction["keys"]


def _head(transaction: Transaction, deadline: Deadline | None, now_ms: int, age: str) -> Iterator[str]:
    yield f"{escaped(transaction['transaction_id'])}  {transaction['state']}"
    for label, text in facts_of(transaction, deadline, now_ms, age):
        yield f"{label:<{_LABEL_CELLS}}{escaped(str(text))}"
    yield ""


def _timeline_view(sent_ms: int | None, with_store: bool, with_logs: bool) -> View:
    return View(
        (
            plain("time_ms", 1, "time"),
            Column("since sent", ("time_ms",), lambda row: since_text(row["time_ms"], sent_ms), ALWAYS, is_number=True),
            plain("event", ALWAYS),
            plain("queue_offset", 2, "queue offset"),
            plain("commit_log_offset", 3, "log offset"),
            plain("message_id", 5, "message id"),
            plain("detail", ALWAYS, wraps=True, least_cells=18),
            *([plain("store", 4, may_be_cut=True)] if with_store else []),
            *([plain("log_text", 6, wraps=True, least_cells=60)] if with_logs else []),
        )
    )


_CONSUMERS_VIEW = View(
    (
        plain("group", ALWAYS, may_be_cut=True),
        plain("topic", ALWAYS, may_be_cut=True),
        plain("queue_id", ALWAYS, "queue"),
        plain("final_queue_offset", ALWAYS, "COMMIT at"),
        plain("next_queue_offset", ALWAYS, "reads next"),
        Column(
            "", ("is_past",), lambda row: "past it" if row["is_past"] else "NOT past it: not confirmed", ALWAYS
        ),
    )
)


def check_cursor_lines(transaction: Transaction, places: Sequence[TimelineSource]) -> Iterator[str]:
    """Lines about entries in tables beside the log, and where the check stands to the newest copy."""
    for place in places:
        entries = [entry for entry in transaction["state_entries"] if entry["store"] == place.root]
        yield from (_entry_line(entry) for entry in entries)
        copies = [copy for copy in transaction["half_copies"] if copy["store"] == place.root]
        if not copies or _topic_of(copies[-1], place) != HALF_TOPIC:
            continue  # the other designs have no cursor that shows what is open
        cursors = place.check_cursors()
        newest = copies[-1]
        where = f"check of {place.root}: " if len(places) > 1 else "check: "
        next_half = None if cursors.half is None else cursors.half.get(newest["queue_id"])
        if cursors.half is None:
            yield f"{where}unknown cursor"
        elif next_half is None:
            yield f"{where}no stored cursor yet, so it begins at the first half message of the queue"
        elif newest["queue_offset"] < next_half:
            yield f"{where}next half {next_half}, past the newest copy {newest['queue_offset']}"
        else:
            yield f"{where}next half {next_half}, has not passed the newest copy {newest['queue_offset']}"


def _entry_line(entry: Transaction) -> str:
    """One line about an entry for the transaction in a table outside the commit log."""
    kind, key, value = entry["kind"], escaped(entry["key"]), escaped(entry["value"] or "")
    if kind == "rocksdb":
        return f"rocksdb: key {key}, {'1 check' if value == '1' else f'{value} checks'} made"
    if kind == "statetable":
        return f"statetable: slot {key} is {value}"
    if kind == "redolog":
        return f"redolog: entry {key} is {value}"
    if kind == "database":
        return f"database: a row for log offset {key}, {f'group {value}' if value else 'no group'}"
    return f"{kind}: {key} is {value}"


def _topic_of(copy: Transaction, place: TimelineSource) -> str:
    """The topic of a half copy; the half topic if its record cannot be read."""
    offset = copy["commit_log_offset"]
    name = place.records([offset]).get(offset)
    return HALF_TOPIC if name is None else name.topic


def _write(stream: IO[bytes], lines: Iterable[str]) -> None:
    write_lines(stream, lines, _LABEL_CELLS)
