"""`rmqtx report`: a page about stores or brokers, for people without a terminal."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx.verdicts.model.state import State
from rmqtx_cli.commands import Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.options.options import HashOption, OptionalStoreArguments, ProvenanceOptions, ProxyConfOption
from rmqtx_cli.sources.broker_logs import LogOptions
from rmqtx_cli.sources.source import SourceOptions
from rmqtx_cli.words.text import stored_text

if TYPE_CHECKING:
    from rmqtx_cli.report.comparison import Earlier
    from rmqtx_cli.report.document import Document
    from rmqtx_cli.report.gathering import Facts, Gathered
    from rmqtx_cli.sources.source import Source
    from rmqtx_cli.words.say import Voice

NAME = "report"
EXAMPLES = (
    Example("rmqtx report STORE -o incident.html", "one page: what is the matter, numbers, causes, evidence"),
    Example("rmqtx report STORE -o incident.md", "the same as Markdown, for a ticket"),
    Example("rmqtx report STORE --transaction ORDER-4711 -o order.html", "one transaction"),
    Example("rmqtx report STORE --compare /backup/yesterday/store -o change.html", "beside yesterday's store"),
    Example("rmqtx report -n 10.0.0.1:9876 -o now.html", "of live brokers"),
)

OutputOption = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help="Write the page to FILE: .html, or .md for Markdown"),
]
TransactionOption = Annotated[
    str | None,
    typer.Option(
        "--transaction", parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
        help="Only this transaction: its id, the message id of any of its records, or its business key",
    ),
]
CompareOption = Annotated[
    str | None,
    typer.Option(
        "--compare", metavar="OTHER", help="Show an earlier store, or a file of an audit (.parquet, .arrow), beside it",
    ),
]


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report is about, and where it is written."""

    output: OutputOption
    transaction: TransactionOption = None
    compare: CompareOption = None
    hash_all: HashOption = False
    proxy_conf: ProxyConfOption = None

    def check(self) -> str:
        """Return the suffix of the file, which names the form of the page.

        Raises: BadRequest.
        """
        suffixes = (".html", ".htm", ".md")
        if self.output.suffix.lower() not in suffixes:
            raise BadRequest(f"-o {self.output}: the name of a page ends in {' or '.join(suffixes)}")
        if self.transaction is not None and self.compare is not None:
            raise BadRequest("--compare is for whole stores, and --transaction is given", advice="leave one out")
        return self.output.suffix.lower()


@dataclass(slots=True)
class _Carrier:
    """Takes the provenance of what is read. See `MetaCarrier`."""

    voice: Voice
    meta: dict[str, Any] | None = None
    carries_meta: bool = True


