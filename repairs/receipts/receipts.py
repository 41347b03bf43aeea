"""The receipt of one act: who did what to which transaction and why, the requests, and the state before and after.

A receipt is written to the journal twice: before the request is sent, and at the end. It never contains a secret:
fields of a request that authenticate the sender are left out. The outcomes of acts give the exit status.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa

from rmqtx.readers.model import clock, exit_status
from rmqtx.readers.model.declared_json import JsonForm, needed, shown
from rmqtx.readers.model.tables import PROPERTIES, column
from rmqtx.repairs.receipts.act_words import (
    NOTHING_SENT,
    OF_SETTINGS,
    OUTCOMES,
    STANDINGS,
    ActKind,
    ActOutcome,
    StandingWord,
)
from rmqtx.repairs.receipts.plan_file import RECORD_NAMED, RecordPlace, StepWitness
from rmqtx.verdicts.audit.provenance import tool

#: Fields of requests that authenticate the sender: secrets, or values derived from them.
SECRET_FIELDS = frozenset({"AccessKey", "SecretKey", "Signature", "SecurityToken"})

#: Names in a receipt for a record appended to the files of a stopped broker, and for a cursor set there.
APPEND, SET_CURSOR = "APPEND", "SET_CURSOR"
#: The request that sends a copy of a message.
SEND = "SEND_MESSAGE_V2"
#: Acts that do not concern a single transaction.
WITHOUT_TRANSACTION = (ActKind.CURSOR_SET, *OF_SETTINGS)
#: One witness, in the form of plans.
WITNESS = pa.struct(
    [
        column("kind", pa.string(), "half_copy, op_mark, final_record or discard_copy"),
        column("store", pa.string(), "store or broker that has it"),
        column("queue_id", pa.int32(), "queue number"),
        column("queue_offset", pa.int64(), "ordinal of the entry in its consume queue"),
        column("commit_log_offset", pa.int64(), "global byte position of the record in the commit log"),
    ]
)
#: One request and its response.
REQUEST = pa.struct(
    [
        column("request", pa.string(), "RocketMQ's name of the request"),
        column("fields", PROPERTIES, "fields of the request, without secrets"),
        column("sent_time_ms", pa.int64(), "when it was sent"),
        column("response_code", pa.int32(), "the broker's response code; null if there was no response"),
        column("response_remark", pa.string(), "the broker's remark"),
        column("answered_time_ms", pa.int64(), "when the response was received"),
    ]
)
#: One setting of a broker that an act changes.
SETTING_CHANGE = pa.struct(
    [
        one.with_nullable(False) for one in (
            column("setting", pa.string(), "its name in the broker's configuration"),
            column("before", pa.string(), "its value before"),
            column("after", pa.string(), "the value to set"),
        )
    ]
)
_PLAN = pa.struct(
    [
        column("file", pa.string(), "the plan's file"),
        column("digest", pa.string(), "sha256 of the plan's text"),
        column("written_by", pa.string(), "the authors of the plan"),
        column("approved_by", pa.string(), "the signer of its approval, with the key; null if not required"),
    ]
)
#: One recheck of a receipt.
RECHECK = pa.struct(
    [
        column("rechecked_time_ms", pa.int64(), "when it was rechecked"),
        column("who", pa.string(), "user and host"),
        column("standing", pa.string(), f"one of {', '.join(STANDINGS)}", values=STANDINGS),
        column("standing_reason", pa.string(), "why"),
    ]
)

#: One receipt.
RECEIPTS = pa.schema(
    [
        column("receipt_id", pa.string(), "its id: start time and a random part; sorts by time"),
        column("outcome", pa.string(), f"one of {', '.join(OUTCOMES)}", values=OUTCOMES),
        column("action", pa.string(), f"the act: one of {', '.join(ActKind)}"),
        column("transaction_id", pa.string(), "the transaction; null where cursors or settings were set"),
        column("producer_group", pa.string(), "the group that the decision names"),
        column("topic", pa.string(), "the real topic"),
        column("keys", pa.string(), "business keys"),
        column("store", pa.string(), "what was acted on: NAME@HOST:PORT of a broker, or directory of a store"),
        column("begun_time_ms", pa.int64(), "when the act was recorded, before the request was sent"),
        column("ended_time_ms", pa.int64(), "when the outcome was recorded; null if it never was"),
        column("who", pa.string(), "user and host"),
        column("made_by", pa.string(), "tool and version"),
        column("reason", pa.string(), "why, in the operator's words"),
        column("overrides", pa.list_(pa.string()), "guards that were overridden"),
        column("plan", _PLAN, "the plan that the act carried out"),
        column("named_copy", RECORD_NAMED, "the record that the request named"),
        column("requests", pa.list_(REQUEST), "every request that was sent for it, in order"),
        column("state_before", pa.string(), "the transaction's state before", words="states"),
        column("witnesses_before", pa.list_(WITNESS), "what proved the state before"),
        column(
            "state_after", pa.string(), "the transaction's state after; null if it was not looked up", words="states"
        ),
        column("flags_after", pa.list_(pa.string()), "the transaction's flags after", words="flags"),
        column("witnesses_after", pa.list_(WITNESS), "what proves the state after"),
        column("notes", pa.list_(pa.string()), "further notes"),
        column("saved_message", pa.string(), "file with the saved message, beside the journal"),
        column("rechecks", pa.list_(RECHECK), "its rechecks that were recorded"),
        column("settings", pa.list_(SETTING_CHANGE), "a broker's settings that a hold, a drain or a release changes"),
        column("until_time_ms", pa.int64(), "when the hold should be released"),
    ]
)

#: The forms of a receipt and of a recheck in a line of the journal.
_FORM = JsonForm(
    "receipt",
    pa.struct(
        [
            one.with_nullable(one.name not in ("action", "store", "receipt_id", "begun_time_ms")) for one in RECEIPTS
            if one.name != "rechecks"
        ]
    ),
    is_open=True,
)
RECHECK_FORM = JsonForm(
    "recheck of a receipt",
    pa.struct(
        [
            needed("receipt_id", pa.string()),
            needed("recheck", pa.struct([one.with_nullable(one.name == "who") for one in RECHECK])),
        ]
    ),
    is_open=True,
)
#: Exit status by outcome. A resume is only accepted; other effects must be seen.
STATUS_OF_OUTCOME = {
    ActOutcome.PROVED: exit_status.DONE, ActOutcome.REFUSED_BY_GUARD: exit_status.REFUSED_BY_GUARD,
    ActOutcome.REFUSED_BY_BROKER: exit_status.REFUSED_BY_BROKER, ActOutcome.NOT_SENT: exit_status.UNREACHABLE,
    ActOutcome.ACCEPTED: exit_status.UNKNOWN_OUTCOME, ActOutcome.UNKNOWN: exit_status.UNKNOWN_OUTCOME,
    ActOutcome.CONTRADICTED: exit_status.UNKNOWN_OUTCOME,
}


@dataclass(slots=True)
class Request:
    """One request and its response, which `answered` adds."""

    request: str | None
    fields: dict[str, str]
    sent_time_ms: int | None
    response_code: int | None = None
    response_remark: str | None = None
    answered_time_ms: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Request:
        """Make it from the values of REQUEST in a line of the journal."""
        return cls(
            values.get("request"), dict(values.get("fields") or {}), values.get("sent_time_ms"),
            values.get("response_code"), values.get("response_remark"), values.get("answered_time_ms"),
        )

    def answered(self, code: int, remark: str | None) -> None:
        """Record the response."""
        self.response_code, self.response_remark, self.answered_time_ms = code, remark, clock.now_ms()


@dataclass(frozen=True, slots=True)
class Recheck:
    """One recheck of a receipt."""

    rechecked_time_ms: int
    who: str | None
    standing: StandingWord
    standing_reason: str


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of a broker that an act changes, with both values as the broker's configuration has them."""

    setting: str
    before: str
    after: str

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> SettingChange:
        """Make it from the values of SETTING_CHANGE in a line of the journal."""
        return cls(values["setting"], values["before"], values["after"])

    @property
    def words(self) -> str:
        """The change in words."""
        return f"{self.setting} from {self.before} to {self.after}"


