"""A broker that is lost in the middle of a plan: what was sent is looked up, what was not is said to be not sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import SOME_REFUSED, UNKNOWN_OUTCOME
from rmqtx.remoting.protocol.errors import Unreachable
from rmqtx.repairs.acts import carry_out as path
from rmqtx.repairs.acts import wait_for_effect
from rmqtx.repairs.acts.carry_out import carry_out, checked_acts
from rmqtx.repairs.acts.orders import ActOrder, CheckedAct, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import status_of
from rmqtx.verdicts.model.transaction import Transaction
from tests.repairs.forge import FakeMedium, final, mark, row

NAMES = ("T1", "T2", "T3", "T4")
CONDUCT = Conduct(prove_ms=20)


class Losing(FakeMedium):
    """A medium that is not there at some of its looks."""

    lost_from, lost_to = 99, 99

    def look(self, transaction_ids: Sequence[str]) -> list[Transaction]:
        found = super().look(transaction_ids)
        if self.lost_from <= self.looks < self.lost_to:
            raise Unreachable("the broker is gone")
        return found


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path, "_CHUNK", 2)
    monkeypatch.setattr(wait_for_effect, "_PAUSES_SECONDS", (0.001,))


def play(tmp_path: Path, lost_from: int, lost_to: int) -> tuple[list[CheckedAct], Losing, Journal]:
    def decided(medium: FakeMedium, word: str, queue_offset: int) -> None:
        name = NAMES[len(medium.acts) - 1]
        medium.rows[name] |= {"state": "COMMITTED", "final_records": [final()], "op_marks": [mark(queue_offset)]}

    medium = Losing({name: row(transaction_id=name) for name in NAMES}, on_act=decided)
    medium.lost_from, medium.lost_to = lost_from, lost_to
    journal = Journal(tmp_path / "r.jsonl")
    acts = checked_acts([ActOrder(name, ActRequest(ActKind.COMMIT)) for name in NAMES], medium, CONDUCT)
    carry_out(acts, medium, journal, CONDUCT, lambda _: None)
    return acts, medium, journal


def test_what_was_sent_is_proved_though_the_rest_cannot_be_looked_at(tmp_path: Path) -> None:
    acts, medium, journal = play(tmp_path, 3, 4)  # looks: 1 prepares, 2 and 3 precede the two chunks
    assert len(medium.acts) == 2
    outcomes = [receipt.outcome for receipt in journal.read().receipts]
    assert outcomes == ["proved", "proved", "not_sent", "not_sent"]
    assert all(one.receipt is not None for one in acts)
    assert status_of([one.receipt for one in acts if one.receipt is not None], is_proof_wanted=True) == SOME_REFUSED


def test_a_broker_that_stays_away_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    acts, _, journal = play(tmp_path, 3, 10_000)
    receipts = journal.read().receipts
    assert [receipt.outcome for receipt in receipts] == ["unknown", "unknown", "not_sent", "not_sent"]
    assert all(receipt.has_ended for receipt in receipts)
    assert status_of([one.receipt for one in acts if one.receipt is not None], is_proof_wanted=True) == UNKNOWN_OUTCOME


def test_nothing_is_begun_where_the_first_look_fails(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        play(tmp_path, 2, 10_000)
    assert Journal(tmp_path / "r.jsonl").read().receipts == []
