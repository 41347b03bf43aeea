"""The plan file: actions on transactions, with their evidence and preconditions.

`plan` and `reconcile` write a plan; `apply` and `answer` carry it out. It has for each transaction the newest half
copy, which a decision must name (a decision on an older copy leaves the newest open, and one on the discard copy can
hide another half message), the witnesses it relies on, and the state of the stores: `apply` looks up everything again,
and refuses a step where anything differs.

On disk a plan is one JSON object. Unknown fields are refused, because a condition that rmqtx does not understand would
not be kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa

from rmqtx.readers.model.declared_json import ANYTHING, JsonForm, list_of, needed, parsed, shown
from rmqtx.readers.model.tables import column
from rmqtx.readers.storage.places import naming_unreadable
from rmqtx.repairs.receipts.act_words import PLANNED, ActKind
from rmqtx.verdicts.model.verdict_words import State

PLAN_VERSION = 1
#: In `made_from`: the authors of the plan, each as user@host.
WRITTEN_BY = "written_by"
_MADE_BY, _VERSION, _FROM, _STORES, _STEPS = "made_by", "plan_version", "made_from", "stores", "steps"


def _needed(one: pa.Field) -> pa.Field:
    return one.with_nullable(False)


_STORE = _needed(column("store", pa.string(), "root directory of the store"))
_QUEUE_ID = _needed(column("queue_id", pa.int32(), "queue number"))
_QUEUE_OFFSET = _needed(column("queue_offset", pa.int64(), "ordinal of the entry in its consume queue"))
_LOG_OFFSET = _needed(column("commit_log_offset", pa.int64(), "global byte position of the record in the commit log"))
_LENGTH = column("length_bytes", pa.int32(), "its length; null where the record could not be read")
_CRC = column("body_crc", pa.int64(), "stored CRC-32 of its body; null where the record could not be read")
_TEXTS = list_of(pa.string())

#: A record that an action names.
RECORD_NAMED = pa.struct([_STORE, _QUEUE_ID, _QUEUE_OFFSET, _LOG_OFFSET, _LENGTH, _CRC])
_WITNESS = pa.struct(
    [
        _needed(column("kind", pa.string(), "half_copy, op_mark, final_record or discard_copy")),
        _STORE, _QUEUE_ID, _QUEUE_OFFSET, _LOG_OFFSET,
    ]
)
_CURSOR = pa.struct(
    [_QUEUE_ID, _needed(column("next_queue_offset", pa.int64(), "queue offset of the next entry that the check reads"))]
)
_SEGMENT = pa.struct(
    [
        _needed(column("base_offset", pa.int64(), "offset of its first byte in the commit log")),
        _needed(column("size_bytes", pa.int64(), "its length")),
        column("digest", pa.string(), "sha256 of head, tail and length; null where it could not be read"),
    ]
)

#: The state of a store when the plan was made.
PLAN_STORES = pa.schema(
    [
        _STORE,
        _needed(column("taken_time_ms", pa.int64(), "when the lengths of its files were read")),
        _needed(column("aborted", pa.bool_(), "whether its broker had not stopped cleanly")),
        column("broker_process", pa.int64(), "the process that held its lock; null where no process did"),
        column("half_cursors", list_of(_CURSOR), "the check's cursors in the half queue; null: unknown"),
        column("op_cursors", list_of(_CURSOR), "the check's cursors in the op queue; null: unknown"),
        _needed(column("segments", list_of(_SEGMENT), "the files of its commit log")),
    ]
)

#: One thing to do to one transaction.
PLAN_STEPS = pa.schema(
    [
        _needed(column("transaction_id", pa.string(), "UNIQ_KEY, else the offset message id of the first copy")),
        _needed(column("action", pa.string(), f"one of {', '.join(PLANNED)}", values=PLANNED)),
        column("producer_group", pa.string(), "the group that a decision must name"),
        column("topic", pa.string(), "the real topic"),
        column("keys", pa.string(), "business keys"),
        _needed(column("stores", _TEXTS, "every store that holds a witness of it")),
        column("half_copy", RECORD_NAMED, "the newest half copy, which a decision names"),
        column("discard_copy", RECORD_NAMED, "the newest discard copy, which a resume names"),
        _needed(column("witnesses", list_of(_WITNESS), "what the verdict relies on")),
        _needed(column("state", pa.string(), "precondition: its state", words="states")),
        _needed(column("flags", _TEXTS, "precondition: its flags", words="flags")),
        _needed(column("reason", pa.string(), "why")),
        _needed(column("reason_from", pa.string(), "source of the reason: the ledger and its row, or the operator")),
    ]
)

_FORM = JsonForm(
    "plan",
    pa.struct(
        [
            needed(_VERSION, pa.int64()), needed(_MADE_BY, pa.string()), needed("made_time_ms", pa.int64()),
            needed(_FROM, pa.map_(pa.string(), ANYTHING)),
            needed(_STORES, list_of(pa.struct(list(PLAN_STORES)))),
            needed(_STEPS, list_of(pa.struct(list(PLAN_STEPS)))),
        ]
    ),
)


class PlanCursor(TypedDict):
    """The check's cursor in one queue."""

    queue_id: int
    next_queue_offset: int


