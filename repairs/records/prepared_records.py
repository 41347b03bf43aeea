"""COMMIT and ROLLBACK records of prepared records, as brokers 3.0 to 4.2 write them.

Both keep the prepared record's properties byte for byte: the broker stores the text that it read. A delay level stays
in them too without an effect, because the broker removes it from the properties that it interprets. Compared with every
record that brokers 3.1.4, 3.2.6 and 4.2.0 left in the corpus (tests/repairs/test_prepared_ends.py).

A broker 4.3 or later that opens such a store has no code for either record: a commit fails with NumberFormatException,
because the prepared record has no REAL_QID. So the same records are written for it, with properties closed as in its
own records: it dispatches a COMMIT record to its queue and ignores a ROLLBACK record, of whatever origin
(docs/formats/consume_queues.md#dispatch, docs/formats/prepared_records.md#end).
"""

from __future__ import annotations

from dataclasses import replace

from rmqtx.readers.log.record_head import number_at
from rmqtx.readers.log.record_layout import COMMIT, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.model.releases import PREPARED_NOT_CHECKED, Version
from rmqtx.repairs.records.record_writer import RecordDraft, draft_of

__all__ = ["commit_record_of", "rollback_record_of"]


def commit_record_of(prepared: bytes) -> RecordDraft:
    """Return the COMMIT record of a prepared record: a copy in the same topic and queue.

    Raises: FormatError if its body is damaged.
    Source: broker/processor/EndTransactionProcessor.java endMessageTransaction (3.1.4 to 4.2.0);
            docs/formats/state_table.md#records, docs/formats/prepared_records.md#end.
    """
    return _end_of(prepared, COMMIT)


def rollback_record_of(prepared: bytes, version: Version) -> RecordDraft:
    """Return the ROLLBACK record of a prepared record: a copy without a body, in no queue.

    `version`: of the broker. Before 3.2 its queue offset is the slot number in the state table, later 0.
    Raises: FormatError if its body is damaged.
    Source: broker/processor/EndTransactionProcessor.java (3.1.4 to 4.2.0); store/CommitLog.java doAppend.
    """
    number = number_at(prepared, "queue_offset") if not PREPARED_NOT_CHECKED.holds(version) else 0
    return replace(_end_of(prepared, ROLLBACK), body=b"", queue_offset=number)


def _end_of(prepared: bytes, kind: int) -> RecordDraft:
    draft = draft_of(prepared)
    return replace(
        draft, sys_flag=draft.sys_flag & ~TRANSACTION_MASK | kind,
        prepared_transaction_offset=number_at(prepared, "commit_log_offset"),
    )  # fmt: skip
