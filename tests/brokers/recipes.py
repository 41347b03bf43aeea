"""The stores of the corpus: for each name the version, the histories and what is unusual in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.brokers.maven import VERSIONS
from tests.brokers.stage import DEFAULT_TOPICS, Script

ALWAYS: Mapping[str, int] = {
    "commit": 16, "rollback": 8, "commit_at_check_1": 4, "commit_at_check_2": 3, "rollback_at_check_1": 3, "rollback_at_check_2": 2,
    "local_transaction_throws": 1, "never_answered": 3, "producer_group_gone": 2, "immunity": 4, "compressed": 4, "bare": 4,
    "foreign_words": 6, "many_keys": 3, "ordinary": 12, "batch": 3, "without_id": 2, "late_commit": 2, "late_rollback": 2,
    "late_commit_then_commit": 2, "late_rollback_then_commit": 1, "late_rollback_then_rollback": 1, "double_commit": 2,
    "triple_commit": 1, "commit_after_rollback": 2, "rollback_after_commit": 1, "commit_after_discard": 2,
    "rollback_after_discard": 1,
}  # fmt: skip
"""What every version can do."""
ENDING: Mapping[str, int] = {
    "pending": 8, "pending_immune": 2, "pending_late_commit": 2, "pending_late_rollback": 2, "pending_without_id": 1,
}  # fmt: skip
"""What is open when the broker stops."""
REREADING: Mapping[str, int] = {"compressed_checked": 4}
"""A compressed half survives being put back (4.6 and later)."""
RESUMING: Mapping[str, int] = {"resumed_then_commit": 2, "resumed_then_discarded": 1, "pending_resumed": 2}
"""Request 323 (4.5.2 and later)."""


@dataclass(frozen=True)
class Recipe:
    """One store."""

    name: str
    about: str
    script: Script = field(repr=False)


def release(version: str) -> tuple[int, ...]:
    """A version as numbers."""
    return tuple(int(part) for part in version.split("."))


def common(version: str) -> dict[str, int]:
    """The common histories of a version."""
    newer = {**RESUMING, **REREADING} if release(version) >= (4, 6) else {}
    return {**ALWAYS, **newer, **ENDING}


def halved(histories: Mapping[str, int]) -> dict[str, int]:
    """The same histories, about half as many transactions."""
    return {name: (count + 1) // 2 for name, count in histories.items()}


def recipes(seed: int | None = None) -> dict[str, Recipe]:
    """Every store of the corpus by name; a seed other than the usual ones gives stores of the same kinds."""
    made: dict[str, Recipe] = {}

    def add(name: str, about: str, version: str, histories: Mapping[str, int], **more: object) -> None:
        usual = 1000 + len(made)
        script = Script(version, usual if seed is None else seed, dict(histories), **more)  # type: ignore[arg-type]
        made[name] = Recipe(name, about, script)

    for version in VERSIONS:
        five = release(version) >= (5, 0)
        add(f"common-{version}", "Every common history; stopped cleanly.", version, {**common(version), "pending_never_checked": 3})
        ending = {**halved(common(version)), **({"op_batch_lost": 6} if five else {})}
        lost = "; the op batch of the last decisions was lost with it" if five else ""
        add(f"killed-{version}", f"Every common history; the broker was killed (SIGKILL){lost}.", version, ending, stop="kill")
        add(
            f"fifteen-{version}", "One transaction, never answered, checked fifteen times, then discarded.", version,
            {"fifteen_checks": 1}, conf={"transactionCheckMax": "15", "transactionTimeOut": "1000"},
        )  # fmt: skip
    return made


LONG = "a_topic_of_more_than_one_hundred_and_twenty_seven_bytes_"
Maker = Callable[[], None]
TOPICS = DEFAULT_TOPICS
