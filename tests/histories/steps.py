"""What can happen in a history, drawn from a seed. A step names transactions by number, so any part of a history can
be played alone.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.brokers.rocks_recipes import QUEUES_IN_ROCKSDB
from tests.brokers.rocks_stage import TRANSACTIONS_IN_ROCKSDB
from tests.histories.damages import DAMAGES, NEWER_DAMAGES, NEWEST_DAMAGES

Step = dict[str, Any]

GROUPS = ("orders", "payments")
TOPICS = ("TopicA", "TopicB")
SECOND_MS, HOUR_MS = 1_000, 3_600_000
#: How far the clock goes on between steps; short ones are more frequent.
PAUSES_MS = (
    3,
    3,
    40,
    40,
    700,
    2_500,
    7_000,
    7_000,
    31_000,
    61_000,
    61_000,
    600_000,
    HOUR_MS,
    30 * HOUR_MS,
    80 * HOUR_MS,
)
DECISIONS = ("commit", "commit", "rollback", "unknown")
#: Which place of a transaction a decision names.
NAMED = ("newest", "newest", "newest", "newest", "newest", "newest", "first", "previous", "wrong number", "other half")
ANSWERS = ("none", "none", "none", "unknown", "commit", "rollback")
PROPERTIES: tuple[dict[str, str], ...] = (
    {}, {}, {}, {}, {"KEYS": "order-1"}, {"TAGS": "red", "KEYS": "a b"}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"},
    {"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"}, {"note": "x" * 300}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"},
)

#: Seeds from here on draw further kinds of steps too; those before draw what they always drew.
NEWER_SEEDS = 1_000_000
#: Seeds from here on draw further kinds of damage too.
NEWEST_SEEDS = 1_600_000
NEWER_NAMED = (*NAMED, "discard copy", "delivered", "wrong place", "wrong place")
NEWER_PROPERTIES: tuple[dict[str, str], ...] = (
    *PROPERTIES, {"DELAY": "1"}, {"DELAY": "3", "KEYS": "order-1"}, {"TIMER_DELAY_SEC": "30"},
    {"TIMER_DELIVER_MS": "1790000600000"}, {"note": "x" * 9_000}, {"note": "x" * 33_000},
    {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20", "note": "x" * 2_000},
)


def drawn_conf(random: Random) -> dict[str, str]:
    """The settings of a broker."""
    conf = {
        "transactionTimeOut": random.choice(("3000", "6000", "6000", "20000")),
        "transactionCheckMax": random.choice(("1", "2", "3", "5", "15", "15")),
        "transactionCheckInterval": random.choice(("5000", "30000", "30000", "60000")),
        "fileReservedTime": random.choice(("24", "48", "72", "72")),
    }
    if random.random() < 0.3:
        conf["transactionOpBatchInterval"] = random.choice(("1000", "3000"))
    return conf


def drawn_steps(random: Random, count: int, *, is_newer: bool = False, is_newest: bool = False) -> list[Step]:
    """Some steps. A history ends with a stop or a kill. `is_newer`: of all kinds; `is_newest`: and all damages."""
    steps: list[Step] = []
    halves = 0
    while len(steps) < count:
        steps.append({"do": "wait", "ms": random.choice(PAUSES_MS)})
        draw = random.random()
        if draw < 0.34 or not halves:
            for _ in range(random.choice((1, 1, 2, 4))):
                if is_newer:
                    steps.append(_newer_half(random, halves))
                    halves += 1
                    continue
                steps.append({
                    "do": "half", "number": halves, "group": random.choice(GROUPS), "topic": random.choice(TOPICS),
                    "properties": random.choice(PROPERTIES), "body_bytes": random.choice((8, 8, 60, 900)),
                    "has_id": random.random() > 0.02,
                })
                halves += 1
        elif draw < 0.62 and is_newer:
            steps += _newer_ends(random, halves)
        elif draw < 0.62:
            steps.append({
                "do": "end", "number": random.randrange(halves), "decision": random.choice(DECISIONS),
                "named": random.choice(NAMED), "is_check": random.random() < 0.5,
            })
        elif draw < 0.80:
            steps.append({"do": "check", "answers": [random.choice(ANSWERS) for _ in range(random.randint(1, 6))]})
        elif draw < 0.86:
            steps.append({"do": "batch"})
        elif draw < 0.89:
            steps.append({"do": "message", "topic": random.choice(TOPICS)})
            if is_newer and random.random() < 0.7:
                steps.append({
                    "do": "messages", "topic": random.choice(TOPICS), "count": random.choice((1, 2, 5)),
                    "properties": random.choice(({}, {"TRAN_MSG": "true", "PGROUP": GROUPS[0]}, {"DELAY": "1"})),
                    "is_half": random.random() < 0.4,
                })
        elif draw < 0.91:
            steps.append({"do": "persist"})
        elif draw < 0.93:
            steps.append({"do": "flush"})
        elif draw < 0.935:
            steps.append({"do": "upgrade"})
        elif draw < 0.96:
            steps.append({"do": "restart", "conf": drawn_conf(random) if random.random() < 0.5 else None})
        else:
            steps.append({"do": "kill", "lost": random.choice((0.0, 0.0, 0.5, 1.0))})
    steps.append({"do": random.choice(("stop", "stop", "end by kill"))})
    if random.random() < (0.7 if is_newest else 0.4):
        steps.append(drawn_damage(random, is_newer=is_newer, is_newest=is_newest))
    return steps


def _newer_half(random: Random, number: int) -> Step:
    return {
        "do": "half", "number": number, "group": random.choice(GROUPS), "topic": random.choice(TOPICS),
        "properties": random.choice(NEWER_PROPERTIES), "body_bytes": random.choice((8, 8, 60, 900)),
        "has_id": random.random() > 0.1, "is_compressed": random.random() < 0.15,
    }


def _newer_ends(random: Random, halves: int) -> list[Step]:
    """A decision; often another one of the same transaction at once, the same or the opposite."""
    end: Step = {
        "do": "end", "number": random.randrange(halves), "decision": random.choice(DECISIONS),
        "named": random.choice(NEWER_NAMED), "is_check": random.random() < 0.5,
    }
    if random.random() < 0.7:
        return [end]
    again = {**end, "decision": random.choice(("commit", "rollback")), "named": random.choice(NEWER_NAMED)}
    return [end, {"do": "wait", "ms": random.choice((3, 700, 7_000))}, again]


def drawn_damage(random: Random, *, is_newer: bool = False, is_newest: bool = False) -> Step:
    """Something that happens to the files of a stopped broker."""
    kinds = (*DAMAGES, *NEWER_DAMAGES, *NEWER_DAMAGES) if is_newer else tuple(DAMAGES)
    if is_newest:
        kinds = (*DAMAGES, *NEWER_DAMAGES, *NEWEST_DAMAGES, *NEWEST_DAMAGES)
    return {"do": "damage", "kind": random.choice(kinds), "place": round(random.random(), 4)}


def drawn_history(seed: int) -> Step:
    """A history of a seed, for any release."""
    random = Random(seed)
    conf = drawn_conf(random)
    steps = drawn_steps(
        random, random.choice((6, 12, 25, 50)), is_newer=seed >= NEWER_SEEDS, is_newest=seed >= NEWEST_SEEDS
    )
    return {"seed": seed, "conf": conf, "steps": steps}


#: Damage to files that a broker with consume queues in RocksDB has too.
_WITHOUT_QUEUES = ("flipped byte of the log", "no checkpoint", "abort", "no abort", "own place of a record", "no index",
                   "older checkpoint")
#: Releases that can keep transactions in RocksDB.
ROCKSDB_RELEASES = ("5.4.0", "5.5.0")


def with_rocksdb(history: Step) -> Step:
    """A history on a broker that keeps transactions in RocksDB."""
    return {**history, "conf": history["conf"] | TRANSACTIONS_IN_ROCKSDB}


#: Releases that can keep consume queues in RocksDB and that the machine starts.
ROCKSDB_QUEUE_RELEASES = ("5.2.0", "5.3.3", "5.4.0", "5.5.0")


def with_rocksdb_queues(history: Step) -> Step:
    """A history on a broker that keeps consume queues in RocksDB, without damage to files that it does not have."""
    left = [step for step in history["steps"] if step["do"] != "damage" or step["kind"] in _WITHOUT_QUEUES]
    return {**history, "conf": history["conf"] | QUEUES_IN_ROCKSDB, "steps": left}


#: The steps of a small world with two transactions.
_SMALL: tuple[Step, ...] = (
    {
        "do": "half", "number": 1, "group": "orders", "topic": "TopicA", "properties": {}, "body_bytes": 8,
        "has_id": True,
    },
    {"do": "end", "number": 0, "decision": "commit", "named": "newest", "is_check": False},
    {"do": "end", "number": 0, "decision": "rollback", "named": "newest", "is_check": False},
    {"do": "end", "number": 1, "decision": "rollback", "named": "newest", "is_check": False},
    {"do": "end", "number": 0, "decision": "commit", "named": "first", "is_check": True},
    {"do": "check", "answers": ["none"]},
    {"do": "check", "answers": ["commit", "none"]},
    {"do": "batch"},
    {"do": "kill", "lost": 0.0},
    {"do": "kill", "lost": 1.0},
    {"do": "restart", "conf": None},
)
_SMALL_CONF = {
    "transactionTimeOut": "6000", "transactionCheckMax": "2", "transactionCheckInterval": "30000",
    "fileReservedTime": "72",
}
_ENDS: tuple[Step, ...] = ({"do": "stop"}, {"do": "end by kill"})


def small_count(length: int) -> int:
    """The number of histories of the small world with so many steps."""
    return len(_ENDS) * int(len(_SMALL) ** length)


def small_history(number: int, length: int) -> Step:
    """One of all histories of the small world: a half message, `length` steps ten seconds apart, a stop or a kill."""
    left, end = divmod(number, len(_ENDS))
    steps: list[Step] = [{**_SMALL[0], "number": 0}]
    for _ in range(length):
        left, chosen = divmod(left, len(_SMALL))
        steps += [{"do": "wait", "ms": 10_000}, _SMALL[chosen]]
    return {"seed": number, "conf": _SMALL_CONF, "steps": [*steps, _ENDS[end]]}
