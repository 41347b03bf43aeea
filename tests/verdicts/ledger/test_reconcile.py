"""Verdicts against a ledger: the advice is what the broker's ways and the ledger's word leave; nothing is guessed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.ledger.ledger import open_ledger
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.ledger.join import LedgerTerms, Match, Term, reconcile
from rmqtx.verdicts.ledger.reconcile import (
    LOOKED_UP,
    OUTCOMES,
    RECONCILED,
    SAYS_BOTH,
    SAYS_DONE,
    SAYS_NOT_DONE,
    WORDS,
    reconciled,
)
from rmqtx.verdicts.model.verdict_words import ADVICE
from rmqtx_cli.options.filters import parse_filter
from tests import ledgers
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of

Row = dict[str, Any]


@functools.cache
def verdicts() -> tuple[pa.RecordBatch, ...]:
    return tuple(audit([opened(ledgers.NAME)], settings_of(ledgers.NAME)))


BY_KEY = Match((Term("keys", "order_id"),))


def compared(location: str, match: Match = BY_KEY, done: str = ledgers.DONE, **more: Any) -> list[Row]:
    ledger = open_ledger(location, None, tuple(match.ledger_columns))
    is_done, is_not_done = (parse_filter(text, ledger.schema).mask for text in (done, ledgers.NOT_DONE))
    rows = reconcile(verdicts(), ledger, LedgerTerms(match, is_done, is_not_done, **more), ledger.schema.names)
    found: list[Row] = pa.Table.from_batches(list(rows), RECONCILED).to_pylist()
    return found


def by_case(rows: list[Row]) -> dict[str, Row]:
    by_id = {row["transaction_id"]: row for row in rows}
    return {truth["case"]: by_id[truth["transaction_id"]] for truth in corpus.expected(ledgers.NAME)}


@pytest.mark.parametrize("kind", ["sqlite", "csv", "parquet"])
def test_every_case_gets_the_advice_that_the_truth_and_the_ledger_leave(kind: str, tmp_path: Path) -> None:
    rows = by_case(compared(ledgers.written(kind, tmp_path)))
    wrong = {}
    for case, wanted in ledgers.CASES.items():
        row = rows[case]
        found = (row["state"], row["ledger_word"], row["outcome"], row["advice"])
        if found != (wanted.state, wanted.word, wanted.outcome, wanted.advice) or wanted.told not in row["reason"]:
            wrong[case] = (found, row["reason"])
    assert wrong == {}
    assert rows["pending.0"]["ledger_row"] == f"order_id = {ledgers.keys_of('pending.0')}, status = PAID, amount = 100"


def test_the_newest_half_copy_is_the_one_to_name(tmp_path: Path) -> None:
    rows = by_case(compared(ledgers.written("csv", tmp_path)))
    truth = {row["case"]: row for row in corpus.expected(ledgers.NAME)}
    for case in ("pending.0", "pending.1", "never_answered.0", "pending_late_rollback.1"):
        newest = truth[case]["half_copies"][-1]
        place = f"queue offset {newest['queue_offset']} at commit-log offset {newest['commit_log_offset']}"
        assert place in rows[case]["reason"], case


def test_the_second_delivery_is_named(tmp_path: Path) -> None:
    rows = by_case(compared(ledgers.written("csv", tmp_path)))
    truth = {row["case"]: row for row in corpus.expected(ledgers.NAME)}
    offsets = [str(final["commit_log_offset"]) for final in truth["double_commit.0"]["final_records"]]
    assert f"offsets {', '.join(offsets)};" in rows["double_commit.0"]["reason"]


def test_two_ledger_rows_of_one_transaction_decide_nothing(tmp_path: Path) -> None:
    row = by_case(compared(ledgers.written("parquet", tmp_path)))[ledgers.TWICE]
    assert (row["ledger_word"], row["outcome"], row["advice"]) == ("several", "open", "wait")
    assert (row["ledger_rows_count"], row["ledger_row"]) == (2, None)
    assert row["reason"] == "2 ledger rows match: the right one is unknown"


def test_one_ledger_row_of_two_transactions_decides_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ledger.csv"
    file.write_text("order_id,status\npending,PAID\n")
    match = Match((Term("keys", "order_id", "^K-[0-9]+-(pending)[.][45]$"),))
    rows = by_case(compared(str(file), match))
    for case in ledgers.SHARED:
        row = rows[case]
        assert (row["ledger_word"], row["advice"], row["transactions_count"]) == ("several", "wait", 2)
        assert "matches 2 transactions" in row["reason"]
    assert rows["pending.6"]["ledger_word"] == "unknown"  # the expression finds no part of its keys


def test_no_row_says_nothing_unless_that_is_what_it_means(tmp_path: Path) -> None:
    place = ledgers.written("csv", tmp_path)
    row = by_case(compared(place))["pending.6"]
    assert (row["ledger_word"], row["advice"], row["reason"]) == ("missing", "wait", "the ledger has no row for it")
    rows = by_case(compared(place, missing_is_not_done=True))
    assert (rows["pending.6"]["ledger_word"], rows["pending.6"]["advice"]) == ("not_done", "rollback")
    assert rows[ledgers.TWICE]["ledger_word"] == "several"
    assert rows["bare.0"]["keys"] is None
    assert (rows["bare.0"]["ledger_word"], rows["bare.0"]["advice"]) == ("unknown", "none")  # nothing to look up by


def test_any_word_of_the_keys_may_match(tmp_path: Path) -> None:
    words = ledgers.keys_of("many_keys.2").split()
    file = tmp_path / "ledger.csv"
    file.write_text(f"order_id,status\n{words[-1]},PAID\n")
    assert by_case(compared(str(file)))["many_keys.2"]["ledger_word"] == "done"
    file.write_text(f"order_id,status\n{words[0]},PAID\n{words[-1]},PAID\n")
    assert by_case(compared(str(file)))["many_keys.2"]["ledger_word"] == "several"


def test_several_terms_must_all_match(tmp_path: Path) -> None:
    file = tmp_path / "ledger.csv"
    truth = next(row for row in corpus.expected(ledgers.NAME) if row["case"] == "pending.0")
    match = Match((Term("keys", "order_id"), Term("topic", "kind")))
    file.write_text(f"order_id,kind,status\n{truth['keys']},{truth['topic']},PAID\n")
    assert by_case(compared(str(file), match))["pending.0"]["ledger_word"] == "done"
    file.write_text(f"order_id,kind,status\n{truth['keys']},other,PAID\n")
    assert by_case(compared(str(file), match))["pending.0"]["ledger_word"] == "missing"


def test_a_row_that_is_both_done_and_not_done_is_unknown(tmp_path: Path) -> None:
    row = by_case(compared(ledgers.written("csv", tmp_path), done="amount > 0"))["pending.1"]
    assert (row["ledger_word"], row["advice"]) == ("unknown", "wait")
    assert "both conditions" in row["reason"]


# -- all combinations, whatever the corpus has


def verdict(state: str, *, own: str = "none", flags: tuple[str, ...] = (), halves: int = 1, discards: int = 0,
            finals: int = 0) -> Row:
    place = {"store": "/s", "queue_id": 0, "store_time_ms": 1}
    def copies(count: int, **more: object) -> list[Row]:
        return [{**place, "queue_offset": n, "commit_log_offset": 100 * n, **more} for n in range(count)]
    return {
        "store": "/s", "transaction_id": "A", "state": state, "flags": list(flags), "reason": "why", "advice": own,
        "checks_count": 0, "half_copies": copies(halves, checks_count=0), "op_marks": [],
        "final_records": copies(finals, topic="orders"), "discard_copies": copies(discards), "state_entries": [],
    }


def advised(row: Row, says: int | None, *, rows: int = 1, shared: int = 1, has_key: bool = True) -> Row:
    looked_up = {"has_key": has_key, "ledger_rows_count": rows, "transactions_count": shared, "says": says,
                 "ledger_row": None}
    batch = reconciled(
        pa.RecordBatch.from_pylist([row], TRANSACTIONS), pa.RecordBatch.from_pylist([looked_up], LOOKED_UP)
    )
    assert batch.schema.equals(RECONCILED)
    (found,) = batch.to_pylist()
    return dict(found)


def test_every_combination_has_a_word_an_outcome_an_advice_and_a_reason() -> None:
    for state in ("PENDING", "COMMITTED", "ROLLED_BACK", "DISCARDED", "LOST", "UNDECIDABLE"):
        for own in ("none", "wait", "close", "resume"):
            for says in (0, SAYS_DONE, SAYS_NOT_DONE, SAYS_BOTH):
                for halves in (0, 1):
                    row = advised(verdict(state, own=own, halves=halves, finals=int(state == "COMMITTED")), says)
                    assert row["ledger_word"] in WORDS
                    assert row["outcome"] in OUTCOMES
                    assert row["advice"] in ADVICE
                    assert row["reason"]
                    assert row["state_reason"] == "why"
                    if row["advice"] in ("commit", "rollback"):
                        assert halves
                        assert row["state"] in ("PENDING", "DISCARDED", "LOST")


def test_what_could_deliver_twice_or_the_wrong_thing_is_never_advised() -> None:
    assert advised(verdict("COMMITTED", finals=1), SAYS_DONE)["advice"] == "none"
    assert advised(verdict("UNDECIDABLE"), SAYS_DONE)["advice"] == "none"
    for row in (
        verdict("ROLLED_BACK", halves=0), verdict("ROLLED_BACK", flags=("bad_body",)),
        verdict("ROLLED_BACK", flags=("delayed_half",)),
    ):
        found = advised(row, SAYS_DONE)
        assert (found["advice"], found["outcome"]) == ("none", "contradiction")
    found = advised(verdict("ROLLED_BACK", flags=("open_after_decision",)), SAYS_DONE)
    assert (found["advice"], found["outcome"]) == ("wait", "open")
    for says in (0, SAYS_NOT_DONE, SAYS_BOTH):
        assert advised(verdict("ROLLED_BACK"), says)["advice"] == "none"
    spoilt = advised(verdict("PENDING", flags=("stalled", "bad_body")), SAYS_DONE)
    assert (spoilt["advice"], spoilt["outcome"]) == ("none", "contradiction")
    assert advised(verdict("PENDING", flags=("bad_body",)), SAYS_NOT_DONE)["advice"] == "rollback"


def test_a_rollback_of_what_the_ledger_has_as_done_is_redelivered() -> None:
    found = advised(verdict("ROLLED_BACK"), SAYS_DONE)
    assert (found["advice"], found["outcome"]) == ("redeliver", "act")


@pytest.mark.parametrize("state", ["ROLLED_BACK", "DISCARDED", "LOST"])
def test_what_has_a_redelivered_copy_is_not_delivered_again(state: str) -> None:
    row = verdict(state, flags=("redelivered",))
    assert (advised(row, SAYS_DONE)["outcome"], advised(row, SAYS_DONE)["advice"]) == ("agrees", "none")
    wrong = advised(row, SAYS_NOT_DONE)
    assert (wrong["outcome"], wrong["advice"]) == ("contradiction", "none")
    still_checked = advised(verdict(state, flags=("redelivered", "open_after_decision")), SAYS_DONE)
    assert (still_checked["outcome"], still_checked["advice"]) == ("contradiction", "none")
    assert advised(verdict(state, own="close", flags=("redelivered",)), SAYS_DONE)["advice"] == "close"


def test_a_discarded_one_whose_half_copies_expired_is_resumed_first() -> None:
    assert advised(verdict("DISCARDED", halves=0, discards=1), SAYS_DONE)["advice"] == "resume"
    gone = advised(verdict("LOST", halves=0), SAYS_DONE)
    assert (gone["advice"], gone["outcome"]) == ("none", "contradiction")


def test_a_discarded_one_that_is_asked_again_is_settled_as_the_ledger_says() -> None:
    row = verdict("DISCARDED", own="wait", discards=1, flags=("open_after_decision",))
    assert advised(row, SAYS_DONE)["advice"] == "commit"
    assert advised(row, SAYS_NOT_DONE)["advice"] == "rollback"


def test_no_rows_at_all() -> None:
    empty = reconciled(pa.RecordBatch.from_pylist([], TRANSACTIONS), pa.RecordBatch.from_pylist([], LOOKED_UP))
    assert empty.num_rows == 0
