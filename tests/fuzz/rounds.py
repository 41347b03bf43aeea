"""One round: a real store is damaged at random in a few places, then read in every way.

A store of a design beside half topics is also damaged in the files that only its design has: state table, redo log,
DLedger log, epochs, databases of RocksDB.

Each reading must return rows or raise one of the project's own errors. A failure is: any other exception, bytes that
are neither decoded, filler, damaged nor unread, or an answer that takes more CPU time than the alarm allows.
"""

from __future__ import annotations

import faulthandler
import random
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rmqtx.readers.cursors import read_cursors
from rmqtx.readers.index.index_scan import scan_entries
from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.designs import designs_of
from rmqtx.readers.log.dledger import scan_entries as scan_dledger_entries
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.log.transaction_records import scan_halves, scan_ops
from rmqtx.readers.model.errors import NoSuchTransaction, RmqtxError
from rmqtx.readers.model.reading import Bounds, Reading
from rmqtx.readers.old_tables.redo_log import TOPIC as REDO_TOPIC
from rmqtx.readers.old_tables.redo_log import scan_redo_log
from rmqtx.readers.old_tables.state_table import scan_state_table
from rmqtx.readers.queues.consume_queue_scan import scan_slots
from rmqtx.readers.rocksdb.rocksdb_queues import queue_bounds
from rmqtx.readers.rocksdb.rocksdb_transactions import read_rocksdb_transactions
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.checkpoint import read_checkpoint
from rmqtx.readers.store.epoch_file import read_epochs
from rmqtx.readers.store.store import Store, open_store
from rmqtx.readers.traces import scan_traces
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending, show
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, consumers_past, timeline
from rmqtx.verdicts.model.verdict_words import STATES
from rmqtx.verdicts.verify.verify import FULL, Verify
from tests.brokers import corpus
from tests.forge.damage import RANDOM
from tests.forge.stores import copy_of, settings_of
from tests.fuzz.both_paths import same_by_both_paths
from tests.fuzz.file_damages import DAMAGES, change_text, place_in
from tests.fuzz.meaningless import used_bytes

#: CPU time, since other programs may use the machine too.
ALARM_SECONDS = 20
#: How many times longer a question may take by the clock: it may wait for the processor, but not hang.
WAITING_TIMES = 10
#: If the alarm has no effect for this time, for example in a library, the process is ended.
IGNORED_SECONDS = 10
DAMAGES_MAX = 4
#: The evidence that a row must have; a ROLLBACK record is an op mark (3.0 to 4.2).
WITNESSES = ("half_copies", "final_records", "discard_copies", "op_marks")
#: Files that only stores of other designs have.
OTHER_FILES = (
    "transaction/statetable/*", f"transaction/redolog/{REDO_TOPIC}/0/*", "dledger-*/data/*", "epochFileCheckpoint",
    "rocksdbstore/*", "consumequeue/*.sst", "consumequeue/*.log", "consumequeue/MANIFEST*", "config/*/*.sst",
    "config/*/MANIFEST*",
)


class TookTooLong(Exception):
    """A question was not answered in time."""


