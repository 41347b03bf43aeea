"""`rmqtx verify`: find damage and contradictions in a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.finding_kinds.kind import Severity
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.releases import dotted, parse_version
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import FINDINGS
from rmqtx.readers.old_tables.transaction_table import TransactionTable
from rmqtx.readers.storage.places import is_uri
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.broker_settings import broker_settings, known_version
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.audit.other_release import OtherRelease, with_release
from rmqtx.verdicts.verify.copies import with_copy_findings
from rmqtx.verdicts.verify.verify import DEFAULT, FULL, NOT_EXAMINED, QUICK, Verify
from rmqtx_cli.commands.declared.repair import DepthOptions, VerifyCommand
from rmqtx_cli.monitoring.verify_state import state_file, within_budget
from rmqtx_cli.options.next_commands import next_line, next_lines
from rmqtx_cli.options.options import OutputOptions, StoreOptions
from rmqtx_cli.options.source_options import DatabaseOptions
from rmqtx_cli.output.accounting import accounting
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import VIEWS, View
from rmqtx_cli.pages.headlines import instead_of_salvage, usable_advice, with_usable_advice
from rmqtx_cli.sources.engine_run import EngineRun, engine_run
from rmqtx_cli.sources.opening import (
    open_stores,
    read_database,
    refuse_inside,
    say_conf_notes,
    say_consistency,
    table_asked,
)
from rmqtx_cli.words.of_old_stores import fitted_rows
from rmqtx_cli.words.say import SEVERITIES, Voice
from rmqtx_cli.words.text import count, escaped

#: The next event of a transaction, in a sentence about several.
_EVENT_WORDS = {
    "asked": "asked about", "put_back": "put back unasked", "expired": "discarded unasked", "discarded": "discarded",
    "dropped": "dropped", "skipped": "never read", "stopped": "behind a stop of the check", "cut": "cut off",
    "none": "left alone", "never seen": "never seen: the release does not read its design",
}


def run(options: VerifyCommand) -> int:
    """Run the command; return its exit status."""
    _check(options.depth)
    _refuse_unfit(options.depth, options.files, options.database)
    listing = _listing(
        options.output, options.where, options.fail_on, options.limit, options.voice,
        with_meta=options.provenance.with_meta,
    )
    opened = open_stores(options.store, StoreOptions(options.files.commit_log))
    refuse_inside(options.output.output, opened.stores)
    state = _state_file(options.depth, opened.stores)
    say_consistency(opened.stores, options.voice)
    say_conf_notes(opened.stores, options.files, options.voice)
    for one in opened.stores:
        if one.has("consumequeue") and not one.index_files and not one.has("index"):
            options.voice.note(f"{one.root}: no index to compare; rmqtx rebuild index writes one, in a copy")
    with engine_run(
        options.context, "verifying", opened.stores, listing, options.database.engine_of(options.engine),
        options.provenance,
    ) as run:
        job = _job(options.depth, options.files, read_database(options.database, opened.stores, run.engine))
        reading = _reading(job, opened.stores, run, options.depth, state, options.voice)
        is_partial = options.depth.quick or options.depth.max_duration is not None
        reading.batches = with_copy_findings(
            iter(reading.batches), opened.stores, job.settings_of, is_partial=is_partial, say=options.voice.note
        )
        counted = _written(reading, listing, options.depth)
    _say_amounts(reading, listing)
    is_failure = listing.has_failed if options.fail_on is not None else counted.is_failure
    of_release = _other_release(opened.stores, job, options.depth.start_with, options.voice)
    return exit_status.FINDINGS if is_failure else of_release


def _check(depth: DepthOptions) -> None:
    """Refuse options that exclude each other. Raises: BadRequest."""
    if depth.quick and depth.full:
        raise BadRequest("--quick and --full exclude each other")
    if depth.state is not None and depth.max_duration is None:
        raise BadRequest("--state needs --max-duration")


def _level(depth: DepthOptions) -> str:
    """The depth, as `Verify` takes it."""
    return QUICK if depth.quick else FULL if depth.full else DEFAULT


def _other_release(stores: list[Store], job: Verify, version: str | None, voice: Voice) -> int:
    """Print what the release of --start-with does with the open transactions of each store; return the exit status."""
    if version is None:
        return exit_status.DONE
    status = exit_status.DONE
    for one in stores:
        if one.in_use:
            voice.note(f"{one.root}: its broker runs: stop it first; what a start of {version} finds is not known yet")
            status = status or exit_status.INCOMPLETE
            continue
        own = broker_settings(one, conf=dict(job.conf))
        found = with_release(one, own, job.settings_of(one), known_version(version))
        for line in _other_release_lines(one.root, found):
            voice.note(line)
        if found.changed_count:
            status = exit_status.FINDINGS
        elif not found.is_known:
            status = status or exit_status.INCOMPLETE
    return status


def _listing(
    output: OutputOptions, where: str | None, fail_on: str | None, limit: int | None, voice: Voice, *, with_meta: bool
) -> Listing:
    view = View(VIEWS["findings"].columns, "" if where is None else "no finding meets the condition")
    return Listing(FINDINGS, view, output, where, fail_on, limit, voice, with_meta)


def _reading(
    job: Verify, stores: list[Store], run: EngineRun, depth: DepthOptions, state: Path | None, voice: Voice
) -> Reading:
    """Return the findings of all files, or of those read within --max-duration."""
    if depth.max_duration is None or state is None:
        return run.engine.run_job(job, stores, progress=run.progress)
    return within_budget(job, stores, run.engine, depth.max_duration, state, voice, run.progress)


def _written(reading: Reading, listing: Listing, depth: DepthOptions) -> _FindingCounts:
    """Write the counts and the findings; return the counts."""
    counted = _FindingCounts()
    listing.write(
        counted.watching(reading), to_the_end=True,
        answer=lambda: counted.lines(NOT_EXAMINED[_level(depth)], is_partial=depth.max_duration is not None),
    )
    return counted


def _say_amounts(reading: Reading, listing: Listing) -> None:
    listing.say_limit("finding")
    if (amounts := accounting(reading)) is not None:
        listing.voice.note(amounts)


def _refuse_unfit(depth: DepthOptions, files: StoreOptions, database: DatabaseOptions) -> None:
    """Refuse impossible options before hours of reading. Raises: BadRequest."""
    if depth.start_with is not None:
        known_version(depth.start_with)
        if files.broker_version is not None:
            raise BadRequest("--start-with and --broker-version exclude each other")
    if files.broker_version is not None:
        parse_version(files.broker_version)
    if table_asked(database) is not None and (depth.quick or depth.max_duration is not None):
        advice = "leave out --quick and --max-duration"
        raise BadRequest("--transaction-table is compared with the whole log", advice=advice)


def _state_file(depth: DepthOptions, stores: list[Store]) -> Path | None:
    """Return the state file of a run with --max-duration; None without.

    Raises: BadRequest for a file inside a store.
    """
    if depth.max_duration is None:
        return None
    state = depth.state or state_file(stores)
    refuse_inside(state, stores)
    return state


def _job(depth: DepthOptions, files: StoreOptions, table: TransactionTable | None) -> Verify:
    settings = tuple(sorted(read_broker_conf(files.broker_conf).items())) if files.broker_conf else ()
    version = depth.start_with or files.broker_version
    return Verify(_level(depth), version, settings, table, is_next=depth.start_with is not None)


#: Damage that makes a start end the log, or fail: `rmqtx salvage` leaves it out of a copy. In a copy that it made, lost
#: bytes are damage still, but the start reads the empty messages in their place.
_SALVAGED = frozenset({"segment-gap", "segment-overlap", "start-cuts-log", "start-endless"})
#: Where the start is not predicted, damaged bytes may end the log; a broker refuses a log file of another length.
_MAY_END_LOG = (frozenset({"record-damaged", "start-unforeseen"}), frozenset({"segment-size", "start-refused"}))
#: The sentences of the kinds.
_SENTENCES = frozenset(kind.advice for kind in KINDS.values())
#: What a log without its last files causes in the queues.
_OF_QUEUES_BEHIND_LOG = frozenset({"start-cuts-queue", "slot-dangling", "start-skips"})


@dataclass(slots=True)
class _FindingCounts:
    """Findings seen so far, by severity and code."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Commands of single findings that replace the advice of their kind, by code, one in a line.
    commands: dict[str, str] = field(default_factory=dict)
    #: The advice of the codes of which a finding has the sentence of a kind, of its own one or another.
    usual: dict[str, str] = field(default_factory=dict)
    #: The codes of each store.
    codes: dict[str, set[str]] = field(default_factory=dict)

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with advice that works on their stores, and count them."""
        for unfitted in batches:
            batch = fitted_rows(unfitted)
            codes = batch["code"].to_pylist()
            self.kinds.update(zip(batch["severity"].to_pylist(), codes, strict=True))
            for code, advice in zip(codes, batch["advice"].to_pylist(), strict=True):
                if advice is None or advice in _SENTENCES:
                    self.usual.setdefault(code, advice or "")
                else:
                    self.commands.setdefault(code, advice)
            for code, store in zip(codes, batch["store"].to_pylist(), strict=True):
                self.codes.setdefault(store, set()).add(code)
            yield with_usable_advice(batch)

    @property
    def damaged(self) -> list[str]:
        """The stores whose log the next start of their broker refuses, ends, or may end, too early."""
        return [
            store for store, codes in self.codes.items()
            if codes & _SALVAGED or any(codes >= together for together in _MAY_END_LOG)
        ]

    @property
    def is_failure(self) -> bool:
        """Whether there is an error or a warning."""
        return any(severity != Severity.NOTE for severity, _ in self.kinds)

    def lines(self, not_examined: str, *, is_partial: bool) -> Iterator[str]:
        """Return the result lines, worst first, with what was not examined."""
        if not self.is_failure:
            where = " in the files of the log that were read" if is_partial else ""
            left = f"; not examined: {not_examined} (--full)" if not_examined else ""
            yield f"{'no error or warning' if self.kinds else 'no damage'} found{where}{left}"
        for wanted in SEVERITIES:
            codes = {code: number for (severity, code), number in sorted(self.kinds.items()) if severity == wanted}
            if codes:
                counts = ", ".join(f"{number} {code}" for code, number in codes.items())
                yield f"{count(sum(codes.values()), wanted)}: {counts}"
        for advice, named in self._advice().items():
            yield f"advice: {advice}   # {', '.join(named)}"
        sentences: dict[str, list[str]] = {}
        for code, advice in self.commands.items():
            usable = usable_advice(advice, self._stores_with(code))
            if usable == advice and advice.startswith("rmqtx "):
                yield from next_lines(usable)
            else:
                sentences.setdefault(usable, []).append(code)
        for sentence, named in sentences.items():
            yield f"advice: {sentence}   # {', '.join(named)}"
        for store in self.damaged:
            if (instead := instead_of_salvage(store)) is not None:
                yield f"advice: {instead}   # {escaped(store)}"
            elif not is_uri(store):
                yield next_line(f"rmqtx salvage {quoted(store)} --to NEW", "a copy that starts; keep the original")

    def _advice(self) -> dict[str, list[str]]:
        """Return the advice of the kinds of errors and warnings, worst first: advice → codes."""
        found: dict[str, list[str]] = {}
        for severity in SEVERITIES[:2]:
            for code in sorted(code for of, code in self.kinds if of == severity and code in self.usual):
                if (advice := self.usual[code]) and not self._waits_for_log(code):
                    found.setdefault(usable_advice(advice, self._stores_with(code)), []).append(code)
        return found

    def _waits_for_log(self, code: str) -> bool:
        """Whether each store with a finding of queues lacks log files: queues are rebuilt from a whole log."""
        stores = self._stores_with(code)
        return code in _OF_QUEUES_BEHIND_LOG and all("log-missing" in self.codes[store] for store in stores)

    def _stores_with(self, code: str) -> list[str]:
        return [store for store, codes in self.codes.items() if code in codes]


def _other_release_lines(root: str, found: OtherRelease) -> Iterator[str]:
    """Yield what is the same, then each difference with its number."""
    if found.is_doubtful:
        yield f"{root}: evidence is missing or damaged, so open transactions may be missing below: rmqtx pending {root}"
    begin = f"{root}: started with {dotted(found.version)} in place of {found.own}"
    if not found.counts:
        yield f"{begin}: no transaction is open"
        return
    same: Counter[str] = Counter()
    for (own, other), number in found.counts.items():
        if own == other:
            same[_event_word(own)] += number
    total = sum(found.counts.values())
    if same:
        listed = ", ".join(f"{number} {word}" for word, number in sorted(same.items()))
        left = "" if sum(same.values()) == total else f" of {total}"
        noun = "transaction" if total == 1 else "transactions"
        yield f"{begin}: the same for {sum(same.values())}{left} open {noun}: {listed}"
    for (own, other), number in sorted(found.counts.items(), key=str):
        if own != other:
            changed = f"{_event_word(other)}, in place of {_event_word(own)}"
            yield f"{begin}: other for {count(number, 'open transaction')}: {changed}"


def _event_word(event: str | None) -> str:
    return _EVENT_WORDS.get(event or "", "unknown")
