"""Parse the options of the data source `rmqtx`; an error is one line with the possible values."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from rmqtx.readers.log.splits import SPLIT_BYTES
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import timestamp_schema
from rmqtx.readers.model.tables import ALL_TABLES, VERDICT_CHANGES
from rmqtx.readers.model.units import parse_size_bytes, parse_time_ms
from rmqtx.readers.storage.file_systems import expand
from rmqtx.readers.storage.places import identity_of
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import TRACE_TOPIC, Store, open_all

#: Tables whose rows are records of the commit log, read split by split.
LOG_TABLES = frozenset({"records", "halves", "ops", "traces"})
#: Tables that are the result of one audit over all the given stores.
AUDIT_TABLES = frozenset({"transactions", "findings", "coverage"})
#: Tables of changes, which are only streams.
CHANGE_TABLES = frozenset({"verdict_changes"})
#: Every table of the data source.
SOURCE_TABLES: dict[str, pa.Schema] = {**ALL_TABLES, "verdict_changes": VERDICT_CHANGES}
_ALL = frozenset(SOURCE_TABLES)
_JUDGED = AUDIT_TABLES | CHANGE_TABLES
BODIES = ("none", "raw", "decompressed")
_STREAM_BATCH_BYTES = 1 << 30
_STREAM_BATCH_ROWS = 50_000

#: Each option: the tables that it applies to, and its description.
OPTIONS: dict[str, tuple[frozenset[str], str]] = {
    "table": (_ALL, "the table to read; records if not given"),
    "path": (_ALL, "a store's root directory, or several separated by commas; patterns are expanded"),
    "paths": (_ALL, 'several root directories as a JSON list: ["/a/store", "/b/store"]; set by load([...])'),
    "columns": (_ALL, "names separated by commas: only these columns are decoded"),
    "split_size": (_ALL, "size of commit log or queue for one task, like 64KiB; default: 128MiB"),
    "commitlog": (_ALL, "directory of the commit log of a single store, if not below its root; several with commas"),
    "broker_conf": (_JUDGED, "the broker's configuration file, which is not in its store"),
    "broker_version": (_JUDGED, "the broker's version, whose defaults apply to settings that are not given"),
    "from": (LOG_TABLES, "commit-log offset of the first record"),
    "to": (LOG_TABLES, "commit-log offset to end before"),
    "from_time": (LOG_TABLES, "first store time, ISO 8601 with a zone or epoch milliseconds"),
    "to_time": (LOG_TABLES, "store time to end before"),
    "topic": (
        frozenset({"records", "halves", "queue_slots", "cursors", "segments"}),
        "only this topic; for halves the real topic",
    ),
    "body": (frozenset({"records"}), "none, raw or decompressed; raw if `columns` contains body"),
    "check_crc": (
        frozenset({"records"}), "true to compute each body's CRC; also on if `columns` contains body_crc_matches",
    ),
    "trace_topic": (
        _JUDGED | {"traces"}, "topic of the producers' message traces; default: RMQ_SYS_TRACE_TOPIC",
    ),
    "at": (AUDIT_TABLES, "judge as of this time, ISO 8601 with a zone or epoch milliseconds"),
    "timestamps": (_ALL, "true for times as TIMESTAMP columns, named without _ms, in place of epoch milliseconds"),
    "push_filters": (_ALL, "true for a frame with a single query: its conditions limit what is read"),
    "max_bytes_per_batch": (LOG_TABLES, "streams: maximum size of commit log in one batch, like 256MiB"),
    "max_rows_per_batch": (CHANGE_TABLES, "maximum number of changes in one batch; default: 50000"),
    "checkpoint": (
        CHANGE_TABLES, "a file on a disk of the driver for what was read and judged; each query needs one of its own",
    ),
    "fail_on_data_loss": (LOG_TABLES, "streams: false to continue if files expired before they were read"),
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a query. Units: offsets in bytes of the commit log; upper bounds excluded."""

    table: str
    paths: tuple[str, ...]
    columns: tuple[str, ...]
    split_bytes: int = SPLIT_BYTES
    commit_logs: tuple[str, ...] = ()
    broker_conf: str | None = None
    broker_version: str | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    topic: str | None = None
    trace_topic: str = TRACE_TOPIC
    body: str = "none"
    check_crc: bool = False
    at_ms: int | None = None
    pushes_filters: bool = False
    fails_on_data_loss: bool = True
    max_bytes_per_batch: int = _STREAM_BATCH_BYTES
    has_timestamps: bool = False
    max_rows_per_batch: int = _STREAM_BATCH_ROWS
    checkpoint: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The table's schema with the requested columns, in the requested order."""
        whole = SOURCE_TABLES[self.table]
        return pa.schema([whole.field(name) for name in self.columns])

    @property
    def frame_schema(self) -> pa.Schema:
        """The schema of the frame, with timestamps if requested."""
        return timestamp_schema(self.schema) if self.has_timestamps else self.schema


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options that Spark passes, with names in any case.

    Raises: BadRequest for an unknown option, an option that does not apply to the table, or an invalid value.
    """
    given = {str(name).lower(): str(value).strip() for name, value in options.items()}
    if any(name.startswith("option.") or name == "owner" for name in given):  # those of a table's definition
        raise BadRequest(
            "only temporary views can use rmqtx: Spark does not pass the options of a created table to its data source",
            advice="write CREATE TEMPORARY VIEW ... USING rmqtx OPTIONS (...)",
        )
    for name in given:
        if name not in OPTIONS:
            raise BadRequest(f"the data source rmqtx has no option {name!r}", advice=_near(name, OPTIONS))
    table = given.get("table", "records").lower()
    if table not in SOURCE_TABLES:
        raise BadRequest(f"the data source rmqtx has no table {table!r}", advice=_near(table, SOURCE_TABLES))
    for name in given:
        if table not in OPTIONS[name][0]:
            raise BadRequest(
                f"the option {name!r} does not apply to the table {table}",
                advice=f"it applies to: {', '.join(sorted(OPTIONS[name][0]))}",
            )
    has_timestamps = _parsed(given, "timestamps", _truth, False)
    columns = _columns(table, given.get("columns"), has_timestamps=has_timestamps)
    return ReadOptions(
        table=table,
        paths=_paths(given),
        columns=columns,
        split_bytes=_parsed(given, "split_size", parse_size_bytes, SPLIT_BYTES),
        commit_logs=_list("commitlog", given.get("commitlog", "")),
        broker_conf=given.get("broker_conf"),
        broker_version=given.get("broker_version"),
        from_offset=_parsed(given, "from", _offset, None),
        to_offset=_parsed(given, "to", _offset, None),
        from_time_ms=_parsed(given, "from_time", parse_time_ms, None),
        to_time_ms=_parsed(given, "to_time", parse_time_ms, None),
        topic=given.get("topic"),
        trace_topic=given.get("trace_topic", TRACE_TOPIC),
        body=_parsed(given, "body", _body, "raw" if "columns" in given and "body" in columns else "none"),
        check_crc=_parsed(given, "check_crc", _truth, "columns" in given and "body_crc_matches" in columns),
        at_ms=_parsed(given, "at", parse_time_ms, None),
        pushes_filters=_parsed(given, "push_filters", _truth, False),
        fails_on_data_loss=_parsed(given, "fail_on_data_loss", _truth, True),
        max_bytes_per_batch=_parsed(given, "max_bytes_per_batch", parse_size_bytes, _STREAM_BATCH_BYTES),
        has_timestamps=has_timestamps,
        max_rows_per_batch=_parsed(given, "max_rows_per_batch", _rows, _STREAM_BATCH_ROWS),
        checkpoint=given.get("checkpoint"),
    )


def _near(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"


def _parsed(given: dict[str, str], name: str, parse: Callable[[str], Any], default: Any) -> Any:
    if name not in given:
        return default
    try:
        return parse(given[name])
    except BadRequest as error:
        raise BadRequest(f"option {name!r}: {error.message}", advice=error.advice) from None


def _offset(text: str) -> int:
    cleaned = text.replace("_", "")
    if not (cleaned.isascii() and cleaned.isdigit()):
        raise BadRequest(f"{text!r} is not an offset", advice="give a number; for times use from_time and to_time")
    return int(cleaned)


def _rows(text: str) -> int:
    count = _offset(text)
    if not count:
        raise BadRequest("'0' rows are not a batch")
    return count


def _body(text: str) -> str:
    if text.lower() not in BODIES:
        raise BadRequest(f"{text!r} is not a value of body", advice=f"there are: {', '.join(BODIES)}")
    return text.lower()


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadRequest(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _columns(table: str, text: str | None, *, has_timestamps: bool) -> tuple[str, ...]:
    """Return the columns to decode, by their names without timestamps."""
    names = SOURCE_TABLES[table].names
    if text is None:
        return tuple(names)
    wanted = [name.strip().lower() for name in text.split(",") if name.strip()]
    if has_timestamps:
        wanted = [f"{name}_ms" if name not in names and f"{name}_ms" in names else name for name in wanted]
    for name in wanted:
        if name not in names:
            raise BadRequest(f"option 'columns': no column {name!r} in {table}", advice=_near(name, names))
    if not wanted or len(set(wanted)) < len(wanted):
        raise BadRequest(f"option 'columns': {text!r} has no column, or one twice")
    return tuple(wanted)


def _paths(given: dict[str, str]) -> tuple[str, ...]:
    found = [path for name in ("path", "paths") for path in _list(name, given.get(name, ""))]
    if not found:
        raise BadRequest("no store is given", advice='write .load("/data/rocketmq/store"), or OPTIONS (path "...")')
    return tuple(dict.fromkeys(found))


def _list(name: str, text: str) -> tuple[str, ...]:
    if text.startswith("["):
        try:
            values = json.loads(text)
        except ValueError:
            values = None
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise BadRequest(f"option {name!r}: {text!r} is not a JSON list of texts")
    else:
        values = text.split(",")
    return tuple(value.strip() for value in values if value.strip())


def opened(options: ReadOptions) -> list[Store]:
    """Return a snapshot of each store in the options. Reads directories, no file of a log.

    Order:  as given; the matches of a pattern by name.
    Raises: NotAStore, UnreadableFile; BadRequest for `commitlog` with several stores.
    """
    roots = {identity_of(path): path for path in expand(options.paths)}
    if options.commit_logs and len(roots) > 1:
        raise BadRequest("option 'commitlog' is for one store, and several stores are given")
    stores = open_all(list(roots.values()), options.commit_logs)
    return [replace(store, trace_topic=options.trace_topic) for store in stores]


@dataclass
class Settings:
    """Returns the settings of each store's broker, for `rmqtx.verdicts.audit.local_audit.audit`; it can be pickled."""

    options: ReadOptions
    _found: dict[str, BrokerSettings] = field(default_factory=dict)

    def __call__(self, store: Store) -> BrokerSettings:
        """Return the settings of one store's broker."""
        if store.root not in self._found:
            conf = None if self.options.broker_conf is None else read_broker_conf(self.options.broker_conf)
            self._found[store.root] = broker_settings(store, conf=conf, version=self.options.broker_version)
        return self._found[store.root]
