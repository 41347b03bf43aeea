"""Each reason is made of its code: the sentence of every verdict is the one that its code declares."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.model.verdict_words import STATES
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx.verdicts.transactions.reason_codes import REASONS
from rmqtx.verdicts.transactions.reasons import Values
from tests.brokers import corpus
from tests.forge.stores import copy_of, settings_of
from tests.representatives import one_of_each_design
from tests.verdicts.truth import Row, audited


def pattern_of(code: str) -> re.Pattern[str]:
    """What a sentence of a code looks like: its own words, whatever stands in braces, and what is odd behind it."""
    parts = string.Formatter().parse(REASONS[code].sentence)
    words = "".join(re.escape(text) + ("" if name is None else ".*") for text, name, _, _ in parts)
    return re.compile(f"{words}(; .*)?")


def require_own_sentences(rows: list[Row]) -> None:
    for row in rows:
        code = row["reason_code"]
        assert REASONS[code].state == row["state"], row
        assert pattern_of(code).fullmatch(row["reason"]), row


@pytest.mark.parametrize("name", one_of_each_design(corpus.all_names()))
def test_the_sentence_of_a_verdict_is_that_of_its_code(name: str) -> None:
    if "rocksdb" in name:
        pytest.importorskip("rocksdict")
    require_own_sentences(audited(name))


def test_so_it_is_where_bytes_and_cursors_are_missing(tmp_path: Path) -> None:
    name = "common-5.3.3"
    root = copy_of(name, tmp_path)
    file = min((root / "commitlog").iterdir())
    end = len(file.read_bytes().rstrip(b"\0"))
    with file.open("r+b") as log:
        log.seek(end // 3)
        log.write(b"\xee" * 700)
    for cursors in root.glob("config/consumerOffset.json*"):
        cursors.unlink()
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    require_own_sentences(rows)
    assert {"log_missing", "cursor_unknown"} <= {row["reason_code"] for row in rows}


def test_every_code_belongs_to_a_state_and_says_nothing_but_what_can_be_filled_in() -> None:
    assert {reason.state for reason in REASONS.values()} == set(STATES)
    assert set(REASONS).isdisjoint(FLAGS)
    for code, reason in REASONS.items():
        for _, name, _, _ in string.Formatter().parse(reason.sentence):
            assert name is None or isinstance(getattr(Values, name, None), property), (code, name)
