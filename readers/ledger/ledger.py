"""Read a business ledger without a JVM: a Parquet or CSV file (or a directory of them), or a table of a SQLite file.

It is read in batches, only the needed columns. Its names contain no password: databases with a password are read by
Spark over JDBC, with the password from the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from rmqtx.readers.model.errors import BadRequest, BadText, UnreadableFile

if TYPE_CHECKING:
    import sqlite3

    import pyarrow.dataset as ds

SQLITE = "sqlite:///"
_BATCH_ROWS = 65_536
#: Arrow type for a declared type of SQLite, by words in the type, in the order of SQLite's rules (type affinity).
_AFFINITIES: tuple[tuple[tuple[str, ...], pa.DataType], ...] = (
    (("INT",), pa.int64()),
    (("CHAR", "CLOB", "TEXT"), pa.string()),
    (("REAL", "FLOA", "DOUB"), pa.float64()),
)


class Ledger(Protocol):
    """Rows of a business ledger."""

    @property
    def name(self) -> str:
        """The ledger's name for messages; it contains nothing secret."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, all of types that conditions support."""

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows, of these columns only."""


def open_ledger(location: str, table: str | None = None, text_columns: tuple[str, ...] = ()) -> Ledger:
    """Return the ledger at a path, or of `sqlite:///PATH`.

    `table`: for SQLite; needed unless the file has only one table. `text_columns`: read as text from CSV, so that `007`
    is not changed.
    Raises: BadRequest for an unsupported place or table; UnreadableFile.
    """
    if location.startswith(SQLITE):
        return _sqlite(Path(location.removeprefix(SQLITE)), table)
    if "://" in location or location.startswith("jdbc:"):
        raise BadRequest(
            f"{location.split(':', 1)[0]}: not supported as a ledger",
            advice="give a Parquet or CSV file, sqlite:///FILE, or jdbc:... with Spark",
        )
    if table is not None:
        raise BadRequest("--ledger-table is for databases, and the ledger is a file")
    return _files(Path(location), text_columns)


@dataclass(frozen=True)
class FileLedger:
    """Parquet or CSV files."""

    name: str
    dataset: ds.Dataset
    schema: pa.Schema

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, of these columns only.

        Raises: BadText for rows with other types than the first rows; UnreadableFile.
        """
        wanted = pa.schema([self.schema.field(name) for name in columns])
        try:
            for batch in self.dataset.to_batches(columns=columns):
                if batch.num_rows:
                    yield batch.cast(wanted)
        except pa.ArrowInvalid as error:
            raise BadText(f"cannot read {self.name}: {_first_line(error)}", file=self.name) from error
        except OSError as error:  # compressed data that is damaged
            raise UnreadableFile(f"cannot read {self.name}: {_first_line(error)}", file=self.name) from error


def _files(path: Path, text_columns: tuple[str, ...]) -> FileLedger:
    import pyarrow.dataset as ds

    kind = _kind_of(path)
    if not path.exists():
        raise UnreadableFile(f"{path} does not exist", file=path)
    try:
        dataset = ds.dataset(str(path), format=kind)
        if kind == "csv":
            types = {name: pa.string() for name in text_columns if name in dataset.schema.names}
            options = ds.CsvFragmentScanOptions(convert_options=_csv_options(types))
            form = ds.CsvFileFormat(default_fragment_scan_options=options)
            dataset = ds.dataset(str(path), format=form)
    except (OSError, pa.ArrowException) as error:
        raise UnreadableFile(f"cannot read {path} as {kind}: {_first_line(error)}", file=path) from error
    return FileLedger(str(path), dataset, pa.schema([_plain_field(field) for field in dataset.schema]))


def _kind_of(path: Path) -> str:
    inside = path
    if path.is_dir():
        inside = next((p for p in sorted(path.rglob("*")) if p.is_file() and p.name[0] not in "._"), path)
    suffixes = {suffix.lower() for suffix in inside.suffixes[-2:]}
    for kind in ("parquet", "csv"):
        if f".{kind}" in suffixes:
            return kind
    raise BadRequest(
        f"{path} is neither .parquet nor .csv", advice="give a .parquet or .csv file, sqlite:///FILE or jdbc:..."
    )


def _csv_options(types: dict[str, pa.DataType]) -> object:
    from pyarrow.csv import ConvertOptions

    return ConvertOptions(column_types=types, strings_can_be_null=True)


def _plain_field(field: pa.Field) -> pa.Field:
    """Return the field with a type that conditions support: long texts and dictionaries become texts."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        kind = pa.string()
    return pa.field(field.name, kind)


@dataclass(frozen=True)
class SqliteLedger:
    """One table or view of a SQLite file, opened for reading only."""

    name: str
    file: Path
    table: str
    schema: pa.Schema

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, of these columns only.

        Raises: BadText for a value that does not have its column's declared type; UnreadableFile.
        """
        import sqlite3

        schema = pa.schema([self.schema.field(name) for name in columns])
        chosen = ", ".join(_sql(field) for field in schema)
        try:
            with closing(_connect(self.file)) as connection:
                cursor = connection.execute(f"SELECT {chosen} FROM {_quoted(self.table)}")
                while rows := cursor.fetchmany(_BATCH_ROWS):
                    yield self._batch(rows, schema)
        except sqlite3.Error as error:
            raise UnreadableFile(f"cannot read {self.name}: {error}", file=self.file) from error

    def _batch(self, rows: list[tuple[object, ...]], schema: pa.Schema) -> pa.RecordBatch:
        arrays = []
        for field, values in zip(schema, zip(*rows, strict=True), strict=True):
            try:
                arrays.append(pa.array(values, field.type))
            except (pa.ArrowException, OverflowError) as error:  # SQLite stores any value in any column
                message = f"{self.name}: a value of column {field.name} is not {field.type}"
                raise BadText(message, file=self.file) from error
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _sqlite(path: Path, table: str | None) -> SqliteLedger:
    import sqlite3

    if not path.is_file():
        raise UnreadableFile(f"{path} does not exist", file=path)
    try:
        with closing(_connect(path)) as connection:
            names = [row[0] for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1"
            )]
            if table is None and len(names) == 1:
                table = names[0]
            if table is None or table not in names:
                problem = "--ledger-table is needed" if table is None else f"{path} has no table {table}"
                raise BadRequest(problem, advice=f"there are: {', '.join(names) or 'none'}")
            declared = [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({_quoted(table)})")]
    except sqlite3.Error as error:
        raise UnreadableFile(f"cannot read {path} as SQLite: {error}", file=path) from error
    schema = pa.schema([pa.field(name, _type_of(kind)) for name, kind in declared])
    return SqliteLedger(f"{path}, table {table}", path, table, schema)


def _connect(path: Path) -> sqlite3.Connection:
    import sqlite3

    escaped = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(f"file:{escaped}?mode=ro", uri=True)
    connection.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
    return connection


def _type_of(declared: str) -> pa.DataType:
    for words, kind in _AFFINITIES:
        if any(word in declared.upper() for word in words):
            return kind
    return pa.string()


def _sql(field: pa.Field) -> str:
    name = _quoted(field.name)
    return f"CAST({name} AS TEXT)" if pa.types.is_string(field.type) else name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