@dataclass(slots=True)
class Receipt:
    """One act, from its start to its outcome.

    Shape: the columns of RECEIPTS; witnesses as in PLAN_STEPS.
    """

    action: ActKind
    transaction_id: str | None
    store: str
    producer_group: str | None = None
    topic: str | None = None
    keys: str | None = None
    reason: str | None = None
    overrides: list[str] = field(default_factory=list)
    plan: dict[str, str | None] | None = None
    named_copy: RecordPlace | None = None
    state_before: str | None = None
    witnesses_before: list[StepWitness] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    state_after: str | None = None
    flags_after: list[str] = field(default_factory=list)
    witnesses_after: list[StepWitness] = field(default_factory=list)
    outcome: ActOutcome = ActOutcome.UNKNOWN
    notes: list[str] = field(default_factory=list)
    saved_message: str | None = None
    rechecks: list[Recheck] = field(default_factory=list)
    settings: list[SettingChange] = field(default_factory=list)
    until_time_ms: int | None = None
    receipt_id: str = field(default_factory=lambda: new_receipt_id())
    begun_time_ms: int = field(default_factory=lambda: clock.now_ms())
    ended_time_ms: int | None = None
    who: str = field(default_factory=lambda: whoever())
    made_by: str = field(default_factory=tool)

    def asked(self, request: str, request_fields: Mapping[str, object]) -> Request:
        """Add a request that is about to be sent, and return it, for `answered` after the response."""
        texts = {name: _text(value) for name, value in request_fields.items() if value is not None}
        without_secrets = {name: text for name, text in texts.items() if name not in SECRET_FIELDS}
        entry = Request(request, without_secrets, clock.now_ms())
        self.requests.append(entry)
        return entry

    def row(self) -> dict[str, Any]:
        """The receipt as a row of RECEIPTS, in the schema's order."""
        values = asdict(self)
        return {name: values[name] for name in RECEIPTS.names}

    @property
    def is_of_files(self) -> bool:
        """Whether a stopped broker's files were changed, and no broker was asked."""
        return any(request.request in (APPEND, SET_CURSOR) for request in self.requests)

    @property
    def acted_on(self) -> str:
        """The id of the transaction; only for acts on a transaction."""
        assert self.transaction_id is not None, self.action
        return self.transaction_id

    @property
    def is_undone(self) -> bool:
        """Whether its change of files was undone, and not made again since."""
        standings = [look.standing for look in self.rechecks if look.standing in _OF_UNDO]
        return bool(standings) and standings[-1] == StandingWord.UNDONE

    @property
    def unanswered_time_ms(self) -> int | None:
        """When its last request without a response was sent, as far as is known; None if no request may be under way.

        A process that was killed may have sent a request after its last line.
        """
        if self.is_of_files or self.outcome in NOTHING_SENT:
            return None
        known = [one.answered_time_ms or 0 for one in self.requests]
        open_times = [one.sent_time_ms or 0 for one in self.requests if one.response_code is None]
        if not self.has_ended:
            return max([self.begun_time_ms, *known, *open_times])
        return max(open_times, default=None)

    @property
    def has_ended(self) -> bool:
        """Whether its outcome was recorded."""
        return self.ended_time_ms is not None


