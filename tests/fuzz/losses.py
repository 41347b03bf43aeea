"""How a damage may change verdicts, and how findings must count the lost records. Each violation is a sentence.

A transaction without a damaged record keeps its evidence. It keeps its state too, unless that depends on the absence of
a record that the damaged bytes may have contained. A transaction with a damaged record is right or UNDECIDABLE, never
wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqtx.verdicts.compared.losses import LOSS_CODES
from tests.forge.comparing import EVIDENCE, cited

Row = dict[str, Any]
#: States that depend on an existing record and that no other record can change.
_PROVEN = ("COMMITTED",)
#: A start makes a deleted half queue again; the check of it then passes copies that it would have read (4.9.7).
_UNREAD_IN_NEW_QUEUE = ("LOST", "DISCARDED")
#: States that the check's cursor decides.
_BY_CURSOR = ("PENDING", "LOST", "DISCARDED", "UNDECIDABLE")
_AMOUNT = re.compile(r"(\d+) (half|halves|op|ops|discard copy|discard copies|other message|other messages)\b")
_ONE = {"halves": "half", "ops": "op", "discard copies": "discard copy", "other messages": "other message"}
_OF_TOPIC = {HALF_TOPIC: "half", OP_TOPIC: "op", DISCARD_TOPIC: "discard copy"}


def changed_verdicts(
    before: Mapping[str, Row],
    after: Mapping[str, Row],
    touched: Collection[int],
    *,
    kind: str,
    is_meaningless: bool,
    codes: Collection[str] = (),
) -> Iterator[str]:
    """Yield the verdicts that a damage must not have changed.

    `touched`: commit-log offsets of the damaged records. `is_meaningless`: only bytes without a copy elsewhere were
    changed, so that a touched transaction may be listed as another one. `codes`: of the findings of the damage.
    """
    is_passed = kind == "half queue" and {"check-skips", "start-skips"} <= set(codes)
    for identity, row in before.items():
        now = after.get(identity)
        mine = cited(row)
        if not mine & set(touched):
            yield from _untouched(identity, row, now, kind, is_passed=is_passed)
        elif not is_meaningless:
            yield from _touched(identity, row, now, touched)


def _untouched(identity: str, row: Row, now: Row | None, kind: str, *, is_passed: bool) -> Iterator[str]:
    if now is None:
        yield f"untouched {identity} ({row['state']}) is gone"
        return
    lost = [name for name in EVIDENCE if [e for e in row[name] if e not in now[name]]]
    if lost and kind not in ("cursors", "topics"):
        yield f"untouched {identity} ({row['state']}) lost its {', '.join(lost)}"
    if now["state"] == row["state"]:
        return
    if now["state"] == "UNDECIDABLE" and row["state"] not in _PROVEN:
        if not any(letter.isdigit() for letter in now["reason"]) and "cursor" not in now["reason"]:
            yield f"untouched {identity} ({row['state']}): {now['reason']!r} names no bytes"
    elif is_passed and row["state"] == "PENDING" and now["state"] in _UNREAD_IN_NEW_QUEUE:
        return
    elif not (kind == "cursors" and row["state"] in _BY_CURSOR and now["state"] in _BY_CURSOR):
        yield f"untouched {identity} was {row['state']}, is {now['state']}: {now['reason']}"


def _touched(identity: str, row: Row, now: Row | None, touched: Collection[int]) -> Iterator[str]:
    if now is None:
        left = [e for name in ("half_copies", "discard_copies") for e in row[name]
                if e["commit_log_offset"] not in touched]
        if left:
            yield f"{identity} ({row['state']}) is gone, and has {len(left)} copies outside the damage"
    elif now["state"] not in (row["state"], "UNDECIDABLE"):
        yield f"{identity} was {row['state']}, is {now['state']}: {now['reason']}"


def uncounted_losses(new_rows: Collection[Row], lost: Counter[str]) -> str | None:
    """A sentence if the findings count too few lost records of a kind; None if they count all.

    `lost`: kind of record (half, op, discard copy, other message) → number of those in a queue that are not read now.
    """
    counted: Counter[str] = Counter()
    for row in new_rows:
        if row["code"] in (*LOSS_CODES, "slot-mismatch"):
            for number, word in _AMOUNT.findall(row["meaning"]):
                counted[_ONE.get(word, word)] += int(number)
        elif row["code"] == "slot-dangling":  # after the end of a log whose rest moved up
            topic = Path(row["file"]).parent.parent.name
            counted[_OF_TOPIC.get(topic, "other message")] += 1
    missing = {kind: number for kind, number in lost.items() if number > counted[kind]}
    return f"lost {dict(lost)}, counted {dict(counted)}" if missing else None