class PlanSegment(TypedDict):
    """A file of a commit log. `digest`: null where it could not be read."""

    base_offset: int
    size_bytes: int
    digest: str | None


class PlanStore(TypedDict):
    """The state of a store when a plan was made: a row of PLAN_STORES."""

    store: str
    taken_time_ms: int
    aborted: bool
    broker_process: int | None
    half_cursors: list[PlanCursor] | None
    op_cursors: list[PlanCursor] | None
    segments: list[PlanSegment]


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A record that an action names; without length and CRC where it could not be read."""

    store: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    length_bytes: int | None
    body_crc: int | None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RecordPlace:
        """Make it from the values of RECORD_NAMED."""
        return cls(
            values["store"], values["queue_id"], values["queue_offset"], values["commit_log_offset"],
            values.get("length_bytes"), values.get("body_crc"),
        )


@dataclass(frozen=True, slots=True)
class StepWitness:
    """A record that a step relies on; `kind` is half_copy, op_mark, final_record or discard_copy."""

    kind: str
    store: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> StepWitness:
        """Make it from the values of a file; unknown fields are ignored."""
        return cls(*(values.get(name) for name in WITNESS_FIELDS))  # type: ignore[arg-type]


WITNESS_FIELDS = tuple(one.name for one in fields(StepWitness))


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do to one transaction.

    Shape: the columns of PLAN_STEPS.
    """

    transaction_id: str
    action: ActKind
    producer_group: str | None
    topic: str | None
    keys: str | None
    stores: tuple[str, ...]
    half_copy: RecordPlace | None
    discard_copy: RecordPlace | None
    witnesses: tuple[StepWitness, ...]
    state: State
    flags: tuple[str, ...]
    reason: str
    reason_from: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Step:
        """Make it from a row of PLAN_STEPS."""
        half, discard = row["half_copy"], row["discard_copy"]
        return cls(**{name: row[name] for name in PLAN_STEPS.names} | {
            "action": ActKind(row["action"]), "state": State(row["state"]),
            "stores": tuple(row["stores"]), "flags": tuple(row["flags"]),
            "half_copy": None if half is None else RecordPlace.of(half),
            "discard_copy": None if discard is None else RecordPlace.of(discard),
            "witnesses": tuple(StepWitness(**one) for one in row["witnesses"]),
        })

    def row(self) -> dict[str, Any]:
        """Return it as a row of PLAN_STEPS."""
        return asdict(self)

    @property
    def named(self) -> RecordPlace | None:
        """The record that the action names."""
        return self.discard_copy if self.action == ActKind.RESUME else self.half_copy


