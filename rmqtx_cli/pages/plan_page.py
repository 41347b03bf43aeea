"""The page of `rmqtx plan show`: number of transactions by action, reasons, groups, stores, and the next command."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from readers.model.shell_words import quoted
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.words.text import count, escaped
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from repairs.receipts.plan_file import Plan

_OFFSETS = re.compile(r"(?<![\w-])\d+(?![\w-])")


def plan_lines(plan: Plan, file: Path) -> Iterator[str]:
    """The lines above the steps."""
    steps = plan.steps
    by_action = Counter(step["action"] for step in steps)
    what = ", ".join(f"{action} {count(number, 'transaction')}" for action, number in by_action.items())
    yield f"plan    {what}; made {time_text(plan.made_time_ms)} by {escaped(plan.made_by)}"
    for reason, number in _by_kind(step["reason"] for step in steps).most_common():
        yield f"why     {escaped(reason)}{f' ({number})' if number != len(steps) else ''}"
    for (group, topic), number in Counter((step["producer_group"], step["topic"]) for step in steps).most_common():
        yield f"of      {escaped(str(group))} to {escaped(str(topic))}: {number}"
    for store in plan.stores:
        process = store["broker_process"]
        how = "the broker was running" if process is not None else "no broker was running"
        ended = ", and the last one had not stopped cleanly" if store["aborted"] and process is None else ""
        yield f"from    {escaped(store['store'])}, as of {time_text(store['taken_time_ms'])}: {how}{ended}"
    yield f"next    {apply_command(plan, file)} --dry-run"
    yield ""


def _by_kind(reasons: Iterable[str]) -> Counter[str]:
    """The reasons and how many steps have each; reasons that differ in offsets only are one, with N for these.

    Offsets name the records of one transaction, and the steps below have them. A ticket's number (OPS-4711) stays.
    """
    kinds: dict[str, Counter[str]] = {}
    for reason in reasons:
        kinds.setdefault(_OFFSETS.sub("N", reason), Counter())[reason] += 1
    return Counter({
        kind if len(found) > 1 else next(iter(found)): found.total() for kind, found in kinds.items()
    })


def apply_command(plan: Plan, file: Path) -> str:
    """The command that carries out a plan, where it was made from: on a store or on live brokers."""
    root = plan.stores[0]["store"] if len(plan.stores) == 1 else None
    of_files = root is not None and "@" not in root  # a live broker is NAME@HOST:PORT
    where = f"--store {quoted(str(root))} --to NEW" if of_files else "-n HOST:PORT"
    return carried(f"rmqtx apply {quoted(str(file))} {where}")
