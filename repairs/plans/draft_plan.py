"""Drafts of plans: a step for each transaction that passes the guards, and why the others have none.

A step is also compared with the transaction when it is applied: it must be unchanged.
`KnownPlan` is a plan file as receipts name it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model import clock
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN
from rmqtx.readers.storage.places import naming_unreadable
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store, opened_logs
from rmqtx.remoting.connections.broker import Broker
from rmqtx.repairs.acts.guards import Refusal, refusals
from rmqtx.repairs.acts.named_copies import newest_records, reader_of
from rmqtx.repairs.acts.situation import ActRequest, NamedRecord, Situation
from rmqtx.repairs.receipts.act_words import PLANNED, ActKind
from rmqtx.repairs.receipts.plan_file import WRITTEN_BY, Plan, PlanCursor, PlanStore, RecordPlace, Step, parse_plan
from rmqtx.repairs.receipts.plan_rows import PLACE, fingerprint, step_of
from rmqtx.repairs.receipts.receipts import Receipt, whoever
from rmqtx.verdicts.audit.provenance import Provenance, StoreProvenance, tool
from rmqtx.verdicts.model.transaction import Copy, Transaction, newest_first
from rmqtx.verdicts.model.verdict_words import WITNESS_KINDS

__all__ = ["is_live_store", "live_plan_store", "staleness", "step_of", "step_of_situation"]

#: Guards that depend on the moment of the act: a plan is made without them, `apply` applies them.
ASKED_WHEN_APPLIED = ("producer-connected", "another-rmqtx", "decision-in-flight")
#: Guards whose refusal makes no step impossible: the operator may override them when the plan is applied.
OVERRIDDEN_WHEN_APPLIED = ("op-in-memory", "traced-rollback")
_WORDS = {
    "op_marks": "an op mark", "final_records": "a final record", "discard_copies": "a discard copy",
    "half_copies": "a half copy",
}
_SETTLED = ("done", "not_done")


def step_of_situation(situation: Situation, action: ActKind, reason: str, reason_from: str) -> Step:
    """Return the plan step for a transaction in its present situation."""
    half, discard = situation.half_copy, situation.discard_copy
    return step_of(
        situation.transaction, action, reason, reason_from,
        half_copy=None if half is None else half.place(),
        discard_copy=None if discard is None else discard.place(),
    )


def live_plan_store(broker: Broker) -> PlanStore:
    """Return the state of a live broker for a plan.

    Shape: a row of PLAN_STORES without segments, because a live broker's files cannot be read.
    Raises: Unreachable, NoAnswer, Refused.
    """
    has_half_topic = HALF_TOPIC_DESIGN.holds(broker.version())

    def cursor(topic: str) -> list[PlanCursor] | None:
        offset = broker.consumer_offset(CHECK_GROUP, topic) if has_half_topic else None
        return None if offset is None else [{"queue_id": 0, "next_queue_offset": offset}]

    return {
        "store": broker.root, "taken_time_ms": clock.now_ms(), "aborted": False, "broker_process": None,
        "half_cursors": cursor(HALF_TOPIC), "op_cursors": cursor(OP_TOPIC), "segments": [],
    }


def is_live_store(store: Mapping[str, Any]) -> bool:
    """Whether a row of PLAN_STORES is of a live broker: it has a name and an address, and no files."""
    return not store["segments"] and "@" in store["store"]


def staleness(
    step: Step, row: Transaction | None, read: Callable[[RecordPlace], NamedRecord | None], *, is_exact: bool = False,
    is_same_store: bool = True,
) -> str | None:
    """Return how a transaction differs from what a step of a plan relied on; None where it does not.

    `row`: the transaction as it is now, None where it is not found; `read` returns the record at a place as it is now.
    A half copy that the check put back meanwhile makes no difference, unless `is_exact`. `is_same_store`: whether plan
    and row use the same names for stores; a plan made from files is compared with the live broker by offsets alone.
    """
    if row is None:
        return "its records no longer exist"
    names = PLACE if is_same_store else PLACE[1:]
    planned = {kind: _places((asdict(one) for one in step.witnesses), names, kind) for kind in WITNESS_KINDS.values()}
    for column, kind in sorted(WITNESS_KINDS.items(), key=lambda one: one[1] != "final_record"):  # deliveries first
        now = _places((asdict(one) for one in getattr(row, column)), names)
        if kind == "half_copy" and not is_exact:
            continue
        if appeared := now - planned[kind]:
            return f"{_WORDS[column]} appeared since the plan was made: {_where(next(iter(appeared)), names)}"
        if gone := planned[kind] - now:
            return f"{_WORDS[column]} that the plan relies on is missing: {_where(next(iter(gone)), names)}"
    if row.state != step.state:
        return f"its state is now {row.state}, and the plan relies on {step.state}"
    return _record_differs(step, row, read, is_same_store=is_same_store)


def _record_differs(
    step: Step, row: Transaction, read: Callable[[RecordPlace], NamedRecord | None], *, is_same_store: bool
) -> str | None:
    """How the record that the step names differs from the plan; None where it does not."""
    is_resume, planned = step.action == ActKind.RESUME, step.named
    assert planned is not None  # a plan without it is refused
    word = "discard copy" if is_resume else "half copy"
    copies = row.discard_copies if is_resume else row.half_copies
    is_moved = not is_same_store and copies
    found = read(replace(planned, store=newest_first(copies)[0].store) if is_moved else planned)
    where = f"{planned.queue_offset} at commit-log offset {planned.commit_log_offset}"
    if found is None:
        return f"the {word} that the plan names can no longer be read: {where}"
    for name, noun in (("queue_offset", "queue offset"), ("length_bytes", "length"), ("body_crc", "CRC of the body")):
        wanted, actual = getattr(planned, name), getattr(found, name)
        if wanted is not None and _number(wanted) != _number(actual):
            return f"the {word} {where} has a different {noun}: {actual}, in the plan {wanted}"
    return None


def _number(value: int) -> int:
    return value & 0x7FFFFFFF  # brokers keep a CRC without its top bit, some in a signed field


def _places(
    entries: Iterable[Mapping[str, Any]], names: tuple[str, ...], kind: str | None = None
) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(entry[name] for name in names) for entry in entries if kind is None or entry["kind"] == kind
    )


def _where(place: tuple[Any, ...], names: tuple[str, ...]) -> str:
    values = dict(zip(names, place, strict=True))
    store = f" of {values['store']}" if "store" in values else ""
    return (
        f"queue {values['queue_id']}, queue offset {values['queue_offset']}, "
        f"commit-log offset {values['commit_log_offset']}{store}"
    )


@dataclass(slots=True)
class PlanDraft:
    """The content of a plan before it is written.

    Shape: `refused`: transaction ids with the first refusal of a guard;
           `to_override`: those of steps that `apply` refuses unless its guard is overridden.
    """

    steps: list[Step] = field(default_factory=list)
    refused: list[tuple[str, Refusal]] = field(default_factory=list)
    to_override: list[tuple[str, Refusal]] = field(default_factory=list)


def drafted(situations: Sequence[Situation], request: ActRequest, reason: str, reason_from: str) -> PlanDraft:
    """Return the steps for some transactions in their present situation.

    Guards that depend on the moment of the act are left to `apply`, which applies all guards again; a guard that only
    `apply` can override leaves the step in the plan.
    Order: that of the situations.
    """
    draft = PlanDraft()
    for situation in situations:
        found = list(refusals(situation, request, without=ASKED_WHEN_APPLIED))
        refusal = next((one for one in found if one.guard not in OVERRIDDEN_WHEN_APPLIED), None)
        if refusal is None and _named(situation, request.action) is None:
            why = "the record that the action must name cannot be read"
            refusal = Refusal("evidence-incomplete", why, f"see rmqtx show {situation.transaction_id}")
        if refusal is None:
            draft.steps.append(step_of_situation(situation, request.action, reason, reason_from))
            draft.to_override += [(situation.transaction_id, one) for one in found]
        else:
            draft.refused.append((situation.transaction_id, refusal))
    return draft


def _named(situation: Situation, action: ActKind) -> object:
    return situation.discard_copy if action == ActKind.RESUME else situation.half_copy


def plan_of(
    draft: PlanDraft, stores: Sequence[PlanStore], made_from: Mapping[str, Any], made_time_ms: int
) -> Plan:
    """The plan; `stores`: every store that a step names."""
    writers = {whoever(), *(step.reason_from for step in draft.steps)}  # drafts have reasons of people
    facts = {**made_from, WRITTEN_BY: sorted(writers)}
    return Plan(tool(), made_time_ms, list(stores), draft.steps, facts)


def digest_of(text: bytes) -> str:
    """Digest of a plan file, which receipts contain, so that a later run can continue the plan."""
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


@dataclass(slots=True)
class Planner:
    """Collects the steps of a plan from rows of RECONCILED as they pass through.

    `ledger_name`: the source of reasons in the plan.
    """

    stores: list[Store]
    ledger_name: str
    _rows: list[pa.RecordBatch] = field(default_factory=list)

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches; rows that the ledger decides and an action can carry out are kept for the plan."""
        for batch in batches:
            settled = pc.and_(
                pc.is_in(batch["ledger_word"], value_set=pa.array(_SETTLED)),
                pc.is_in(batch["advice"], value_set=pa.array(PLANNED)),
            )
            chosen = batch.filter(settled)
            if chosen.num_rows:
                self._rows.append(chosen)
            yield batch

    def plan(self, made_from: Provenance, made_time_ms: int) -> Plan:
        """Make the plan.

        `made_from`: the provenance of the reading. Reads each record that a step names, for its length and CRC.
        Order: that of the rows.
        """
        with opened_logs(self.stores) as logs:
            steps = [self._step(row, logs) for batch in self._rows for row in batch.to_pylist()]
        provenance = {facts["store"]: cast("StoreProvenance", facts) for facts in made_from["stores"]}
        stores = [fingerprint(store, provenance[store.root]) for store in self.stores]
        return Plan(tool(), made_time_ms, stores, steps, {**made_from, WRITTEN_BY: [whoever()]})

    def _step(self, row: Mapping[str, Any], logs: dict[str, SegmentedLog]) -> Step:
        transaction = Transaction.of(row)
        half, discard = newest_records(transaction, reader_of(logs))
        return step_of(
            transaction, ActKind(row["advice"]), transaction.reason,
            f"{self.ledger_name}: {row['ledger_row'] or 'no row'}",
            half_copy=_place(half, transaction.half_copies), discard_copy=_place(discard, transaction.discard_copies),
        )