@with_option_groups
def command(
    context: typer.Context,
    store: OptionalStoreArguments = None,
    *,
    asked: ReportOptions,
    engine: EngineOptions,
    logs: LogOptions,
    source: SourceOptions,
) -> int:
    """Write one page about stores or live brokers, to read in a browser, to print, or to attach to a ticket.

    The page contains what is the matter, numbers by state, a timeline, the cursors of the check, ages, latencies,
    causes, the first pending, lost and twice delivered transactions with their records, damage, and what was read. It
    is one file without scripts, and loads nothing. Reads what audit reads, or with --transaction what show reads.
    """
    suffix = asked.check()
    logs.check()
    files_only = {
        "--master": engine.master, "--remote": engine.remote, "--conf": engine.conf, "--hash": asked.hash_all,
        "--split-size": engine.split_bytes, "--processes": engine.processes, "--temp-dir": engine.temporary,
    }
    opener = source.opener(store or [], "rmqtx report STORE -o FILE, or rmqtx report -n HOST:PORT -o FILE", files_only)
    engine = source.database.engine_of(engine)
    run = _ReportRun(context, asked, engine, logs, source, time.time_ns() // 1_000_000)
    with opener.opened(asked.output) as opened:
        document, status = run.of_one(opened) if asked.transaction is not None else run.of_all(opened)
    _write(document, suffix, asked.output, source.voice)
    return status


def _write(document: Document, suffix: str, output: Path, voice: Voice) -> None:
    from rmqtx_cli.output.streams import PRIVATE, written_whole
    from rmqtx_cli.report.rendering import rendered
    from rmqtx_cli.words.text import size

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
        from rmqtx_cli.output.listing import concluded
        from rmqtx_cli.report.page import report_of_stores

        read = self.logs.read(opened.names, self.source.voice)
        found, reading = self._gathered(opened, read)
        earlier = None if self.asked.compare is None else self._earlier(self.asked.compare, opened)
        is_incomplete = found.has_undecidable or read.is_missed(found.diagnosis.table().to_pylist())
        status = concluded(reading, self.source.voice, has_undecidable=is_incomplete)
        return report_of_stores(found, self._command_line, earlier), status

    def _gathered(self, opened: Source, read: Any) -> tuple[Gathered, Any]:
        """Read all transactions of a source."""
        from rmqtx_cli.report.gathering import REPORT_COLUMNS, gathered

        carrier = _Carrier(self.source.voice)
        provenance = ProvenanceOptions(self.asked.hash_all)
        with opened.audited(self.context, carrier, self.engine, provenance, None, REPORT_COLUMNS) as reading:
            facts = self._facts(opened)
            facts.provenance = carrier.meta
            found = gathered(reading, opened, facts, read, self.now_ms, self._proxy_keeps_ms)
        return found, reading

    def of_one(self, opened: Source) -> tuple[Document, int]:
        """Return the report of the transaction that is asked for, and the exit status."""
        from rmqtx_cli.output.listing import concluded
        from rmqtx_cli.report.gathering import add_reading, shown_transactions
        from rmqtx_cli.report.page import report_of_transactions

        reading = opened.show(self.asked.transaction or "")
        rows = reading.table()
        carrier, facts = _Carrier(self.source.voice), self._facts(opened)
        opened.add_provenance(self.context, carrier)
        facts.provenance = carrier.meta
        read = self.logs.read(opened.names, self.source.voice, rows.to_pylist())
        add_reading(facts, reading, opened)
        evidence = read.with_logs(reading.evidence)
        places = opened.surroundings()
        shown = shown_transactions(rows, places, facts, evidence, self._proxy_keeps_ms, read)
        reading.add_trace_findings(*(place.traces for place in places))
        has_undecidable = any(one.row["state"] == State.UNDECIDABLE for one in shown)
        status = concluded(reading, self.source.voice, has_undecidable=has_undecidable)
        return report_of_transactions(shown, facts, self._command_line, self.now_ms), status

    def _earlier(self, place: str, opened: Source) -> Earlier:
        """Read the other side: the file of an audit, or a store.

        Raises: what reading a file or a store raises.
        """
        from rmqtx.verdicts.transactions.verdict_files import SUFFIXES, read_verdicts
        from rmqtx_cli.report.comparison import Earlier, counted
        from rmqtx_cli.sources.broker_logs import BrokerLogs
        from rmqtx_cli.sources.files import FileOpener

        own = [store.root for store in opened.stores]
        command = carried(f"rmqtx diff {quoted(place)} {quoted(own[0])}") if len(own) == 1 else None
        path = Path(place)
        if path.suffix.lower() in SUFFIXES and not path.is_dir():
            return Earlier(place, counted(read_verdicts(path)), command=command)
        opener = FileOpener([place], self.source.files, self.source.database, self.source.voice)
        with opener.opened(self.asked.output) as other:
            found, _ = self._gathered(other, BrokerLogs())
        return Earlier(place, found.summary, found.diagnosis, command, found.events)

    def _facts(self, opened: Source) -> Facts:
        from rmqtx_cli.report.gathering import Facts

        return Facts(opened.arguments, opened.live, opened.names, opened.describe())

    @property
    def _proxy_keeps_ms(self) -> int | None:
        from rmqtx.readers.store.broker_conf import read_expire_ms

        return None if self.asked.proxy_conf is None else read_expire_ms(self.asked.proxy_conf)

    @property
    def _command_line(self) -> str:
        """The command line without secrets."""
        from rmqtx_cli.sources.provenance import without_secrets

        return " ".join(["rmqtx", *(shlex.quote(without_secrets(word)) for word in sys.argv[1:])])