@dataclass(frozen=True)
class Failure:
    """A round that failed, with everything that is needed to repeat it."""

    seed: int
    number: int
    store: str
    damages: tuple[str, ...]
    question: str
    what: str

    def __str__(self) -> str:
        damages = "\n".join(f"    {one}" for one in self.damages)
        return (
            f"round {self.number} of seed {self.seed} on {self.store}, reading {self.question}:\n{damages}\n"
            f"{self.what}\n  again: python -m tests.fuzz --seed {self.seed} --only {self.number}"
        )


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Raise TookTooLong in this thread if the body takes more CPU time, or `WAITING_TIMES` as long by the clock.

    The process is ended if the signal has no effect.
    """
    longest = WAITING_TIMES * seconds

    def ring(number: int, _frame: FrameType | None) -> None:
        taken = f"{seconds} s of CPU time" if number == signal.SIGPROF else f"{longest} s"
        raise TookTooLong(f"no answer in {taken}")

    before = {number: signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(longest)
    faulthandler.dump_traceback_later(longest + IGNORED_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def damage_store(root: Path, chance: random.Random) -> tuple[str, ...]:
    """Damage a store at random in a few places; return a sentence for each."""
    damages = []
    for _ in range(chance.randint(1, DAMAGES_MAX)):
        name = chance.choice(sorted(RANDOM))
        damages.append(f"{name}: {RANDOM[name](root, chance)}"[:500])
    others = [file for pattern in OTHER_FILES for file in sorted(root.glob(pattern))]
    if others:
        damages += [other_damage(chance.choice(others), root, chance) for _ in range(chance.randint(1, 2))]
    return tuple(damages)


def other_damage(file: Path, root: Path, chance: random.Random) -> str:
    """Damage a file as the damage matrix does; return a sentence."""
    before = file.read_bytes() if file.is_file() else b""
    if not before:
        return f"{file.relative_to(root)}: nothing is left to damage"
    kind, where = chance.choice(sorted(DAMAGES)), chance.choice(("head", "middle", "tail"))
    after = DAMAGES[kind](before, place_in(used_bytes(before), where, chance), chance)
    if after is None:
        file.unlink()
    else:
        file.write_bytes(after)
    return f"{kind}: {file.relative_to(root)}: {change_text(before, after)}"


Question = Callable[[Store], object]


def questions(name: str, chance: random.Random) -> dict[str, Question]:
    """All readings of a store, by their names in a report."""
    settings = settings_of(name)
    ids = [row["transaction_id"] for row in corpus.expected(name)]
    asked = [*chance.sample(ids, min(2, len(ids))), chance.choice(["K-1", "", "\0", "F" * 32, "0" * 31 + "1"])]

    def shown(identity: str) -> Question:
        def ask(store: Store) -> None:
            try:
                rows = checked(show([store], settings, identity), store)
            except NoSuchTransaction:
                return
            for row in rows:
                timeline(row, [StoreTimelineSource(store, settings(store))])
                consumers_past(row, [StoreTimelineSource(store, settings(store))])

        return ask

    times = [row["store_time_ms"] for row in corpus.truth(name) if row.get("store_time_ms")]
    at_ms = chance.choice(times or [0])
    return {
        "records": lambda store: checked(scan_records(store), store),
        "bodies": lambda store: checked(scan_records(store, with_body=True, decompress=True, check_crc=True), store),
        "a range of records": lambda store: checked(
            scan_records(store, Bounds(chance.randrange(300_000), chance.randrange(300_000))), store,
            is_whole=False,
        ),
        "halves": lambda store: checked(scan_halves(store), store),
        "ops": lambda store: checked(scan_ops(store), store),
        "traces": lambda store: checked(scan_traces(store), store),
        "slots": lambda store: checked(scan_slots(store), store),
        "index": lambda store: checked(scan_entries(store), store),
        "checkpoint": lambda store: checked(read_checkpoint(store), store),
        "state table": lambda store: checked(scan_state_table(store), store),
        "redo log": lambda store: checked(scan_redo_log(store), store),
        "entries of DLedger": lambda store: checked(scan_dledger_entries(store), store),
        "epochs": lambda store: checked(read_epochs(store), store),
        "halves in RocksDB": lambda store: checked(read_rocksdb_transactions(store), store),
        "queues in RocksDB": lambda store: queue_bounds(store, []),
        "designs": designs_of,
        "settings": broker_settings,
        "cursors": lambda store: checked(read_cursors(store), store),
        "audit": lambda store: audited(audit([store], settings), store),
        "audit as of a time": lambda store: audited(audit([store], settings, at_ms=at_ms), store),
        "pending": lambda store: audited(pending([store], settings), store),
        "reference path and accelerator": same_by_both_paths,
        "verify": lambda store: run_job(Verify(FULL), plan_splits([store]), processes=1).table(),
        **{f"show {identity!r}": shown(identity) for identity in asked},
    }


def checked(reading: Reading, store: Store, *, is_whole: bool = True) -> list[dict[str, Any]]:
    """The rows of a reading; its coverage must account for every byte."""
    rows: list[dict[str, Any]] = reading.table().to_pylist()
    for part in reading.coverage:
        numbers = (part.decoded_bytes, part.filler_bytes, part.damaged_bytes, part.unread_bytes)
        assert min(numbers) >= 0, f"coverage {part}"
        assert sum(numbers) == part.size_bytes, f"coverage {part}"
        is_readable = not any(f.code == "unreadable-file" and f.file == part.file for f in reading.findings)
        assert not part.unread_bytes or not is_whole or not is_readable, f"unread bytes: {part}"
    for finding in reading.findings:
        assert finding.line()
        assert finding.store == store.root
        assert finding.length_bytes is None or finding.length_bytes >= 0, finding.line()
    return rows


def audited(reading: Reading, store: Store) -> list[dict[str, Any]]:
    """The rows of an audit; every row must be complete."""
    rows = checked(reading, store)
    for row in rows:
        assert row["transaction_id"] is not None, row
        assert row["state"] in STATES, row
        assert row["reason"], row
        assert any(row[kind] for kind in (*WITNESSES, "flags")), row
    return rows


def play(seed: int, number: int, names: list[str], directory: Path | None = None) -> list[Failure]:
    """Play one round; the seed and the round's number determine everything in it."""
    chance = random.Random(f"{seed} {number}")
    name = chance.choice(names)
    home = Path(tempfile.mkdtemp(prefix="rmqtx-fuzz-", dir=directory))
    failures = []
    damages: tuple[str, ...] = ()
    try:
        root = copy_of(name, home)
        damages = damage_store(root, chance)
        for question, ask in {"opening it": None, **questions(name, chance)}.items():
            what = answered(root, ask)
            if what is not None:
                failures.append(Failure(seed, number, name, damages, question, what))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return failures


def answered(root: Path, ask: Question | None) -> str | None:
    """Open the store and read it; return what failed, or None."""
    try:
        with alarm(ALARM_SECONDS):
            store = open_store(root)
            if ask is not None:
                ask(store)
    except RmqtxError as error:
        return None if str(error) and "\n" not in str(error) else f"an error without a line: {error!r}"
    except Exception as error:
        return "".join(traceback.format_exception(error))
    return None

