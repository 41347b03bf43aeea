"""All words of results with their descriptions, and the settings that sentences of the output name.

`rmqtx explain` and the manual page rmqtx-store(5) print the declarations that the readers use. A test finds a setting
that a sentence names and that is missing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

import pyarrow as pa

from rmqtx.readers import cursors
from rmqtx.readers.index import index
from rmqtx.readers.log import dledger, record_layout
from rmqtx.readers.model.exit_status import CHECK_MEANINGS, MEANINGS
from rmqtx.readers.model.findings import KINDS
from rmqtx.readers.model.layout import Layout
from rmqtx.readers.model.releases import ALWAYS, DEFAULTS, dotted
from rmqtx.readers.model.tables import (
    ALL_TABLES,
    DLEDGER_ENTRIES,
    EPOCHS,
    LIVE_TRANSACTIONS,
    REDO_LOG,
    ROCKSDB_TRANSACTIONS,
    STATE_TABLE,
    TRANSACTIONS,
    column,
)
from rmqtx.readers.old_tables import redo_log, state_table
from rmqtx.readers.queues import consume_queue, consume_queue_extension
from rmqtx.readers.rocksdb import rocksdb_queues, rocksdb_transactions
from rmqtx.readers.store import checkpoint
from rmqtx.remoting.live.producer_list import PRODUCERS
from rmqtx.remoting.producer import unique_keys
from rmqtx.remoting.protocol import frames
from rmqtx.remoting.protocol.codes import MEANINGS as RESPONSE_MEANINGS
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.repairs.acts.guards import GUARDS, Guard
from rmqtx.repairs.bundles.bundle import BUNDLED
from rmqtx.repairs.canary.probe_steps import PROBE_STEPS, SCENARIOS, STEPS
from rmqtx.repairs.changes.undo_files import EDITS
from rmqtx.repairs.cursors import CURSOR_EFFECTS
from rmqtx.repairs.cursors import KINDS as CURSOR_KINDS
from rmqtx.repairs.holds.guards import HOLD_GUARDS, HoldGuard
from rmqtx.repairs.holds.standing_holds import HOLD_STATES, HOLDS
from rmqtx.repairs.receipts.act_words import OUTCOMES as RECEIPT_OUTCOMES
from rmqtx.repairs.receipts.act_words import STANDINGS
from rmqtx.repairs.receipts.case_events import CASE_EVENTS
from rmqtx.repairs.receipts.plan_file import PLAN_STEPS, PLAN_STORES
from rmqtx.repairs.receipts.receipts import RECEIPTS, RECHECK, REQUEST, SETTING_CHANGE
from rmqtx.repairs.stand_in.answer_table import ANSWERS
from rmqtx.verdicts.causes.cause import STRENGTHS
from rmqtx.verdicts.causes.diagnosing import DIAGNOSES
from rmqtx.verdicts.causes.strengths import CAUSES
from rmqtx.verdicts.export.export import EXPORTED
from rmqtx.verdicts.ledger.reconcile import OUTCOMES, RECONCILED, WORDS
from rmqtx.verdicts.model.predicted import EFFECTS, EVENTS
from rmqtx.verdicts.model.verdict_words import ADVICE, NONE_YET, STATES
from rmqtx.verdicts.proofs.proving import PROVED
from rmqtx.verdicts.simulation.simulation_tables import SIMULATED_CHECKS, SIMULATED_ROUNDS, SIMULATED_TRANSACTIONS
from rmqtx.verdicts.transactions.diff import CHANGES, DIFFERENCES
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx.verdicts.transactions.reason_codes import REASONS
from rmqtx_cli.output.derived_columns import derived_columns
from rmqtx_cli.output.views import View
from rmqtx_cli.pages.installation import INSTALLATION
from rmqtx_cli.pages.stores_table import STORES
from rmqtx_cli.pages.summary import SUMMARY

_BROKER, _PROXY, _CLIENT = "broker.conf", "rmq-proxy.json", "a producer's client"

#: Setting → where it is set, and what it does.
SETTINGS: dict[str, tuple[str, str]] = {
    "transactionTimeOut": (_BROKER, "milliseconds from its birth in which a half message is not checked; a message can "
                           "have its own time (CHECK_IMMUNITY_TIME_IN_SECONDS)"),
    "transactionCheckMax": (_BROKER, "how often the broker asks about a half message; the round after the last check "
                            "discards it"),
    "transactionCheckInterval": (_BROKER, "milliseconds between two rounds of the check"),
    "transactionOpBatchInterval": (_BROKER, "milliseconds for which the broker collects decisions in memory before it "
                                   "writes one op message (5.1.0 and later)"),
    "fileReservedTime": (_BROKER, "hours after which the broker deletes a file of the log; a half message older than "
                         "this is discarded without a check"),
    "maxHashSlotNum": (_BROKER, "slots of the hash table in an index file"),
    "maxIndexNum": (_BROKER, "entries of an index file"),
    "diskSpaceWarningLevelRatio": (_BROKER, "how full the disk may be before the broker refuses messages"),
    "enableMultiDispatch": (_BROKER, "whether a record is also put into the light queues that its properties name "
                            "(4.9.3 and later)"),
    "enableLmq": (_BROKER, "whether light queues exist; cursors are then in lmqConsumerOffset.json (4.9.3 and later)"),
    "enableSlaveActingMaster": (_BROKER, "whether a slave acts for a lost master: it checks half messages and sends "
                                "them to another broker (5.0.0 and later)"),
    "enableRemoteEscape": (_BROKER, "whether an acting slave sends half messages to the master of another broker"),
    "transientStorePoolEnable": (_BROKER, "whether records are written to a pool in memory first, and readable only "
                                 "when they were copied to their file"),
    "flushDiskType": (_BROKER, "ASYNC_FLUSH: a record is acknowledged before it is on the disk; SYNC_FLUSH: after"),
    "commitIntervalCommitLog": (_BROKER, "milliseconds between two copies from the pool to the file "
                                "(transientStorePoolEnable)"),
    "brokerRole": (_BROKER, "ASYNC_MASTER, SYNC_MASTER or SLAVE"),
    "forceVerifyPropCRC": (_BROKER, "whether a record needs a sound checksum in its properties"),
    "rejectTransactionMessage": (_BROKER, "whether the broker refuses half messages"),
    "autoCreateSubscriptionGroup": (_BROKER, "whether a consumer group that is not known may consume"),
    "transRocksDBEnable": (_BROKER, "whether open transactions are kept in RocksDB (5.4.0 and later)"),
    "transactionDataExpireMillis": (_PROXY, "milliseconds for which the proxy keeps the place of a half message: a "
                                    "later decision finds no place"),
    "compressMsgBodyOverHowmuch": (_CLIENT, "bytes from which a body is compressed"),
}
#: Where structures on disk are declared; a test finds any that is missing here.
LAYOUT_MODULES = (
    record_layout, consume_queue, consume_queue_extension, index, checkpoint, state_table, redo_log, rocksdb_queues,
    rocksdb_transactions, cursors, dledger,
)

#: Where structures of the wire are declared.
WIRE_MODULES = (frames, unique_keys)

#: A column of a table, or a part of a list or struct in it.
COLUMNS = pa.schema(
    [
        column("table", pa.string(), "the table that has the column"),
        column("column", pa.string(), "name of the column; of a part as --fields takes it: half_copies.queue_id"),
        column("type", pa.string(), "type in Arrow; the parts of a struct are rows of their own"),
        column("is_nullable", pa.bool_(), "whether a value can be null, which is unknown or absent"),
        column("unit", pa.string(), "unit of its numbers, which its name ends in; epoch_ms is a time; null: no unit"),
        column("meaning", pa.string(), "the sentence that describes the column"),
        column("values", pa.list_(pa.string()), "every value that it can have, if the list is closed; else null"),
    ]
)
#: Tables of results, beside the tables of a store.
RESULT_TABLES = {
    "reconciled": RECONCILED, "differences": DIFFERENCES, "exported": EXPORTED, "plan_steps": PLAN_STEPS,
    "plan_stores": PLAN_STORES, "receipts": RECEIPTS, "holds": HOLDS, "answers": ANSWERS, "probe_steps": PROBE_STEPS,
    "simulated_checks": SIMULATED_CHECKS, "simulated_rounds": SIMULATED_ROUNDS,
    "simulated_transactions": SIMULATED_TRANSACTIONS, "state_table": STATE_TABLE, "redo_log": REDO_LOG,
    "rocksdb_transactions": ROCKSDB_TRANSACTIONS, "dledger_entries": DLEDGER_ENTRIES, "epochs": EPOCHS,
    "producers": PRODUCERS, "diagnoses": DIAGNOSES, "stores": STORES, "audit_summary": SUMMARY, "bundled": BUNDLED,
    "installation": INSTALLATION, "proof_checks": PROVED, "case_events": CASE_EVENTS,
    "columns": COLUMNS,
}

#: Terms with one spelling and one meaning; later ones use earlier ones.
TERMS: dict[str, str] = {
    "record": "one message in the commit log, whatever its topic",
    "segment": "one file of a log; its name is the offset of its first byte in that log",
    "slot": "one numbered place in a consume queue: where a record is, how long it is, and a tags code",
    "half message": "a message whose transaction is undecided: in RMQ_SYS_TRANS_HALF_TOPIC, not visible to consumers",
    "half copy": "the half message as sent, or a later copy that the check put back at the end of the half queue",
    "op mark": "one number in an op message: the queue offset of a half copy that a commit or a rollback settled",
    "final": "the COMMIT record in the real topic; a rollback writes none (before 4.3: a ROLLBACK record)",
    "check": "the broker's loop over the half queue: it asks the producers of half messages without an op mark",
    "check cursor": "the queue offset of the next half message that the check reads; earlier ones are not read again",
    "discard copy": "the copy in TRANS_CHECK_MAX_TIME_TOPIC of a transaction that the broker discarded",
    "commit_log_offset": "a global position in the commit log, in bytes",
    "queue_offset": "the ordinal of an entry in its consume queue, from 0",
    "position_bytes": "a position inside one file",
    "coverage": "an account of a file's bytes: decoded + filler + damaged + unread = size",
    "provenance": "the inputs of a result: stores, digests of their files, options, engine and time",
    "ledger": "the application's own record of its business transactions and their outcomes",
    "stand-in": "a process that answers the broker's checks for a producer group whose own processes no longer run",
    "canary": "test transactions that rmqtx probe sends through a broker to prove each step",
    "receipt": "the proof of one action: who did what and why, what was sent, the evidence before and after",
    "journal": "the file of all receipts: one line when an action begins and one when it ends",
    "guard": "a rule that refuses an action and names the evidence; --override takes the name of one guard",
    "design": "one of the ways in which brokers have stored transactions: state tables (3.0, 3.1), prepared records "
    "(3.2 to 4.2), half and op topics (4.3.0+), RocksDB (5.4.0+); a store can show several",
    "prepared record": "before 4.3, the undecided message: a record of its real topic that is in no consume queue",
    "rollback record": "before 4.3, a record without a body that names the prepared record that was rolled back",
    "transaction table": "brokers 3.2 to 4.2: t_transaction(offset, producerGroup) in a database, a row for each "
    "undecided prepared record; no broker was seen to fill it, so rmqtx uses it as a hint of unknown age",
    "rocksdb table": "brokers 5.4.0 and later: a key for each half message that the check will still reach, with the "
    "number of checks; complete on disk only after a clean stop",
    "state table": "brokers 3.0 and 3.1: a slot for each prepared record, overwritten in place when it is decided",
    "redo log": "brokers 3.0 and 3.1: an entry for each prepared, COMMIT or ROLLBACK record, to rebuild the table",
    "cause": "why a transaction is unusual: a behaviour or defect of some releases, with the records that show it",
    "plan": "a file of actions: for each the transaction, the record that the decision names, the evidence and what "
    "must stay true",
}


def setting_lines(name: str) -> tuple[str, ...]:
    """What a setting does, its defaults by release, and where it is set."""
    place, text = SETTINGS[name]
    defaults = [
        str(value) if since == ALWAYS else f"{value} from {dotted(since)} on" for since, value in DEFAULTS.get(name, ())
    ]
    return (text, *([f"default: {', '.join(defaults)}"] if defaults else []), f"set in {place}")


@dataclass(frozen=True, slots=True)
class WordEntry:
    """One explained word."""

    word: str
    kind: str
    lines: tuple[str, ...]


def _advice_texts(word: str) -> tuple[str, ...]:
    return (ADVICE[word], f"where the state is UNDECIDABLE: {NONE_YET}") if word == "none" else (ADVICE[word],)


def _reason_texts(word: str) -> tuple[str, ...]:
    reason = REASONS[word]
    return f"{reason.meaning}.", f"state: {reason.state}"


def _cause_lines(word: str) -> tuple[str, ...]:
    cause = CAUSES[word]
    lines = [
        f"{cause.title}.", f"releases: {cause.releases}", *(f"needs: {one.text}" for one in cause.needs),
        f"shows in: {' or '.join(cause.shows_in)}", f"follows: {cause.consequence}", f"now: {cause.act}",
        f"then: {cause.change}" if cause.change else "", f"decided by: {cause.decides}" if cause.decides else "",
        f"could also be: {', '.join(cause.rivals)}" if cause.rivals else "",
        *(f"source: {change.source}" for change in cause.affected),
    ]
    return tuple(line for line in lines if line)


def entries(views: Iterable[View]) -> list[WordEntry]:
    """All words that can be explained; `views`: all printed tables, for the words in their heads.

    Order: states, flags, advice, next events, reasons, causes, findings, outcomes, guards, holds, terms, settings,
           tables, columns, structures and their fields, response codes, exit statuses.
    """
    return [
        *(WordEntry(word, "state of a transaction", (text,)) for word, text in STATES.items()),
        *(WordEntry(word, "flag of a transaction", (text,)) for word, text in FLAGS.items()),
        *(WordEntry(word, "advice", _advice_texts(word)) for word in ADVICE),
        *(WordEntry(word, "next event", (text,)) for word, text in EVENTS.items()),
        *(WordEntry(word, "effect of an answer", (text,)) for word, text in EFFECTS.items()),
        *(WordEntry(word, "reason of a state", _reason_texts(word)) for word in REASONS),
        *(WordEntry(word, "cause", _cause_lines(word)) for word in CAUSES),
        *(WordEntry(word, "strength of a cause", (text,)) for word, text in STRENGTHS.items()),
        *_findings(),
        *(WordEntry(word, "word of a ledger", (text,)) for word, text in WORDS.items()),
        *(WordEntry(word, "outcome of a comparison with a ledger", (text,)) for word, text in OUTCOMES.items()),
        *(WordEntry(word, "outcome of an act", (text,)) for word, text in RECEIPT_OUTCOMES.items()),
        *(WordEntry(word, "standing of a receipt", (text,)) for word, text in STANDINGS.items()),
        *(WordEntry(word, "change between two audits", (text,)) for word, text in CHANGES.items()),
        *(WordEntry(word, "effect of cursor set", (text,)) for word, text in CURSOR_KINDS.items()),
        *map(_guard, GUARDS),
        *map(_guard, HOLD_GUARDS),
        *(WordEntry(word, "state of a hold", (text,)) for word, text in HOLD_STATES.items()),
        *(WordEntry(word, "scenario of a probe", (text,)) for word, text in SCENARIOS.items()),
        *(WordEntry(word, "step of a probe", (text,)) for word, text in STEPS.items()),
        *(WordEntry(word, "term", (text,)) for word, text in TERMS.items()),
        *(WordEntry(word, "setting", setting_lines(word)) for word in SETTINGS),
        *_tables(),
        *_heads(views),
        *_structures(structures(), "disk"),
        *_structures(structures(WIRE_MODULES), "the wire"),
        *(WordEntry(code.name, "response code", _response_lines(code)) for code in RESPONSE_MEANINGS),
        *(WordEntry(str(number), "exit status", (text,)) for number, text in MEANINGS.items()),
        *(WordEntry(str(number), "exit status of check and probe", (text,)) for number, text in CHECK_MEANINGS.items()),
    ]


def structures(modules: Iterable[ModuleType] = LAYOUT_MODULES) -> list[Layout]:
    """The structures that some modules declare; without an argument those on disk. Order: by name."""
    values = [value for module in modules for value in vars(module).values() if isinstance(value, Layout)]
    return sorted({value.name: value for value in values}.values(), key=lambda layout: layout.name)


def _guard(guard: Guard | HoldGuard) -> WordEntry:
    return WordEntry(guard.name, "guard", (f"prevents {guard.prevents}", f"overridden: {guard.risk}"))


def _response_lines(code: ResponseCode) -> tuple[str, ...]:
    meaning = RESPONSE_MEANINGS[code]
    return (f"code {code.value}: {meaning.sentence}", *([f"advice: {meaning.advice}"] if meaning.advice else []))


def _findings() -> Iterator[WordEntry]:
    for code, kind in KINDS.items():
        lines = [f"{kind.title}.", f"severity: {kind.severity}", f"for transactions: {kind.meaning}"]
        yield WordEntry(code, "finding", tuple(lines + ([f"advice: {kind.advice}"] if kind.advice else [])))


def _tables() -> Iterator[WordEntry]:
    columns: dict[str, dict[str, list[str]]] = {}
    for table, schema in {**ALL_TABLES, **RESULT_TABLES}.items():
        yield WordEntry(table, "table", (f"columns: {', '.join(schema.names)}",))
        for field in schema:
            sentence = f"{meaning_of(field)} ({field.type})" if _is_short(str(field.type)) else meaning_of(field)
            columns.setdefault(field.name, {}).setdefault(sentence, []).append(table)
    for name, sentences in columns.items():
        lines = [f"{sentence}; in {', '.join(tables)}" for sentence, tables in sentences.items()]
        yield WordEntry(name, "column", tuple(lines))


def _heads(views: Iterable[View]) -> Iterator[WordEntry]:
    """Heads of printed tables that differ from column names, and columns that are derived from others."""
    for name, derived in derived_columns(TRANSACTIONS).items():
        yield WordEntry(name, "derived column", (f"{meaning_of(derived.field)}; in --where and --fields",))
    for added in (one for one in LIVE_TRANSACTIONS if one.name not in TRANSACTIONS.names):
        yield WordEntry(added.name, "column", (f"{meaning_of(added)}; in transactions of live brokers",))
    every = [one for schema in {**ALL_TABLES, **RESULT_TABLES}.values() for one in schema]
    # A name that several tables have, with other meanings: people ask about the column of transactions.
    tables = {one.name: meaning_of(one) for one in [*every, *TRANSACTIONS]}
    parts = [*REQUEST, *RECHECK, *SETTING_CHANGE, *EDITS, *CURSOR_EFFECTS]
    parts = [*parts, *LIVE_TRANSACTIONS]
    meanings = {one.name: meaning_of(one) for one in parts} | _OF_A_PAGE | tables
    sources: dict[str, dict[str, None]] = {}
    for view in views:
        alone = {printed.sources[0] for printed in view.columns if printed.is_plain}
        for printed in view.columns:
            for heading in printed.headings:
                if not (heading in tables and (heading,) == printed.sources):
                    shown = [one for one in printed.sources if printed.is_plain or one not in alone]
                    sources.setdefault(heading, {}).update(dict.fromkeys(shown))
    for heading, names in sources.items():
        lines = (f"{name}: {meanings[name]}" if meanings.get(name) else f"shows {name}" for name in names)
        yield WordEntry(heading, "head of a printed column", tuple(lines))


#: Columns of the page of one transaction.
_OF_A_PAGE = {
    "event": "what happened to the transaction: born, sent, check, discard, commit, rollback, op; "
    "broker log: a line of the broker's logs (--broker-logs)",
    "detail": "details from the record of the event",
    "log_text": "the line of the broker's log, with --broker-logs",
    "is_past": "whether the cursor of a consumer group is past the COMMIT record; it does not prove consumption",
    "final_queue_offset": "queue offset of the COMMIT record",
}


def _is_short(text: str) -> bool:
    return len(text) < 24


def meaning_of(field: object) -> str:
    """The description of a column."""
    metadata: dict[bytes, bytes] = getattr(field, "metadata", None) or {}
    return metadata.get(b"meaning", b"").decode()


def _structures(layouts: Iterable[Layout], where: str) -> Iterator[WordEntry]:
    for layout in layouts:
        lines = [f"{layout.title}, {layout.size_bytes} bytes fixed. Source: {layout.source}"]
        for field in layout.fields:
            unit = f" [{field.unit}]" if field.unit else ""
            since = "" if field.since == "all" else f" (since {field.since})"
            place = f"{layout.offsets[field.name]:>4}  {field.type_name:<9}"
            lines.append(f"{place} {field.name}: {field.meaning}{unit}{since}")
        lines += [f"   +  {part.size:<9} {part.name}: {part.meaning}" for part in layout.variable]
        yield WordEntry(layout.name, f"structure on {where}", tuple(lines))
        for field in layout.fields:
            position = f"byte {layout.offsets[field.name]} of {layout.name}, {field.type_name}"
            yield WordEntry(field.name, f"field on {where}", (f"{field.meaning}; {position}. Source: {layout.source}",))
