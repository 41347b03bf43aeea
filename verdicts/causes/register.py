"""All causes, by word."""

from __future__ import annotations

from rmqtx.verdicts.causes import (
    broker_logs,
    checks,
    clients,
    op_messages,
    other_designs,
    proxies,
    roles,
    second_decisions,
    shared_groups,
    traces,
)
from rmqtx.verdicts.causes.cause import Cause

_FAMILIES = (
    second_decisions, checks, op_messages, roles, clients, broker_logs, other_designs, proxies, shared_groups, traces,
)  # fmt: skip

CAUSES: dict[str, Cause] = {cause.word: cause for family in _FAMILIES for cause in family.CAUSES}
