"""Causes of whole producer groups: one transaction can exclude them, whatever batch it comes in."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.verdicts.audit import local_audit
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.causes.groups import GROUP_CAUSES, group_causes
from rmqtx.verdicts.causes.judging import store_evidence
from rmqtx.verdicts.causes.strengths import cause_words
from rmqtx.verdicts.evidence.store_facts import store_facts
from rmqtx_cli.main import status_of
from tests.forge.stores import opened
from tests.representatives import rest_is_slow
from tests.verdicts.causes.diagnosed import diagnosed, settings_of, strengths

NAME, WORD = "parallel-5.3.3", "decided-only-at-checks"


@pytest.mark.parametrize(
    "name", rest_is_slow(["ignored-4.3.1", "proxy-5.3.3", "common-5.3.3", "parallel-5.3.3", "common-4.3.0"], quick=3)
)
@pytest.mark.parametrize("split_bytes", [None, 1 << 14])
def test_audit_counts_the_groups_that_diagnose_names(
    name: str, split_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Habits of parts of a store add up: a group is the same over one partition and over several."""
    if split_bytes is not None:
        monkeypatch.setattr(local_audit, "ONE_PROCESS_BYTES_MAX", 0)
        monkeypatch.setattr(local_audit, "PARTITION_BYTES", split_bytes)
    reading = audit([opened(name)], broker_settings, columns=("state", "causes"), processes=1)
    for _ in reading:
        pass
    found = Counter({word: count for _, word, _, count in group_causes(reading.habits)})
    named = {
        row["cause"]: row["transactions_count"] for row in diagnosed(name)[1] if row["cause"] in GROUP_CAUSES
    }
    assert found == named
    assert bool(named) == name.startswith(("ignored-", "parallel-", "proxy-"))
    assert not set(GROUP_CAUSES) & {word.rstrip("?") for word in cause_words()}


def test_a_group_whose_decisions_all_came_at_checks() -> None:
    found, rows = diagnosed(NAME, "5.3.3")
    assert strengths(rows)[WORD] == {"could_explain": 6}
    assert WORD not in strengths(diagnosed("common-5.3.3", "5.3.3")[1])
    assert found.unexplained_count == 0


def test_one_decision_without_a_check_excludes_the_group() -> None:
    """The first batch has only the habit, the second one the exception, in either order."""
    habit, exception = _rows(NAME), _rows("common-5.3.3")
    exception = exception.set_column(0, "store", pa.array([habit["store"][0].as_py()] * exception.num_rows))
    for parts in ((habit, exception), (exception, habit)):
        assert WORD not in _words(parts)
    other = exception.set_column(
        exception.schema.get_field_index("producer_group"), "producer_group", pa.array(["other"] * exception.num_rows)
    )
    found = _words((other, habit))
    assert found[WORD] == {"could_explain": 6}


@pytest.mark.parametrize(
    "words",
    [["--summary"], ["--findings"], ["--fields", "keys"], ["--at", "@2000000000"], ["--at", "@1000000000"]],
)
def test_every_form_of_audit_names_them(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """But not before the end of the store: the facts of that time are unknown."""
    status_of(["audit", opened(NAME).root, *words])
    assert (f"{WORD} could explain 6 transactions" in capsys.readouterr().err) is ("@1000000000" not in words)


def test_few_transactions_are_no_habit() -> None:
    habit = _rows(NAME)
    is_decided = pa.array([bool(marks) for marks in habit["op_marks"].to_pylist()])
    decided = habit.filter(is_decided)
    assert WORD not in _words((decided.slice(0, 4),))
    assert _words((decided.slice(0, 2), decided.slice(2, 3)))[WORD] == {"could_explain": 5}


def _rows(name: str) -> pa.Table:
    store = opened(name)
    settings = settings_of(store, name, "5.3.3")
    return audit([store], lambda _: settings, columns=NEEDED_COLUMNS).table()


def _words(parts: tuple[pa.Table, ...]) -> dict[str, dict[str, int]]:
    store = opened(NAME)
    found = Diagnosis({store.root: store_evidence(store_facts(store, lambda _: settings_of(store, NAME, "5.3.3")))})
    for part in parts:
        for batch in part.combine_chunks().to_batches():
            found.add(batch)
    return strengths(found.table().to_pylist())
