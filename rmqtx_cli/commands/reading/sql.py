"""`rmqtx sql`: query the tables of stores by DuckDB, which reads only what a query uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtx.api.stores import open_stores as open_api_stores
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest, MissingLibrary
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.storage.places import is_uri
from rmqtx_cli.commands.declared.data import SqlCommand
from rmqtx_cli.options.asking import typed
from rmqtx_cli.options.configuration import own_store
from rmqtx_cli.options.options import OutputFormat, OutputOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.port import chosen_format
from rmqtx_cli.output.views import plain_view
from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header
from rmqtx_cli.words import say

if TYPE_CHECKING:
    from rmqtx.api.lazy_tables import LazyTable

#: What a path begins with, and no statement does.
_OF_PATHS = ("/", ".", "~")
#: Nothing is written, no extension is loaded, and no variable of this program is a table.
_SETTINGS = {
    "temp_directory": "", "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
#: Types that every output format has; others are written as text, except in files of Arrow's.
_PLAIN = frozenset({
    "boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint",
    "float", "double", "decimal", "varchar", "blob", "enum",
})
#: Those that files of Arrow and Parquet have too.
_BINARY = _PLAIN | {"date", "time", "timestamp", "timestamp with time zone", "uuid"}
_NESTED = ("list", "struct", "map")
_BATCH_ROWS = 10_000
_PROMPT, _GO_ON = "rmqtx> ", "  ...> "
_LEAVE = (".quit", ".exit", "quit", "exit")


def run(options: SqlCommand) -> int:
    """Run the command; return its exit status."""
    statement, paths = _parted(options.store or [])
    files = options.files
    opened = open_stores(paths, files)
    refuse_inside(options.output, opened.stores)
    tables = open_api_stores(
        *paths, broker_conf=files.broker_conf, broker_version=files.broker_version, commit_log=files.commit_log or (),
        trace_topic=files.trace_topic,
    ).tables()
    session = _Session(tables, options)
    if statement is None and not sys.stdin.isatty():
        statement = sys.stdin.read()
    if statement is None:
        say_header(opened, options.voice)
        return session.prompted()
    if options.voice.verbose:
        say_header(opened, options.voice)
    return session.answered(statement)


def _parted(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the statement, if the first word is one, and the stores. Raises: BadRequest without a store."""
    statement, paths = None, list(words)
    if words and _is_statement(words[0]):
        statement, *paths = words
    own = own_store() if not paths else None
    if own is not None:
        paths = [own.place]
    if not paths:
        raise BadRequest("no store given", advice='rmqtx sql "SELECT count(*) FROM transactions" STORE')
    return statement, paths


def _is_statement(word: str) -> bool:
    """Whether the first argument is a statement: several words that name no file."""
    is_place = word.startswith(_OF_PATHS) or is_uri(word) or os.path.lexists(word)
    return len(word.split()) > 1 and not is_place


