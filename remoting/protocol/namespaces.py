"""Names in a namespace: clients put `NAMESPACE%` before topics and groups, after %RETRY% or %DLQ%.

Brokers do not interpret it: for them, and in every table of rmqtx, the whole text is the name.
Source: common/protocol/NamespaceUtil.java (remoting/protocol in 5.x).
"""

from __future__ import annotations

from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC

SEPARATOR = "%"
#: Consumers' own topics, before the namespace: %RETRY%NAMESPACE%GROUP.
_MARKS = ("%RETRY%", "%DLQ%")
#: Never in a namespace.
_SYSTEM_TOPICS = frozenset({
    SCHEDULE_TOPIC, "BenchmarkTest", HALF_TOPIC, TRACE_TOPIC, OP_TOPIC, DISCARD_TOPIC, "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT", "TBW102",
})  # fmt: skip
_SYSTEM_GROUPS = ("CID_RMQ_SYS_", "TOOLS_CONSUMER")


def with_namespace(name: str, namespace: str | None) -> str:
    """Return the name as brokers have it; a name with the namespace, or one that never has any, is unchanged."""
    if not namespace or not name or _is_system(name):
        return name
    mark, rest = _split(name)
    return name if rest.startswith(f"{namespace}{SEPARATOR}") else f"{mark}{namespace}{SEPARATOR}{rest}"


def _split(name: str) -> tuple[str, str]:
    mark = next((mark for mark in _MARKS if name.startswith(mark)), "")
    return mark, name[len(mark) :]


def _is_system(name: str) -> bool:
    return name in _SYSTEM_TOPICS or name.startswith(("rmq_sys_", *_SYSTEM_GROUPS))
