"""The options that say where transactions are read: stores, a database table, logs of brokers, live brokers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.options.ledger_options import JDBC
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import RateOption, TracedStoreOptions, VoiceOptions

NoPagerOption = Annotated[
    bool,
    typer.Option(
        "--no-pager",
        help="Do not use a pager. Default on a terminal: $RMQTX_PAGER, $PAGER or less; no pager if the variable is "
        "empty or cat.",
    ),
]


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """A database table of open transactions (3.2 to 4.2)."""

    transaction_table: Annotated[
        str | None,
        typer.Option(
            "--transaction-table", metavar="URL",
            help="A broker's t_transaction (3.2 to 4.2): sqlite:///FILE, a URL of SQLAlchemy, a CSV or Parquet export; "
            "jdbc:... with Spark. User and password: RMQTX_LEDGER_USER, RMQTX_LEDGER_PASSWORD.",
        ),
    ] = None
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="Name of the table (default: t_transaction).")
    ] = None
    offset_column: Annotated[
        str | None, typer.Option("--offset-column", metavar="NAME", help="Column of offsets (default: offset).")
    ] = None
    group_column: Annotated[
        str | None,
        typer.Option("--group-column", metavar="NAME", help="Column of producer groups (default: producerGroup)."),
    ] = None

    @property
    def is_jdbc(self) -> bool:
        """Whether only Spark can read the table."""
        return (self.transaction_table or "").startswith(JDBC)

    def engine_of(self, options: EngineOptions) -> EngineOptions:
        """The engine options for reading the table: Spark for JDBC. Raises: BadRequest."""
        if not self.is_jdbc:
            return options
        if options.engine is EngineName.LOCAL:
            raise BadRequest(
                "--transaction-table jdbc: needs Spark", advice="use --engine spark, or a URL of SQLAlchemy"
            )
        return replace(options, engine=EngineName.SPARK)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options for the logs of brokers."""

    broker_logs: Annotated[
        list[Path] | None,
        typer.Option(
            "--broker-logs", metavar="DIR",
            help="Directory of the broker's logs (transaction.log, broker.log, store.log, remoting.log, rotated or "
            ".gz); for several stores once for each, in their order",
        ),
    ] = None
    log_zone: Annotated[
        str | None,
        typer.Option(
            "--log-zone", metavar="ZONE",
            help="Time zone of the broker's logs: Asia/Shanghai, +08:00; default: the zone that the logs show, "
            "else +08:00",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options for stores and brokers, without the store arguments."""

    files: TracedStoreOptions = field(default_factory=TracedStoreOptions)
    rate: RateOption = None
    voice: VoiceOptions = field(default_factory=VoiceOptions)
    database: DatabaseOptions = field(default_factory=DatabaseOptions)
    live: LiveOptions = field(default_factory=LiveOptions)