class _Session:
    """A connection to DuckDB with the tables of some stores."""

    def __init__(self, tables: dict[str, LazyTable], options: SqlCommand) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingLibrary("duckdb is not installed", advice="pip install 'rmqtx[sql]'") from error
        self._duckdb: Any = duckdb
        self._tables, self._options, self._voice = tables, options, options.voice
        self._connection: Any = duckdb.connect(config=_SETTINGS)
        for name, table in tables.items():
            self._connection.register(name, table)

    def prompted(self) -> int:
        """Answer the statements that are typed, until the end of the input; return the worst status."""
        self._voice.note(f"tables: {', '.join(self._tables)}; end a statement with ; and the session with Ctrl-D")
        worst = exit_status.DONE
        for statement in _typed_statements():
            try:
                worst = max(worst, self.answered(statement))
            except BadRequest as error:
                say.error(str(error))
        return worst

    def answered(self, text: str) -> int:
        """Answer statements one after another; return the worst status.

        Raises: BadRequest for text that is not a query, and for several with a file.
        """
        try:
            statements = self._connection.extract_statements(text)
        except self._duckdb.Error as error:
            raise self._wrong(error) from error
        allowed = (self._duckdb.StatementType.SELECT, self._duckdb.StatementType.EXPLAIN)
        for one in statements:
            if one.type not in allowed:
                raise BadRequest("only queries are possible: SELECT, FROM, WITH, DESCRIBE, SUMMARIZE, EXPLAIN",
                                 advice="-o FILE writes the rows")
        if len(statements) != 1 and self._options.output is not None:
            raise BadRequest(f"-o takes one statement, and {len(statements)} are given")
        return max((self._answer(one.query) for one in statements), default=exit_status.DONE)

    def _answer(self, query: str) -> int:
        options = self._options
        form = OutputOptions(output_format=options.output_format, form=options.form, output=options.output)
        for table in self._tables.values():
            table.begin()
        try:
            is_plain = chosen_format(options.output_format, options.output) not in (
                OutputFormat.PARQUET, OutputFormat.ARROW
            )
            rows = _shaped(self._connection.sql(query), is_plain=is_plain)
            reader = rows.to_arrow_reader(_BATCH_ROWS)
            listing = Listing(reader.schema, plain_view(reader.schema.names), form, voice=self._voice)
            listing.write(iter(reader))
        except (self._duckdb.Error, pa.ArrowException) as error:
            for table in self._tables.values():
                if table.error is not None:
                    raise table.error from error
            raise self._wrong(error) from error
        return self._concluded(listing)

    def _concluded(self, listing: Listing) -> int:
        """Print notes and findings of the tables that were read; return the exit status."""
        accounts = [one for table in self._tables.values() for one in table.accounts()]
        whole = Reading(pa.schema([]), ())
        for account in accounts:
            whole.add_account_of(account.reading)
        whole.findings = list(dict.fromkeys(whole.findings))
        return max(
            listing.conclude(whole, has_undecidable=any(one.undecidable_count for one in accounts)),
            *(one.status for one in accounts), exit_status.DONE,
        )

    def _wrong(self, error: Exception) -> BadRequest:
        """DuckDB's message in one line."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return BadRequest(f"sql: {lines[0] if lines else type(error).__name__}", advice=self._near(lines))

    def _near(self, lines: Sequence[str]) -> str:
        asked = next((line for line in lines if line.startswith("Did you mean")), "")
        if lines and "Table with name" in lines[0] and not any(f'"{name}"' in asked for name in self._tables):
            asked = ""  # DuckDB proposes a table of its own catalogue
        return asked or f"tables: {', '.join(self._tables)}; columns: DESCRIBE transactions"


def _shaped(rows: Any, *, is_plain: bool) -> Any:
    """The same rows, each column with a name of its own and, for formats with few types, of a type that they have."""
    names: list[str] = []
    for name in rows.columns:
        taken = [name, *(f"{name}_{number}" for number in range(1, len(names) + 1))]
        names.append(next(one for one in taken if one not in names))
    known = _PLAIN if is_plain else _BINARY
    parts = []
    for number, (name, kind) in enumerate(zip(names, rows.types, strict=True), 1):
        value = f"#{number}" if _is_of(known, kind) else f"CAST(#{number} AS VARCHAR)"
        quoted = name.replace('"', '""')
        parts.append(f'{value} AS "{quoted}"')
    return rows.project(", ".join(parts))


def _is_of(known: frozenset[str], kind: Any) -> bool:
    """Whether a format has a type of DuckDB, and the types in it. `known`: the names of those that it has."""
    if kind.id in _NESTED:
        return all(_is_of(known, one) for _, one in kind.children)
    return kind.id in known


def _typed_statements() -> Iterator[str]:
    """Yield the statements that are typed, each until its semicolon."""
    import readline  # noqa: F401 -- keys of the line, and earlier statements

    lines: list[str] = []
    while True:
        try:
            line = typed(_GO_ON if lines else _PROMPT)
        except KeyboardInterrupt:
            say.prompt("\n")
            lines = []
            continue
        if line is None or (not lines and line.rstrip(";").strip().lower() in _LEAVE):
            say.prompt("\n")
            return
        if line:
            lines.append(line)
        if line.endswith(";"):
            yield "\n".join(lines)
            lines = []
