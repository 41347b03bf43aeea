"""State, flags, reason code and next event of each transaction of the corpus, compared with one committed table.

Each store is read an hour after its end, which gives deadlines, and in the middle of its log, which gives what was open
then; and together with the store of another broker that has some of the same transactions. All times are those of the
store, never those of the clock. Other tests show that the rows are right; this one shows each row that a change alters.
If the change is intended: `make rewrite`, and read what `python -m tests.verdicts.transactions.test_verdict_table`
prints: the rows that differ from those of the last commit.
"""

from __future__ import annotations

import csv
import difflib
import functools
import io
import lzma
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of, unpacked
from tests.representatives import each_store

TABLE = Path(__file__).with_name("verdict_table.csv.xz")
HOUR_MS = 3_600_000
SHOWN_ROWS_MAX = 40
#: Columns that a reading computes for the table; the others say which row it is.
JUDGED = (
    "state", "flags", "reason_code", "advice", "checks_count", "deliveries_count", "next_event", "next_event_at_ms",
    "discard_at_ms", "answer_effect",
)
HEAD = ("store", "read", "transaction_id", *JUDGED)
pytestmark = pytest.mark.usefixtures("at_the_real_moment")
NAMES = [name for name in corpus.all_names() if not name.startswith("empty-")]


def text_of(rows: Iterable[Iterable[Any]]) -> str:
    """The rows as CSV, with the names of the columns first."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([HEAD, *rows])
    return out.getvalue()


@functools.cache
def committed() -> dict[str, list[list[str]]]:
    """The rows of the committed table, by store."""
    found: dict[str, list[list[str]]] = {}
    if TABLE.exists():
        _, *rows = csv.reader(io.StringIO(lzma.decompress(TABLE.read_bytes()).decode()))
        for row in rows:
            found.setdefault(row[0], []).append(row)
    return found


def table_rows(name: str) -> list[list[str]]:
    """The rows of a store: times are milliseconds after its end."""
    end_ms = known_until_ms(opened(name))
    store = replace(opened(name), taken_time_ms=end_ms + HOUR_MS)
    later = _at(store, name, None)
    found = _words(name, "an hour later", later, end_ms)
    times = sorted(row["half_store_time_ms"] for row in later if row["half_store_time_ms"] is not None)
    if times:
        found += _words(name, "in the middle", _at(store, name, times[len(times) // 2]), end_ms)
    if (corpus.CORPUS / name / corpus.BESIDE).exists():
        other = replace(open_store(_beside(name)), taken_time_ms=store.taken_time_ms)
        rows = audit([store, other], settings_of(name)).table().to_pylist()
        found += _words(name, "with the store of the other broker", rows, end_ms)
    return found


@functools.cache
def _beside(name: str) -> Path:
    """The root of the other broker's store, below the directory of the first one, which is removed with it."""
    return corpus.unpack_beside(name, unpacked(name).parent / "beside")


def _at(store: Store, name: str, at_ms: int | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = audit([store], settings_of(name), at_ms=at_ms).table().to_pylist()
    return rows


def _words(name: str, read: str, rows: list[dict[str, Any]], end_ms: int) -> list[list[str]]:
    found = []
    for row in sorted(rows, key=lambda row: str(row["transaction_id"])):
        values = {
            **row, "flags": " ".join(row["flags"]),
            **{one: None if row[one] is None else row[one] - end_ms for one in JUDGED if one.endswith("_at_ms")},
        }
        found.append([name, read, *("" if values[one] is None else str(values[one]) for one in HEAD[2:])])
    return found


def differences(before: list[list[str]], now: list[list[str]]) -> str:
    """What differs, column by column where the same row is in both; the first rows only."""
    old, new = ({tuple(row[:3]): row for row in rows} for rows in (before, now))
    lines = []
    for key in sorted(old.keys() | new.keys()):
        was, is_now = old.get(key), new.get(key)
        if was is None or is_now is None:
            lines.append(f"{' / '.join(key)}: {'no longer there' if is_now is None else 'not in the table'}")
        elif was != is_now:
            pairs = zip(HEAD, was, is_now, strict=True)
            changes = (f"{column} {one or 'none'} -> {other or 'none'}" for column, one, other in pairs if one != other)
            lines.append(f"{' / '.join(key)}: {'; '.join(changes)}")
    more = len(lines) - SHOWN_ROWS_MAX
    return "\n".join([*lines[:SHOWN_ROWS_MAX], *([f"and {more} more rows"] if more > 0 else [])])


@pytest.mark.parametrize("name", each_store(NAMES))
def test_each_transaction_is_reported_as_in_the_committed_table(name: str, request: pytest.FixtureRequest) -> None:
    now, before = table_rows(name), committed().get(name, [])
    if now != before and request.config.getoption("--rewrite"):
        committed()[name] = now
        rows = [row for one in sorted(committed()) for row in committed()[one]]
        TABLE.write_bytes(lzma.compress(text_of(rows).encode(), preset=9))
        return
    assert now == before, f"users are shown other rows; review, then make rewrite:\n{differences(before, now)}"


def test_the_table_has_each_store_that_has_transactions() -> None:
    assert sorted(committed()) == NAMES, "make rewrite adds the rows of a new store"


def test_a_differing_row_is_shown_with_its_columns() -> None:
    [before, *_] = next(iter(committed().values()))
    now = list(before)
    now[HEAD.index("state")] = "OTHER"
    shown = differences([before], [now])
    assert shown.endswith(f": state {before[HEAD.index('state')]} -> OTHER")
    assert "not in the table" in differences([], [now])
    assert "no longer there" in differences([before], [])


if __name__ == "__main__":
    committed_before = subprocess.run(
        ["git", "show", f"HEAD:./{TABLE.name}"], cwd=TABLE.parent, capture_output=True, check=True
    )
    old_text = lzma.decompress(committed_before.stdout).decode().splitlines()
    new_text = lzma.decompress(TABLE.read_bytes()).decode().splitlines()
    print("\n".join(difflib.unified_diff(old_text, new_text, "committed", "now", n=0, lineterm="")))
