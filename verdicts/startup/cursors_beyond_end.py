"""A half cursor that lies beyond the end of its queue: whether it still does after the next start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.startup.findings import not_predictable
from rmqtx.verdicts.startup.refusals import refusals_of_directory, start_directories
from rmqtx.verdicts.startup.rules import RecoveryRules, possible_rules
from rmqtx.verdicts.startup.started_queues import started_queues

_CODE = "cursor-beyond-end"


def still_beyond(
    store: Store, settings: BrokerSettings, findings: Sequence[Finding], *, is_cut: bool
) -> Iterator[Finding]:
    """Return the findings without that of a half cursor that lies within half queue 0 after the next start.

    `is_cut`: the start may end the log at damaged bytes; then nothing is left out.
    """
    ends: list[int] | None = None
    for found in findings:
        if found.code != _CODE or is_cut or found.actual is None:
            yield found
            continue
        if ends is None:
            ends = _ends(store, settings)
        if not ends or int(found.actual) > min(ends):
            yield found


def _ends(store: Store, settings: BrokerSettings) -> list[int]:
    """Return the end of half queue 0 after a start of each possible release; none if a start is not predicted."""
    conf = settings.given or {}
    if store.in_use or not_predictable(store, conf) is not None:
        return []
    ends = []
    try:
        for rules in possible_rules(settings, conf, is_dledger=store.is_dledger):
            if _refuses(store, settings, rules):
                continue
            started = started_queues(store, rules.version, conf, 0)
            if started is None:
                return []
            queue = started[HALF_TOPIC]
            ends.append(max(queue.end, queue.kept_end + len(queue.added)))
    except SourceError:
        return []  # reported by the reader of the file
    return ends


def _refuses(store: Store, settings: BrokerSettings, rules: RecoveryRules) -> bool:
    """Whether a release does not load a file of the store."""
    return any(
        True for one in start_directories(store, settings.given or {}) for _ in refusals_of_directory(store, one, rules)
    )
