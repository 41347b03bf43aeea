"""What a check that is stopped does not come to: which transactions the broker never asks for.

Where it stops is `check_stops.py`'s to say. A copy is asked for if it stands before that place; what comes later, a
half that was diverted by a delay or that is resumed among it, goes behind it.
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
    """How far the checks of the stores come, for each transaction of a judgement.

    Shape: `is_stopped`: the check of its store comes no further than some place, `places` says where, in words.
           `is_never_asked`: the check has a copy before it, and comes to none. `is_spent`: it comes to copies that had
           all their checks alone, and gives them up without asking. All are False for those in designs beside the half
           topic: other loops ask for them.
    """

    def __init__(self, judged: Judgement) -> None:
        count = judged.chains.count
        self.is_stopped: Bools = np.zeros(count, np.bool_)
        self.places: npt.NDArray[np.object_] = np.full(count, "", np.object_)
        halves, others = judged.halves, judged.others
        is_open = judged.is_open_per_copy & ~others.is_other
        is_behind = self._behind_stops(judged)
        is_reached = halves.any_of(is_open & ~is_behind)
        is_next = halves.any_of(is_open & ~is_behind & judged.is_in_half_topic)  # none that still waits for its time
        is_pending = judged.state == "PENDING"
        is_unreached = halves.any_of(is_open & is_behind) & ~is_reached
        self.is_never_asked: Bools = self.is_stopped & is_unreached & (is_pending | judged.is_asked_still)
        is_left = halves.any_of(is_open & ~is_behind & ~_are_spent(judged))
        self.is_spent: Bools = is_pending & is_next & ~is_left & ~judged.newest_is(others.is_other)

    def _behind_stops(self, judged: Judgement) -> Bools:
        """Half copies that stopped checks do not come to."""
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
