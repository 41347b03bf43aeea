"""The stores that `make test` reads stand for all of the corpus."""

from __future__ import annotations

import pytest

from tests.brokers import corpus
from tests.conftest import ROOT
from tests.file_seconds import SECONDS, SPARK_TESTS, order_of
from tests.forge.stores import WITH_SEVERAL_SEGMENTS, has_several_segments
from tests.representatives import FEW, REPRESENTATIVES, each_store, family_of, in_two_ways


def design_and_releases(name: str) -> tuple[str, ...]:
    """Who wrote a store, one after another, and how it keeps transactions."""
    recipe = corpus.recipe(name)
    releases = (*recipe.get("earlier", ()), recipe["version"], *([recipe["upgrade"]] if "upgrade" in recipe else ()))
    return str(recipe.get("design", corpus.HALF_TOPIC_DESIGN)), *map(str, releases)


def test_each_family_has_one() -> None:
    assert {family_of(name) for name in REPRESENTATIVES} == {family_of(name) for name in corpus.all_names()}


def test_each_release_of_each_design_has_one() -> None:
    wanted = {design_and_releases(name) for name in corpus.all_names()}
    assert {design_and_releases(name) for name in REPRESENTATIVES} == wanted


def test_each_is_there_and_says_why() -> None:
    assert set(REPRESENTATIVES) <= set(corpus.all_names())
    assert all(REPRESENTATIVES.values())
    assert len(set(REPRESENTATIVES.values())) == len(REPRESENTATIVES)


def test_no_store_is_left_out_and_the_others_are_slow() -> None:
    parameters = each_store(corpus.all_names())
    assert [parameter.values[0] for parameter in parameters] == corpus.all_names()
    slow = {parameter.values[0] for parameter in parameters if [mark.name for mark in parameter.marks] == ["slow"]}
    assert slow == set(corpus.all_names()) - set(REPRESENTATIVES)


def test_the_few_are_some_of_them() -> None:
    assert set(FEW) < set(REPRESENTATIVES)
    designs = {corpus.recipe(name).get("design") for name in FEW}
    assert designs == {corpus.recipe(name).get("design") for name in corpus.all_names()}
    parameters = in_two_ways(corpus.all_names())
    assert [parameter.values[0] for parameter in parameters] == corpus.all_names()
    deep = {parameter.values[0] for parameter in parameters if [mark.name for mark in parameter.marks] == ["deep"]}
    assert deep == set(corpus.all_names()) - set(FEW)


@pytest.mark.slow
def test_these_have_several_segments() -> None:
    assert [name for name in corpus.corpus_names() if has_several_segments(name)] == list(WITH_SEVERAL_SEGMENTS)


def test_the_longest_files_begin_first() -> None:
    assert [name for name in SECONDS if not (ROOT / name).exists()] == []
    few, many = "tests/brokers/test_growing_tables.py", "tests/readers/test_index.py"
    spark = f"{SPARK_TESTS}test_java.py::test_one"
    order = order_of([*(f"{many}::test_{number}" for number in range(100)), f"{few}::test_one", spark])
    assert sorted(order, key=lambda scope: order[scope]) == [SPARK_TESTS, few, many]


def test_make_looks_for_tests_with_brokers_where_they_are() -> None:
    [line] = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("BROKER_TESTS := ")]
    folders = [ROOT / folder for folder in line.partition(" := ")[2].split()]
    word = f"mark.{'broker'}"
    marked = [path for path in (ROOT / "tests").rglob("*.py") if word in path.read_text(encoding="utf-8")]
    assert len(marked) >= 20
    assert [str(path) for path in marked if not any(path.is_relative_to(folder) for folder in folders)] == []
