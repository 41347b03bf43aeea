"""Stores of the corpus, damaged in every way that salvage is for: what was not destroyed is judged as before.

`RMQTX_SALVAGE=1` (`make test-salvage`) plays every store with every damage, otherwise some stores with each.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.repairs.salvage_matrix import Result, cases, compare, play, verdicts_of

_STORES_PER_DAMAGE = 2


def chosen() -> list[Any]:
    """The cases to play: all of them, or for each damage some stores, other ones for each; the first is not slow."""
    if os.environ.get("RMQTX_SALVAGE"):
        return list(cases())
    stores: dict[str, list[str]] = defaultdict(list)
    for name, kind in cases():
        stores[kind].append(name)
    return [
        pytest.param(
            names[(5 * number + step * len(names) // _STORES_PER_DAMAGE) % len(names)], kind,
            marks=[pytest.mark.slow] if step else [],
        )
        for number, (kind, names) in enumerate(stores.items())
        for step in range(_STORES_PER_DAMAGE)
    ]


@pytest.mark.parametrize(("name", "kind"), chosen())
def test_what_was_not_destroyed_is_judged_as_before(name: str, kind: str, tmp_path: Path) -> None:
    result = play(name, kind, tmp_path)
    assert result.violations == [], result.did


def test_the_comparison_sees_what_is_wrong() -> None:
    before = verdicts_of("common-5.3.3")
    identity, row = next((key, row) for key, row in before.items() if row["state"] == "COMMITTED")
    wrong = [
        {key: other for key, other in before.items() if key != identity},
        before | {identity: {**row, "state": "ROLLED_BACK"}},
        before | {identity: {**row, "state": "UNDECIDABLE", "reason": "bytes 1 to 2 are damaged"}},
        before | {identity: {**row, "checks_count": 99}},
        before | {"another": row},
    ]
    for after in wrong:
        result = Result("", "")
        compare(result, before, after, set(), set())
        assert len(result.violations) == 1
