"""Which transactions a stopped check does not reach, so that the broker never checks them.

`check_stops.py` finds the place of the stop. The check reaches copies before it; later records, including halves that
were diverted by a delay or are resumed, are appended after it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from readers.model.columns import Bools
from verdicts.check.decisions import is_spent
from verdicts.check.state import check_settings
from verdicts.transactions.judgement import Judgement


class CheckReach:
    """How far the checks of the stores reach, for each transaction of a judgement.

    Shape: `is_stopped`: the check of its store is stopped, and `places` has the place as text. `is_never_asked`: it has
           open copies, and the check reaches none. `is_spent`: the check reaches only copies that had all their checks,
           and discards them without asking. All are False for designs beside the half topic, which have other loops.
    """

    def __init__(self, judged: Judgement) -> None:
        count = judged.chains.count
        self.is_stopped: Bools = np.zeros(count, np.bool_)
        self.places: npt.NDArray[np.object_] = np.full(count, "", np.object_)
        halves, others = judged.halves, judged.others
        is_open = judged.is_open_per_copy & ~others.is_other
        is_behind = self._behind_stops(judged)
        is_reached = halves.any_of(is_open & ~is_behind)
        is_next = halves.any_of(is_open & ~is_behind & judged.is_in_half_topic)  # not those that wait for their delay
        is_pending = judged.state.are("PENDING")
        is_unreached = halves.any_of(is_open & is_behind) & ~is_reached
        self.is_never_asked: Bools = self.is_stopped & is_unreached & (is_pending | judged.is_asked_still)
        is_left = halves.any_of(is_open & ~is_behind & ~_are_spent(judged))
        self.is_spent: Bools = is_pending & is_next & ~is_left & ~judged.newest_is(others.is_other)

    def _behind_stops(self, judged: Judgement) -> Bools:
        """Half copies that stopped checks do not reach."""
        halves = judged.halves
        is_behind: Bools = np.zeros(len(halves), np.bool_)
        stopped = [view for view in judged.views.values() if view.check_stops]
        if not stopped:
            return is_behind
        queue_ids, queue_offsets = halves.integers("queue_id"), halves.integers("queue_offset")
        stores = np.asarray(pc.fill_null(judged.store, ""))
        is_beside = judged.newest_is(judged.others.is_other)
        for view in stopped:
            here = np.asarray(pc.equal(halves.table["store"], view.store))
            mine = (stores == view.store) & ~is_beside
            for stop in view.check_stops:
                in_queue = here & (queue_ids == stop.queue_id) & (queue_offsets >= stop.reach_end)
                is_behind |= np.where(judged.is_in_half_topic, in_queue, here)
                self.is_stopped |= mine
                self.places[mine] = stop.place
        return is_behind


def _are_spent(judged: Judgement) -> Bools:
    """Half copies that had all their checks."""
    halves = judged.halves
    spent: Bools = np.zeros(len(halves), np.bool_)
    checks = halves.integers("checks_count", 0)
    for view in judged.views.values():
        here = np.asarray(pc.equal(halves.table["store"], view.store))
        spent |= here & (checks > 0) & is_spent(checks, check_settings(view.settings))
    return spent
