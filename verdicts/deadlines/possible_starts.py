"""The starts that a stopped broker of an uncertain release may make on its store, as far as the check differs."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import Version
from rmqtx.readers.rocksdb.rocksdb_queues import damaged_databases
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import Store, is_bundle
from rmqtx.readers.store.version_signs import rust_mark
from rmqtx.verdicts.check.slots import half_queues
from rmqtx.verdicts.startup.findings import not_predictable
from rmqtx.verdicts.startup.recovery import loaded_log
from rmqtx.verdicts.startup.refusals import refusals_of_configuration, refusals_of_directory, start_directories
from rmqtx.verdicts.startup.rules import RecoveryRules, possible_rules
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
        found += refusals_of_configuration(self._store)
        return found or [Finding(
            self._store.root, "start-refused", self._store.place("consumequeue"),
            expected="at least one slot in the last file of a queue", actual="only zeros",
        )]  # fmt: skip

    def hold(self, rules: RecoveryRules) -> bool:
        """Whether a start by some rules does not succeed. Raises: UnreadableFile, FileChanged."""
        if self._is_unreadable or any(
            True for one in self._directories for _ in refusals_of_directory(self._store, one, rules)
        ):
            return True
        if not rules.refuses_empty_queue_file or not self._is_predictable:
            return False
        kind = rules.dispatches, rules.queue_maximum_is_end
        if kind not in self._has_empty_file:
            self._has_empty_file[kind] = ends_in_empty_file(self._store, rules)
        return self._has_empty_file[kind]
