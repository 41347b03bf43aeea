"""Decisions on records outside the half topic: which op marks they can explain, and which were left out by right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rmqtx.readers.log.record_block import Block
from rmqtx.verdicts.ends.doubtful_ends import misdirected_decisions, unexplained_numbers
from rmqtx.verdicts.evidence.indexed_lookup import DerivedFiles
from rmqtx.verdicts.evidence.store_facts import store_facts
from rmqtx.verdicts.model.verdict_inputs import MisdirectedDecision, StoreView
from rmqtx.verdicts.model.witnesses import Witnesses
from rmqtx.verdicts.transactions.judge import judge
from tests.forge.stores import opened, settings_of
from tests.representatives import each_store
from tests.verdicts.truth import audited


class WithoutNames:
    """Records as those without UNIQ_KEY, which no index has under an id."""

    def __init__(self, files: DerivedFiles) -> None:
        self.numbered = files.numbered

    def namesakes(self, named: Sequence[Block]) -> Iterator[Block]:
        """See `RecordLookup`."""
        assert named
        return iter(())


def looked_up(name: str) -> tuple[Witnesses, StoreView]:
    """All transactions of a store by its index, and what is known of it."""
    store = opened(name)
    facts = store_facts(store, settings_of(name))
    with DerivedFiles(facts) as files:
        found = files.transactions_of([row["transaction_id"] for row in audited(name)])
        kept = files.witnesses({identity: topic for one in found.values() for identity, topic in one.items()})
    return kept, facts.view()


def judged(kept: Witnesses, view: StoreView, others: list[MisdirectedDecision]) -> pa.Table:
    return judge(kept, {view.store: replace(view, misdirected_decisions=(*view.misdirected_decisions, *others))})


def right_before(mark: dict[str, int], store: str) -> MisdirectedDecision:
    """A decision on some record with the number that a mark names, in the very place that would explain the mark."""
    return MisdirectedDecision(
        store, mark["queue_id"], mark["half_queue_offset"], mark["commit_log_offset"] - 1, mark["store_time_ms"]
    )


@pytest.mark.parametrize("name", each_store(["common-5.3.3", "masked-4.9.7", "masked-5.3.3"]))
def test_no_decision_on_another_record_turns_what_a_final_explains(name: str) -> None:
    """So they need not be looked for; those on other marks do turn verdicts."""
    kept, view = looked_up(name)
    asked = pa.array(unexplained_numbers(kept), pa.int64())
    is_asked = pc.is_in(kept.marks["half_queue_offset"], value_set=asked)
    explained, others = (
        [right_before(mark, view.store) for mark in kept.marks.filter(chosen).to_pylist()]
        for chosen in (pc.invert(is_asked), is_asked)
    )
    assert explained
    assert others
    assert judged(kept, view, explained).equals(judged(kept, view, []))
    assert not judged(kept, view, others).equals(judged(kept, view, []))


def test_a_decision_on_another_record_of_a_transaction_without_an_id_is_found() -> None:
    """Its COMMIT record is known already: without it, the second op message looked like a rollback (`conflict`)."""
    facts = store_facts(opened("masked-5.3.3"), settings_of("masked-5.3.3"))
    with DerivedFiles(facts) as files:
        found = files.transactions_of([row["transaction_id"] for row in audited("masked-5.3.3")])
        kept = files.witnesses({identity: topic for one in found.values() for identity, topic in one.items()})
        wanted = misdirected_decisions(facts.store.root, kept, files)
        assert wanted
        assert misdirected_decisions(facts.store.root, kept, WithoutNames(files)) == wanted
