"""A store of many transactions with several diseases at once, made from a plan: how many transactions have which deed.

The deeds are mixed as a broker has them in its log, not one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from tests.forge.logs import Forge
from tests.forge.records import Message

CHECKS_MAX = 3
#: Transactions that are open at one time, and the time from one step of each to its next: a round of the check; at the
#: end less, because a check that runs would have reached them.
_AT_ONCE, _ROUND_MS, _LAST_MS = 50, 60_000, 300
Deed = Callable[[Forge, str], Iterator[None]]


def committed(forge: Forge, name: str) -> Iterator[None]:
    """Sent, committed, op message."""
    half = forge.half(name)
    yield
    forge.commit(half)
    forge.op(half)


def rolled_back(forge: Forge, name: str) -> Iterator[None]:
    """Sent, op message."""
    half = forge.half(name)
    yield
    forge.op(half)


def committed_at_check(forge: Forge, name: str) -> Iterator[None]:
    """Put back once, and the copy committed."""
    forge.half(name)
    yield
    copy = forge.half(name, checks=1)
    yield
    forge.commit(copy)
    forge.op(copy)


def decided_twice(forge: Forge, name: str) -> Iterator[None]:
    """The same copy committed by two requests."""
    half = forge.half(name)
    for _ in range(2):
        yield
        forge.commit(half)
        forge.op(half)


def old_copy_named(forge: Forge, name: str) -> Iterator[None]:
    """Put back, then committed by its old copy; checked on, and committed again."""
    half = forge.half(name)
    yield
    forge.half(name, checks=1)
    yield
    forge.commit(half)
    forge.op(half)
    yield
    newest = forge.half(name, checks=2)
    yield
    forge.commit(newest)
    forge.op(newest)


def op_late(forge: Forge, name: str) -> Iterator[None]:
    """Committed, put back before its op message was written, and committed again by the copy."""
    half = forge.half(name)
    yield
    forge.commit(half)
    copy = forge.half(name, checks=1)
    forge.op(half)
    yield
    forge.commit(copy)
    forge.op(copy)


def dropped(forge: Forge, name: str) -> Iterator[None]:
    """Checked to the end, and nothing written about its discard."""
    for checks in range(CHECKS_MAX + 1):
        forge.half(name, checks=checks or None)
        yield


def discarded(forge: Forge, name: str) -> Iterator[None]:
    """Checked to the end, and copied to the discard topic."""
    newest = forge.half(name)
    for checks in range(1, CHECKS_MAX + 1):
        yield
        newest = forge.half(name, checks=checks)
    yield
    forge.discard(newest)


def op_lost(forge: Forge, name: str) -> Iterator[None]:
    """At the end: committed, its op message only in memory."""
    half = forge.half(name)
    yield
    forge.commit(half)


def pending(forge: Forge, name: str) -> Iterator[None]:
    """At the end: sent."""
    forge.half(name)
    yield


@dataclass(frozen=True)
class Plan:
    """How many transactions have each deed; those of `at_end` follow all others, and the check has not reached them.

    `masks`: transactions that a decision on a COMMIT record hides from the check, and as many with that decision.
    """

    before: Mapping[Deed, int]
    at_end: Mapping[Deed, int]
    is_killed: bool = False
    masks: int = 0

    @property
    def count(self) -> int:
        """The number of transactions."""
        return sum(self.before.values()) + sum(self.at_end.values()) + 2 * self.masks


def build(root: Path, plan: Plan, seed: int = 7) -> Path:
    """Write the store; the ids begin with the name of the deed: of those of masks `masked` and `masking`."""
    forge, rng = Forge(root, segment_bytes=4 << 20), Random(seed)
    _mask(forge, plan.masks)
    _play(forge, plan.before, rng, _ROUND_MS)
    forge.now_ms += 60_000
    half_cursor, op_cursor = (forge.next_queue_offset(topic) for topic in (HALF_TOPIC, OP_TOPIC))
    _play(forge, plan.at_end, rng, _LAST_MS)
    forge.append(Message(topic="orders", body=b"last"))
    forge.write(half_cursor=half_cursor, op_cursor=op_cursor)
    if plan.is_killed:
        (root / "abort").touch()
    return root


def _mask(forge: Forge, count: int) -> None:
    """COMMIT names COMMIT records, whose queue offsets are those of half messages: these are never checked.

    They are the first records of the half queue, and the COMMIT records are the first of theirs.
    """
    for number in range(count):
        forge.half(f"masked-{number:06d}")
    finals = []
    for number in range(count):
        half = forge.half(f"masking-{number:06d}", topic="masks", real_queue=0)
        finals.append(forge.commit(half))
        forge.op(half)
    for final in finals:
        forge.commit(final)
        forge.op(final)


def _play(forge: Forge, deeds: Mapping[Deed, int], rng: Random, round_ms: int) -> None:
    """Begin transactions in random order, and go on with the open ones in between.

    `round_ms`: the time between two steps of a transaction, if many are open.
    """
    names = [deed for deed, count in deeds.items() for _ in range(count)]
    rng.shuffle(names)
    running: deque[Iterator[None]] = deque()
    for number, deed in enumerate(names):
        running.append(deed(forge, f"{deed.__name__}-{number:06d}"))
        while len(running) > _AT_ONCE:
            _step(forge, running, round_ms)
    while running:
        _step(forge, running, round_ms)


def _step(forge: Forge, running: deque[Iterator[None]], round_ms: int) -> None:
    """Go on with the transaction that waited longest."""
    forge.now_ms += round_ms // len(running)
    one = running.popleft()
    if next(one, running) is not running:
        running.append(one)
