"""What is foretold of a broker's check: when it gives up on each half copy, or why it does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from readers.model.columns import Bools, Int64s

#: The default file reservation of 72 hours, at a round every 30 seconds, ends every half before this.
ROUNDS_MAX = 10_000
#: So many halves are played one by one where the check has something in its way; more would take too long.
PLAYED_HALVES_MAX = 5_000


class Why(NamedTuple):
    """Why nothing will discard a transaction; not `is_known`: why nothing is foretold of it, though something may."""

    text: str
    is_known: bool = True


NOT_BEFORE = Why("the check has no copy of it before it that it can read")
OUT_OF_REACH = Why("the check is stopped before it, and never comes to it")
ASKED_FOR_EVER = Why("the timer of 3.0 and 3.1 asks for it again and again, without a limit")
NO_SLOT = Why("no slot of the state table is its own: nothing ever asks for it, or gives up on it")
NEVER_ASKED = Why("brokers from 3.2 on have no check for prepared records: nothing ever asks for it, or gives up on it")
SLAVE = Why("this broker is a slave, whose check does nothing; its master may discard it", is_known=False)
NO_HALF_QUEUE = Why("its half queue is missing, so the check reads nothing")
ENDLESS = Why(f"the check would put it back {ROUNDS_MAX} times and more")
PAST = Why("as of a past time nothing is foretold", is_known=False)
NO_CURSOR = Why("where the check stands is not known", is_known=False)
ROCKSDB_QUEUES = Why("its half queue is in RocksDB, and the check of such a queue is not simulated", is_known=False)
DIVERTED = Why(
    "it carries a delay or a timer: each copy of it waits in another topic first, which is not simulated",
    is_known=False,
)
TOO_MANY = Why(
    f"the check has something in its way, and more than {PLAYED_HALVES_MAX} halves are open: rmqtx simulate STORE "
    "--show transactions takes the time", is_known=False,
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the check of one broker will do with the half copies that it has before it.

    Shape: `offsets` are commit-log offsets of those that it gives up on, ascending; at the same places stand the time,
           the number of times that it puts each back before, whether its age is what ends it, and whether it may also
           come a round later. `whys`: why it does not, by commit-log offset of others; `why` of all the rest.
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
