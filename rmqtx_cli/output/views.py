"""Views: which columns a table for people has, in which order, and which may be cut or left out if it is narrow.

Machine formats do not use views: they have the columns of the Arrow tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtx.readers.model.moments import is_time
from rmqtx.repairs.receipts.act_words import ActOutcome
from rmqtx_cli.words.text import escaped
from rmqtx_cli.words.times import duration_text, time_text

Row = dict[str, Any]

#: Columns with this rank always stay; of the others, those with the highest rank are left out first.
ALWAYS = 0
#: The minimum of cells of a column that is cut.
CELLS_MIN = 10
#: In a narrow table only the end of this column is shown, which `rmqtx show` takes too.
_IDENTITY = "transaction_id"
_IDENTITY_RANK = 9
_LIST_VALUES_MAX = 8


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a printed table: its heading, the function that makes its text, and its rank.

    `may_be_cut`: down to `least_cells`; the beginning is cut if it `keeps_end`; with `wraps` the text continues on the
    next line instead.
    `short_heading`: the heading if only the ends of values are shown, in tables too narrow for `whole_rank`.
    """

    heading: str
    sources: tuple[str, ...]
    text: Callable[[Row], str]
    rank: int = 1
    is_number: bool = False
    may_be_cut: bool = False
    is_plain: bool = False
    least_cells: int = CELLS_MIN
    wraps: bool = False
    keeps_end: bool = False
    short_heading: str | None = None
    whole_rank: int = ALWAYS

    @property
    def headings(self) -> list[str]:
        """Its heading and its short heading."""
        return [one for one in (self.heading, self.short_heading) if one]


@dataclass(frozen=True, slots=True)
class Page:
    """Lines about all rows, for people, in place of a table: for few rows with long texts.

    `sources`: the columns that it reads. `label_cells`: the width of the labels at the beginning of its lines.
    """

    sources: tuple[str, ...]
    lines: Callable[[Sequence[Row]], Iterable[str]]
    label_cells: int


@dataclass(frozen=True, slots=True)
class View:
    """The columns of a printed table, and the line that replaces a table without rows (empty: no line).

    `is_quiet`: print no such line. `is_wide`: print all columns in full width on a terminal too. `page`: what is
    printed in place of the table, unless columns are chosen.
    """

    columns: tuple[Column, ...]
    nothing: str = "no rows"
    is_quiet: bool = False
    is_wide: bool = False
    page: Page | None = None

    @property
    def sources(self) -> list[str]:
        """The table's columns that the view reads."""
        if self.page is not None:
            return list(self.page.sources)
        return list(dict.fromkeys(name for column in self.columns for name in column.sources))

    @property
    def heads(self) -> dict[str, str]:
        """Heading → column, for headings that differ from the name of the one column that they show."""
        plain_ones = [column for column in self.columns if column.is_plain]
        named = {heading: column.sources[0] for column in plain_ones for heading in column.headings}
        return {heading: source for heading, source in named.items() if heading != source}

    @property
    def sortable(self) -> dict[str, str]:
        """Heading → column, for all headings that show exactly one column."""
        alone = {one.heading: one.sources[0] for one in self.columns if one.heading and len(one.sources) == 1}
        return {**alone, **self.heads}


def plain(
    name: str, rank: int = 1, heading: str | None = None, *, may_be_cut: bool = False, least_cells: int = CELLS_MIN,
    wraps: bool = False,
) -> Column:
    """A column that shows one of the table's columns."""
    is_count = "." not in name and name.endswith(("_offset", "_bytes", "_count", "_id"))
    number = name in _NUMBERS or (is_count and name not in _TEXT_IDS)
    is_identity = name == _IDENTITY
    return Column(
        heading or (name.removesuffix("_ms") if is_time(name) or name in _DURATIONS else name), (name,),
        lambda row: value_text(name, row[name]), rank, number, may_be_cut or wraps, is_plain=True,
        least_cells=least_cells, wraps=wraps, keeps_end=name in _PATHS,
        short_heading="id" if is_identity else None,
        whole_rank=_IDENTITY_RANK if is_identity else ALWAYS,
    )


