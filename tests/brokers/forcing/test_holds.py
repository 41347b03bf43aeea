"""A hold on a real broker: nothing is discarded while it lasts, and the settings of before are there after the release."""

from __future__ import annotations

import time

from tests.brokers.forcing.stage import CALM, Stage

CHECKS = 20
"""The limit without a hold, at a round every second."""
COUNT = 4
REASON = ("--reason", "the shop is down")


def test_held_ones_outlive_their_deadline_and_the_twin_does_not(stage: Stage) -> None:
    stage.config(transactionCheckMax="3")
    twins = stage.orphans("hold-twin", COUNT)
    stage.discard(twins)
    stage.config(transactionCheckMax=str(CHECKS))
    before = stage.broker.config()
    held = stage.orphans("hold", COUNT)
    tool = stage.tool()
    with stage.checks():
        ran = tool.act("hold", "--for", "1h", *REASON)
        assert (ran.status, [row["outcome"] for row in ran.rows]) == (0, ["proved"]), str(ran)
        print(ran)
        time.sleep(2 * CHECKS)
        counts = stage.copies_counts(held)
        assert min(counts.values()) > CHECKS + 1, counts
        assert [one.case for one in held if one.discards] == []
        refused = tool.act("release")
        assert refused.status == 12, str(refused)
        print(refused)
        print(tool.run("holds", "--format", "jsonl"))
        stage.shop(held[0].group if hasattr(held[0], "group") else None, strangers="COMMIT_MESSAGE")
        time.sleep(5)
    ran = tool.act("release")
    print(ran)
    assert ran.status == 0
    after = stage.broker.config()
    changed = {name for name in before if before[name] != after.get(name)}
    print(changed)
