"""A plan of many transactions: the time from the plan to the last confirmation, with all guards."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from tests.brokers.forcing.races import AT_ONCE
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tool import Tool


def plan(stage: Stage, tool: Tool, count: int) -> dict[str, Any]:
    """Plan and apply the commit of `count` transactions of a dead producer; return the figures."""
    shop = stage.shop("bulk")
    begun = [shop.begin("bulk", number) for number in range(count)]
    shop.until_decided(300)
    shop.kill()
    stage.until_gone(shop.group)
    file = tool.state.with_name("plan.json")
    began = time.monotonic()
    planned = tool.run("plan", "commit", "--group", "bulk", "--reason", "a plan of many", "-o", str(file), "--quiet")
    planned_at = time.monotonic()
    applied = tool.run("apply", str(file), "--yes", "--format", "jsonl", "--quiet")
    ended = time.monotonic()
    stage.until_consumed()
    if planned.status or applied.status:
        stage.logged(f"{planned.stderr[-1000:]} {applied.stderr[-1000:]}")
    delivered = Counter(stage.delivered(one) for one in begun)
    return {
        "transactions": count, "at_once": AT_ONCE, "plan_status": planned.status, "apply_status": applied.status,
        "plan_seconds": round(planned_at - began, 1), "apply_seconds": round(ended - planned_at, 1),
        "outcomes": dict(Counter(row["outcome"] for row in applied.rows)), "delivered_once": delivered[1],
        "delivered_twice": sum(number for times, number in delivered.items() if times > 1),
    }