_NUMBERS = frozenset(
    {
        "value", "tags_code", "key_hash", "entry_number", "previous_entry_number", "slot_number", "producer_group_hash",
        "entry_index", "term", "epoch", "age_ms", "discard_in_ms", "half", "half_lag",
    }
)
#: Times between two moments, of which people read "6d7h" and not a number.
_DURATIONS = frozenset({"age_ms", "discard_in_ms"})
_PATHS = frozenset({"file", "store"})
_TEXT_IDS = frozenset({"transaction_id", "message_id", "real_queue_id", "receipt_id"})


def value_text(name: str, value: Any) -> str:
    """A value as text: times as ISO 8601, evidence as queue offset@commit-log offset, nothing unprintable."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name in _DURATIONS:
            return duration_text(max(0, value))
        return time_text(value) if is_time(name) else str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return _list_text(value)
    return escaped(str(value))


def _list_text(values: list[Any]) -> str:
    shown = [_element_text(value) for value in values[:_LIST_VALUES_MAX]]
    if len(values) > _LIST_VALUES_MAX:
        shown.append(f"… {len(values) - _LIST_VALUES_MAX} more")
    return " ".join(shown)


def _element_text(value: Any) -> str:
    if isinstance(value, tuple):  # a property
        return f"{escaped(str(value[0]))}={escaped(str(value[1]))}"
    if not isinstance(value, dict):
        return escaped(str(value))
    if "queue_offset" in value:
        return f"{value['queue_offset']}@{value['commit_log_offset']}"
    return escaped(str(value))


def plain_view(names: Iterable[str]) -> View:
    """A view of exactly these columns."""
    return View(tuple(plain(name, ALWAYS, may_be_cut=True) for name in names))


def _newest(name: str) -> Callable[[Row], str]:
    return lambda row: str(row["half_copies"][-1][name]) if row["half_copies"] else ""


def _flags(row: Row) -> str:
    return ",".join(row["flags"] or ())


def _causes(row: Row) -> str:
    return ",".join(row["causes"] or ())


def _age(now_ms: int) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        stored = row["half_store_time_ms"]
        return "" if stored is None else duration_text(now_ms - stored)

    return text


def _left(now_ms: int) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        time_ms = row["discard_at_ms"]
        # The nearest second: a broker on files is taken to start when they are read, a little after `now_ms`.
        return "" if time_ms is None else duration_text(max(0, time_ms - now_ms + 500) // 1000 * 1000)

    return text


def transactions_view(
    now_ms: int, *, with_state: bool, with_store: bool, with_producers: bool = False, with_deadline: bool = False
) -> View:
    """Transactions: `half` and `log_offset` are those of the newest copy, which the broker would check next.

    `with_deadline`: keep the discard times in narrow tables too.
    `with_producers`: add whether a producer of the group is connected, and what the broker asks, for live brokers.
    """
    # The time that is left is the last to go, where rows wait.
    left_rank = ALWAYS if with_deadline else 3 if with_state else 1
    columns = [
        plain("transaction_id", ALWAYS),
        *([plain("state", ALWAYS)] if with_state else []),
        Column("age", ("half_store_time_ms",), _age(now_ms), 6 if with_state else ALWAYS, is_number=True),
        plain("checks_count", 8, "checks"),
        plain("topic", 4, may_be_cut=True),
        plain("producer_group", 5, "group", may_be_cut=True),
        *([plain("producer_alive", 6, "alive"), plain("asked_through", 9, "asked")] if with_producers else []),
        plain("keys", 3, may_be_cut=True, least_cells=24),
        Column("half", ("half_copies",), _newest("queue_offset"), 11, is_number=True),
        Column("log_offset", ("half_copies",), _newest("commit_log_offset"), 12, is_number=True),
        Column("flags", ("flags",), _flags, 7, may_be_cut=True, least_cells=12),
        plain("advice", 2),
        Column("discard_in", ("discard_at_ms",), _left(now_ms), left_rank, is_number=True),
        *([plain("discard_at_ms", 10)] if with_deadline else []),
        *([plain("store", 6, may_be_cut=True)] if with_store else []),
        *([Column("causes", ("causes",), _causes, 9, may_be_cut=True, least_cells=24)] if with_state else []),
    ]
    return View(tuple(columns), nothing="")


#: Transactions compared with a ledger.
RECONCILED_VIEW = View(
    (
        plain("transaction_id", ALWAYS),
        plain("state", ALWAYS),
        plain("ledger_word", ALWAYS, "ledger"),
        plain("outcome", ALWAYS),
        plain("advice", ALWAYS),
        plain("keys", 1, may_be_cut=True, least_cells=18),
        plain("ledger_row", 3, may_be_cut=True),
        plain("reason", 2, may_be_cut=True, least_cells=30),
    ),
    "no transaction to list",
)


def answers_view(*, with_outcome: bool) -> View:
    """The answers of a stand-in, planned or with their outcomes."""
    columns = [
        plain("transaction_id", ALWAYS),
        plain("keys", 3, may_be_cut=True),
        plain("topic", 6, may_be_cut=True),
        plain("checks_count", 5, "checks"),
        plain("answer", ALWAYS),
    ]
    columns += [
        plain("outcome", ALWAYS), plain("half_queue_offset", 2, "half"),
        plain("outcome_reason", 1, "seen", may_be_cut=True), plain("answer_reason", 4, "because", may_be_cut=True),
    ] if with_outcome else [plain("answer_reason", 1, "because", may_be_cut=True)]
    return View(tuple(columns), "nothing is pending in the group")


def flights_view(*, with_store: bool) -> View:
    """The steps of a probe."""
    return View(
        (
            *([plain("store", 3, may_be_cut=True)] if with_store else []),
            plain("scenario", ALWAYS), plain("step", ALWAYS), plain("is_proved", ALWAYS, "proved"),
            Column("took", ("duration_ms",), lambda row: f"{row['duration_ms'] / 1000:.3f}s", ALWAYS, is_number=True),
            Column("may_take", ("allowed_ms",), lambda row: duration_text(row["allowed_ms"]), 4, is_number=True),
            plain("proof", 1, may_be_cut=True), plain("transaction_id", 2),
        ),
        "no step",
    )


def _notes(row: Row) -> str:
    """Return the notes; of refusals, which are also printed as lines, only the names of the guards."""
    is_refused = row["outcome"] == ActOutcome.REFUSED_BY_GUARD
    return escaped("; ".join(note.partition(": ")[0] if is_refused else note for note in row["notes"] or ()))


_NOTES = Column("notes", ("notes", "outcome"), _notes, 5, may_be_cut=True)


def acts_view() -> View:
    """Return the view of acts on transactions."""
    def response(row: Row) -> str:
        codes = [request["response_code"] for request in row["requests"]]
        return ",".join("none" if code is None else str(code) for code in codes)

    return View(
        (
            plain("transaction_id", ALWAYS), plain("action", ALWAYS), plain("outcome", ALWAYS),
            plain("state_before", 4, "before"), plain("state_after", 3, "after"),
            Column("response", ("requests",), response, 6), plain("producer_group", 7, "group"), plain("topic", 7),
            plain("keys", 2, may_be_cut=True, least_cells=18), plain("receipt_id", 1), _NOTES,
        ),
        "no transaction was acted on",
    )


def settings_view() -> View:
    """Return the view of holds, drains and releases."""
    def settings(row: Row) -> str:
        parts = [f"{one['setting']} {one['before']} → {one['after']}" for one in row["settings"] or ()]
        return escaped(", ".join(parts))

    return View(
        (
            plain("store", ALWAYS), plain("action", ALWAYS), plain("outcome", ALWAYS),
            Column("settings", ("settings",), settings, ALWAYS), plain("until_time_ms", 4), plain("receipt_id", 1),
            _NOTES,
        ),
        "no broker was changed",
    )


PRODUCERS_VIEW = View(
    (
        plain("store", 6, may_be_cut=True), plain("producer_group", ALWAYS, "group", may_be_cut=True),
        plain("pending_count", ALWAYS, "pending"), plain("client_id", 1, may_be_cut=True),
        plain("address", 2), plain("language", 4), plain("client_version", 3, "version"),
        plain("last_heartbeat_time_ms", 5, "heartbeat"), plain("is_proxy", 7, "proxy"),
    ),
    "no producer is connected",
)

#: Transactions that differ between two audits.
DIFFERENCES_VIEW = View(
    (
        plain("transaction_id", ALWAYS),
        plain("change", ALWAYS),
        plain("state_before", ALWAYS, "before"),
        plain("state_after", ALWAYS, "after"),
        plain("what", 1, may_be_cut=True),
        plain("flags_before", 6, may_be_cut=True),
        plain("flags_after", 5, may_be_cut=True),
        plain("topic", 3, may_be_cut=True),
        plain("keys", 2, may_be_cut=True, least_cells=18),
        plain("reason_after", 7, may_be_cut=True, least_cells=30),
    ),
    "no differences",
)


PROVED_VIEW = View(
    (
        plain("result", ALWAYS),
        plain("transaction_id", ALWAYS),
        plain("what", ALWAYS, may_be_cut=True),
        plain("expected", 1, may_be_cut=True),
        plain("actual", 2, may_be_cut=True),
        plain("store", 5, may_be_cut=True),
        plain("file", 3, may_be_cut=True),
        plain("position_bytes", 3, "byte"),
        plain("length_bytes", 4, "length"),
    ),
    "nothing to list",
)


CASE_EVENTS_VIEW = View(
    (
        plain("datetime", ALWAYS),
        plain("message", ALWAYS, may_be_cut=True, least_cells=30),
        plain("timestamp_desc", 3, "clock"),
        plain("transaction_id", 1),
        plain("keys", 4, may_be_cut=True),
        plain("commit_log_offset", 2),
        plain("store", 5, may_be_cut=True),
        plain("log_file", 6, may_be_cut=True),
        plain("log_line", 7),
    ),
    "no events",
)


#: The columns of all declared tables.
COLUMNS_VIEW = View((
    plain("table", ALWAYS), plain("column", ALWAYS), plain("type", 2), plain("unit", 1),
    plain("is_nullable", 3, "null"), plain("meaning", ALWAYS, wraps=True, least_cells=28),
))


def _view(*columns: Column) -> View:
    return View(columns)


#: Views of the tables of `decode` and others; `--fields` lists other columns.
VIEWS: dict[str, View] = {
    "records": _view(
        plain("commit_log_offset", ALWAYS), plain("store_time_ms", 4),
        plain("topic", ALWAYS, may_be_cut=True, least_cells=18),
        plain("queue_id", 5, "queue"), plain("queue_offset", 5), plain("transaction_type", 3, "type"),
        plain("transaction_id", 2), plain("keys", 1, may_be_cut=True, least_cells=18),
        plain("length_bytes", 7, "bytes"),
    ),
    "queue_slots": _view(
        plain("topic", ALWAYS, may_be_cut=True), plain("queue_id", ALWAYS, "queue"), plain("queue_offset", ALWAYS),
        plain("commit_log_offset", ALWAYS), plain("record_length_bytes", ALWAYS, "bytes"), plain("tags_code", 2),
        plain("kind", 3),
    ),
    "halves": _view(
        plain("queue_offset", ALWAYS, "half"), plain("commit_log_offset", 6), plain("store_time_ms", 5),
        plain("transaction_id", ALWAYS), plain("checks_count", 1, "checks"),
        plain("real_topic", 3, "topic", may_be_cut=True), plain("producer_group", 4, "group", may_be_cut=True),
        plain("keys", 2, may_be_cut=True, least_cells=18),
    ),
    "ops": _view(
        plain("queue_offset", ALWAYS, "op"), plain("commit_log_offset", ALWAYS), plain("store_time_ms", 2),
        plain("tags", 3), plain("body_form", 4), plain("half_queue_offsets", 1, "ends_halves", may_be_cut=True),
        plain("half_commit_log_offset", 1, "ends_log_offset"),
    ),
    "traces": _view(
        plain("time_ms", ALWAYS), plain("kind", ALWAYS), plain("decision", ALWAYS), plain("is_check_answer", 2),
        plain("transaction_id", ALWAYS), plain("producer_group", 3, "group", may_be_cut=True),
        plain("topic", 4, may_be_cut=True), plain("keys", 1, may_be_cut=True, least_cells=18),
        plain("commit_log_offset", 5),
    ),
    "index_entries": _view(
        plain("entry_number", ALWAYS), plain("key_hash", ALWAYS), plain("commit_log_offset", ALWAYS),
        plain("store_time_ms", 2), plain("previous_entry_number", 3), plain("file", 4, may_be_cut=True),
    ),
    "state_table": _view(
        plain("slot_number", ALWAYS, "slot"), plain("commit_log_offset", ALWAYS), plain("state", ALWAYS),
        plain("store_time_ms", 2), plain("record_length_bytes", 3, "bytes"), plain("producer_group_hash", 4, "group"),
    ),
    "redo_log": _view(
        plain("entry_number", ALWAYS, "entry"), plain("kind", ALWAYS), plain("commit_log_offset", ALWAYS),
        plain("half_commit_log_offset", ALWAYS, "prepared"), plain("record_length_bytes", 3, "bytes"),
    ),
    "checkpoint": _view(
        plain("field", ALWAYS), plain("value", ALWAYS), plain("time_ms", 2), plain("since", 3),
        plain("meaning", 4, may_be_cut=True),
    ),
    "cursors": _view(
        plain("topic", ALWAYS, may_be_cut=True), plain("group", ALWAYS, may_be_cut=True),
        plain("queue_id", ALWAYS, "queue"), plain("next_queue_offset", ALWAYS), plain("file", 3, may_be_cut=True),
    ),
    "rocksdb_transactions": _view(
        plain("half_commit_log_offset", ALWAYS), plain("transaction_id", ALWAYS), plain("checks_count", 1, "checks"),
        plain("topic", 2, may_be_cut=True), plain("record_length_bytes", 3, "bytes"),
    ),
    "dledger_entries": _view(
        plain("entry_index", ALWAYS, "entry"), plain("term", 2), plain("commit_log_offset", ALWAYS),
        plain("length_bytes", 3, "bytes"), plain("topic", 1, may_be_cut=True), plain("body_crc_matches", 2, "crc"),
    ),
    "epochs": _view(
        plain("epoch", ALWAYS), plain("begin_offset", ALWAYS), plain("end_offset", ALWAYS),
        plain("file", 3, may_be_cut=True),
    ),
    "findings": _view(
        plain("severity", ALWAYS), plain("code", ALWAYS), plain("file", 1, may_be_cut=True, least_cells=12),
        plain("position_bytes", 3), plain("length_bytes", 4), plain("expected", 5, may_be_cut=True, least_cells=20),
        plain("actual", 5, may_be_cut=True, least_cells=20), plain("meaning", ALWAYS, wraps=True, least_cells=28),
    ),
    "exported": _view(
        plain("topic", ALWAYS, may_be_cut=True), plain("day", ALWAYS), plain("rows_count", ALWAYS, "rows"),
        plain("size_bytes", ALWAYS, "size"), plain("file", ALWAYS, may_be_cut=True),
    ),
    "coverage": _view(
        plain("file", 2, may_be_cut=True), plain("size_bytes", ALWAYS, "size"),
        plain("decoded_bytes", ALWAYS, "decoded"),
        plain("filler_bytes", ALWAYS, "filler"), plain("damaged_bytes", ALWAYS, "damaged"),
        plain("unread_bytes", ALWAYS, "unread"),
    ),
}
