"""The setup of a simulation: the checks of a store under each configuration, and their assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.cursors import CheckCursors, check_cursors
from rmqtx.readers.log.designs import HALF_TOPIC_DESIGN, designs_of
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN as HALF_TOPICS
from rmqtx.readers.model.releases import Version
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.check.check_rules import CheckRules, check_rules, check_settings, supposed_version
from rmqtx.verdicts.check.check_stops import check_stops
from rmqtx.verdicts.check.slots import half_queues
from rmqtx.verdicts.check.window import CheckWindow, NextStart, check_max_finding, check_window, first_round_ms
from rmqtx.verdicts.claims.log_agreement import agreement_findings
from rmqtx.verdicts.claims.log_claims import log_claims
from rmqtx.verdicts.ends.doubtful_ends import doubtful_id_findings
from rmqtx.verdicts.ends.index_ids import contradicted_ids
from rmqtx.verdicts.missing.check_queue_findings import half_queue_findings, op_queue_findings
from rmqtx.verdicts.model.verdict_inputs import CheckStop
from rmqtx.verdicts.simulation.next_start import CursorsAtStart, starting_cursors, still_beyond
from rmqtx.verdicts.simulation.simulation import Simulated, SimulatedCheck
from rmqtx.verdicts.simulation.simulation_without_queue import beside_tables
from rmqtx.verdicts.startup.findings import by_some_versions
from rmqtx.verdicts.startup.log_cut import scanned_cuts, scanned_damage
from rmqtx.verdicts.startup.rules import possible_rules


@dataclass(frozen=True, slots=True)
class SimulatedConfiguration:
    """A broker's settings under a name. `conf`: keys and values of its broker.conf."""

    name: str
    settings: BrokerSettings
    conf: Mapping[str, str] = field(default_factory=dict, hash=False)


def simulated_checks(
    store: Store, configurations: Iterable[SimulatedConfiguration], cursors: CheckCursors | None, now_ms: int,
    stops: list[CheckStop] | None = None,
) -> tuple[list[SimulatedCheck], list[Finding], list[str]]:
    """Return the checks of every half queue and of every table beside the log under each configuration, findings, and
    notes about assumptions. `cursors`: None if the store has no half queue, see `has_half_queue`. `now_ms`: when a
    stopped broker is assumed to start, and after which a running one begins its next round. `stops`: gets where the
    check of the first configuration is stopped.

    Raises: UnreadableFile, FileChanged; UnknownSlots, MissingLibrary if the half queue is in RocksDB and not known.
    """
    configurations = list(configurations)
    found: list[SimulatedCheck] = []
    findings = agreement_findings(store, log_claims(store, cursors))
    notes: list[str] = []
    if configurations:
        tables = beside_tables(store, configurations[0].settings, configurations[0].conf)
        findings += tables.findings
        notes = tables.notes
        cuts = _LogCuts(store, findings, notes)
        for configuration in configurations if tables.is_checked or cursors is None else []:
            cut = cuts.of(configuration, supposed_version(configuration.settings)[0])
            found += tables.simulated(
                configuration.name, configuration.settings, configuration.conf, now_ms, log_cut=cut
            )
        if cursors is not None:
            found += _half_topic_checks(store, configurations, cursors, now_ms, cuts, stops)
    return found, findings, list(dict.fromkeys(notes))


@dataclass(frozen=True, slots=True)
class _LogCuts:
    """Where the next start cuts off the log, by release and settings: each is a note, and the first one a finding.

    Where the release is not certain, a cut by another possible one is reported too, but not simulated.
    """

    store: Store
    findings: list[Finding]
    notes: list[str]
    _known: dict[tuple[Version, frozenset[tuple[str, str]]], int | None] = field(default_factory=dict)

    def of(self, configuration: SimulatedConfiguration, version: Version) -> int | None:
        conf = configuration.conf
        key = version, frozenset(conf.items())
        if key in self._known:
            return self._known[key]
        others = [rules for rules in possible_rules(configuration.settings, conf) if rules.version != version]
        versions = [version, *(rules.version for rules in others)]
        cut, *cuts = scanned_cuts(self.store, versions, conf)
        self._known[key] = cut
        if cut is not None:
            self._report(cut, "the start", [])
        else:
            for other in dict.fromkeys(one for one in cuts if one is not None):
                names = [rules.name for rules, one in zip(others, cuts, strict=True) if one == other]
                self._report(other, f"a start of {names[0]}", names)
        return cut

    def _report(self, cut: int, start: str, names: Sequence[str]) -> None:
        where = f"at commit-log offset {cut}"
        self.notes.append(f"{self.store.root}: {start} cuts the log off {where} (rmqtx verify)")
        if not any(one.code == "start-cuts-log" for one in self.findings):
            finding = Finding(
                self.store.root, "start-cuts-log", commit_log_offset=cut, expected="all records of the log",
                actual=f"{start} ends the log {where}",
            )
            self.findings.append(by_some_versions(finding, names) if names else finding)


