"""Which live brokers are held or drained, as sentences for monitoring: by their settings and the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.repairs.holds.standing_holds import REJECT, Hold, is_over, looks_drained, looks_held, standing_holds
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.words.times import duration_text, time_text

if TYPE_CHECKING:
    from rmqtx.remoting.live.store_facts import LiveStore


def held_sentences(facts: Sequence[LiveStore], now_ms: int) -> dict[str, tuple[str, bool]]:
    """Return a sentence for each broker with settings as a hold or a drain sets them, and whether its time is over.

    Of another user's journal nothing is read: that a broker is held or drained is known by its settings alone. Before
    5.1.0 these do not show a drain (`looks_drained`).
    """
    confs = {fact.root: fact.settings.given or {} for fact in facts}
    if not any(looks_held(conf) or conf.get(REJECT) == "true" for conf in confs.values()):
        return {}
    try:
        holds = standing_holds(Journal().read().receipts)
    except UnreadableFile:
        holds = {}
    found = {}
    for root, conf in confs.items():
        hold = holds.get(root)
        sentences = [_sentence(root, hold, now_ms)] if looks_held(conf) else []
        is_ours = hold is not None and hold.setting(REJECT) is not None and conf.get(REJECT) == "true"
        if is_ours or looks_drained(conf):
            since = f"since {time_text(hold.since_ms)}" if hold is not None else "(since when: unknown here)"
            sentences.append((f"{root} is drained: it refuses transactions {since}, until rmqtx release", False))
        if sentences:
            found[root] = "; ".join(text for text, _ in sentences), any(is_over for _, is_over in sentences)
    return found


def _sentence(root: str, hold: Hold | None, now_ms: int) -> tuple[str, bool]:
    if hold is None or hold.until_ms is None:
        return f"{root} is held: its transactionCheckMax is as rmqtx hold sets it (until when: unknown here)", False
    if is_over(hold, now_ms):
        return f"the hold of {root} is over since {duration_text(now_ms - hold.until_ms)}: rmqtx release", True
    return f"{root} is held until {time_text(hold.until_ms)}: its check discards nothing", False
