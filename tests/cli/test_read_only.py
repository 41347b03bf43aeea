"""No verb that reads changes anything in a store, not a byte, not a name, not even a time."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rmqtx_cli.words.command_names import LINES
from tests.cli.conftest import Run
from tests.representatives import rest_is_slow

#: Verb → command lines; STORE is the store, OUT a directory beside it, ID a transaction of it.
READS: dict[str, list[list[str]]] = {
    "stores": [["stores", "STORE"]],
    "doctor": [["doctor", "STORE"]],
    "pending": [
        ["pending", "STORE"], ["pending", "--scan", "--all-open", "STORE"],
        ["pending", "--at", "2026-01-02T03:04:05Z", "STORE"], ["pending", "STORE", "-o", "OUT/pending.parquet"],
    ],
    "show": [
        ["show", "ID", "--store", "STORE"], ["show", "ID", "--store", "STORE", "--scan", "--format", "json"],
        ["show", "ORDER-1", "--store", "STORE"],
    ],
    "audit": [
        ["audit", "STORE"], ["audit", "STORE", "--hash", "-o", "OUT/audit.parquet"], ["audit", "STORE", "--findings"],
    ],
    "follow": [["follow", "STORE", "--until-idle", "--checkpoint", "OUT/follow.sqlite", "--format", "jsonl"]],
    "table": [["table", "STORE", "--into", "OUT/table"]],
    "verify": [["verify", "STORE"], ["verify", "--quick", "STORE"], ["verify", "--full", "STORE"]],
    "search": [["search", "STORE", "--key", "ORDER-1"], ["search", "STORE", "--body-contains", "order"]],
    "export": [
        ["export", "records", "STORE", "--to", "OUT/records", "--body", "raw"],
        ["export", "transactions", "STORE", "--to", "OUT/transactions"],
    ],
    "diff": [["diff", "STORE", "--at", "2026-01-02T03:04:05Z", "--and-at", "2027-01-02T03:04:05Z"]],
    "reconcile": [
        [
            "reconcile", "STORE", "--ledger", "sqlite:///OUT/ledger.db", "--ledger-table", "orders",
            "--match", "keys = order_id", "--done", "status = PAID", "--not-done", "status = CANCELLED",
        ],
    ],
    "sql": [["sql", "SELECT count(*) FROM transactions", "STORE"], ["sql", "FROM records", "STORE", "-o", "OUT/r.csv"]],
    "prove": [
        ["audit", "STORE", "--proof", "OUT/proof.json"], ["prove", "OUT/proof.json", "--store", "STORE"],
        ["prove", "OUT/proof.json", "--store", "STORE", "--sample", "1"],
    ],
    "case": [["case", "timeline", "STORE", "--transaction", "ID"]],
    "check": [["check", "STORE"], ["check", "STORE", "--scan"]],
    "diagnose": [["diagnose", "STORE"], ["diagnose", "STORE", "--transaction", "ID"]],
    "report": [
        ["report", "STORE", "-o", "OUT/report.html"], ["report", "STORE", "--transaction", "ID", "-o", "OUT/one.md"],
        ["report", "STORE", "--compare", "STORE", "-o", "OUT/compared.md"],
    ],
    "simulate": [
        ["simulate", "STORE"], ["simulate", "--show", "transactions", "--with", "transactionCheckMax=30", "STORE"],
    ],
    "salvage": [["salvage", "STORE", "--to", "OUT/salvaged"]],
    "rebuild": [["rebuild", "all", "STORE", "--to", "OUT/rebuilt"]],
    "plan": [["plan", "close", "--all", "--store", "STORE", "--reason", "test", "-o", "OUT/plan.json"]],
    "bundle": [
        ["bundle", "STORE", "--transaction", "ID", "-o", "OUT/bundle.tar.xz"],
        ["bundle", "STORE", "--transaction", "ID", "--redact", "--redact-key-file", "OUT/key", "--to", "OUT/bundle"],
        ["bundle", "STORE", "--finding", "slot-mismatch", "--no-scan", "--to", "OUT/found"],
    ],
    "hold": [["hold", "--store", "STORE", "--for", "4h"], ["hold", "--store", "STORE", "--for", "400d"]],
    "decode": [
        ["decode", "commitlog", "--check-crc", "--decompress", "STORE"], ["decode", "commitlog", "--coverage", "STORE"],
        *(["decode", kind, "STORE"] for kind in ("consumequeue", "half", "op", "index", "checkpoint", "cursors")),
    ],
}
#: Acts that change a copy, or nothing yet: the store they are given stays as it is.
ACTS: dict[str, list[list[str]]] = {
    verb: [
        [verb, "ID", "--store", "STORE", "--to", "OUT/shown", "--reason", "test", "--dry-run"],
        [verb, "ID", "--store", "STORE", "--in-place", "--undo", "OUT/undo", "--reason", "test", "--dry-run"],
        [verb, "ID", "--store", "STORE", "--to", "OUT/changed", "--reason", "test", "--yes"],
    ]
    for verb in ("commit", "rollback", "discard", "resume", "close")
} | {
    "cursor": [
        ["cursor", "set", "--half", "0", "--op", "0", "--store", "STORE", "--to", "OUT/shown", "--dry-run"],
        ["cursor", "set", "--half", "0", "--op", "0", "--store", "STORE", "--to", "OUT/changed", "--yes"],
    ],
}
#: What acts on live brokers, on an undo file's store, or reads nothing but the journal; plans, tried with `plan`;
#: triage, which needs a terminal and reads what `plan` reads (test_triage.py); the exporter and the live screen, which
#: read what `check` reads; the server for assistants, which reads what other commands read (test_mcp.py); and the
#: archive of packages, which reads no store.
OTHERS = frozenset(
    {
        "apply", "redeliver", "undo", "answer", "probe", "drain", "release", "holds", "receipts", "exporter",
        "watch", "spark-archive", "producers", "triage", "mcp",
    }
)
#: Understood, whatever is in the store: done, findings, undecidable, stale, refused, nothing there to act upon.
UNDERSTOOD = frozenset({0, 1, 3, 12, 16})


def fingerprint(store: Path) -> dict[str, object]:
    """Everything about a store's files but when they were last read."""
    found: dict[str, object] = {}
    for path in sorted([store, *store.rglob("*")]):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        found[str(path)] = (
            content, status.st_mode, status.st_uid, status.st_gid, status.st_ino, status.st_nlink, status.st_size,
            status.st_mtime_ns, status.st_ctime_ns,
        )
    return found


