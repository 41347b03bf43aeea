"""A version that an operator names: held against what the files show, and against the releases that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.releases import LAST_OF_LINES, dotted, parse_version, release_before
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from tests.brokers import corpus
from tests.forge.stores import copy_of
from tests.representatives import few_quick


@pytest.mark.parametrize(
    ("given", "known"),
    [("9.9.9", LAST_OF_LINES[-1]), ("5.3.9", (5, 3, 4)), ("5.3.3", (5, 3, 3)), ("3.3.0", (3, 2, 999)), ("2.9.9", None)],
)
def test_a_release_that_is_not_known_is_treated_as_the_one_before(
    given: str, known: tuple[int, int, int] | None
) -> None:
    assert release_before(parse_version(given)) == known


@pytest.mark.parametrize("name", ["common-5.3.3", "common-5.1.4", "killed-5.5.0"])
def test_a_version_before_what_the_last_broker_wrote_is_refused(tmp_path: Path, name: str) -> None:
    store = open_store(copy_of(name, tmp_path))
    for version in ("3.2.6", "4.9.8"):
        with pytest.raises(BadRequest, match="contradicts"):
            broker_settings(store, version=version)


def test_a_broker_that_was_set_back_is_believed_and_what_it_once_was_is_said(tmp_path: Path) -> None:
    store = open_store(copy_of("common-5.3.3", tmp_path))
    settings = broker_settings(store, version="5.1.0")
    assert settings.version_low == settings.version_high == (5, 1, 0)
    assert "previously 5.2.0 or later: config/transactionMetrics" in settings.describe()


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    store = open_store(copy_of("common-4.9.7", tmp_path))
    settings = broker_settings(store, version="9.9.9")
    assert settings.version == dotted(LAST_OF_LINES[-1])
    assert "given as 9.9.9, which rmqtx does not know" in settings.describe()
    assert "the last broker was 4.9.8 or earlier" in settings.describe()


@pytest.mark.parametrize("name", few_quick(corpus.all_names()))
def test_the_version_that_wrote_a_store_is_believed_without_a_word(name: str, tmp_path: Path) -> None:
    recipe = corpus.recipe(name)
    version = str(recipe.get("upgrade", recipe["version"]))
    settings = broker_settings(open_store(copy_of(name, tmp_path)), version=version)
    assert settings.version == version
    words = ", previously 5.4.0 or later (rocksdbstore)" if recipe.get("earlier") else ""
    assert settings.origin["version_low"] == f"given{words}"
