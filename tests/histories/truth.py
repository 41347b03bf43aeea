"""What happened in a history, and what its store's broker did next: the truth, as values and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

#: A queue offset and a commit-log offset.
Place = tuple[int, int]


class Written(NamedTuple):
    """A record that a round wrote; `number`: the transaction whose message it carries."""

    commit_log_offset: int
    topic: str
    number: int | None


@dataclass(slots=True)
class Transaction:
    """What happened to one transaction.

    Shape: `copies`: its half copies, oldest first. `accepted`: decisions that the broker accepted, with the queue
           offset that they named. `delivered`, `discarded`: places of such records. `dropped`: places of the copies
           that a check discarded, with a record of it or without one. `happened`: the kinds of events of its own that
           causes need, as far as they are known, else None.
    """

    number: int
    group: str
    topic: str
    unique_key: str | None
    copies: list[Place] = field(default_factory=list)
    accepted: list[tuple[str, int]] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    happened: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """One round of the check: who was asked for which copy, what was written, and where the cursors are then."""

    begin_ms: int
    end_ms: int
    asked: list[Place]
    written: list[Written]
    discarded: list[Place]
    half_cursor: int
    op_cursor: int
    half_end: int


@dataclass(slots=True)
class Truth:
    """A history's end.

    Shape: `conf`: the broker's settings. `now_ms`: when its store is read, and when the broker starts again.
           `damages`: what happened to the files. `log_begin`: the first place of the log. `op_numbers`: the queue
           offsets that op messages in the log name. `happened`: the kinds of events that causes need, as far as they
           are known, else None. `refusal`: why the release does not start. `rounds`: what it did.
    """

    version: str
    conf: dict[str, str]
    now_ms: int
    damages: list[str]
    log_begin: int
    transactions: list[Transaction]
    op_numbers: list[int]
    happened: list[str] | None = None
    refusal: str | None = None
    rounds: list[Observed] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return a value for JSON."""
        return asdict(self) | {"rounds": [asdict(one) for one in self.rounds]}


def truth_of(value: dict[str, Any]) -> Truth:
    """Return the truth of a value from JSON."""
    transactions = [
        Transaction(**one | {name: [(a, b) for a, b in one[name]] for name in ("copies", "accepted")})
        for one in value["transactions"]
    ]
    rounds = [
        Observed(**one | {
            "asked": [(a, b) for a, b in one["asked"]], "discarded": [(a, b) for a, b in one["discarded"]],
            "written": [Written(*record) for record in one["written"]],
        })
        for one in value["rounds"]
    ]
    return Truth(**value | {"transactions": transactions, "rounds": rounds})
