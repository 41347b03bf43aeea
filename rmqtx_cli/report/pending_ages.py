"""Ages of pending transactions by producer group, counted in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Int64s, int64s
from rmqtx.verdicts.model.verdict_words import State

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
#: The lower bound of each class of ages, and its name.
CLASSES: dict[int, str] = {
    0: "under 10 s", 10 * _S: "10 s to 1 m", _M: "1 to 10 m", 10 * _M: "10 m to 1 h", _H: "1 to 6 h",
    6 * _H: "6 h to 1 d", _D: "1 to 3 d", 3 * _D: "3 to 30 d", 30 * _D: "30 d and more",
}  # fmt: skip
_BOUNDS = np.array(list(CLASSES), np.int64)


@dataclass(slots=True)
class GroupAges:
    """The pending transactions of a producer group. Shape: `counts`: by class of age. Unknown ages are in no class."""

    pending_count: int = 0
    first_sent_ms: int | None = None
    oldest_age_ms: int | None = None
    counts: Int64s = field(default_factory=lambda: np.zeros(len(CLASSES), np.int64))


@dataclass(slots=True)
class PendingAges:
    """The pending transactions seen so far.

    Shape: `reference_ms`: by store, the time at which ages are taken: when its broker stopped, or now.
    """

    now_ms: int
    reference_ms: Mapping[str, int]
    groups: dict[str | None, GroupAges] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the pending transactions of a batch."""
        rows = batch.filter(pc.equal(batch["state"], State.PENDING))
        if not rows.num_rows:
            return
        stores = rows["store"].dictionary_encode()
        references = np.array([self.reference_ms.get(name, self.now_ms) for name in stores.dictionary.to_pylist()])
        groups = rows["producer_group"].dictionary_encode("encode")
        sent_ms, known = int64s(rows["half_store_time_ms"]), np.asarray(rows["half_store_time_ms"].is_valid())
        ages = np.maximum(references[int64s(stores.indices)] - sent_ms, 0)
        for number, name in enumerate(groups.dictionary.to_pylist()):
            mine = int64s(groups.indices) == number
            self._add_group(name, int(mine.sum()), sent_ms[mine & known], ages[mine & known])

    def _add_group(self, name: str | None, count: int, sent_ms: Int64s, ages: Int64s) -> None:
        found = self.groups.setdefault(name, GroupAges())
        found.pending_count += count
        if not len(ages):
            return
        found.counts += np.bincount(np.searchsorted(_BOUNDS, ages, "right") - 1, minlength=len(CLASSES))
        found.first_sent_ms = min(int(sent_ms.min()), found.first_sent_ms or int(sent_ms.min()))
        found.oldest_age_ms = max(int(ages.max()), found.oldest_age_ms or 0)
