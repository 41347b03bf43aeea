"""What simulated rounds do with half copies, on stores small enough to be read by eye."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.check.check_rules import check_rules
from rmqtx.verdicts.check.state import CheckSettings
from rmqtx.verdicts.check.window import check_window
from rmqtx.verdicts.simulation.simulation import Outcome, Simulated, outcomes
from tests.forge.logs import Forge

SETTINGS = CheckSettings(6_000, 15, 30_000, 1 << 40)


def played(root: Path, begin_ms: int, rounds: int) -> list[Outcome]:
    """The outcomes of the halves of a store from its first one on, with a 5.3.3 broker."""
    rules = check_rules((5, 3, 3))
    window = check_window(open_store(root), rules, 0, 0, 0)
    return list(outcomes(Simulated(str(root), "", window, rules, SETTINGS, begin_ms), rounds).values())


def test_a_copy_that_is_put_back_into_another_topic_is_not_skipped(tmp_path: Path) -> None:
    """The slot leads to a record of another topic; the next round begins at the end of the half queue."""
    forge = Forge(tmp_path / "store")
    forge.half("ELSEWHERE")
    root = forge.write()
    (log,) = (root / "commitlog").iterdir()
    log.write_bytes(log.read_bytes().replace(HALF_TOPIC.encode(), b"X" * len(HALF_TOPIC), 1))
    (one,) = played(root, forge.now_ms + 3_600_000, 3)
    assert (one.end, one.checks_to_come_count) == (None, 1)
