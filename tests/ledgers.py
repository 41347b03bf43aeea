"""A business ledger about a store of the corpus: what its rows say is chosen here, what the broker did is the truth."""

from __future__ import annotations

import csv
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of

NAME = "common-5.3.3"
MATCH, DONE, NOT_DONE = "keys = order_id", "status = PAID", "status = CANCELLED"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a ledger row says of a case of the corpus, and what must come of it."""

    status: str
    state: str
    word: str
    outcome: str
    advice: str
    told: str


#: By case: the ledger's status, the state that the truth knows, and the word, outcome, advice and reason to be found.
CASES: dict[str, Wanted] = {
    # The five that matter most, and their opposites.
    "pending.0": Wanted("PAID", "PENDING", "done", "act", "commit", "newest half copy: queue offset"),
    "pending.1": Wanted("CANCELLED", "PENDING", "not_done", "act", "rollback", "newest half copy: queue offset"),
    "never_answered.0": Wanted("PAID", "DISCARDED", "done", "act", "commit", "not the discard copy"),
    "never_answered.1": Wanted("CANCELLED", "DISCARDED", "not_done", "agrees", "none", "not delivered"),
    "rollback.0": Wanted("PAID", "ROLLED_BACK", "done", "act", "redeliver", "newest half copy: queue offset"),
    "rollback.1": Wanted("CANCELLED", "ROLLED_BACK", "not_done", "agrees", "none", "not delivered"),
    "double_commit.0": Wanted("PAID", "COMMITTED", "done", "contradiction", "none", "delivered 2 times: COMMIT"),
    "triple_commit.0": Wanted("PAID", "COMMITTED", "done", "contradiction", "none", "delivered 3 times: COMMIT"),
    "commit.0": Wanted("PAID", "COMMITTED", "done", "agrees", "none", "committed, as in the ledger"),
    "commit.1": Wanted("CANCELLED", "COMMITTED", "not_done", "contradiction", "none", "must compensate"),
    # Decided, and asked again: the decision named an older copy.
    "pending_late_commit.0": Wanted("PAID", "COMMITTED", "done", "act", "close", "deliver it a second time"),
    "pending_late_commit.1": Wanted("CANCELLED", "COMMITTED", "not_done", "contradiction", "close", "close it"),
    "pending_late_rollback.0": Wanted("PAID", "ROLLED_BACK", "done", "open", "wait", "the producer's answer COMMIT"),
    "pending_late_rollback.1": Wanted("CANCELLED", "ROLLED_BACK", "not_done", "act", "close", "newest half copy"),
    # The ledger does not settle it.
    "pending.2": Wanted("NEW", "PENDING", "unknown", "open", "wait", "meets neither condition"),
    "never_answered.2": Wanted("NEW", "DISCARDED", "unknown", "open", "resume", "meets neither condition"),
}
#: Two ledger rows of one transaction.
TWICE = "pending.3"
#: Two transactions of one ledger row: its key is a word that both have.
SHARED = ("pending.4", "pending.5")
PLANNED = {
    case: wanted.advice for case, wanted in CASES.items() if wanted.word in ("done", "not_done")
    and wanted.advice in ("commit", "rollback", "close", "resume", "redeliver")
}


def middle_ms() -> int:
    """A moment by which half of the transactions of the corpus store had begun."""
    found = (row["half_store_time_ms"] for row in audit([opened(NAME)], settings_of(NAME)).table().to_pylist())
    times = sorted(time for time in found if time is not None)
    return int(times[len(times) // 2])


def keys_of(case: str) -> str:
    """The business keys of a case of the corpus."""
    return str(next(row["keys"] for row in corpus.expected(NAME) if row["case"] == case))


def rows() -> list[tuple[str, str, int]]:
    """The ledger: order_id, status, amount."""
    found = [(keys_of(case), wanted.status, 100) for case, wanted in CASES.items()]
    return [*found, (keys_of(TWICE), "PAID", 1), (keys_of(TWICE), "PAID", 2), ("somebody-else", "PAID", 3)]


def written(kind: str, directory: Path) -> str:
    """The ledger as a file of some kind; gives what --ledger takes."""
    names = ("order_id", "status", "amount")
    if kind == "sqlite":
        file = directory / "ledger.db"
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE orders (order_id VARCHAR(40), status TEXT, amount INTEGER)")
            database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows())
            database.commit()
        return f"sqlite:///{file}"
    file = directory / f"ledger.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(dict(zip(names, zip(*rows(), strict=True), strict=True))), file)
    else:
        with file.open("w", newline="") as stream:
            csv.writer(stream).writerows([names, *rows()])
    return str(file)
