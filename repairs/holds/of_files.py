"""A hold of a stopped broker: the settings for its configuration file, to be written there by the operator."""

from __future__ import annotations

import pyarrow as pa

from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.repairs.holds.changes import held_settings
from rmqtx.repairs.holds.open_halves import Forecast, OpenHalf
from rmqtx.repairs.holds.standing_holds import CHECK_MAX, RESERVED_HOURS
from rmqtx.repairs.receipts.receipts import SettingChange


def settings_to_write(
    settings: BrokerSettings, rows: pa.Table, now_ms: int, until_ms: int
) -> tuple[SettingChange, ...]:
    """Return the settings with which the check discards nothing until a time, with the values of before.

    `rows`: the open transactions of the store, of TRANSACTIONS. None if the settings suffice.
    """
    names = ["transaction_id", "checks_count", "born_time_ms", "discard_at_ms"]
    halves = tuple(
        OpenHalf(
            row["transaction_id"], row["checks_count"] or 0, now_ms if row["born_time_ms"] is None else
            row["born_time_ms"], row["discard_at_ms"], is_at_once=False,
        ) for row in rows.select(names).to_pylist()
    )
    present = {
        CHECK_MAX: str(settings.transaction_check_max), RESERVED_HOURS: str(settings.file_reserved_time_hours),
    }
    return held_settings(settings, present, Forecast(halves), None, now_ms, until_ms)
