"""What the transactions of a producer group have in common, as values that add up over parts of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: With more processes, ids do not name processes (random ids), or nothing can be kept of each.
SENDERS_MAX = 1_000
#: A process that sent fewer transactions does not show which topics its application has.
_SENT_MIN = 3
#: With fewer transactions a group does not show how its decisions come.
_DECISIONS_MIN = 3


@dataclass(slots=True)
class Sent:
    """What one process sent to one topic. Units: epoch milliseconds of the broker, -1 without any."""

    count: int = 0
    first_ms: int = -1
    last_ms: int = -1

    def add(self, other: Sent) -> None:
        """Add what it sent in another part of the store."""
        known = [one for one in (self.first_ms, other.first_ms) if one >= 0]
        self.count += other.count
        self.first_ms = min(known, default=-1)
        self.last_ms = max(self.last_ms, other.last_ms)


@dataclass(slots=True)
class Decisions:
    """How many transactions of one topic were decided in each way."""

    direct_commits: int = 0
    direct_rollbacks: int = 0
    commits_at_checks: int = 0
    rollbacks_at_checks: int = 0

    def add(self, other: Decisions) -> None:
        """Add those of another part of the store."""
        self.direct_commits += other.direct_commits
        self.direct_rollbacks += other.direct_rollbacks
        self.commits_at_checks += other.commits_at_checks
        self.rollbacks_at_checks += other.rollbacks_at_checks


@dataclass(slots=True)
class Members:
    """The producers of one group in one store.

    Shape: `senders`: by process, as ids of transactions name it, and topic; empty if there are more than SENDERS_MAX
           (`are_senders_unknown`). `decisions`: by topic. `addresses`: the topics of the transactions that a client
           with this address ended directly, as the logs of the broker show.
    """

    senders: dict[str, dict[str, Sent]] = field(default_factory=dict)
    decisions: dict[str, Decisions] = field(default_factory=dict)
    addresses: dict[str, set[str]] = field(default_factory=dict)
    are_senders_unknown: bool = False

    def add_sent(self, sender: str, topic: str, sent: Sent) -> None:
        """Add what a process sent to a topic."""
        if self.are_senders_unknown:
            return
        self.senders.setdefault(sender, {}).setdefault(topic, Sent()).add(sent)
        if len(self.senders) > SENDERS_MAX:
            self.forget_senders()

    def forget_senders(self) -> None:
        """Keep that there are too many."""
        self.senders.clear()
        self.are_senders_unknown = True

    def merge(self, other: Members) -> None:
        """Add those of another part of the store."""
        if other.are_senders_unknown:
            self.forget_senders()
        for sender, topics in other.senders.items():
            for topic, sent in topics.items():
                self.add_sent(sender, topic, sent)
        for topic, decisions in other.decisions.items():
            self.decisions.setdefault(topic, Decisions()).add(decisions)
        for address, names in other.addresses.items():
            self.addresses.setdefault(address, set()).update(names)

    def applications(self) -> list[frozenset[str]]:
        """Return the topics of each application, if the group has several at the same time; else nothing.

        One process that sends to two topics shows that both belong to one application.
        """
        parts = _joined([*self.senders.values(), *self.addresses.values()])
        spans = {}
        for topics in parts:
            mine = [
                sent for by_topic in self.senders.values()
                if sum(one.count for one in by_topic.values()) >= _SENT_MIN and not topics.isdisjoint(by_topic)
                for sent in by_topic.values()
            ]
            if mine:
                spans[topics] = min(one.first_ms for one in mine), max(one.last_ms for one in mine)
        return [
            topics for topics, (first, last) in spans.items()
            if any(first <= end and begin <= last for other, (begin, end) in spans.items() if other != topics)
        ]

    def has_foreign_answers(self) -> bool:
        """Whether what was not committed at checks may have been answered by another application of the group.

        If ids do not name processes, the decisions show it: all that came at once commit, those at checks roll back, on
        several topics.
        """
        if self.applications():
            return True
        if any(sum(one.count for one in topics.values()) >= _SENT_MIN for topics in self.senders.values()):
            return False
        total = Decisions()
        for one in self.decisions.values():
            total.add(one)
        if total.direct_rollbacks or total.commits_at_checks:
            return False
        rolled_back = {topic for topic, one in self.decisions.items() if one.rollbacks_at_checks}
        parts = _joined([*self.senders.values(), *self.addresses.values(), *([topic] for topic in rolled_back)])
        are_several = sum(not part.isdisjoint(rolled_back) for part in parts) > 1
        return are_several and min(total.direct_commits, total.rollbacks_at_checks) >= _DECISIONS_MIN

    def is_foreign(self, address: str, topic: str) -> bool:
        """Whether a client belongs to another application than the one that sends to a topic."""
        topics = self.addresses.get(address, set())
        parts = self.applications()
        return bool(topics) and any(topic in part for part in parts) and any(
            topics <= part and topic not in part for part in parts
        )


def _joined(parts: Iterable[Iterable[str]]) -> list[frozenset[str]]:
    """Return the sets of topics, those with a common topic as one."""
    found: list[set[str]] = []
    for part in parts:
        mine = set(part)
        for other in [one for one in found if not one.isdisjoint(mine)]:
            found.remove(other)
            mine |= other
        if mine:
            found.append(mine)
    return [frozenset(one) for one in found]


@dataclass(slots=True)
class Habits:
    """What groups have, while their transactions pass.

    Shape: `counts`: numbers of transactions, by store, cause, producer group, and whether they contradict the cause.
           `members`: by store and producer group.
    """

    counts: Counter[tuple[str, str, str, bool]] = field(default_factory=Counter)
    members: dict[tuple[str, str], Members] = field(default_factory=dict)

    def update(self, other: Habits) -> None:
        """Add those of another part of the stores."""
        self.counts.update(other.counts)
        self.add_members(other.members)

    def add_members(self, other: Mapping[tuple[str, str], Members]) -> None:
        """Add the members of another part of the stores."""
        for key, members in other.items():
            self.members.setdefault(key, Members()).merge(members)
