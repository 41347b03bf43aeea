"""The stores of the corpus that `make test` reads: each family and each release; `make test-slow` reads the rest.

Whoever adds a store to the corpus names it here where it is the first of its family, or the first of its design that a
release wrote; tests/test_representatives.py fails otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from tests.brokers import corpus

#: Why each of them is read. Stores whose names differ in their releases alone are a family.
REPRESENTATIVES: dict[str, str] = {
    "common-4.3.0": "4.3.0, the first release with a half topic: five checks, no copy of what is discarded",
    "common-4.4.0": "4.3.1 to 4.5.1: fifteen checks",
    "common-4.9.7": "4.5.2 to 4.9.8: what is discarded is copied; `abort` is empty",
    "common-5.1.4": "5.1: one op for many halves; `abort` holds a process id",
    "common-5.3.3": "5.2 and later: open transactions are counted in a file",
    "common-5.5.0": "5.4 and later: RocksDB beside the queues, a checkpoint of one more field",
    "killed-4.3.0": "killed, with the checkpoint and the ops of the releases before 5",
    "killed-5.5.0": "killed, several segments, ops in its memory",
    "acting-5.3.3": "halves that the check of an acting slave passed, and topics that the slave refused",
    "ahead-5.3.3": "born after it was stored, and discarded while it was immune",
    "batchcq-5.3.3": "batch consume queues: entries of 46 bytes",
    "busystop-5.5.0": "halves that were put back until the last moment of a clean stop",
    "codecs-5.1.4": "bodies compressed by LZ4, ZSTD and ZLIB",
    "cqext-4.9.7": "extension files of consume queues",
    "cursorback-4.9.7": "a half cursor that was set back between two runs",
    "cursoredited-5.1.4": "a half cursor that was set back after the last stop",
    "delayed-4.3.0": "delay levels before 5: halves in a delay topic",
    "delayed-5.5.0": "delay levels and timers of 5: timer files",
    "discards-4.9.7": "discards in spite of a decision, and bodies that a resume spoiled",
    "downgraded-5.5.0-5.3.3": "continued by a release before",
    "downgraded-5.5.0-5.3.3-4.9.7": "continued by two releases before",
    "escaped-5.3.3": "copies that the acting slave of another broker sent",
    "failover-5.3.3": "a slave's store that went on as the master's",
    "fifteen-5.3.3": "one transaction, discarded after its last check",
    "ipv6-5.5.0": "hosts of 16 bytes",
    "lmq-4.9.3": "light message queues in 4.9, the one store of 4.9.3",
    "lmq-5.3.2": "light message queues in 5, the one store of 5.3.2",
    "lmqhalf-5.5.0": "half messages in light queues, and op messages lost at an orderly stop",
    "lmq-switched-5.3.3": "light message queues switched on later: two files of cursors",
    "longtopic-5.3.3": "records of the second magic",
    "masked-4.9.7": "decisions by hand that name records which are no halves",
    "multipath-5.1.4": "a commit log over two directories",
    "ignored-4.3.1": "no decision before the first check, the one store of 4.3.1",
    "opjumped-4.5.0": "op messages that the check lost",
    "opslost-5.3.3": "killed with nothing but lost ops in its memory",
    "noroom-5.5.0": "a half that the check can read and cannot put back",
    "oplate-5.3.3": "op messages later than the check, by default settings",
    "parallel-5.3.3": "chains of copies side by side",
    "poison-4.3.0": "a half that ends each pass of the check",
    "poison-4.5.0": "many halves behind such a half, the one store of 4.5.0",
    "pool-5.3.3": "a log written through a pool, and decisions that the broker refused",
    "propcrc-5.5.0": "a checksum in each record's properties",
    "proxy-5.3.3": "gRPC and remoting clients behind a proxy",
    "rollbackslost-5.3.3": "rolled back, asked again and discarded",
    "timer-5.3.0": "a timer on the first record of the log, the one store of 5.3.0",
    "statetable-3.1.4": "state table and redo log, several files of each",
    "statetable-killed-3.1.4": "a state table as a kill leaves it",
    "statetable-lossy-3.1.4": "a state table made from a part of its redo log",
    "statetable-recovered-3.1.4": "a state table made again and numbered from 0",
    "statetable-slave-3.1.4": "a redo log without a state table",
    "upgraded-3.1.4-3.2.6": "a state table that nothing keeps any more",
    "prepared-3.2.6": "prepared records of 3.2.6",
    "prepared-4.2.0": "prepared records of 4.2.0",
    "prepared-killed-4.2.0": "prepared records as a kill leaves them",
    "upgraded-4.2.0-4.3.0": "prepared records before half topics of 4.3.0, where a ROLLBACK masks the first half",
    "upgraded-4.2.0-4.9.7": "prepared records before half topics of 4.9.7",
    "rocksdb-5.4.0": "transactions in RocksDB, first release",
    "rocksdb-5.5.0": "transactions in RocksDB, 5.5.0",
    "rocksdb-both-5.5.0": "half topic first, then transactions in RocksDB",
    "rocksdb-killed-5.5.0": "transactions in RocksDB as a kill leaves them",
    "rocksdb-slave-5.5.0": "transactions in RocksDB, beside the table of a slave that dropped them",
    "rocksdb-combined-5.4.0": "queues in files and in RocksDB, one directory",
    "rocksdb-configs-5.5.0": "configurations in RocksDB, second version",
    "rocksdb-queues-5.5.0": "queues and configurations in RocksDB",
    "rocksdb-queues-killed-5.5.0": "queues in RocksDB as a kill leaves them",
    "rocksdb-separate-5.5.0": "queues in files and in RocksDB, two directories",
    "rocksdb-single-5.5.0": "all configurations in one database",
    "dledger-4.9.7": "DLedger entries of 4.9.7",
    "dledger-5.1.4": "DLedger entries of 5.1.4",
    "dledger-killed-5.1.4": "DLedger entries as a kill leaves them",
    "controller-5.1.4": "epochs of a controller",
    "empty-3.1.4": "no message ever came: state table",
    "empty-3.2.6": "no message ever came: prepared records",
    "empty-4.3.0": "no message ever came: half topic of 4.3.0",
    "empty-4.9.7": "no message ever came: half topic of 4.9.7",
    "empty-5.3.3": "no message ever came: half topic of 5.3.3",
    "empty-5.5.0": "no message ever came: half topic of 5.5.0",
    "empty-killed-3.1.4": "killed before any message came",
}


def family_of(name: str) -> str:
    """What the name of a store says beside its releases."""
    return re.sub(r"-\d+(\.\d+)+", "", name)


#: One store of each design and form of files, for tests that compare two ways of ours or take long for each store.
FEW = (
    "common-4.3.0", "common-4.9.7", "common-5.3.3", "killed-5.5.0", "batchcq-5.3.3", "cqext-4.9.7", "delayed-5.5.0",
    "lmqhalf-5.5.0", "multipath-5.1.4", "upgraded-4.2.0-4.9.7", "statetable-3.1.4", "prepared-killed-4.2.0",
    "rocksdb-both-5.5.0", "rocksdb-combined-5.4.0", "rocksdb-queues-5.5.0", "dledger-killed-5.1.4", "controller-5.1.4",
    "empty-5.5.0",
)


def each_store(names: Iterable[str]) -> list[Any]:
    """Parameters, one for each of these stores: those that stand for no others are marked slow."""
    return [pytest.param(name, marks=() if name in REPRESENTATIVES else pytest.mark.slow) for name in names]


def in_two_ways(names: Iterable[str]) -> list[Any]:
    """Parameters of a test that compares two ways of ours, and not with what a broker did: FEW of these stores run in
    `make test`, the rest in `make test-deep`.
    """
    return [pytest.param(name, marks=() if name in FEW else pytest.mark.deep) for name in names]


def few_quick(names: Iterable[str]) -> list[Any]:
    """Parameters, one for each of these stores: FEW of them run in `make test`, the rest in `make test-slow`."""
    return [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in names]


def one_of_each_design(names: Iterable[str | Any]) -> list[Any]:
    """Parameters, one for each of these stores: the first of each design runs in `make test`.

    What is a parameter already keeps its marks.
    """
    seen: set[str] = set()
    parameters = []
    for given in names:
        name, marks = (given, ()) if isinstance(given, str) else (str(given.values[0]), tuple(given.marks))
        design = str(corpus.recipe(name).get("design", corpus.HALF_TOPIC_DESIGN))
        parameters.append(pytest.param(name, marks=(*marks, *([pytest.mark.slow] if design in seen else []))))
        seen.add(design)
    return parameters


def few_or_all(names: Iterable[str]) -> list[Any]:
    """Two lists of stores that are read together: one of each design and a killed one, and, when slow, all of them."""
    every = tuple(names)
    few = (*(str(one.values[0]) for one in one_of_each_design(every) if not one.marks), "killed-5.1.4")
    return [pytest.param(few, id="few"), pytest.param(every, id="all", marks=pytest.mark.slow)]


def rest_is_slow(values: Iterable[Any], quick: int = 2, slow: int | None = None) -> list[Any]:
    """Parameters of a matrix of one kind, such as seeds: the first `quick` of them run in `make test`.

    The next `slow` of them run in `make test-slow`, by default all; the others in `make test-deep`.
    What is a parameter already keeps its marks.
    """
    parameters = []
    deep_from = None if slow is None else quick + slow
    for number, value in enumerate(values):
        given, marks = (value.values, value.marks) if hasattr(value, "marks") else (value, ())
        numbers = given if isinstance(given, tuple) else (given,)
        own: list[Any] = []
        if number >= quick:
            own = [pytest.mark.slow if deep_from is None or number < deep_from else pytest.mark.deep]
        parameters.append(pytest.param(*numbers, marks=(*marks, *own)))
    return parameters
