"""Every action on a real broker: right response and deliveries, op written, nothing asked again, a whole receipt."""

from __future__ import annotations

from tests.brokers.forcing.outcomes import RESUME_KEEPS_COMPRESSED_SINCE, play
from tests.brokers.forcing.stage import Stage


def test_actions_on_transactions_of_a_dead_producer(stage: Stage) -> None:
    results = play(stage, stage.tool())
    for result in results:
        print(f"{result.act.what} by {result.act.named_by}: codes {result.codes}, delivered {result.delivered}")
    wrong = {f"{result.act.what} by {result.act.named_by}": result.wrong for result in results if result.wrong}
    assert wrong == {}, "\n".join(f"{what}: {told}" for what, found in wrong.items() for told in found)
    assert len(results) == (15 if stage.rig.release >= RESUME_KEEPS_COMPRESSED_SINCE else 14)