def test_every_verb_is_either_tried_here_or_decides_something() -> None:
    names = set(LINES) - {"explain", "schema"}
    assert sorted(names) == sorted([*READS, *ACTS, *OTHERS])


@pytest.mark.parametrize("verb", READS | ACTS)
@pytest.mark.parametrize("name", rest_is_slow(["killed-5.1.4", "fifteen-5.3.3", "common-4.3.0"], quick=1, slow=0))
def test_the_source_is_untouched(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path, name: str, verb: str
) -> None:
    store = corpus_store(name)
    fields = ("--fields", "transaction_id,keys", "--where", "keys is not null", "--limit", "1")
    identity, keys = rmqtx("audit", store, "--format", "csv", *fields, "-q").out.splitlines()[1].split(",")
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        ledger.execute("create table orders (order_id text, status text)")
        ledger.execute("insert into orders values (?, 'PAID')", [keys.split()[0]])
        ledger.commit()
    before = fingerprint(store)
    statuses: list[int] = []
    for line in (READS | ACTS)[verb]:
        words = [
            word.replace("STORE", str(store)).replace("OUT/", f"{tmp_path}/") if word != "ID" else identity
            for word in line
        ]
        result = rmqtx(*words)
        assert "a bug" not in result.err, (words, result.err)
        statuses.append(result.status)
        assert fingerprint(store) == before, words
    assert set(statuses) & (UNDERSTOOD | ({2} if verb == "check" else set())), "none of these lines is understood"
