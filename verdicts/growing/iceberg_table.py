"""A table of verdicts in Apache Iceberg, written by the library pyiceberg, without Spark.

A step is one commit: the files with ended rows are written again, then the new rows are appended. The commit sets the
token of the step as a property of the table for each store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.errors import BadRequest, MissingLibrary, UnwritableFile
from rmqtx.readers.model.own_process import allow_pandas
from rmqtx.verdicts.follow.change_log import KEY
from rmqtx.verdicts.growing.table_step import CURRENT, VALID_SINCE, VERDICTS, TableStep, continued, table_differs

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table, Transaction

_STEP = "rmqtx.step."
#: Rows that are appended at once.
_ROWS_MAX = 250_000


@dataclass(slots=True)
class IcebergVerdicts:
    """The table `identifier` of a catalog. Shape: `iceberg`: None before the first step."""

    name: str
    catalog: Catalog
    identifier: str
    iceberg: Table | None

    def step_of(self, store: str) -> int | None:
        """Return the token of the last step of a store."""
        text = None if self.iceberg is None else self.iceberg.properties.get(_STEP + store)
        return None if text is None else int(text)

    def current(self, stores: Sequence[str]) -> pa.Table:
        """Return the current rows of some stores (CURRENT)."""
        from pyiceberg.expressions import And, In, IsNull

        if self.iceberg is None:
            return CURRENT.empty_table()
        return _rows(self.iceberg, And(IsNull("valid_to"), In("store", set(stores))), CURRENT)

    def apply(self, step: TableStep) -> None:
        """Commit a step. Raises: FileChanged if the table lacks rows that the step ends; UnwritableFile."""
        ended = step.ended()
        with _translated(self.name, "write"), self._transaction() as transaction:
            valid_since = self._end(transaction, step, ended) if ended.num_rows else VALID_SINCE.empty_table()
            for rows in _batched(continued(added, valid_since) for added in step.rows()):
                transaction.append(rows)
            transaction.set_properties({_STEP + store: str(step.token) for store in step.stores})

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        if self.iceberg is not None:
            with self.iceberg.transaction() as transaction:
                with transaction.update_schema() as schema:  # columns that an older version did not write
                    schema.union_by_name(VERDICTS)
                yield transaction
            return
        self.catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
        beginning = self.catalog.create_table_transaction(self.identifier, VERDICTS)
        with beginning.update_spec() as spec:
            spec.add_identity("day")
        yield beginning
        self.iceberg = beginning.commit_transaction()

    def _end(self, transaction: Transaction, step: TableStep, ended: pa.Table) -> pa.Table:
        """Write the ended rows again; return key and beginning of the replaced ones."""
        assert self.iceberg is not None, "rows of a new table cannot end"
        condition = _found_by(ended)
        kept, ends, valid_since = step.end(_rows(self.iceberg, condition, VERDICTS), ended)
        missing_count = ended.num_rows - ends.num_rows - valid_since.num_rows
        if missing_count:
            raise table_differs(f"iceberg:{self.name}", missing_count)
        transaction.overwrite(pa.concat_tables([kept, ends]), overwrite_filter=condition)
        return valid_since


def _found_by(ended: pa.Table) -> BooleanExpression:
    """Return a condition that finds the current rows of transactions, and perhaps others with their ids."""
    from pyiceberg.expressions import And, In, IsNull, Or

    days = pc.unique(ended["before_day"]).to_pylist()
    some = {day for day in days if day is not None}
    unknown = IsNull("day")
    are_days = (Or(In("day", some), unknown) if None in days else In("day", some)) if some else unknown
    return And(IsNull("valid_to"), are_days, In("transaction_id", set(ended["transaction_id"].to_pylist())))


def _rows(table: Table, condition: BooleanExpression, schema: pa.Schema) -> pa.Table:
    known = {field.name for field in table.schema().fields}
    found = table.scan(condition, tuple(name for name in schema.names if name in known)).to_arrow()
    columns = [found[one.name] if one.name in known else pa.nulls(found.num_rows, one.type) for one in schema]
    return pa.table(columns, names=schema.names).cast(schema)


@contextmanager
def _translated(name: str, doing: str) -> Iterator[None]:
    """Convert errors of the library and of its catalog, which have no common base. Raises: UnwritableFile."""
    try:
        yield
    except Exception as error:
        packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if not isinstance(error, OSError | pa.ArrowException) and not packages & {"pyiceberg", "sqlalchemy"}:
            raise
        raise UnwritableFile(f"cannot {doing} iceberg:{name}: {' '.join(str(error).split())}") from error


def _batched(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(one.num_rows for one in held) >= _ROWS_MAX:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _existing(name: str) -> IcebergVerdicts:
    """Return the table CATALOG.NAMESPACE.TABLE.

    Raises: BadRequest if it is not a table of verdicts, or the catalog is not configured; MissingLibrary.
    """
    allow_pandas()  # the library needs dateutil
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
    except ImportError as error:
        raise MissingLibrary(
            "tables of Apache Iceberg need the library pyiceberg", advice="pip install 'rmqtx[iceberg]'"
        ) from error
    catalog_name, _, identifier = name.partition(".")
    try:
        with _translated(name, "open"):
            catalog = load_catalog(catalog_name)
    except ValueError as error:
        raise BadRequest(
            f"the Iceberg catalog {catalog_name} is not configured: {' '.join(str(error).split())}",
            advice="describe it in ~/.pyiceberg.yaml, or by PYICEBERG_CATALOG__" + catalog_name.upper() + "__URI",
        ) from error
    with _translated(name, "open"):
        try:
            table = catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return IcebergVerdicts(name, catalog, identifier, None)
    if not {*KEY, "state", "valid_from", "valid_to", "day"} <= {field.name for field in table.schema().fields}:
        raise BadRequest(f"iceberg:{name} is not a table of verdicts", advice="give another name")
    return IcebergVerdicts(name, catalog, identifier, table)


@contextmanager
def opened(name: str) -> Iterator[IcebergVerdicts]:
    """Open a table for a block, or begin a new one.

    Raises: BadRequest if it is not a table of verdicts, or the catalog is not configured; MissingLibrary.
    """
    yield _existing(name)


def read_files(name: str) -> list[str]:
    """Return the files of the present version of a table.

    Raises: BadRequest if it is not a table of verdicts, or another program deleted rows beside its files;
            MissingLibrary.
    """
    tasks = list(_present(name).scan().plan_files())
    if any(task.delete_files for task in tasks):
        raise BadRequest(f"iceberg:{name} has delete files", advice="rewrite its data files, or read it with Iceberg")
    return [task.file.file_path for task in tasks]


def _present(name: str) -> Table:
    table = _existing(name).iceberg
    if table is None:
        raise BadRequest(f"iceberg:{name} is not a table", advice="write it: rmqtx table STORE --into TABLE")
    return table
