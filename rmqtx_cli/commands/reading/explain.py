"""`rmqtx explain`: explain a word of the output, or print the page of the documentation about it."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands.all_views import all_views
from rmqtx_cli.commands.declared.look import ExplainCommand
from rmqtx_cli.output.page import paged
from rmqtx_cli.pages.glossary import WordEntry, entries
from rmqtx_cli.words import say
from rmqtx_cli.words.near import near
from rmqtx_cli.words.text import escaped


def run(options: ExplainCommand) -> int:
    """Run the command; return its exit status."""
    known = entries(all_views())
    if not options.words:
        _print(_by_kind(known), is_paged=not options.no_pager)
        return 0
    word = " ".join(options.words)
    parts = [of_word(known, part) for part in options.words]
    whole = of_word(known, word)
    found = whole or [entry for part in parts for entry in part]
    unknown = [] if whole else [
        part for part, entries_of_it in zip(options.words, parts, strict=True) if not entries_of_it
    ]
    if not found:
        raise unknown_word(known, word)
    lines = []
    for entry in found:
        lines += [f"{entry.word} ({entry.kind})", *(f"  {line}" for line in entry.lines)]
        if (page := page_of(entry.word, entry.kind)) is not None:
            lines.append(f"  page: {page}")
    _print(lines, is_paged=not options.no_pager)
    for part in unknown:
        say.error(str(unknown_word(known, part)))
    return exit_status.USAGE if unknown else exit_status.DONE


def unknown_word(known: Iterable[WordEntry], word: str) -> BadRequest:
    """Return the error for a word that is not explained, with the words that are like it."""
    close = near(word, dict.fromkeys(entry.word for entry in known))
    advice = f"did you mean {' or '.join(close)}?" if close else "list all words: rmqtx explain"
    return BadRequest(f"unknown word {escaped(word)!r}", advice=advice)


def of_word(known: Iterable[WordEntry], word: str) -> list[WordEntry]:
    """Return the entries of one word, which may have several parts."""
    plain = _plain(word)
    return [entry for entry in known if _plain(entry.word) == plain]


def _by_kind(known: Iterable[WordEntry]) -> list[str]:
    """Return the words under a heading for each kind."""
    kinds: dict[str, dict[str, None]] = {}
    for entry in known:
        kinds.setdefault(entry.kind, {})[entry.word] = None
    return [line for kind, words in kinds.items() for line in (f"{kind} ({len(words)})", f"  {', '.join(words)}")]


def _plain(word: str) -> str:
    """Return a word in lower case with underscores for hyphens and blanks."""
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def _print(lines: list[str], *, is_paged: bool) -> None:
    room = min(shutil.get_terminal_size((100, 24)).columns, 120)
    with paged(None, is_wanted=is_paged) as stream:
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())] + "    "
            text = "\n".join(textwrap.wrap(line, room, subsequent_indent=indent, break_on_hyphens=False))
            stream.write(f"{text}\n".encode())


#: Findings by the page of docs/formats that lists them on its line `Findings:`; a test compares the two.
FINDING_PAGES: dict[str, tuple[str, ...]] = {
    "consume_queues": (
        "queue-missing", "queue-gap", "slot-invalid", "slot-expired", "slot-dangling", "slot-mismatch",
        "slot-tags-mismatch", "slot-missing",
        "slot-pending", "queue-number-missing", "queue-number-taken", "queues-leftover", "queues-unchecked",
        "database-unread", "database-entry", "queue-database-missing",
    ),
    "cursors": (
        "config-missing", "config-backup", "config-damaged", "cursor-beyond-end", "cursor-before-begin",
        "group-cursor-beyond-end", "group-cursor-before-begin", "cursors-twice", "cursors-contradict",
        "cursors-not-loaded",
    ),
    "dledger": ("entry-header",),
    "half_and_op": (
        "half-unreadable", "op-unreadable", "op-without-effect", "op-beyond-end", "check-stopped", "end-names-nothing",
        "half-number-taken",
    ),
    "index": ("index-mismatch", "index-missing", "index-damaged"),
    "prepared_records": (
        "older-design", "table-row-invalid", "table-row-stale", "table-row-missing", "table-row-expired",
        "table-row-unknown", "table-row-group",
    ),
    "record": (
        "record-damaged", "record-body-crc", "record-header", "record-properties", "record-property-crc",
        "body-stream", "body-undecoded", "store-time-backwards", "blank-length", "tail-torn", "tail-foreign",
        "copies-contradict", "words-contradict", "record-left-out", "log-missing",
    ),
    "recovery": (
        "start-refused", "start-endless", "start-cuts-log", "start-deletes-segment", "start-leaves-out",
        "start-deletes-queues", "start-empties-queues", "start-deletes-index", "start-cuts-queue", "start-adds-hole",
        "start-skips", "start-shifts", "start-enters", "start-unforeseen", "start-differs", "check-skips",
        "start-hides-new", "check-max-unknown", "start-checks-again", "stop-loses-ops",
    ),
    "state_table": (
        "table-entry-invalid", "table-gap", "table-slot-mismatch", "table-slot-expired", "table-slot-stale",
        "table-slot-unproved", "table-slot-missing", "table-unanswerable", "table-missing", "redo-log-missing",
        "table-lost", "table-leftover", "table-remade", "redo-entry-mismatch", "redo-entry-missing",
        "table-number-taken",
    ),
    "traces": ("trace-unreadable", "traces-unread"),
    "store": (
        "segment-gap", "segment-overlap", "segment-size", "stray-file", "segment-misnamed", "log-empty",
        "at-before-log", "link-out",
        "unreadable-file", "checkpoint-damaged", "checkpoint-ahead", "epochs-damaged", "half-changed", "undecidable",
        "logs-differ", "logs-share-ids", "copy-lacks-pending",
    ),
}  # fmt: skip
_OF_FINDINGS = {code: f"docs/formats/{page}.md" for page, codes in FINDING_PAGES.items() for code in codes} | {
    "receipt-torn": "docs/receipts.md", "receipt-unreadable": "docs/receipts.md",
    "rocksdb-transactions": "docs/formats/rocksdb_transactions.md",
}  # fmt: skip

#: By kind of word; a kind without a page is not listed.
_OF_KINDS = {
    "state of a transaction": "docs/generations.md",
    "flag of a transaction": "docs/runbook.md",
    "advice": "docs/runbook.md",
    "cause": "docs/causes.md",
    "strength of a cause": "docs/causes.md",
    "finding": "docs/remoting.md",  # those of live brokers, which no page of docs/formats lists
    "word of a ledger": "docs/forensics.md",
    "outcome of a comparison with a ledger": "docs/forensics.md",
    "outcome of an act": "docs/receipts.md",
    "standing of a receipt": "docs/receipts.md",
    "effect of cursor set": "docs/offline_acts.md",
    "guard": "docs/safety.md",
    "state of a hold": "docs/runbook.md",
    "setting": "docs/formats/cursors.md",
    "scenario of a probe": "docs/canary.md",
    "step of a probe": "docs/canary.md",
    "table": "docs/tables.md",
    "column": "docs/tables.md",
    "response code": "docs/remoting.md",
    "exit status of check and probe": "docs/runbook.md",
}

#: Words that have another page than their kind.
_OF_WORDS = {
    ("flag of a transaction", "expires_soon"): "docs/deadlines.md",
    ("term", "half message"): "docs/formats/half_and_op.md",
    ("term", "half copy"): "docs/formats/half_and_op.md",
    ("term", "op mark"): "docs/formats/half_and_op.md",
    ("term", "check"): "docs/formats/half_and_op.md",
    ("term", "check cursor"): "docs/formats/cursors.md",
    ("term", "discard copy"): "docs/deadlines.md",
    ("term", "record"): "docs/formats/record.md",
    ("term", "segment"): "docs/formats/store.md",
    ("term", "slot"): "docs/formats/consume_queues.md",
    ("term", "provenance"): "docs/forensics.md",
    ("term", "ledger"): "docs/forensics.md",
    ("term", "stand-in"): "docs/stand_in.md",
    ("term", "canary"): "docs/canary.md",
    ("term", "receipt"): "docs/receipts.md",
    ("term", "journal"): "docs/receipts.md",
    ("term", "guard"): "docs/safety.md",
    ("term", "design"): "docs/generations.md",
    ("term", "prepared record"): "docs/formats/prepared_records.md",
    ("term", "rollback record"): "docs/formats/prepared_records.md",
    ("term", "transaction table"): "docs/old_tables.md",
    ("term", "rocksdb table"): "docs/formats/rocksdb_transactions.md",
    ("term", "state table"): "docs/old_tables.md",
    ("term", "redo log"): "docs/old_tables.md",
    ("term", "plan"): "docs/runbook.md",
    ("exit status", "3"): "docs/forensics.md",
    ("exit status", "11"): "docs/offline_acts.md",
    ("exit status", "12"): "docs/safety.md",
    ("exit status", "13"): "docs/runbook.md",
    ("exit status", "14"): "docs/remoting.md",
    ("exit status", "15"): "docs/remoting.md",
    ("exit status", "17"): "docs/safety.md",
    ("exit status", "18"): "docs/receipts.md",
    ("exit status", "20"): "docs/engines.md",
}
#: Pages of reasons by how the word begins; the other reasons have the page of the states.
_OF_REASONS = {
    "rocksdb_": "docs/formats/rocksdb_transactions.md", "prepared_": "docs/formats/prepared_records.md",
    "dropped_": "docs/deadlines.md", "log_": "docs/forensics.md", "cursor_": "docs/formats/cursors.md",
}  # fmt: skip


def page_of(word: str, kind: str) -> str | None:
    """Return the page about a word of a kind; None where there is none."""
    if kind == "finding" and word in _OF_FINDINGS:
        return _OF_FINDINGS[word]
    if kind == "reason of a state":
        begins = (page for begin, page in _OF_REASONS.items() if word.startswith(begin))
        return next(begins, "docs/generations.md")
    return _OF_WORDS.get((kind, word), _OF_KINDS.get(kind))