def has_half_queue(store: Store, settings: BrokerSettings | None = None) -> bool:
    """Whether the check of this store uses half topics: not if the store has only other designs.

    `settings`: of its broker, if they are known; before 4.3 it has no half topic.
    """
    designs = [seen.word for seen in designs_of(store)]
    if not designs and settings is not None and settings.version_high is not None:
        return HALF_TOPICS.holds(settings.version_high)
    return not designs or HALF_TOPIC_DESIGN in designs


def _half_topic_checks(
    store: Store, configurations: list[SimulatedConfiguration], cursors: CheckCursors, now_ms: int,
    cuts: _LogCuts, found_stops: list[CheckStop] | None,
) -> Iterator[Simulated]:
    findings, notes = cuts.findings, cuts.notes
    findings += cursors.findings
    notes += _situation_notes(store)
    windows: dict[tuple[CheckRules, int, int | None, int | None], CheckWindow] = {}
    for number, configuration in enumerate(configurations):
        stops = check_stops(store, configuration.settings, cursors, now_ms=now_ms)
        version, note = supposed_version(configuration.settings, stops)
        notes += [] if note is None else [note]
        if configuration.settings.broker_role == "SLAVE":
            notes.append(f"{store.root}: a slave does not check: the simulation shows it as a master")
        rules = check_rules(version)
        started, why = CursorsAtStart(cursors, None)
        if not store.in_use:
            started, why = starting_cursors(store, cursors, version, configuration.conf)
        notes += [] if why is None else [f"{store.root}: {why}"]
        cut = cuts.of(configuration, version)
        if cut is None and store.has_rocksdb_queues:
            cut = scanned_damage(store)
        for queue_id in half_queues(store):
            half, op = (started.half or {}).get(queue_id), (started.op or {}).get(queue_id)
            window = windows.get((rules, queue_id, half, op))
            if window is None:
                window = windows[rules, queue_id, half, op] = check_window(
                    store, rules, queue_id, half, op, start=NextStart(configuration.conf, cut)
                )
                findings += window.findings
                findings += [] if number else _id_findings(store, window)
                notes += _diverted_note(store, window)
            refuted = check_max_finding(store, window, configuration.settings)
            findings += [] if refuted is None or number else [refuted]
            settings = check_settings(configuration.settings)
            begin_ms = first_round_ms(window, settings, now_ms, is_running=store.in_use)
            yield Simulated(store.root, configuration.name, window, rules, settings, begin_ms)
        if not number:
            if found_stops is not None:
                found_stops += stops
            # About the store's own cursor, not about one from the command line.
            own = check_cursors(store)
            beyond = [
                *half_queue_findings(store, own.half, has_halves=False),
                *op_queue_findings(store, own.op, has_ops=False),
            ]
            findings += still_beyond(store, configuration.settings, beyond, is_cut=cut is not None)


def _id_findings(store: Store, window: CheckWindow) -> Iterator[Finding]:
    """Findings for ids that only one half of the window has and that the index contradicts."""
    words = window.words.select(["commit_log_offset", "transaction_id"])
    counts = words.group_by("transaction_id").aggregate([([], "count_all")])
    lone = counts.filter(pc.equal(counts["count_all"], 1))["transaction_id"]
    rows = words.filter(pc.is_in(words["transaction_id"], value_set=lone.combine_chunks()))
    rows = rows.append_column("topic", pa.repeat(HALF_TOPIC, rows.num_rows)).sort_by("commit_log_offset")
    doubtful = contradicted_ids(store, rows)
    for segment in store.commit_log:
        inside = [one for one in doubtful if segment.base_offset <= one.commit_log_offset < segment.end_offset]
        yield from doubtful_id_findings(segment, inside)


def _situation_notes(store: Store) -> list[str]:
    """Return notes about conditions that the simulation does not cover."""
    notes = []
    if not store.has_rocksdb_queues and not store.queue_segments(HALF_TOPIC, 0)[0]:
        notes.append(f"{store.root}: no half queue: it is lost, was never needed, or the broker is older than 4.3")
    return notes


def _diverted_note(store: Store, window: CheckWindow) -> list[str]:
    if not window.diverted_count:
        return []
    return [
        f"{store.root}: {window.diverted_count} half copies have a delay or timer property: each copy of them"
        " waits in another topic before it returns to the half queue, which is not simulated"
    ]


def with_cursors(cursors: CheckCursors, half: int | None, op: int | None) -> CheckCursors:
    """Return the cursors with those of queue 0 replaced."""
    def changed(known: Mapping[int, int] | None, wanted: int | None) -> dict[int, int] | None:
        if wanted is None:
            return None if known is None else dict(known)
        return {**(known or {}), 0: wanted}

    return replace(
        cursors, half=changed(cursors.half, half), op=changed(cursors.op, op),
        is_supposed=half is not None or op is not None,
    )
