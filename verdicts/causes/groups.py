"""Causes of whole producer groups: one transaction that contradicts the cause excludes it for its group.

What a group has is known only after its last transaction: counts are kept by group until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from readers.model.columns import Bools, Int64s, int64s
from verdicts.causes.cause import NONE
from verdicts.causes.counting import Count
from verdicts.causes.evidence import Evidence
from verdicts.causes.register import CAUSES
from verdicts.model.reading import Habits
from verdicts.model.store_evidence import StoreEvidence

#: With fewer transactions a group does not show a habit.
_TRANSACTIONS_MIN = 5


#: The causes of whole producer groups.
GROUP_CAUSES = tuple(word for word, cause in CAUSES.items() if cause.contradicted is not None)


def habits_of(rows: pa.Table, stores: Mapping[str, StoreEvidence]) -> Habits:
    """Count the transactions that fit the causes of whole producer groups, and those that contradict them.

    Shape: `rows` has NEEDED_COLUMNS. Habits of several tables add up.
    """
    counted: Habits = Counter()
    if rows.num_rows and stores:
        found = Evidence(rows, stores)
        for word in GROUP_CAUSES:
            cause = CAUSES[word]
            assert cause.contradicted is not None
            for is_against, chosen in ((False, cause.rule(found) > NONE), (True, cause.contradicted(found))):
                for store, group, numbers in _by_group(found, chosen):
                    counted[store, word, group, is_against] += len(numbers)
    return counted


def group_causes(habits: Habits) -> list[tuple[str, str, str, int]]:
    """Return store, cause, producer group and number of transactions where a group has a cause of whole groups."""
    return sorted(
        (store, word, group, count) for (store, word, group, is_against), count in habits.items()
        if not is_against and count >= _TRANSACTIONS_MIN and not habits[store, word, group, True]
    )


@dataclass(slots=True)
class _Held:
    """What one group has.

    Shape: `usual`, `unexplained`, `waiting`: transactions that are counted in another way if the group has the cause.
    """

    count: Count = field(default_factory=Count)
    is_contradicted: bool = False
    usual: int = 0
    unexplained: int = 0
    waiting: int = 0

    @property
    def holds(self) -> bool:
        return not self.is_contradicted and self.count.transactions >= _TRANSACTIONS_MIN


@dataclass(slots=True)
class GroupCauses:
    """Counts by store, cause and producer group; memory grows with the number of groups.

    Shape: `usual_count`: transactions that are unusual only by a cause of their group; `unexplained_count`: unusual
           ones that have no other cause; `waiting_count`: those of the usual ones that would count as waiting.
    """

    _held: dict[tuple[str, str, str], _Held] = field(default_factory=dict)

    def add(
        self, found: Evidence, word: str, rows: Bools, contradicted: Bools, usual: Bools, unexplained: Bools,
        waiting: Bools,
    ) -> None:
        """Add transactions that fit a cause, and those that contradict it.

        `usual`, `unexplained`, `waiting`: those that are not unusual, have no cause, or only wait, without it.
        """
        for store, group, chosen in _by_group(found, contradicted):
            self._of(store, word, group).is_contradicted |= bool(len(chosen))
        for store, group, chosen in _by_group(found, rows):
            held = self._of(store, word, group)
            if not held.is_contradicted:
                held.count.add(found, chosen)
                held.usual += int(usual[chosen].sum())
                held.unexplained += int(unexplained[chosen].sum())
                held.waiting += int(waiting[chosen].sum())

    def _of(self, store: str, word: str, group: str) -> _Held:
        return self._held.setdefault((store, word, group), _Held())

    def counts(self) -> Iterator[tuple[str, str, Count]]:
        """Yield store, cause and count of the groups that have a cause."""
        for (store, word, _), held in self._held.items():
            if held.holds:
                yield store, word, held.count

    @property
    def usual_count(self) -> int:
        """See `GroupCauses`."""
        return sum(held.usual for held in self._held.values() if held.holds)

    @property
    def unexplained_count(self) -> int:
        """See `GroupCauses`."""
        return sum(held.unexplained for held in self._held.values() if held.holds)

    @property
    def waiting_count(self) -> int:
        """See `GroupCauses`."""
        return sum(held.waiting for held in self._held.values() if held.holds)


def _by_group(found: Evidence, rows: Bools) -> Iterator[tuple[str, str, Int64s]]:
    """Yield store and producer group of chosen transactions, with the numbers of those transactions."""
    groups = found.rows["producer_group"].combine_chunks().dictionary_encode()
    codes = int64s(groups.indices, -1)
    chosen = np.flatnonzero(rows & (codes >= 0) & (found.store >= 0))
    keys = found.store[chosen] * len(groups.dictionary) + codes[chosen]
    order = np.argsort(keys, kind="stable")
    for part in np.split(chosen[order], np.flatnonzero(np.diff(keys[order])) + 1) if len(chosen) else ():
        yield found.names[found.store[part[0]]], groups.dictionary[int(codes[part[0]])].as_py(), part