def _place(record: NamedRecord | None, copies: Sequence[Copy]) -> RecordPlace | None:
    """The place of the record; if none of the copies can be read, the place of the newest."""
    if record is not None or not copies:
        return None if record is None else record.place()
    newest = newest_first(copies)[0]
    return RecordPlace(newest.store, newest.queue_id, newest.queue_offset, newest.commit_log_offset, None, None)


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """A plan file as receipts name it."""

    file: Path
    plan: Plan
    text: bytes

    @property
    def digest(self) -> str:
        """The digest by which receipts name it."""
        return digest_of(self.text)

    def known_as(self, approved_by: str | None) -> dict[str, str | None]:
        """The plan in receipts: file, digest, authors and approver."""
        return {
            "file": str(self.file), "digest": self.digest, "written_by": ", ".join(self.plan.written_by) or None,
            "approved_by": approved_by,
        }

    @classmethod
    def read(cls, file: Path) -> KnownPlan:
        """Read the file. Raises: UnreadableFile; BadText."""
        with naming_unreadable(file):
            text = file.read_bytes()
        return cls(file, parse_plan(text, str(file)), text)

    def is_of(self, receipt: Receipt) -> bool:
        """Whether a receipt is of a run of this plan."""
        return digest_in(receipt) == self.digest


def digest_in(receipt: Receipt) -> str | None:
    """The digest of the plan that a receipt names."""
    return None if receipt.plan is None else receipt.plan.get("digest")
