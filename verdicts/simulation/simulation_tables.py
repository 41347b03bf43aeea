"""The tables of a simulated check: each half in each round, each round, and what becomes of each open half."""

from __future__ import annotations

import pyarrow as pa

from readers.model.tables import column
from verdicts.check.steps import Action
from verdicts.check.timers_without_copies import Asking

_STORE = column("store", pa.string(), "root directory of the store that the check was simulated on")
_CONFIGURATION = column("configuration", pa.string(), "as is, or the settings that --with changed")
_DESIGN = column("design", pa.string(), "half_topic, state_table or rocksdb: where what is open stands")
_TABLE_FILE = column(
    "table_file", pa.string(), "file of the state table (3.0, 3.1), each of which has a timer; null of other designs"
)
_QUEUE_ID = column("queue_id", pa.int32(), "number of the half queue; null of a state table")
_WRITTEN = column("written_bytes", pa.int64(), "bytes of the records that it appends to the commit log")
_LATER = column(
    "may_be_a_round_later", pa.bool_(),
    "whether it is given up on right after its last check: where the queue lags behind, that comes a round later",
)  # fmt: skip
_WORDS = [
    column("transaction_id", pa.string(), "property UNIQ_KEY, else the offset message id of the stored copy"),
    column("producer_group", pa.string(), "property PGROUP, the group that is asked back"),
    column("topic", pa.string(), "property REAL_TOPIC, where a commit delivers to"),
]

#: One half copy in one round of a simulated check.
SIMULATED_CHECKS = pa.schema(
    [
        _STORE,
        _CONFIGURATION,
        _DESIGN,
        _TABLE_FILE,
        column("round", pa.int32(), "number of the round, from 1"),
        column("round_time_ms", pa.int64(), "when the broker comes to this half"),
        _QUEUE_ID,
        *_WORDS,
        column(
            "action", pa.string(),
            "checked, put back immune, discarded, expired, unreadable; without put-backs asked, asked in vain, dropped",
            values=dict.fromkeys((*Action, *Asking)),
        ),
        column("checks_count", pa.int32(), "checks that the transaction has behind it then"),
        column("half_queue_offset", pa.int64(), "queue offset, or slot number, of the half that the round comes to"),
        column("commit_log_offset", pa.int64(), "global byte position in the commit log of the stored copy"),
        column("new_half_queue_offset", pa.int64(), "queue offset of the copy that is put back; null if none is"),
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
        column("end_time_ms", pa.int64(), "when it ends, as far as waiting decides"),
        column("checked_count", pa.int64(), "halves whose producers are asked, in half topics by putting them back"),
        column("immune_count", pa.int64(), "halves that are immune, so that nobody is asked; in half topics put back"),
        column("discarded_count", pa.int64(), "halves that are given up on, or dropped: their checks are spent"),
        column("expired_count", pa.int64(), "halves that are given up on: older than fileReservedTime"),
        column("ended_count", pa.int64(), "halves that an op has ended"),
        column("unreadable_count", pa.int64(), "slots of the half queue, or of a table, that the broker cannot read"),
        column("half_cursor", pa.int64(), "half cursor after the round"),
        column("half_cursor_before", pa.int64(), "half cursor before it"),
        column("op_cursor", pa.int64(), "op cursor after the round"),
        column("op_cursor_before", pa.int64(), "op cursor before it"),
        column("half_end", pa.int64(), "queue offset after the last half copy then"),
        _WRITTEN,
        column("stop", pa.string(), "what the round stops at"),
    ]
)

#: What becomes of an open half copy.
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
        column("checks_count", pa.int32(), "checks behind it now"),
        column("next_check_time_ms", pa.int64(), "when its producer is asked next; null if never"),
        column("checks_to_come_count", pa.int32(), "how often its producer will be asked; null without a limit"),
        column("is_answerable", pa.bool_(), "no where a slot's number is not the record's: answers are refused (3.1)"),
        column(
            "end", pa.string(), "discarded, expired, dropped, unreadable; null where the rounds did not suffice",
            values=(Action.DISCARDED, Action.EXPIRED, Asking.DROPPED, Action.UNREADABLE),
        ),
        column("end_round", pa.int32(), "the round that gives up on it"),
        column("end_time_ms", pa.int64(), "when that is"),
        column("written_bytes", pa.int64(), "bytes that its copies take in the commit log until then"),
        _LATER,
    ]
)
