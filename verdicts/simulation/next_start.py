"""The next start of a stopped broker: which starts are possible, as far as the check differs, and with which cursors it
begins the check, if they are not those that were written last.

4.9.3 does not read config/lmqConsumerOffset.json when it starts, and a broker whose enableLmq was switched reads the
other file: the one from before the switch, or none. Without cursors the check begins at the first messages of the
queues, puts back copies of transactions that were settled long ago, and discards them in the end. A half cursor may
also lie beyond the end of its queue, before and after the next start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rmqtx.readers.cursors import CheckCursors, check_cursors, cursors_of_file
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.releases import ALWAYS, NEWEST_READ, Version, dotted
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.rocksdb.rocksdb_queues import damaged_databases
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.paths import CURSOR_FILES, CursorFile
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store, is_bundle
from rmqtx.readers.store.version_signs import rust_mark
from rmqtx.verdicts.check.slots import half_queues
from rmqtx.verdicts.startup.recovery import loaded_log
from rmqtx.verdicts.startup.refusals import (
    refusals_of_configuration,
    refusals_of_directory,
    refusals_of_index,
    start_directories,
)
from rmqtx.verdicts.startup.rules import RecoveryRules, not_predictable, possible_rules
from rmqtx.verdicts.startup.started_queues import StartedQueue, ends_in_empty_file, started_queues

#: The half and op queues after a start, by half queue; None if the broker does not start.
_Started = tuple[dict[str, StartedQueue] | None, ...] | None


def refused_by_all(store: Store, settings: BrokerSettings) -> list[Finding]:
    """Return why no release that a stopped broker may have starts on its store; nothing if one does, and of a bundle.

    Damage: start-refused, for the newest of these releases.
    Raises: UnreadableFile, FileChanged.
    """
    if store.in_use or is_bundle(store):
        return []
    found = damaged_databases(store)
    if found or rust_mark(store) is not None:
        return found
    refused = _Refusals(store, settings)
    kinds = possible_rules(settings, settings.given or {}, is_dledger=store.is_dledger)
    return refused.findings(kinds[-1]) if all(refused.hold(rules) for rules in kinds) else []


def differing_starts(store: Store, settings: BrokerSettings, *, only_refusals: bool = False) -> list[Version]:
    """Return a release of each group of possible ones whose starts leave the half and op queues in the same state.

    `only_refusals`: only whether they start, as where nothing else is predicted of a start.
    Order: ascending; one release or none if all starts are the same.
    Raises: UnreadableFile, FileChanged.
    """
    conf = settings.given or {}
    if store.in_use or is_bundle(store) or rust_mark(store) is not None:
        return []
    kinds = possible_rules(settings, conf, is_dledger=store.is_dledger)
    if len(kinds) < 2:
        return []
    is_predicted = not only_refusals and not_predictable(store, conf) is None
    groups: list[tuple[_Started, Version]] = []
    for version, found in _starts(store, settings, kinds, is_predicted=is_predicted):
        groups = [group for group in groups if group[0] != found]
        groups.append((found, version))
    return [version for _, version in groups]


def _starts(
    store: Store, settings: BrokerSettings, kinds: list[RecoveryRules], *, is_predicted: bool
) -> Iterator[tuple[Version, _Started]]:
    """Return the result of each kind of start, of the newest last."""
    conf, queues = settings.given or {}, half_queues(store)
    # Where no record lacks a slot, a start depends only on the files that it loads; but after a kill some releases cut
    # the queues of a DLedger log, whatever they have.
    complete: dict[int, _Started] = {}
    refused = _Refusals(store, settings)
    for rules in kinds:
        if refused.hold(rules):
            yield rules.version, None
            continue
        if not is_predicted:
            yield rules.version, ()
            continue
        files_count = len(loaded_log(store, conf, rules)[0])
        found = None if store.is_dledger else complete.get(files_count)
        if found is None:
            found = tuple(started_queues(store, rules.version, conf, queue_id) for queue_id in queues)
            if all(one is not None and all(queue.is_complete for queue in one.values()) for one in found):
                complete[files_count] = found
        yield rules.version, found


class _Refusals:
    """Which kinds of start a store prevents; its directories are listed once for all."""

    def __init__(self, store: Store, settings: BrokerSettings) -> None:
        self._store = store
        self._directories = start_directories(store, settings.given or {})
        self._is_unreadable = any(True for _ in refusals_of_configuration(store))
        self._is_predictable = not_predictable(store, settings.given or {}) is None
        self._has_empty_file: dict[tuple[str, bool], bool] = {}

    def findings(self, rules: RecoveryRules) -> list[Finding]:
        """Return why a start by some rules does not succeed."""
        found = [one for directory in self._directories for one in refusals_of_directory(self._store, directory, rules)]
        found += refusals_of_index(self._store, rules)
        found += refusals_of_configuration(self._store)
        return found or [Finding(
            self._store.root, "start-refused", self._store.place("consumequeue"),
            expected="at least one slot in the last file of a queue", actual="only zeros",
        )]

    def hold(self, rules: RecoveryRules) -> bool:
        """Whether a start by some rules does not succeed. Raises: UnreadableFile, FileChanged."""
        if self._is_unreadable or any(
            True for one in self._directories for _ in refusals_of_directory(self._store, one, rules)
        ) or any(True for _ in refusals_of_index(self._store, rules)):
            return True
        if not rules.refuses_empty_queue_file or not self._is_predictable:
            return False
        kind = rules.dispatches, rules.queue_maximum_is_end
        if kind not in self._has_empty_file:
            self._has_empty_file[kind] = ends_in_empty_file(self._store, rules)
        return self._has_empty_file[kind]


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
    )


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
    """Return the findings without those of check cursors that lie within queue 0 of their topic after the next start.

    `is_cut`: the start may end the log at damaged bytes; then nothing is left out.
    """
    ends: list[dict[str, int]] | None = None
    for found in findings:
        if found.code != _CODE or is_cut or found.actual is None:
            yield found
            continue
        if ends is None:
            ends = _ends(store, settings)
        topic = OP_TOPIC if found.file == as_text(store.queue_directory(OP_TOPIC, 0)) else HALF_TOPIC
        if not ends or int(found.actual) > min(one[topic] for one in ends):
            yield found


def _ends(store: Store, settings: BrokerSettings) -> list[dict[str, int]]:
    """Return the ends of half and op queue 0, by topic, after a start of each possible release; none if a start is
    not predicted.
    """
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
            ends.append({
                topic: max(queue.end, queue.kept_end + len(queue.added)) for topic, queue in started.items()
            })
    except SourceError:
        return []  # reported by the reader of the file
    return ends


def _refuses(store: Store, settings: BrokerSettings, rules: RecoveryRules) -> bool:
    """Whether a release does not load a file of the store."""
    return any(
        True for one in start_directories(store, settings.given or {}) for _ in refusals_of_directory(store, one, rules)
    )
