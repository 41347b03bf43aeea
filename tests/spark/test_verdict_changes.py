"""The stream of changed verdicts in Spark, as docs/verdict_changes.md uses it: the page's code runs from its text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions

from rmqtx.readers.store.store import open_store
from rmqtx.spark_tasks.source.read_options import Settings, parse_options
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.stores import unpacked
from tests.spark.growing import Growing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
_PAGE = Path(__file__).parents[2] / "docs" / "verdict_changes.md"
Row = dict[str, Any]


def blocks(directory: Path) -> list[str]:
    """The page's Python code, with all paths below a directory."""
    found = re.findall(r"^```python\n(.*?)^```", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 2
    return [re.sub(r'"(/(?:var|data)/)', rf'"{directory}\1', text) for text in found]


def written(directory: Path) -> list[Row]:
    return [json.loads(line) for file in sorted(directory.glob("*.json")) for line in file.read_text().splitlines()]


def audited(root: Path) -> list[Row]:
    rows: list[Row] = audit([open_store(root)], Settings(parse_options({"path": "/"}))).table().to_pylist()
    return rows


def test_the_pages_alert_and_join(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "data" / "rocketmq" / "store"
    root.parent.mkdir(parents=True)
    growing = Growing(unpacked("failover-5.3.3"), root)
    for name in ("var/lib/rmqtx", "data/ledger"):
        (tmp_path / name).mkdir(parents=True)
    alert, join = blocks(tmp_path)
    names = {"spark": spark, "F": functions}
    wanted: set[tuple[str, str]] = set()
    for moment in growing.moments(2, 1):
        growing.write_to(moment)
        exec(alert, names)
        wanted |= {(row["transaction_id"], row["state"]) for row in audited(root)
                   if row["state"] in ("LOST", "DISCARDED")}
    alerts = written(tmp_path / "data" / "alerts")
    assert sorted((row["transaction_id"], row["state"]) for row in alerts) == sorted(wanted)
    assert alerts

    rows = [row for row in audited(root) if row["keys"] and row["half_store_time_ms"] and row["state"] != "PENDING"]
    orders = [
        {"order_key": row["keys"], "status": ("done", "failed")[number % 2], "booked_at": row["half_store_time_ms"]}
        for number, row in enumerate(rows)
    ]
    for order in orders:
        order["booked_at"] = f"{spark_time(order['booked_at'])}"
    (tmp_path / "data" / "ledger" / "1.json").write_text("\n".join(map(json.dumps, orders)))
    exec(join, names)
    found = written(tmp_path / "data" / "contradictions")
    status = {order["order_key"]: order["status"] for order in orders}
    contradicting = [
        (row["transaction_id"], row["state"]) for row in rows
        if row["state"] != "UNDECIDABLE" and (status[row["keys"]] == "done") != (row["state"] == "COMMITTED")
    ]
    assert sorted((row["transaction_id"], row["state"]) for row in found) == sorted(contradicting)
    assert contradicting


def spark_time(epoch_ms: int) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(epoch_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
