"""The tables of a simulated check: each half in each round, each round, and the outcome of each open half."""

from __future__ import annotations

import pyarrow as pa

from rmqtx.readers.model.tables import column
from rmqtx.verdicts.check.steps import Action
from rmqtx.verdicts.check.timers_without_copies import Asking

_STORE = column("store", pa.string(), "root directory of the store that the check was simulated on")
_CONFIGURATION = column("configuration", pa.string(), "as is, or the settings that --with changed")
_DESIGN = column("design", pa.string(), "half_topic, state_table or rocksdb: where open transactions are stored")
_TABLE_FILE = column(
    "table_file", pa.string(), "file of the state table (3.0, 3.1), each with its own timer; null for other designs"
)
_QUEUE_ID = column("queue_id", pa.int32(), "number of the half queue; null for a state table")
_WRITTEN = column(
    "written_bytes", pa.int64(), "bytes of the records that the action, or the round, appends to the commit log"
)
_LATER = column(
    "may_be_a_round_later", pa.bool_(),
    "true if the round reaches a copy that it put back itself; if the queue lags behind the log, only the next does",
)  # fmt: skip
_WORDS = [
    column("transaction_id", pa.string(), "property UNIQ_KEY, else the offset message id of the stored copy"),
    column("producer_group", pa.string(), "property PGROUP, the producer group that is checked"),
    column("topic", pa.string(), "property REAL_TOPIC, the topic that a commit delivers to"),
]

#: One half copy in one round of a simulated check.
SIMULATED_CHECKS = pa.schema(
    [
        _STORE,
        _CONFIGURATION,
        _DESIGN,
        _TABLE_FILE,
        column("round", pa.int32(), "number of the round, from 1"),
        column("round_time_ms", pa.int64(), "when the broker reaches this half"),
        _QUEUE_ID,
        *_WORDS,
        column(
            "action", pa.string(),
            "checked, put back unasked, put back immune, discarded, expired, ended, unreadable or skipped; in designs "
            "that put no copies back: asked, unanswerable, dropped or unreadable",
            values=dict.fromkeys((*Action, *Asking)),
        ),
        column("checks_count", pa.int32(), "number of checks of the transaction at that time"),
        column("half_queue_offset", pa.int64(), "queue offset, or slot number, of the half that the round reaches"),
        column("commit_log_offset", pa.int64(), "global byte position in the commit log of the stored copy"),
        column("new_half_queue_offset", pa.int64(), "queue offset of the copy that is put back; null if none"),
        _WRITTEN,
        _LATER,
    ]
)

#: One round of a simulated check.
SIMULATED_ROUNDS = pa.schema(
    [
        _STORE,
        _CONFIGURATION,
        _DESIGN,
        _TABLE_FILE,
        column("round", pa.int32(), "number of the round, from 1"),
        _QUEUE_ID,
        column("begin_time_ms", pa.int64(), "when the round begins"),
        column("end_time_ms", pa.int64(), "when it ends, counting only the waiting time"),
        column("checked_count", pa.int64(), "halves that are checked; in half topics they are put back for this"),
        column("unasked_count", pa.int64(), "halves that are put back without asking: they name no producer to ask"),
        column("immune_count", pa.int64(), "halves that are immune and not checked; in half topics they are put back"),
        column("discarded_count", pa.int64(), "halves that are discarded, or dropped: their checks are used up"),
        column("expired_count", pa.int64(), "halves that are discarded: older than fileReservedTime"),
        column("ended_count", pa.int64(), "halves that an op has ended"),
        column("unreadable_count", pa.int64(), "slots of the half queue, or of a table, that the broker cannot read"),
        column("half_cursor", pa.int64(), "half cursor after the round"),
        column("half_cursor_before", pa.int64(), "half cursor before it"),
        column("op_cursor", pa.int64(), "op cursor after the round"),
        column("op_cursor_before", pa.int64(), "op cursor before it"),
        column("half_end", pa.int64(), "queue offset after the last half copy at that time"),
        _WRITTEN,
        column("stop", pa.string(), "where the round stops"),
        column(
            "skipped_count", pa.int64(),
            "halves that the read of the store skips behind a slot without a record: no round reads them",
        ),
    ]
)

#: The outcome of an open half copy.
SIMULATED_TRANSACTIONS = pa.schema(
    [
        _STORE,
        _CONFIGURATION,
        _DESIGN,
        _TABLE_FILE,
        _QUEUE_ID,
        *_WORDS,
        column("half_queue_offset", pa.int64(), "queue offset of the stored half copy, or number of its slot"),
        column("commit_log_offset", pa.int64(), "global byte position of that copy in the commit log"),
        column("checks_count", pa.int32(), "number of checks so far"),
        column("next_check_time_ms", pa.int64(), "time of its next check; null if never"),
        column("checks_to_come_count", pa.int32(), "number of checks to come; null without a limit"),
        column("is_answerable", pa.bool_(), "no if slot and record have different numbers: answers are refused (3.1)"),
        column(
            "end", pa.string(), "discarded, expired, dropped, unreadable, skipped; null if no simulated round ends it",
            values=(Action.DISCARDED, Action.EXPIRED, Asking.DROPPED, Action.UNREADABLE, Action.SKIPPED),
        ),
        column("end_round", pa.int32(), "the round that ends it"),
        column("end_time_ms", pa.int64(), "time of that round"),
        column("written_bytes", pa.int64(), "bytes that its copies take in the commit log until the end"),
        _LATER,
    ]
)
