"""What is wrong, as rows: the register of finding codes and the one way to make a row of `findings`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: how bad it is, what it is, and what it means for transactions."""

    severity: str
    title: str
    meaning: str
    advice: str = ""


#: Codes are stable for ever.
KINDS: dict[str, Kind] = {
    "record-damaged": Kind(
        "error",
        "bytes inside the commit log that no sound record explains",
        "the record that stood there is lost as evidence; transactions that may have relied on it are UNDECIDABLE",
        "compare with the same range on a slave",
    ),
    "record-body-crc": Kind(
        "error",
        "a record whose body does not match its CRC",
        "the body may differ from what the producer sent; a broker that recovers here cuts the log before it",
    ),
    "segment-gap": Kind(
        "error",
        "a range of the commit log has no file",
        "every witness in it is gone; transactions that may have one there are UNDECIDABLE",
        "find the missing file in a backup or on a slave",
    ),
    "log-missing": Kind(
        "error",
        "consume queues point at half or op messages behind the end of the commit log that is here",
        "their records are missing as evidence: transactions that were written there are not listed",
        "find the missing files of the commit log in a backup or on a slave",
    ),
    "segment-overlap": Kind(
        "error", "two files claim the same range", "the file that begins earlier is believed, the other is left out"
    ),
    "segment-size": Kind(
        "error",
        "a file whose length is not that of its neighbours",
        "what lies in it is read as far as it goes; brokers from 4.5.1 refuse to start on it",
    ),
    "stray-file": Kind(
        "warning",
        "a file that does not belong in this directory",
        "it is left out; brokers from 4.5.1 refuse to start while it is there",
        "move it away before the broker starts",
    ),
    "unreadable-file": Kind("error", "a file that cannot be opened or read", "everything in it is missing as evidence"),
    "blank-length": Kind(
        "warning", "a blank record that does not end with its file", "the rest of the file is read on as records"
    ),
    "tail-torn": Kind(
        "note",
        "the log ends in a record that was not written completely",
        "the broker never answered for it; recovery cuts the log before it",
    ),
    "tail-foreign": Kind(
        "warning",
        "bytes after the end of the log that are no record of this place",
        "nothing: recovery ends before them and later writes cover them",
    ),
    "queue-missing": Kind(
        "warning",
        "a consume queue that should exist has no files",
        "the commit log is scanned instead",
    ),
    "queue-gap": Kind("error", "a consume queue lacks a file in the middle", "the commit log is scanned instead"),
    "slot-invalid": Kind("error", "a consume-queue entry that cannot be", "the record is looked for in the commit log"),
    "slot-expired": Kind(
        "note",
        "consume-queue entries that point before the commit log's begin",
        "their records expired; queues are deleted by whole files, so every long-lived store has such entries",
    ),
    "slot-dangling": Kind(
        "warning",
        "a consume-queue entry that points outside the commit log",
        "the record it pointed at was cut off or lies in a missing file; it is no evidence any more",
    ),
    "slot-mismatch": Kind(
        "error",
        "a consume-queue entry whose record is of another topic, queue or queue offset",
        "the commit log is believed",
    ),
    "index-damaged": Kind("warning", "an index file that contradicts its header", "keys are looked for by scanning"),
    "checkpoint-damaged": Kind("warning", "a checkpoint of the wrong length", "only the times in it are unknown"),
    "config-missing": Kind(
        "warning",
        "a configuration file of the broker is not there",
        "cursors are unknown: what only they decide is UNDECIDABLE",
        "give the store's config/consumerOffset.json",
    ),
    "config-backup": Kind(
        "warning",
        "a configuration file cannot be read and its .bak was used",
        "cursors may be up to one persist interval (5 s) older than the broker's",
    ),
    "config-damaged": Kind(
        "error", "a configuration file and its .bak cannot be parsed", "what it holds is unknown"
    ),
    "cursor-beyond-end": Kind(
        "error",
        "the check cursor lies beyond the end of its queue",
        "the broker will reset it; halves in between are never asked (queue deleted, or log cut)",
    ),
    "cursor-before-begin": Kind(
        "error",
        "the check cursor lies before the first half that is left",
        "halves expired before the check reached them",
    ),
    "op-unreadable": Kind(
        "error",
        "an op message whose body is no list of numbers, or whose CRC is wrong",
        "the transactions it ended cannot be told; the check loop skips it or stops at it",
    ),
    "orphan-op": Kind(
        "note",
        "an op number that names no half copy in the log",
        "the half expired, or the decision named a record outside the half topic",
    ),
    "undecidable": Kind(
        "error",
        "transactions whose state cannot be known from this store",
        "they are not listed as pending, and may be",
        "rmqtx audit lists them, each with its reason",
    ),
    "older-design": Kind(
        "warning",
        "prepared or rollback records of RocketMQ before 4.3 are in the log",
        "they are decoded but not judged: half and op topics alone decide here",
    ),
    "metrics-drift": Kind(
        "note",
        "config/transactionMetrics counts other open transactions than the log shows",
        "the broker's own counter drifts (restarts, repeated commits); the log is right",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of `findings` before it becomes Arrow. Units: bytes. `meaning` overrides the kind's own sentence."""

    store: str
    code: str
    file: str | None = None
    position_bytes: int | None = None
    length_bytes: int | None = None
    commit_log_offset: int | None = None
    expected: str | None = None
    actual: str | None = None
    meaning: str | None = None

    @property
    def kind(self) -> Kind:
        """The register's entry for its code."""
        return KINDS[self.code]

    def line(self) -> str:
        """One line for people."""
        where = self.file or self.store
        if self.position_bytes is not None:
            where += f" at byte {self.position_bytes}"
            if self.length_bytes is not None:
                where += f", {self.length_bytes} bytes"
        detail = ""
        said = (("expected", self.expected), ("found", self.actual))
        told = [f"{word} {value}" for word, value in said if value is not None]
        if told:
            detail = f" ({', '.join(told)})"
        meaning = self.meaning or self.kind.meaning
        return f"{self.kind.severity}: {self.code}: {where}: {self.kind.title}{detail}: {meaning}"


def findings_table(findings: list[Finding]) -> pa.Table:
    """The rows of FINDINGS, in the order given."""
    import pyarrow as pa

    from readers.tables import FINDINGS

    rows = [
        {
            "store": f.store,
            "code": f.code,
            "severity": f.kind.severity,
            "file": f.file,
            "position_bytes": f.position_bytes,
            "length_bytes": f.length_bytes,
            "commit_log_offset": f.commit_log_offset,
            "expected": f.expected,
            "actual": f.actual,
            "meaning": f.meaning or f.kind.meaning,
            "advice": f.kind.advice or None,
        }
        for f in findings
    ]
    return pa.Table.from_pylist(rows, schema=FINDINGS)


def as_text(path: str | os.PathLike[str] | Path) -> str:
    """A path as the text that rows carry: undecodable bytes are escaped, never lost."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
