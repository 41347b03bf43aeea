"""The cursors with which the next start of a broker begins its check, if they are not those that were written last.

4.9.3 does not read config/lmqConsumerOffset.json when it starts, and a broker whose enableLmq was switched reads the
other file: the one from before the switch, or none. Without cursors the check begins at the first messages of the
queues, puts back copies of transactions that were settled long ago, and discards them in the end. A half cursor may
also lie beyond the end of its queue, before and after the next start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rmqtx.readers.cursors.cursors import CheckCursors, check_cursors, cursors_of_file
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import ALWAYS, NEWEST_READ, Version, dotted
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.paths import CURSOR_FILES, CursorFile
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.startup.findings import not_predictable
from rmqtx.verdicts.startup.refusals import refusals_of_directory, start_directories
from rmqtx.verdicts.startup.rules import RecoveryRules, possible_rules
from rmqtx.verdicts.startup.started_queues import started_queues

_SWITCH = "enableLmq"
_CODE = "cursor-beyond-end"


class CursorsAtStart(NamedTuple):
    """The cursors of a start; `why`: the cause if they are not those that were written last, else None."""

    cursors: CheckCursors
    why: str | None


def starting_cursors(
    store: Store, cursors: CheckCursors, version: Version, conf: Mapping[str, str] | None = None
) -> CursorsAtStart:
    """Return the cursors with which a broker of a version starts. `conf`: its configuration as far as it is known.

    Source: broker/offset/LmqConsumerOffsetManager.java (4.9.3, 4.9.4), BrokerController.java.
    """
    file = next((one for one in CURSOR_FILES if cursors.name == one.name), None)
    if file is None or cursors.is_supposed or cursors.half is None or cursors.op is None:
        return CursorsAtStart(cursors, None)
    wanted, begin = _wanted(file, version, conf or {}), "its check begins at the first messages of the queues"
    place = store.place("config", wanted.name)
    if version < wanted.loaded_since:
        started = replace(cursors, half={}, op={}, file=None)
        return CursorsAtStart(started, f"broker {dotted(version)} does not read {place} when it starts: {begin}")
    if wanted is file:
        return CursorsAtStart(cursors, None)
    started = cursors_of_file(store, wanted)
    words = f"with {wanted.setting} the broker reads {place} when it starts"
    if started.half is None or started.op is None:
        return CursorsAtStart(replace(started, half={}, op={}), f"{words}, which has no cursors: {begin}")
    half = started.half.get(0)
    return CursorsAtStart(started, f"{words}: {begin if half is None else f'its check begins at half {half}'}")


def _wanted(file: CursorFile, version: Version, conf: Mapping[str, str]) -> CursorFile:
    """Return the file that a broker reads: by its configuration, else the one that was written last."""
    given = conf.get(_SWITCH)
    usual, light = CURSOR_FILES
    if given is None or version < (light.written_since or ALWAYS):
        return file
    return light if given.strip().lower() == "true" else usual


def not_read(
    store: Store, cursors: CheckCursors, settings: BrokerSettings, conf: Mapping[str, str] | None = None
) -> tuple[CursorsAtStart, bool] | None:
    """Return a start that does not continue at the check cursor, and whether all possible versions start like this.

    None if all of them continue there.
    """
    low, high = settings.version_low or ALWAYS, settings.version_high or NEWEST_READ
    starts = [starting_cursors(store, cursors, version, conf) for version in sorted({low, high})]
    others = [start for start in starts if start.why is not None]
    return (others[0], len(others) == len(starts)) if others else None


def known_start(
    store: Store, cursors: CheckCursors, settings: BrokerSettings, conf: Mapping[str, str] | None = None
) -> CheckCursors:
    """Return the cursors with which the next start of a stopped broker begins, if every possible release does."""
    found = None if store.in_use else not_read(store, cursors, settings, conf)
    return found[0].cursors if found is not None and found[1] else cursors


def starting_findings(
    store: Store, settings: BrokerSettings, conf: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """A finding if the next start begins the check at another half: it repeats some or skips some."""
    cursors = check_cursors(store)
    found = not_read(store, cursors, settings, conf)
    if found is None or cursors.half is None:
        return
    (started, why), is_certain = found
    again = _halves_between(store, (started.half or {}).get(0), cursors.half.get(0))
    if not again:
        return
    perhaps = "" if is_certain else "perhaps (--broker-version): "
    effect = f"{again} half copies are read again" if again > 0 else f"{-again} half copies are never read"
    yield Finding(
        store.root, "cursors-not-loaded", cursors.file,
        expected=f"the check continues at half {cursors.half.get(0)}", actual=f"{perhaps}{why}; {effect}",
    )  # fmt: skip


def _halves_between(store: Store, begin: int | None, end: int | None) -> int:
    """Return the number of remaining half copies between two cursors; None stands for the queue's beginning."""
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            low, high = queue.min_offset, queue.max_offset
    except SourceError:
        return 0
    first, past = (low if one is None else max(low, min(one, high)) for one in (begin, end))
    return past - first


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
