"""Causes of whole producer groups: other transactions of the group decide whether it has them.

What a group has is known only after its last transaction: counts are kept by group until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.verdicts.causes.cause import NONE
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.shared_groups import addressed, answers_by, members_of
from rmqtx.verdicts.causes.strengths import CAUSES
from rmqtx.verdicts.model.group_habits import Habits, Members

EXAMPLES_MAX = 3


class Example(TypedDict):
    """A transaction that a cause explains; the offset of its first half copy is null if it has none."""

    transaction_id: str
    half_commit_log_offset: int | None


@dataclass(slots=True)
class Count:
    """What one cause has in one store with one strength.

    Shape: `open_points`: what would decide whether they have the cause. `rivals`: causes that also fit some of them.
    """

    transactions: int = 0
    half_copies: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    examples: list[Example] = field(default_factory=list)
    open_points: dict[str, None] = field(default_factory=dict)
    rivals: set[str] = field(default_factory=set)

    def add(
        self, found: Evidence, chosen: Int64s, open_points: Iterable[str] = (), rivals: Iterable[str] = ()
    ) -> None:
        """Count the transactions with some numbers."""
        times = found.half_store_time_ms[chosen]
        known = times[times >= 0]
        self.merge(Count(
            len(chosen), int(found.copies_count[chosen].sum()), int(known.min()) if known.size else None,
            int(known.max()) if known.size else None, _examples(found, chosen),
            dict.fromkeys(point for point in open_points if point), set(rivals),
        ))

    def merge(self, other: Count) -> None:
        """Add another count."""
        self.transactions += other.transactions
        self.half_copies += other.half_copies
        self.first_ms = min((one for one in (self.first_ms, other.first_ms) if one is not None), default=None)
        self.last_ms = max((one for one in (self.last_ms, other.last_ms) if one is not None), default=None)
        self.examples = sorted([*self.examples, *other.examples], key=_place)[:EXAMPLES_MAX]
        self.open_points |= other.open_points
        self.rivals |= other.rivals


def _examples(found: Evidence, chosen: Int64s) -> list[Example]:
    """Return the chosen transactions with the lowest offsets of their first half copies."""
    offsets = found.first_copy_offset
    lowest = chosen[np.argsort(offsets[chosen], kind="stable")[:EXAMPLES_MAX]]
    names = found.rows["transaction_id"].take(pa.array(lowest)).to_pylist()
    return [
        {"transaction_id": name, "half_commit_log_offset": int(offset) if count else None}
        for name, offset, count in zip(names, offsets[lowest], found.copies_count[lowest], strict=True)
    ]


def _place(example: Example) -> tuple[bool, int, str]:
    """Order examples by place; those without a half copy come last."""
    offset = example["half_commit_log_offset"]
    return offset is None, offset or 0, example["transaction_id"]


#: With fewer transactions a group does not show a habit.
_TRANSACTIONS_MIN = 5


#: The causes of whole producer groups.
GROUP_CAUSES = tuple(word for word, cause in CAUSES.items() if cause.contradicted is not None)


def habits_of(found: Evidence) -> Habits:
    """Count the transactions that fit the causes of whole producer groups, and those that contradict them.

    Shape: the rows have NEEDED_COLUMNS. Habits of several tables add up.
    """
    habits = Habits()
    if found.count and found.stores:
        habits.add_members(members_of(found))
        for word in GROUP_CAUSES:
            cause = CAUSES[word]
            assert cause.contradicted is not None
            for is_against, chosen in ((False, cause.rule(found) > NONE), (True, cause.contradicted(found))):
                for store, group, numbers in _by_group(found, chosen):
                    habits.counts[store, word, group, is_against] += len(numbers)
    return habits


def group_causes(habits: Habits) -> list[tuple[str, str, str, int]]:
    """Return store, cause, producer group and number of transactions where a group has a cause of whole groups."""
    return sorted(
        (store, word, group, count) for (store, word, group, is_against), count in habits.counts.items()
        if not is_against and not habits.counts[store, word, group, True]
        and _is_enough(word, count, habits.members.get((store, group)))
    )


def _is_enough(word: str, count: int, members: Members | None) -> bool:
    """Whether a group has a cause that a number of its transactions fit, and that none contradicts."""
    of_group = CAUSES[word].of_group
    if of_group is None:
        return count >= _TRANSACTIONS_MIN
    return count > 0 and members is not None and of_group(members)


@dataclass(slots=True)
class _Answered:
    """Transactions whose last answer the log shows. Shape: `unexplained`: those that no other cause explains."""

    count: Count = field(default_factory=Count)
    unexplained: int = 0


@dataclass(slots=True)
class _Held:
    """What one group has.

    Shape: `answered`: the transactions whose last answer the log shows, by topic and the address of the client that
           gave it; `count`: the others. `usual`, `unexplained`, `waiting`: transactions that are counted in another
           way if the group has the cause.
    """

    count: Count = field(default_factory=Count)
    is_contradicted: bool = False
    answered: dict[tuple[str, str], _Answered] = field(default_factory=dict)
    usual: int = 0
    unexplained: int = 0
    waiting: int = 0

    @property
    def transactions(self) -> int:
        return self.count.transactions + sum(one.count.transactions for one in self.answered.values())


@dataclass(slots=True)
class GroupCauses:
    """Counts by store, cause and producer group; memory grows with the number of groups, and of their producers.

    Shape: `explained_count`: transactions that only a cause of their group explains; `usual_count`: those that are
           unusual only by one; `unexplained_count`: unusual ones that have no other cause; `waiting_count`: those of
           the usual ones that would count as waiting.
    """

    _held: dict[tuple[str, str, str], _Held] = field(default_factory=dict)
    _habits: Habits = field(default_factory=Habits)

    def add(self, found: Evidence, explained: Bools, usual: Bools, unexplained: Bools, waiting: Bools) -> None:
        """Add judged transactions.

        `explained`, `usual`, `unexplained`, `waiting`: those that another cause explains, are not unusual, have no
        cause, or only wait, without causes of whole groups.
        """
        self._habits.add_members(members_of(found))
        for word in GROUP_CAUSES:
            cause = CAUSES[word]
            assert cause.contradicted is not None
            for store, group, chosen in _by_group(found, cause.contradicted(found)):
                self._of(store, word, group).is_contradicted |= bool(len(chosen))
            for store, group, chosen in _by_group(found, cause.rule(found) > NONE):
                held = self._of(store, word, group)
                if held.is_contradicted:
                    continue
                if cause.of_group is not None:
                    for row, address, _, _, topic in addressed(found, chosen, answers_by(found)):
                        one = held.answered.setdefault((address, topic), _Answered())
                        one.count.add(found, np.array([row]))
                        one.unexplained += not explained[row]
                    others = chosen[answers_by(found)[chosen] < 0]
                else:
                    others = chosen
                held.count.add(found, others)
                held.usual += int(usual[chosen].sum())
                held.unexplained += int(unexplained[chosen].sum())
                held.waiting += int(waiting[chosen].sum())

    def _of(self, store: str, word: str, group: str) -> _Held:
        return self._held.setdefault((store, word, group), _Held())

    def _holding(self) -> Iterator[tuple[str, str, str, _Held]]:
        for (store, word, group), held in self._held.items():
            members = self._habits.members.get((store, group))
            if not held.is_contradicted and _is_enough(word, held.transactions, members):
                yield store, word, group, held

    def counts(self) -> Iterator[tuple[str, str, Count, Count]]:
        """Yield store, cause and counts of the groups that have a cause: what it could explain, and what it explains.

        It explains what the log shows to be answered by a client of another application.
        """
        for store, word, group, held in self._holding():
            possible, proven = Count(), Count()
            possible.merge(held.count)
            foreign = self._foreign(store, group, held)
            for key, one in held.answered.items():
                (proven if key in foreign else possible).merge(one.count)
            yield store, word, possible, proven

    def _foreign(self, store: str, group: str, held: _Held) -> set[tuple[str, str]]:
        members = self._habits.members[store, group]
        return {(address, topic) for address, topic in held.answered if members.is_foreign(address, topic)}

    @property
    def explained_count(self) -> int:
        """See `GroupCauses`."""
        return sum(
            held.answered[key].unexplained
            for store, _, group, held in self._holding() for key in self._foreign(store, group, held)
        )

    @property
    def usual_count(self) -> int:
        """See `GroupCauses`."""
        return sum(held.usual for *_, held in self._holding())

    @property
    def unexplained_count(self) -> int:
        """See `GroupCauses`."""
        return sum(held.unexplained for *_, held in self._holding())

    @property
    def waiting_count(self) -> int:
        """See `GroupCauses`."""
        return sum(held.waiting for *_, held in self._holding())


def _by_group(found: Evidence, rows: Bools) -> Iterator[tuple[str, str, Int64s]]:
    """Yield store and producer group of chosen transactions, with the numbers of those transactions."""
    groups, codes = found.words("producer_group")
    chosen = np.flatnonzero(rows & (codes >= 0) & (found.store >= 0))
    keys = found.store[chosen] * len(groups) + codes[chosen]
    order = np.argsort(keys, kind="stable")
    for part in np.split(chosen[order], np.flatnonzero(np.diff(keys[order])) + 1) if len(chosen) else ():
        yield found.names[found.store[part[0]]], groups[codes[part[0]]], part
