"""`rmqtx report`: a page about stores or brokers, for people without a terminal."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.store.broker_conf import read_expire_ms
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.proofs.writing import PROOF_COLUMNS
from rmqtx.verdicts.transactions.diff import read_verdicts, verdict_file
from rmqtx_cli.commands.declared.survey import ReportCommand, ReportOptions
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.options.options import ProvenanceOptions
from rmqtx_cli.options.source_options import LogOptions, SourceOptions
from rmqtx_cli.output.listing import concluded
from rmqtx_cli.output.streams import PRIVATE, written_whole
from rmqtx_cli.report.comparison import Earlier, counted
from rmqtx_cli.report.document import Document
from rmqtx_cli.report.gathering import REPORT_COLUMNS, Facts, Gathered, add_reading, gathered, shown_transactions
from rmqtx_cli.report.rendering import rendered, report_of_stores, report_of_transactions
from rmqtx_cli.sources.broker_logs import BrokerLogs, check_logs, read_logs
from rmqtx_cli.sources.files import FileOpener
from rmqtx_cli.sources.proofs import Proving
from rmqtx_cli.sources.provenance import TakenProvenance, without_secrets
from rmqtx_cli.sources.source import Source, opener_of
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import size


def run(options: ReportCommand) -> int:
    """Run the command; return its exit status."""
    engine = options.engine
    suffix = _check(options.asked)
    check_logs(options.logs)
    files_only = {
        "--master": engine.master, "--remote": engine.remote, "--conf": engine.conf, "--hash": options.asked.hash_all,
        "--split-size": engine.split_bytes, "--processes": engine.processes, "--temp-dir": engine.temporary,
        "--proof": options.asked.proof,
    }
    opener = opener_of(
        options.source, options.store or [], "rmqtx report STORE -o FILE, or rmqtx report -n HOST:PORT -o FILE",
        files_only,
    )
    engine = options.source.database.engine_of(engine)
    run = _ReportRun(options.context, options.asked, engine, options.logs, options.source, clock.now_ms())
    with opener.opened(options.asked.output) as opened:
        document, status = run.of_one(opened) if options.asked.transaction is not None else run.of_all(opened)
    _write(document, suffix, options.asked.output, options.source.voice)
    return status


def _check(asked: ReportOptions) -> str:
    """Return the suffix of the file, which names the form of the page. Raises: BadRequest."""
    suffixes = (".html", ".htm", ".md")
    if asked.output.suffix.lower() not in suffixes:
        raise BadRequest(f"-o {asked.output}: the name of a page ends in {' or '.join(suffixes)}")
    if asked.transaction is not None and asked.compare is not None:
        raise BadRequest("--compare is for whole stores, and --transaction is given", advice="leave one out")
    return asked.output.suffix.lower()


def _write(document: Document, suffix: str, output: Path, voice: Voice) -> None:
    content = rendered(document, suffix)
    with written_whole(output, mode=PRIVATE) as stream:
        stream.write(content)
    voice.note(f"{output}: {size(len(content))}")


@dataclass(frozen=True, slots=True)
class _ReportRun:
    """One report: reads, gathers and arranges."""

    context: typer.Context
    asked: ReportOptions
    engine: EngineOptions
    logs: LogOptions
    source: SourceOptions
    now_ms: int

    def of_all(self, opened: Source) -> tuple[Document, int]:
        """Return the report of all transactions, and the exit status."""
        read = read_logs(self.logs, opened.names, self.source.voice)
        found, reading = self._gathered(opened, read, self.asked.proof)
        earlier = None if self.asked.compare is None else self._earlier(self.asked.compare, opened)
        is_incomplete = found.has_undecidable or read.is_missed(found.diagnosis.table().to_pylist())
        status = concluded(reading, self.source.voice, has_undecidable=is_incomplete)
        return report_of_stores(found, self._command_line, earlier), status

    def _gathered(self, opened: Source, read: Any, proof: Path | None = None) -> tuple[Gathered, Any]:
        """Read all transactions of a source."""
        carrier = TakenProvenance(self.source.voice)
        provenance = ProvenanceOptions(self.asked.hash_all)
        columns = {*REPORT_COLUMNS, *(PROOF_COLUMNS if proof is not None else ())}
        with opened.audited(self.context, carrier, self.engine, provenance, None, columns) as reading:
            facts = self._facts(opened)
            facts.provenance = carrier.meta
            with Proving(proof, "report", None, True, self.source.voice).of(reading, opened):
                found = gathered(reading, opened, facts, read, self.now_ms, self._proxy_keeps_ms)
        return found, reading

    def of_one(self, opened: Source) -> tuple[Document, int]:
        """Return the report of the transaction that is asked for, and the exit status."""
        reading = opened.show(self.asked.transaction or "")
        with Proving(self.asked.proof, "report", None, False, self.source.voice).of(reading, opened):
            rows = reading.table()
        carrier, facts = TakenProvenance(self.source.voice), self._facts(opened)
        opened.add_provenance(self.context, carrier)
        facts.provenance = carrier.meta
        read = read_logs(self.logs, opened.names, self.source.voice, rows.to_pylist())
        add_reading(facts, reading, opened)
        evidence = read.with_logs(reading.evidence)
        places = opened.surroundings()
        shown = shown_transactions(rows, places, facts, evidence, self._proxy_keeps_ms, read)
        reading.add_trace_findings(*(place.traces for place in places))
        has_undecidable = any(one.row["state"] == State.UNDECIDABLE for one in shown)
        status = concluded(reading, self.source.voice, has_undecidable=has_undecidable)
        return report_of_transactions(shown, facts, self._command_line, self.now_ms), status

    def _earlier(self, place: str, opened: Source) -> Earlier:
        """Read the other side: the file of an audit, or a store. Raises: what reading a file or a store raises."""
        own = [store.root for store in opened.stores]
        command = carried(f"rmqtx diff {quoted(place)} {quoted(own[0])}") if len(own) == 1 else None
        file = verdict_file(place)
        if file is not None:
            return Earlier(place, counted(read_verdicts(file)), command=command)
        opener = FileOpener([place], self.source.files, self.source.database, self.source.voice)
        with opener.opened(self.asked.output) as other:
            found, _ = self._gathered(other, BrokerLogs())
        return Earlier(place, found.summary, found.diagnosis, command, found.events)

    def _facts(self, opened: Source) -> Facts:
        return Facts(opened.arguments, opened.live, opened.names, opened.describe())

    @property
    def _proxy_keeps_ms(self) -> int | None:
        return None if self.asked.proxy_conf is None else read_expire_ms(self.asked.proxy_conf)

    @property
    def _command_line(self) -> str:
        """The command line without secrets."""
        return " ".join(["rmqtx", *(shlex.quote(without_secrets(word)) for word in sys.argv[1:])])
