"""What a check that is stopped does not come to: which transactions nobody will ever be asked for.

Where it stops is `check_stops.py`'s to say. A copy is asked for if it stands before that place; what comes later, a
half that was diverted by a delay or that is resumed among it, goes behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from readers.columns import Bools

if TYPE_CHECKING:
    from readers.transactions import Judgement


class CheckReach:
    """How far the checks of the stores come, for each transaction of a judgement.

    Shape: `is_stopped`: the check of its store comes no further than some place, `places` says where, in words.
           `is_never_asked`: the check has a copy before it, and comes to none. Both are False for those in designs
           beside the half topic: other loops ask for them.
    """

    def __init__(self, judged: Judgement) -> None:
        count = judged.chains.count
        self.is_stopped: Bools = np.zeros(count, np.bool_)
        self.is_never_asked: Bools = np.zeros(count, np.bool_)
        self.places: npt.NDArray[np.object_] = np.full(count, "", np.object_)
        stopped = [view for view in judged.views.values() if view.check_stops]
        if not stopped:
            return
        halves, others = judged.halves, judged.others
        queue_ids, queue_offsets = halves.integers("queue_id"), halves.integers("queue_offset")
        stores = np.asarray(pc.fill_null(judged.store, ""))
        is_beside = judged.newest_is(others.is_other)
        is_open = judged.is_open_per_copy & ~others.is_other
        is_behind: Bools = np.zeros(len(halves), np.bool_)
        for view in stopped:
            here = np.asarray(pc.equal(halves.table["store"], view.store))
            mine = (stores == view.store) & ~is_beside
            for stop in view.check_stops:
                in_queue = here & (queue_ids == stop.queue_id) & (queue_offsets >= stop.reach_end)
                is_behind |= np.where(judged.is_in_half_topic, in_queue, here)
                self.is_stopped |= mine
                self.places[mine] = stop.place
        is_unreached = halves.any_of(is_open & is_behind) & ~halves.any_of(is_open & ~is_behind)
        self.is_never_asked = self.is_stopped & is_unreached & ((judged.state == "PENDING") | judged.is_closable)
