"""Which columns a table has on a terminal: those worth most, as many as there is room for; sentences wrap."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, INCOMPLETE
from rmqtx_cli.words.text import width, wrapped
from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.cli.terminal import on_terminal
from tests.representatives import rest_is_slow

Stores = Callable[[str], Path]


def shown(words: list[object], columns: int) -> list[str]:
    """The lines of stdout on a terminal of this width."""
    every = [*WARM, *map(str, words)]
    return on_terminal(every, with_stderr=False, COLUMNS=str(columns), NO_COLOR="1")[1].splitlines()


@pytest.mark.parametrize(
    "name", rest_is_slow(
        ["common-5.3.3", "prepared-3.2.6", "rocksdb-5.5.0", "killed-5.3.3", "poison-4.5.0", "statetable-3.1.4"], quick=3
    ),
)
def test_at_80_columns_pending_has_what_tells_one_from_another(rmqtx: Run, corpus_store: Stores, name: str) -> None:
    store = corpus_store(name)
    head, *rows = shown(["pending", store], 80)
    assert {"id", "age", "topic", "keys", "advice"} <= set(head.split())
    times = rmqtx("pending", store, "--format", "csv", "--fields", "discard_at_ms").out.splitlines()[1:]
    is_timed = any(line.strip(",") for line in times)
    assert ("discard_in" in head.split()) == is_timed
    assert is_timed or "group" in head.split()
    assert max(width(line) for line in [head, *rows]) <= 80
    short = rows[0].split()[0]
    whole = rmqtx("pending", store, "--format", "csv", "--fields", "transaction_id").out.splitlines()[1]
    assert len(short) < len(whole)
    assert whole.endswith(short)
    # Some possible releases stop at the half message of poison-4.5.0, others discard it.
    status = INCOMPLETE if name == "poison-4.5.0" else DONE
    page = rmqtx("show", short, "--store", store)
    assert (page.status, page.out.split()[0]) == (status, whole)


@pytest.mark.parametrize("columns", rest_is_slow([80, 40, 60, 100]))
def test_the_time_that_is_left_is_the_last_to_go(corpus_store: Stores, columns: int) -> None:
    head = shown(["pending", corpus_store("common-5.3.3")], columns)[0].split()
    assert {"id", "age", "discard_in"} <= set(head)
    assert "discard_in" in shown(["pending", corpus_store("rocksdb-5.5.0"), "--all-open"], 80)[0].split()


def test_more_columns_show_more_and_wide_or_a_pipe_all(rmqtx: Run, common: Path) -> None:
    heads = [set(shown(["pending", common], columns)[0].replace("transaction_id", "id").split())
             for columns in (40, 80, 120, 160, 220)]
    for narrow, wider in itertools.pairwise(heads):
        assert narrow <= wider
    piped = rmqtx("pending", common)
    assert shown(["pending", common, "--wide"], 40)[0] == piped.out.splitlines()[0]
    assert set(piped.out.splitlines()[0].replace("transaction_id", "id").split()) == heads[-1]
    assert "left out" not in piped.err


@pytest.mark.parametrize(
    "words",
    [
        ["audit"], ["decode", "half"], ["decode", "op"], ["decode", "commitlog"], ["search", "--topic", "orders"],
        ["simulate"], ["simulate", "--show", "transactions"], ["simulate", "--show", "rounds"], ["verify"],
        ["diff", "--limit", "9", "POISON"], ["show", "K-9976-poison_before.2", "--store"],
    ],
)
@pytest.mark.parametrize("columns", rest_is_slow([80, 120], quick=1))
def test_no_line_of_a_table_is_longer_than_the_terminal(corpus_store: Stores, words: list[str], columns: int) -> None:
    poison = corpus_store("poison-4.5.0")
    other = corpus_store("common-5.3.3") if "POISON" in words else poison
    lines = shown([*(poison if word == "POISON" else word for word in words), other], columns)
    assert len(lines) > 1
    assert max(width(line) for line in lines) <= columns


@pytest.mark.parametrize("columns", rest_is_slow([80, 60, 120], quick=1))
def test_what_verify_and_show_say_is_never_cut(rmqtx: Run, corpus_store: Stores, columns: int) -> None:
    store = corpus_store("poison-4.5.0")
    lines = shown(["verify", store], columns)
    meaning = rmqtx("verify", store, "--format", "csv", "--fields", "meaning").out.splitlines()[1]
    start = lines[0].index("meaning")
    assert " ".join(line[start:] for line in lines[1:]) == meaning.strip('"')
    identity = "C00002026E424E0E2F2A6FC7E33B0011"
    page, piped = shown(["show", identity, "--store", store], columns), rmqtx("show", identity, "--store", store).out
    assert "…" not in "".join(page)
    reason = next(line for line in piped.splitlines() if line.startswith("why "))
    assert " ".join(reason.split()) in " ".join(" ".join(page).split())
    for detail in ("half message stored", "check 1: put back"):
        start = next(line for line in page if " event " in line and "detail" in line).index("detail")
        assert detail in " ".join(line[start:].strip() for line in page)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["pending"], "age checks topic group half log_offset flags advice discard_in -keys deadline"),
        (["audit"], "state age group,-checks"),
        (["decode", "half"], "half -store_time checks"),
        (["decode", "commitlog"], "bytes topic,-commit_log_offset"),
        (["search", "--topic", "orders"], "keys -store_time"),
        (["simulate"], "action -half bytes"),
        (["verify"], "code -severity"),
        (["audit", "--summary"], "pending group -all"),
    ],
)
def test_every_listing_sorts_by_the_names_that_its_head_shows(
    rmqtx: Run, corpus_store: Stores, words: list[str], names: str
) -> None:
    store = corpus_store("poison-4.5.0")
    unsorted = rmqtx(*words, store)
    for name in names.split():
        result = rmqtx(*words, store, "--sort", name)
        assert result.status == unsorted.status, result.err
        assert result.out.count("\n") == unsorted.out.count("\n")
    wrong = rmqtx(*words, store, "--sort", "stare")
    assert (wrong.status, wrong.out) == (2, "")
    assert "--sort: no column 'stare' - " in wrong.err


def test_sorted_rows_are_in_order_whatever_the_limit_lets_pass(
    rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def column(*words: str) -> list[int]:
        listed = ["decode", "half", common, "--format", "csv", "--fields", "checks_count,queue_offset", *words]
        return [int(line.split(",")[1]) for line in rmqtx(*listed).out.splitlines()[1:]]

    every = column("--sort", "checks,-half")
    assert every != sorted(every)
    assert sorted(every) == list(range(289))
    monkeypatch.setattr("rmqtx_cli.output.listing._SORTED_ROWS_MAX", 3)
    assert column("--sort", "checks,-half", "--limit", "7") == every[:7]
    assert column("--sort", "-half") == list(range(288, -1, -1))
    oldest = rmqtx("pending", common, "--sort", "-age", "--format", "csv", "--fields", "age").out.splitlines()[1:]
    assert [int(age) for age in oldest] == sorted(int(age) for age in oldest)
    assert "cannot be sorted by" in rmqtx("pending", common, "--sort", "half_copies").err


def test_text_is_wrapped_between_words_by_the_cells_it_takes() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("one abcdefghij", 7, 5) == ["one", "abcde", "fghij"]  # a long word keeps its characters together
    assert wrapped("abcdefgh ij", 3) == ["abc", "def", "gh", "ij"]
    assert wrapped("订单订单 x", 4) == ["订单", "订单", "x"]
    assert wrapped("", 9) == [""]


def test_chosen_durations_are_printed_as_in_the_table(rmqtx: Run, common: Path) -> None:
    listed = rmqtx("pending", common).out.splitlines()
    chosen = rmqtx("pending", common, "--fields", "id,age,discard_in").out.splitlines()
    assert chosen[0].split() == ["transaction_id", "age", "discard_in"]
    for line, short in zip(listed[1:], chosen[1:], strict=True):
        assert short.split() == [line.split()[0], line.split()[1], line.split()[-1]]
    csv = rmqtx("pending", common, "--fields", "id,age,discard_in", "--format", "csv").out.splitlines()
    assert csv[0] == "transaction_id,age_ms,discard_in_ms"
    assert all(one.lstrip("-").isdigit() for one in csv[1].split(",")[1:])
