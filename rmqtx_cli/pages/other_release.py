"""What another release does with a store's open transactions, as lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqtx.readers.model.releases import dotted
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from rmqtx.verdicts.audit.other_release import OtherRelease

#: The next event of a transaction, in a sentence about several.
_WORDS = {
    "asked": "asked about", "put_back": "put back unasked", "expired": "discarded unasked", "discarded": "discarded",
    "dropped": "dropped", "skipped": "never read", "stopped": "behind a stop of the check", "cut": "cut off",
    "none": "left alone", "never seen": "never seen: the release does not read its design",
}  # fmt: skip


def other_release_lines(root: str, found: OtherRelease) -> Iterator[str]:
    """Yield what is the same, then each difference with its number."""
    if found.is_doubtful:
        yield f"{root}: evidence is missing or damaged, so open transactions may be missing below: rmqtx pending {root}"
    begin = f"{root}: started with {dotted(found.version)} in place of {found.own}"
    if not found.counts:
        yield f"{begin}: no transaction is open"
        return
    same: Counter[str] = Counter()
    for (own, other), number in found.counts.items():
        if own == other:
            same[_word(own)] += number
    total = sum(found.counts.values())
    if same:
        listed = ", ".join(f"{number} {word}" for word, number in sorted(same.items()))
        left = "" if sum(same.values()) == total else f" of {total}"
        yield f"{begin}: the same for {sum(same.values())}{left} open {_noun(total)}: {listed}"
    for (own, other), number in sorted(found.counts.items(), key=str):
        if own != other:
            yield f"{begin}: other for {count(number, 'open transaction')}: {_word(other)}, in place of {_word(own)}"


def _noun(number: int) -> str:
    return "transaction" if number == 1 else "transactions"


def _word(event: str | None) -> str:
    return _WORDS.get(event or "", "unknown")
