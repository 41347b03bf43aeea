"""How receipts are shown in a table: those of acts on transactions, and those of changed settings."""

from __future__ import annotations

from rmqtx.repairs.receipts.act_words import ActOutcome
from rmqtx_cli.output.views import ALWAYS, Column, Row, View, plain
from rmqtx_cli.words.text import escaped


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
    )  # fmt: skip


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
    )  # fmt: skip
