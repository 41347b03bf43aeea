"""What a following audit stores about a log beside its witnesses: how far it is read, and results of the scans."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.segment_scan import Span
from rmqtx.readers.model.declared_json import JsonForm, list_of, needed, struct_of
from rmqtx.readers.model.findings import Finding
from rmqtx.verdicts.evidence.witness_scan import SplitFacts
from rmqtx.verdicts.missing.split_numbers import SplitNumbers
from rmqtx.verdicts.missing.unfound_slots import UnfoundSlot
from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.marked_copies import MarkedCopy
from rmqtx.verdicts.model.verdict_inputs import DoubtfulId

_COPY = [*(needed(name, pa.string()) for name in ("identity", "message_id", "origin")), *struct_of(FinalRecord)]
_FORM = JsonForm(
    "checkpoint of this version",
    pa.struct(
        [
            needed("spans", list_of(struct_of(Span))), needed("findings", list_of(struct_of(Finding))),
            needed("unfound", list_of(struct_of(UnfoundSlot))),
            *(needed(f"{name}_count", pa.int64()) for name in ("halves", "rocksdb_halves", "prepared")),
            needed("checks_seen_max", pa.int64()), needed("doubtful_ids", list_of(struct_of(DoubtfulId))),
            needed("half_runs", list_of(list_of(pa.int64()))), needed("misplaced_halves", list_of(list_of(pa.int64()))),
            needed("contradicting_halves", list_of(pa.int64())), needed("copies", list_of(pa.struct(_COPY))),
        ]
    ),
)


@dataclass(slots=True)
class Place:
    """How far a log is read.

    Units: commit-log offsets. `has_tail`: the part from `offset` on was read too, but is not final. `anchor`: the place
    of a record whose digest identifies the log. `compared`: the queue offset up to which the slots of a topic were
    compared with the log.
    """

    offset: int = 0
    has_tail: bool = False
    end_offset: int = 0
    anchor: int = 0
    digest: str | None = None
    compared: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class SegmentNotes:
    """The results of the scans of a segment beside its witnesses."""

    spans: list[Span] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unfound: list[UnfoundSlot] = field(default_factory=list)
    halves_count: int = 0
    rocksdb_halves_count: int = 0
    prepared_count: int = 0
    checks_seen_max: int = 0
    doubtful_ids: list[DoubtfulId] = field(default_factory=list)
    numbers: SplitNumbers = field(default_factory=SplitNumbers)
    copies: list[tuple[str, MarkedCopy]] = field(default_factory=list)

    @staticmethod
    def of(text: str, file: str) -> SegmentNotes:
        """Parse the result of `text`; `file` is named in errors. Raises: BadText."""
        value: dict[str, Any] = _FORM.read(text, file)
        return SegmentNotes(
            [Span(**entry) for entry in value["spans"]],
            [Finding(**entry) for entry in value["findings"]],
            [UnfoundSlot(**entry) for entry in value["unfound"]],
            value["halves_count"],
            value["rocksdb_halves_count"],
            value["prepared_count"],
            value["checks_seen_max"],
            [DoubtfulId(**{**entry, "key_hashes": tuple(map(int, entry["key_hashes"]))})
             for entry in value["doubtful_ids"]],
            _numbers_of(value["half_runs"], value["misplaced_halves"], value["contradicting_halves"]),
            [_copy_of(dict(entry)) for entry in value["copies"]],
        )

    def text(self) -> str:
        """Return the notes as JSON."""
        return json.dumps({
            "spans": [asdict(span) for span in self.spans],
            "findings": [asdict(finding) for finding in self.findings],
            "unfound": [asdict(slot) for slot in self.unfound],
            "halves_count": self.halves_count,
            "rocksdb_halves_count": self.rocksdb_halves_count,
            "prepared_count": self.prepared_count,
            "checks_seen_max": self.checks_seen_max,
            "doubtful_ids": [asdict(one) for one in self.doubtful_ids],
            "copies": [
                {"identity": identity, "message_id": copy.message_id, "origin": copy.origin, **asdict(copy.record)}
                for identity, copy in self.copies
            ],
            "half_runs": self.numbers.runs,
            "contradicting_halves": self.numbers.contradicting.tolist(),
            "misplaced_halves": [
                list(row) for row in zip(*(getattr(self.numbers, name).tolist() for name in _MISPLACED), strict=True)
            ],
        })

    def add(self, facts: SplitFacts) -> None:
        """Add the results of one more range."""
        self.spans += facts.spans
        self.findings += facts.findings
        self.unfound += facts.unfound
        self.halves_count += facts.halves_count
        self.rocksdb_halves_count += facts.rocksdb_halves_count
        self.prepared_count += facts.prepared_count
        self.checks_seen_max = max(self.checks_seen_max, facts.checks_seen_max)
        self.doubtful_ids += facts.doubtful_ids
        self.numbers.add(facts.numbers)
        self.copies += facts.copies or ()

    def before(self, base_offset: int, offset: int) -> SegmentNotes:
        """Return the notes without everything at or after an offset."""
        return replace(
            self,
            spans=[span for span in self.spans if base_offset + span.position_bytes < offset],
            findings=[found for found in self.findings if (found.commit_log_offset or 0) < offset],
            unfound=[slot for slot in self.unfound if slot.commit_log_offset < offset],
            doubtful_ids=[one for one in self.doubtful_ids if one.commit_log_offset < offset],
            numbers=self.numbers.before(offset),
            copies=[one for one in self.copies if one[1].record.commit_log_offset < offset],
        )

    def is_ended(self, size_bytes: int) -> bool:
        """Whether the scans found the end of the segment's data."""
        return any(span.position_bytes + span.length_bytes == size_bytes for span in self.spans)


#: The columns of the half messages that are not in their slot, as in the text.
_MISPLACED = ("numbers", "offsets", "slots")


def _copy_of(entry: dict[str, Any]) -> tuple[str, MarkedCopy]:
    identity, message_id, origin = (entry.pop(name) for name in ("identity", "message_id", "origin"))
    return identity, MarkedCopy(FinalRecord(**entry), message_id, origin)


def _numbers_of(runs: list[list[Any]], misplaced: list[list[Any]], contradicting: list[Any]) -> SplitNumbers:
    rows = np.array([list(map(int, row)) for row in misplaced], np.int64).reshape(-1, len(_MISPLACED))
    return SplitNumbers(
        [(int(first), int(last), int(begin)) for first, last, begin in runs], rows[:, 0], rows[:, 1], rows[:, 2],
        np.array(list(map(int, contradicting)), np.int64),
    )
