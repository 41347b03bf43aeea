"""The prediction of a broker's check: when it discards each half copy, or why it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from readers.model.columns import Bools, Int64s

#: The default file reservation of 72 hours, at a round every 30 seconds, ends every half before this.
ROUNDS_MAX = 10_000
#: The most halves that are played one by one, which is necessary if a record hinders the check.
PLAYED_HALVES_MAX = 5_000


class Why(NamedTuple):
    """Why nothing will discard a transaction; without `is_known`: why there is no prediction, though it may happen."""

    text: str
    is_known: bool = True


NOT_BEFORE = Why("the check will reach no readable copy of it")
OUT_OF_REACH = Why("the check is stopped at this half message or at an earlier message")
NEVER_DISCARDED = Why("brokers 3.0 and 3.1 check it without a limit and never discard it")
NO_SLOT = Why("it has no slot of its own in the state table: the broker neither checks nor discards it")
NEVER_ASKED = Why("brokers from 3.2 on have no check for prepared records: they neither check nor discard it")
SLAVE = Why("this broker is a slave and checks nothing; its master may discard it", is_known=False)
NO_HALF_QUEUE = Why("its half queue is missing, so the check reads nothing")
ENDLESS = Why(f"the check would put it back at least {ROUNDS_MAX} times")
PAST = Why("deadlines are not predicted for a past time", is_known=False)
NO_CURSOR = Why("the check cursor is unknown", is_known=False)
ROCKSDB_QUEUES = Why("its half queue is in RocksDB, and the check of these queues is not simulated", is_known=False)
DIVERTED = Why(
    "it has a delay or timer property: each copy of it waits in another topic first, which is not simulated",
    is_known=False,
)
TOO_MANY = Why(
    f"a record hinders the check and more than {PLAYED_HALVES_MAX} halves are open, which takes long to predict: run "
    "rmqtx simulate STORE --show transactions", is_known=False,
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the check of one broker will do with the half copies that it has not reached yet.

    Shape: `offsets` are the commit-log offsets of the copies that it will discard, ascending; the other arrays have the
           same order: the time, how many times the copy is put back before, whether its age is the cause, and whether
           it may happen one round later. `whys`: by commit-log offset, why a copy is not discarded; `why`: the same for
           all other copies.
    """

    is_running: bool = False
    begin_ms: int = 0
    offsets: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    times_ms: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    checks_to_come: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    are_expired: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    may_be_later: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    whys: Mapping[int, Why] = field(default_factory=dict, repr=False)
    why: Why = NOT_BEFORE