@dataclass(slots=True)
class Plan:
    """The content of a plan file. Shape: `made_from`: the provenance of its evidence."""

    made_by: str
    made_time_ms: int
    stores: list[PlanStore]
    steps: list[Step]
    made_from: Mapping[str, Any] = field(default_factory=dict)

    @property
    def written_by(self) -> tuple[str, ...]:
        """Its authors; empty for a plan of an earlier release."""
        writers = self.made_from.get(WRITTEN_BY)
        return tuple(str(one) for one in writers) if isinstance(writers, list) else ()

    def table(self) -> pa.Table:
        """The rows of PLAN_STEPS."""
        return pa.Table.from_pylist([step.row() for step in self.steps], schema=PLAN_STEPS)

    def text(self) -> str:
        """The file's text: JSON, one step per line, so that two plans can be compared.

        Raises: BadText for an invalid plan, so that none is ever written.
        """
        facts = {
            _VERSION: PLAN_VERSION, _MADE_BY: self.made_by, "made_time_ms": self.made_time_ms,
            _FROM: self.made_from, _STORES: self.stores,
        }
        rows = [_as_lists(step.row()) for step in self.steps]
        _checked({**facts, _STEPS: rows}, "the plan")
        head = [f"{json.dumps(name)}: {_json(value)}" for name, value in facts.items()]
        steps = ",\n".join(f"  {_json(step)}" for step in rows)
        return "{" + ",\n".join(head) + f',\n"{_STEPS}": [' + (f"\n{steps}\n" if steps else "") + "]}\n"


def _as_lists(value: Any) -> Any:
    """The value with lists for tuples, as JSON has it."""
    if isinstance(value, dict):
        return {name: _as_lists(one) for name, one in value.items()}
    return [_as_lists(one) for one in value] if isinstance(value, tuple) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)


def read_plan(path: Path) -> Plan:
    """Read a plan file. Raises: UnreadableFile; BadText with the field, what was expected and what was found."""
    with naming_unreadable(path):
        data = path.read_bytes()
    return parse_plan(data, str(path))


def parse_plan(data: bytes | str, file: str) -> Plan:
    """Parse the text of a plan; `file`: the name for errors. Raises: BadText."""
    facts = _checked(parsed(data, file, "plan"), file)
    steps = [Step.of(row) for row in facts[_STEPS]]
    return Plan(facts[_MADE_BY], facts["made_time_ms"], facts[_STORES], steps, facts[_FROM])


def _checked(value: Any, file: str) -> dict[str, Any]:
    """The same value, if it is a plan of this version."""
    if not isinstance(value, dict) or _VERSION not in value:
        raise _FORM.bad(file, _VERSION, str(PLAN_VERSION), "none" if isinstance(value, dict) else shown(value))
    if value[_VERSION] != PLAN_VERSION or isinstance(value[_VERSION], bool):
        raise _FORM.bad(file, _VERSION, str(PLAN_VERSION), shown(value[_VERSION]))
    _FORM.check(value, file)
    roots = {store["store"] for store in value[_STORES]}
    seen: set[tuple[str, ...]] = set()
    for number, step in enumerate(value[_STEPS]):
        _check_step(step, file, f"{_STEPS}[{number}]", roots)
        identity = tuple(step[name] for name in ("transaction_id", "producer_group", "topic"))
        if identity in seen:
            raise _FORM.bad(file, f"{_STEPS}[{number}].transaction_id", "each transaction once", shown(identity[0]))
        seen.add(identity)
    return value


def _check_step(step: Mapping[str, Any], file: str, place: str, roots: set[str]) -> None:
    """Check what a schema cannot: the action exists, its record is named, its stores are described."""
    action = step["action"]
    if action not in PLANNED:
        raise _FORM.bad(file, f"{place}.action", f"one of {', '.join(PLANNED)}", shown(action))
    if step["state"] not in tuple(State):
        raise _FORM.bad(file, f"{place}.state", f"one of {', '.join(State)}", shown(step["state"]))
    named = "discard_copy" if action == ActKind.RESUME else "half_copy"
    if step[named] is None:
        raise _FORM.bad(file, f"{place}.{named}", f"a record, which {action} names", "null")
    records = [(f"{place}.{name}", step[name]) for name in ("half_copy", "discard_copy") if step[name] is not None]
    for where, record in [*records, *((f"{place}.witnesses[{n}]", w) for n, w in enumerate(step["witnesses"]))]:
        if record["store"] not in roots:
            raise _FORM.bad(file, f"{where}.store", f"a store that {_STORES} describes", shown(record["store"]))
