"""Orders in which transactions are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx_cli.options import Order

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS: dict[Order, list[tuple[str, str]]] = {
    Order.AGE: [],
    Order.CHECKS: [("checks_count", "descending")],
    Order.GROUP: [("producer_group", "ascending")],
    Order.TOPIC: [("topic", "ascending")],
    Order.STORE: [("store", "ascending")],
    Order.DEADLINE: [("discard_at_ms", "ascending")],
}
_TIE = [("half_store_time_ms", "ascending"), ("transaction_id", "ascending")]


def ordered(rows: pa.Table, order: Order) -> pa.Table:
    """The rows in an order; equals by age, oldest first, then by id, so that two runs list them alike."""
    return rows.sort_by([*_KEYS[order], *_TIE])
