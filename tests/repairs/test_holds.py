"""Holds in a journal, the values that a hold sets, and the recheck of its receipts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rmqtx.readers.model.moments import HOUR_MS
from rmqtx.readers.store.broker_settings import BrokerSettings, settings_of_broker
from rmqtx.repairs.holds.changes import SPARE_MS, drain_settings, held_settings
from rmqtx.repairs.holds.open_halves import Forecast, OpenHalf
from rmqtx.repairs.holds.standing_holds import Hold, hold_rows, looks_drained, standing_holds
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.receipts import Receipt, SettingChange
from rmqtx.repairs.receipts.recheck import rechecked

NOW_MS = 1_795_388_400_000
CONF = {"transactionCheckMax": "15", "fileReservedTime": "72", "transactionCheckInterval": "30000"}
STORE = "a@h:1"


def settings(**changed: str) -> tuple[BrokerSettings, Mapping[str, str]]:
    conf = CONF | changed
    return settings_of_broker(conf, "V5_3_3"), conf


def half(age_hours: float = 0, checks: int = 0) -> OpenHalf:
    return OpenHalf("A", checks, NOW_MS - int(age_hours * HOUR_MS), None, is_at_once=False)


def held(
    *halves: OpenHalf, hours: float = 4, hold: Hold | None = None, unknown: str | None = None, **changed: str
) -> dict[str, tuple[str, str]]:
    found, conf = settings(**changed)
    until_ms = NOW_MS + int(hours * HOUR_MS)
    changes = held_settings(found, conf, Forecast(halves, unknown), hold, NOW_MS, until_ms)
    return {one.setting: (one.before, one.after) for one in changes}


def test_the_limit_is_at_least_a_million_and_lasts_as_long_as_the_hold() -> None:
    assert held(half()) == {"transactionCheckMax": ("15", "1000000")}
    assert held() == {"transactionCheckMax": ("15", "1000000")}
    rounds = (4 * HOUR_MS + SPARE_MS) // 30_000
    assert held(half(checks=999_990)) == {"transactionCheckMax": ("15", str(999_990 + rounds + 1))}
    assert held(half(checks=2_147_483_000)) == {"transactionCheckMax": ("15", "2147483647")}
    assert held(transactionCheckInterval="1", hours=1) == {"transactionCheckMax": ("15", str(25 * HOUR_MS + 1))}


@pytest.mark.parametrize("limit", ["1000000", "5000000", "2147483647"])
def test_a_limit_that_is_high_enough_stays(limit: str) -> None:
    assert held(half(), transactionCheckMax=limit) == {}


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_limit_that_discards_after_one_check_is_raised(limit: str) -> None:
    assert held(half(), transactionCheckMax=limit)["transactionCheckMax"] == (limit, "1000000")


@pytest.mark.parametrize(
    ("age_hours", "hours", "wanted"),
    [
        (67, 4, None),  # 71 h old at the end of the hold
        (68, 4, None),  # exactly fileReservedTime: not expired yet
        (68.001, 4, "97"),
        (71, 4, "99"),
        (200, 4, "228"),
        (0, 71, None),
        (0, 73, "97"),  # also what is sent now would expire
    ],
)
def test_file_reserved_time_is_raised_only_for_halves_near_it(
    age_hours: float, hours: float, wanted: str | None
) -> None:
    expected = {} if wanted is None else {"fileReservedTime": ("72", wanted)}
    assert held(half(), half(age_hours), hours=hours) == {"transactionCheckMax": ("15", "1000000"), **expected}


def drained(version: str = "V5_3_3", *, hold: Hold | None = None, **changed: str) -> dict[str, tuple[str, str]]:
    conf = CONF | {"rejectTransactionMessage": "false"} | changed
    changes = drain_settings(settings_of_broker(conf, version), conf, hold)
    return {one.setting: (one.before, one.after) for one in changes}


REJECTED = ("rejectTransactionMessage", "false", "true")
SHORTER = ("transactionOpBatchInterval", "3000", "100")


def test_a_drain_refuses_half_messages_and_shortens_the_wait_of_op_messages() -> None:
    both = {one[0]: one[1:] for one in (REJECTED, SHORTER)}
    assert drained(transactionOpBatchInterval="3000") == both
    assert drained("V5_1_0", transactionOpBatchInterval="3000") == both
    assert drained("V5_0_0", transactionOpBatchInterval="3000") == drained("V4_9_7") == {REJECTED[0]: REJECTED[1:]}
    for value in ("0", "1", "100"):
        assert drained(transactionOpBatchInterval=value) == {REJECTED[0]: REJECTED[1:]}
    assert drained(rejectTransactionMessage="true", transactionOpBatchInterval="100") == {}
    (hold,) = standing_holds([receipt(ActKind.DRAIN, ActOutcome.PROVED, REJECTED, SHORTER)]).values()
    again = drained(hold=hold, rejectTransactionMessage="true", transactionOpBatchInterval="100")
    assert again == {"rejectTransactionMessage": ("true", "true"), "transactionOpBatchInterval": ("100", "100")}


def test_a_drain_of_a_held_broker_keeps_the_end_and_the_reason_of_the_hold() -> None:
    first = receipt(ActKind.HOLD, ActOutcome.PROVED, RAISED)
    drain = receipt(ActKind.DRAIN, ActOutcome.PROVED, REJECTED)
    drain.reason = None
    (hold,) = standing_holds([first, drain]).values()
    assert (hold.until_ms, hold.reason, hold.is_drain) == (NOW_MS, first.reason, True)
    assert [one.setting for one in hold.settings] == ["transactionCheckMax", "rejectTransactionMessage"]
    (hold,) = standing_holds([drain]).values()
    assert (hold.until_ms, hold.reason) == (None, None)
    assert standing_holds([first, drain, receipt(ActKind.RELEASE, ActOutcome.PROVED, LOWERED)]) == {}


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"rejectTransactionMessage": "true", "transactionOpBatchInterval": "100"}, True),
        ({"rejectTransactionMessage": "true", "transactionOpBatchInterval": "3000"}, False),
        ({"rejectTransactionMessage": "true"}, False),
        ({"rejectTransactionMessage": "false", "transactionOpBatchInterval": "100"}, False),
    ],
)
def test_a_drain_of_another_operator_is_recognised_by_both_settings(conf: dict[str, str], *, expected: bool) -> None:
    assert looks_drained(conf) is expected


def receipt(
    action: ActKind, outcome: ActOutcome | None, *changes: tuple[str, str, str], store: str = STORE
) -> Receipt:
    found = Receipt(action, None, store, reason=str(outcome), settings=[SettingChange(*one) for one in changes])
    if outcome is not None:
        found.outcome, found.ended_time_ms = outcome, found.begun_time_ms
    if action == ActKind.HOLD:
        found.until_time_ms = NOW_MS
    return found


RAISED = ("transactionCheckMax", "15", "1000000")
LOWERED = ("transactionCheckMax", "1000000", "15")


@pytest.mark.parametrize("outcome", [ActOutcome.REFUSED_BY_GUARD, ActOutcome.NOT_SENT, ActOutcome.REFUSED_BY_BROKER])
def test_what_changed_nothing_holds_nothing_and_releases_nothing(outcome: ActOutcome) -> None:
    assert standing_holds([receipt(ActKind.HOLD, outcome, RAISED)]) == {}
    first = receipt(ActKind.HOLD, ActOutcome.PROVED, RAISED)
    assert list(standing_holds([first, receipt(ActKind.RELEASE, outcome, LOWERED)])) == [STORE]


@pytest.mark.parametrize("outcome", [None, ActOutcome.UNKNOWN])
def test_what_may_have_changed_something_is_a_hold_that_is_not_sure(outcome: ActOutcome | None) -> None:
    (hold,) = standing_holds([receipt(ActKind.HOLD, outcome, RAISED)]).values()
    assert not hold.is_sure
    assert hold.setting("transactionCheckMax") == SettingChange(*RAISED)
    first = receipt(ActKind.HOLD, ActOutcome.PROVED, RAISED)
    assert list(standing_holds([first, receipt(ActKind.RELEASE, outcome, LOWERED)])) == [STORE]


def test_a_release_ends_a_hold_of_its_broker_alone() -> None:
    both = [receipt(ActKind.HOLD, ActOutcome.PROVED, RAISED, store=store) for store in (STORE, "b@h:2")]
    assert sorted(standing_holds(both)) == [STORE, "b@h:2"]
    assert sorted(standing_holds([*both, receipt(ActKind.RELEASE, ActOutcome.PROVED, LOWERED)])) == ["b@h:2"]


def test_a_hold_of_a_held_broker_keeps_the_first_value_and_takes_one_that_was_set_between() -> None:
    first = receipt(ActKind.HOLD, ActOutcome.PROVED, RAISED)
    again = receipt(ActKind.HOLD, ActOutcome.PROVED, ("transactionCheckMax", "1000000", "1000000"))
    (hold,) = standing_holds([first, again]).values()
    assert hold.setting("transactionCheckMax") == SettingChange("transactionCheckMax", "15", "1000000")
    assert hold.receipt_ids == (first.receipt_id, again.receipt_id)
    between = receipt(ActKind.HOLD, ActOutcome.PROVED, ("transactionCheckMax", "30", "1000000"))
    (hold,) = standing_holds([first, between]).values()
    assert hold.setting("transactionCheckMax") == SettingChange("transactionCheckMax", "30", "1000000")
    more = receipt(ActKind.HOLD, ActOutcome.PROVED, ("fileReservedTime", "72", "100"))
    (hold,) = standing_holds([first, more]).values()
    assert [one.setting for one in hold.settings] == ["transactionCheckMax", "fileReservedTime"]


def test_rows_show_what_a_broker_has_now() -> None:
    holds = standing_holds([receipt(ActKind.HOLD, ActOutcome.PROVED, RAISED)])

    def state(now: str | None, at_ms: int = NOW_MS) -> list[str]:
        present = {} if now is None else {STORE: {"transactionCheckMax": now}}
        return [row.hold_state for row in hold_rows(holds, present, at_ms)]

    assert state("1000000") == ["held"]
    assert state("1000000", NOW_MS + 1) == ["overdue"]
    assert state("15", NOW_MS + 1) == ["put_back"]
    assert state("30") == ["changed"]
    assert state(None) == ["unread"]
    assert [row.hold_state for row in hold_rows(holds, {STORE: None}, NOW_MS)] == ["unread"]
    others = {"b@h:2": {"transactionCheckMax": "1000000"}, "c@h:3": {"transactionCheckMax": "15"}, "d@h:4": {}}
    assert [(row.store, row.hold_state) for row in hold_rows({}, others, NOW_MS)] == [("b@h:2", "unrecorded")]


def test_rechecks_read_the_settings_again() -> None:
    receipts = [
        receipt(ActKind.HOLD, ActOutcome.PROVED, RAISED), receipt(ActKind.RELEASE, ActOutcome.PROVED, LOWERED),
        receipt(ActKind.HOLD, ActOutcome.PROVED, RAISED, store="b@h:2"),
        receipt(ActKind.RELEASE, ActOutcome.REFUSED_BY_GUARD, LOWERED),
    ]
    present = {STORE: {"transactionCheckMax": "15"}}
    found = rechecked(receipts, lambda _: [], settings=present.get)
    words = [standing.word for _, standing in found]
    assert words == ["settled_otherwise", "stands", "untold", "nothing_done"]
