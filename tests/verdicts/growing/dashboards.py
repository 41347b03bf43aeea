"""The queries of docs/growing_verdicts.md, and what they must give for the rows of a table."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "growing_verdicts.md"
_Row = dict[str, Any]


def queries() -> list[str]:
    found = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 4
    return [text.strip().rstrip(";") for text in found]


def assert_right(answers: list[list[_Row]], rows: list[_Row], tolerance_s: float) -> None:
    """Compare with what the rows of the table give without SQL."""
    hanging, history, decided, twice = answers
    current = [row for row in rows if row["valid_to"] is None]
    pending = Counter((row["day"], row["producer_group"]) for row in current if row["state"] == "PENDING")
    assert {(row["day"], row["producer_group"]): row["hanging"] for row in hanging} == pending
    assert pending

    days = {row["valid_from"].date() for row in rows}
    then = Counter(
        (day, row["producer_group"]) for day in days for row in rows
        if row["state"] == "PENDING" and row["valid_from"].date() <= day
        and (row["valid_to"] is None or row["valid_to"].date() > day)
    )
    assert {(row["day"], row["producer_group"]): row["hanging"] for row in history} == then

    took: dict[tuple[Any, Any], list[float]] = defaultdict(list)
    for row in current:
        if row["state"] in ("COMMITTED", "ROLLED_BACK"):
            seconds = (row["decided_time"] - row["half_store_time"]).total_seconds()
            took[row["day"], row["producer_group"]].append(seconds)
    assert {(row["day"], row["producer_group"]): row["decided"] for row in decided} == {
        key: len(some) for key, some in took.items()
    }
    for row in decided:
        some = took[row["day"], row["producer_group"]]
        assert abs(float(row["longest_s"]) - max(some)) <= tolerance_s
        assert abs(float(row["median_s"]) - statistics.median(some)) <= tolerance_s
        assert row["median_s"] <= row["percentile_95_s"] <= row["longest_s"]

    delivered = Counter(
        (row["day"], row["topic"], row["producer_group"]) for row in current if (row["deliveries_count"] or 0) > 1
    )
    assert {(row["day"], row["topic"], row["producer_group"]): row["delivered_twice"] for row in twice} == delivered
    assert delivered


