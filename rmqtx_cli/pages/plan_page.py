"""The page of `rmqtx plan show`: number of transactions by action, reasons, groups, stores, and the next command."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.readers.model.shell_words import quoted
from rmqtx.repairs.acts.guard_rules import may_deliver_rolled_back
from rmqtx.repairs.plans.apply_plan import StepWord, progress_of
from rmqtx.repairs.plans.draft_plan import KnownPlan, digest_in
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.words.text import count, escaped
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from rmqtx.repairs.receipts.plan_file import Plan
    from rmqtx.repairs.receipts.receipts import Receipt

_OFFSETS = re.compile(r"(?<![\w-])\d+(?![\w-])")


#: The options with which a plan of files was made, and with which it must be carried out.
_OF_FILES = {"commit_log": "--commitlog", "broker_conf": "--broker-conf", "broker_version": "--broker-version"}


def progress_lines(known: KnownPlan, receipts: Sequence[Receipt]) -> Iterator[str]:
    """The lines about how far the plan is, by all receipts of a journal, and the command that goes on."""
    digest = known.digest
    found = progress_of(known.plan, digest, receipts)
    counts = ", ".join(f"{len(steps)} {word}" for word, steps in found.items() if steps)
    yield f"{known.file}: {count(len(known.plan.steps), 'step')}: {counts or 'none'}"
    ours = [one for one in receipts if digest_in(one) == digest]
    is_begun = bool(ours)
    approvals = [str(one.plan.get("approved_by")) for one in ours if one.plan and one.plan.get("approved_by")]
    people = {
        "written": known.plan.written_by if ours else (),
        "approved": approvals,
        "applied": [one.who for one in ours],
    }
    people_words = [f"{how} by {', '.join(dict.fromkeys(names))}" for how, names in people.items() if names]
    if people_words:
        yield "; ".join(people_words)
    others = sum(one.plan is not None and one.plan.get("file") == str(known.file) for one in receipts)
    if not is_begun and others:
        number = count(others, "receipt")
        yield f"{number} of a plan of this name with another text: the file was written again since"
    if len(found[StepWord.DONE]) < len(known.plan.steps):
        yield f"next: {apply_command(known.plan, known.file)}{' --continue' if is_begun else ''}"


def plan_lines(plan: Plan, file: Path) -> Iterator[str]:
    """The lines above the steps."""
    steps = plan.steps
    by_action = Counter(step.action for step in steps)
    what = ", ".join(f"{action} {count(number, 'transaction')}" for action, number in by_action.items())
    yield f"plan    {what}; made {time_text(plan.made_time_ms)} by {escaped(plan.made_by)}"
    if plan.written_by:
        yield f"by      {escaped(', '.join(plan.written_by))}"
    for reason, number in _by_kind(step.reason for step in steps).most_common():
        yield f"why     {escaped(reason)}{f' ({number})' if number != len(steps) else ''}"
    for (group, topic), number in Counter((step.producer_group, step.topic) for step in steps).most_common():
        yield f"of      {escaped(str(group))} to {escaped(str(topic))}: {number}"
    for store in plan.stores:
        process = store["broker_process"]
        how = "the broker was running" if process is not None else "no broker was running"
        if _is_live(store["store"]):
            how = "a live broker"
        ended = ", and the last one had not stopped cleanly" if store["aborted"] and process is None else ""
        yield f"from    {escaped(store['store'])}, as of {time_text(store['taken_time_ms'])}: {how}{ended}"
    if number := sum(may_deliver_rolled_back(step.action, step.flags) for step in steps):
        yield f"refused {count(number, 'step')} by op-in-memory, unless apply has --override op-in-memory --reason TEXT"
    yield f"next    {apply_command(plan, file)} --dry-run"
    yield ""


def _is_live(root: str) -> bool:
    """Whether a store of a plan is a live broker: NAME@HOST:PORT."""
    return re.fullmatch(r".+@.+:[0-9]+", root) is not None


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
    """The command that carries out a plan, where it was made from: on live brokers, or on a store, the first of
    several.
    """
    root = plan.stores[0]["store"] if plan.stores else None
    command = f"rmqtx apply {quoted(str(file))} "
    if root is None or _is_live(root):
        return carried(f"{command}-n HOST:PORT")
    made_with = plan.made_from.get("options") or {}
    given = {name: made_with[key] for key, name in _OF_FILES.items() if made_with.get(key)}
    options = [f"{name} {quoted(str(one))}" for name, value in given.items() for one in _each(value)]
    version = [] if "--broker-version" in given else ["--broker-version X.Y.Z"]
    return carried(f"{command}--store {quoted(str(root))} --to NEW {' '.join([*options, *version])}".rstrip())


def _each(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
