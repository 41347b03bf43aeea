"""One receipt as a page for people: action, reason, every request and response, and the evidence before and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa

from rmqtx.repairs.receipts.act_words import OF_SETTINGS, OUTCOMES, STANDINGS
from rmqtx.repairs.receipts.receipts import RECHECK, REQUEST, WITNESS, Receipt
from rmqtx_cli.output.table import write_table
from rmqtx_cli.output.views import ALWAYS, Column, Row, View, plain
from rmqtx_cli.words.text import escaped
from rmqtx_cli.words.times import time_text

_WITNESS_VIEW = View(
    (
        plain("kind", ALWAYS), plain("queue_id", ALWAYS, "queue"), plain("queue_offset", ALWAYS, "queue offset"),
        plain("commit_log_offset", ALWAYS, "log offset"), plain("store", 1, may_be_cut=True),
    )
)


def _fields(row: Row) -> str:
    return escaped(" ".join(f"{name}={value}" for name, value in row["fields"] or ()))


def _response(row: Row) -> str:
    if row["response_code"] is None:
        return "none"
    return f"{row['response_code']} {escaped(row['response_remark'] or '')}".rstrip()


_REQUEST_VIEW = View(
    (
        plain("sent_time_ms", ALWAYS, "sent"), plain("request", ALWAYS),
        Column("response", ("response_code", "response_remark"), _response, ALWAYS, may_be_cut=True, wraps=True),
        Column("with", ("fields",), _fields, 1, may_be_cut=True, wraps=True),
    )
)
_RECHECK_VIEW = View(
    (
        plain("rechecked_time_ms", ALWAYS, "checked"), plain("standing", ALWAYS),
        plain("standing_reason", 1, wraps=True), plain("who", 2, may_be_cut=True),
    )
)
#: The lists of the page.
VIEWS = (_WITNESS_VIEW, _REQUEST_VIEW, _RECHECK_VIEW)


def draw_receipt(receipt: Receipt, stream: IO[bytes]) -> None:
    """Write the page."""
    row = receipt.row()
    _write(stream, _head(receipt))
    asked = [{**entry, "fields": list((entry["fields"] or {}).items())} for entry in row["requests"]]
    _write_table(stream, "requests", asked, REQUEST, _REQUEST_VIEW)
    state = f"before: {receipt.state_before or 'unknown'}"
    if receipt.action in OF_SETTINGS:
        _write_table(stream, "rechecks", row["rechecks"], RECHECK, _RECHECK_VIEW)
        return
    _write_table(stream, state, row["witnesses_before"], WITNESS, _WITNESS_VIEW)
    flags = f" ({', '.join(receipt.flags_after)})" if receipt.flags_after else ""
    state = f"after: {receipt.state_after or 'not read'}{flags}"
    _write_table(stream, state, row["witnesses_after"], WITNESS, _WITNESS_VIEW)
    _write_table(stream, "rechecks", row["rechecks"], RECHECK, _RECHECK_VIEW)


def _head(receipt: Receipt) -> Iterator[str]:
    def named(label: str, value: Any) -> str:
        return f"{label:<12}{escaped(str(value))}"

    yield f"{receipt.receipt_id}  {escaped(receipt.action)}  {escaped(receipt.outcome)}"
    yield named("outcome", OUTCOMES.get(receipt.outcome, "unknown to this version of rmqtx"))
    if receipt.transaction_id is not None:
        yield named("transaction", receipt.transaction_id)
    for label, value in (
        ("group", receipt.producer_group), ("topic", receipt.topic), ("keys", receipt.keys), ("store", receipt.store),
    ):
        if value:
            yield named(label, value)
    yield named("begun", time_text(receipt.begun_time_ms))
    yield named("ended", time_text(receipt.ended_time_ms) or "not ended: the command was interrupted")
    yield named("who", f"{receipt.who}, {receipt.made_by}")
    yield named("why", receipt.reason or "no reason given")
    for one in receipt.settings:
        yield named("setting", one.words)
    if receipt.until_time_ms is not None:
        yield named("until", time_text(receipt.until_time_ms))
    if receipt.overrides:
        yield named("overridden", ", ".join(receipt.overrides))
    if receipt.plan:
        yield named("plan", f"{receipt.plan.get('file')} {receipt.plan.get('digest') or ''}")
        for label, key in (("written by", "written_by"), ("approved by", "approved_by")):
            if value := receipt.plan.get(key):
                yield named(label, value)
    if receipt.named_copy:
        copy = receipt.named_copy
        yield named("named", f"queue offset {copy.queue_offset} at commit-log offset {copy.commit_log_offset}")
    if receipt.saved_message:
        yield named("kept in", receipt.saved_message)
    for note in receipt.notes:
        yield named("note", note)
    if receipt.rechecks:
        latest = receipt.rechecks[-1].standing
        yield named("since then", f"{latest}: {STANDINGS.get(latest, '')}")


def _write(stream: IO[bytes], lines: Iterator[str] | list[str]) -> None:
    stream.write("".join(f"{line}\n" for line in lines).encode())


def _write_table(stream: IO[bytes], title: str, rows: list[dict[str, Any]], kind: pa.StructType, view: View) -> None:
    if not rows:
        if ":" in title:
            _write(stream, ["", title])
        return
    table = pa.Table.from_pylist(rows, schema=pa.schema(list(kind)))
    _write(stream, ["", title])
    write_table(stream, table, view)
