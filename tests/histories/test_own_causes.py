"""Causes of a transaction are compared with what happened to it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.histories.comparing import Compared, compare_own_causes
from tests.histories.truth import Transaction, Truth


def _differences(
    causes: list[str], happened: list[str] | None, accepted: list[tuple[str, int]], discarded: Sequence[int] = ()
) -> list[str]:
    """A half message with the number 3, whose op message was written."""
    one = Transaction(7, "orders", "TopicA", "A", copies=[(3, 900)], accepted=accepted, happened=happened)
    one.discarded.extend(discarded)
    truth = Truth("5.3.3", {}, 0, [], 0, [one], op_numbers=[3], happened=["stop"])
    result = Compared()
    compare_own_causes(result, truth, one, {"causes": causes})
    return result.differences


def test_a_certain_cause_needs_its_event() -> None:
    once = [("commit", 3)]
    assert _differences(["decision-names-old-copy"], [], once)
    assert not _differences(["decision-names-old-copy"], ["old copy decided"], once)
    assert not _differences(["decision-names-old-copy?"], [], once)
    assert not _differences(["decision-names-old-copy"], ["asked with its op message in memory"], once)
    assert _differences(["no-decision-in-time"], [], once)
    assert not _differences(["no-decision-in-time"], ["decided after discard"], [("rollback", 3)], discarded=[1_200])
    assert _differences(["ops-lost-at-stop"], [], once)


def test_what_records_show_must_be_given_with_certainty_or_not() -> None:
    twice = [("commit", 3), ("commit", 3)]
    assert _differences([], ["decided twice"], twice)
    assert not _differences(["decided-twice?"], ["decided twice"], twice)
    assert _differences([], ["decided after discard"], [("commit", 3)])
    assert not _differences([], [], [("commit", 3)])
    assert _differences([], [], [("commit", 4)]) == [], "a copy that is not the newest"


def test_nothing_is_compared_where_the_events_are_not_known() -> None:
    assert not _differences(["no-decision-in-time"], None, [("commit", 3)])


def test_an_op_message_of_another_decision_with_the_number_of_an_old_copy_looks_like_its_own() -> None:
    one = Transaction(7, "orders", "TopicA", "A", copies=[(3, 900), (5, 1_900)], happened=[])
    other = Transaction(8, "orders", "TopicA", "B", copies=[(4, 1_200)], accepted=[("rollback", 3)], happened=[])
    for others, differing in (([], 1), ([other], 0)):
        truth = Truth("4.9.7", {}, 0, [], 0, [one, *others], op_numbers=[3], happened=["stop"])
        result = Compared()
        compare_own_causes(result, truth, one, {"causes": ["decision-names-old-copy"]})
        assert len(result.differences) == differing