#: What errors name in place of a file.
_A_LINE = "a line"
#: Rechecks have lines of their own.
_OF_A_LINE = [one for one in fields(Receipt) if one.name != "rechecks"]


def receipt_of(values: Mapping[str, Any]) -> Receipt:
    """Make a receipt from the values of a line of the journal; unknown fields are ignored.

    Raises: BadText for values that are not a receipt.
    """
    _FORM.check(values, _A_LINE)
    known = {one.name: values[one.name] for one in _OF_A_LINE if values.get(one.name) is not None}
    if known["action"] in WITHOUT_TRANSACTION:
        known["transaction_id"] = None
    elif "transaction_id" not in known:
        raise _FORM.bad(_A_LINE, "transaction_id", "a text", "nothing")
    if not is_receipt_id(known["receipt_id"]):
        raise _FORM.bad(_A_LINE, "receipt_id", "the id of a receipt", shown(known["receipt_id"]))
    if (outcome := known.get("outcome", ActOutcome.UNKNOWN)) not in OUTCOMES:
        raise _FORM.bad(_A_LINE, "outcome", f"one of {', '.join(OUTCOMES)}", shown(outcome))
    known["outcome"] = ActOutcome(outcome)
    if known["action"] not in tuple(ActKind):
        raise _FORM.bad(_A_LINE, "action", f"one of {', '.join(ActKind)}", shown(known["action"]))
    known["action"] = ActKind(known["action"])
    for name in ("witnesses_before", "witnesses_after"):
        known[name] = [StepWitness.of(one) for one in known.get(name, ()) if one is not None]
    known["requests"] = [Request.of(one) for one in known.get("requests", ()) if one is not None]
    known["settings"] = [SettingChange.of(one) for one in known.get("settings", ()) if one is not None]
    if "named_copy" in known:
        known["named_copy"] = RecordPlace.of(known["named_copy"])
    return Receipt(**known)


def table(receipts: Iterable[Receipt]) -> pa.Table:
    """Receipts as a table. Shape: RECEIPTS."""
    rows = [receipt.row() for receipt in receipts]
    for row in rows:  # Arrow takes maps as pairs
        row["requests"] = [{**entry, "fields": list((entry.get("fields") or {}).items())} for entry in row["requests"]]
    return pa.Table.from_pylist(rows, schema=RECEIPTS)


#: What `rmqtx undo` records.
_OF_UNDO = (StandingWord.UNDONE, StandingWord.STANDS)
_ID = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z-[0-9a-f]{6}")
_last_ns = 0
_ids = threading.Lock()


def new_receipt_id() -> str:
    """Return a new unique receipt id: 20261121T112900.123456Z-4f3a9c.

    Order: ids of one process sort in the order of their making, those of several processes by the clock.
    """
    global _last_ns
    with _ids:
        _last_ns = max(time.time_ns(), _last_ns + 1000)
        seconds, rest_ns = divmod(_last_ns, 1_000_000_000)
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
    return f"{moment}.{rest_ns // 1000:06}Z-{secrets.token_hex(3)}"


def is_receipt_id(text: str) -> bool:
    """Whether a text is a receipt id; nothing else may become the name of a file."""
    return _ID.fullmatch(text) is not None


def whoever() -> str:
    """The acting user as user@host; under sudo also the user who called sudo."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    behind = os.environ.get("SUDO_USER")
    return f"{user}@{socket.gethostname()}" + (f" (sudo by {behind})" if behind and behind != user else "")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def status_of(receipts: Iterable[Receipt], *, is_proof_wanted: bool) -> int:
    """Return the exit status for some receipts."""
    return exit_status.combined(
        exit_status.DONE if receipt.outcome == ActOutcome.ACCEPTED and (
            not is_proof_wanted or (receipt.action == ActKind.RESUME and receipt.witnesses_after)
        ) else STATUS_OF_OUTCOME[receipt.outcome]
        for receipt in receipts
    )
