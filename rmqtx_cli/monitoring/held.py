"""Which live brokers are held, as sentences for monitoring: by their settings, and until when by the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqtx.readers.model.errors import UnreadableFile
from rmqtx_cli.words.durations import duration_text
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from rmqtx.remoting.live.store_facts import LiveStore
    from rmqtx.repairs.holds.standing_holds import Hold


def held_sentences(facts: Sequence[LiveStore], now_ms: int) -> dict[str, tuple[str, bool]]:
    """Return a sentence for each broker with a limit of checks as a hold sets it, and whether its time is over.

    The journal of this user is read only if there is one; another user's hold is known by the setting alone.
    """
    from rmqtx.repairs.holds.standing_holds import looks_held, standing_holds
    from rmqtx.repairs.receipts.journal import Journal

    held = [fact.root for fact in facts if looks_held(fact.settings.given or {})]
    if not held:
        return {}
    try:
        holds = standing_holds(Journal().read().receipts)
    except UnreadableFile:
        holds = {}
    return {root: _sentence(root, holds.get(root), now_ms) for root in held}


def _sentence(root: str, hold: Hold | None, now_ms: int) -> tuple[str, bool]:
    from rmqtx.repairs.holds.listed_holds import is_over

    if hold is None or hold.until_ms is None:
        return f"{root} is held: its transactionCheckMax is as rmqtx hold sets it (until when: unknown here)", False
    if is_over(hold, now_ms):
        return f"the hold of {root} is over since {duration_text(now_ms - hold.until_ms)}: rmqtx release", True
    return f"{root} is held until {time_text(hold.until_ms)}: its check discards nothing", False
