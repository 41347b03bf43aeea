"""Whether a stopped broker starts at all: if every release that it may have refuses, no deadline is given."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from rmqtx.readers.model.releases import Version
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.simulation import next_start
from rmqtx.verdicts.simulation.next_start import differing_starts, refused_by_all
from tests.field import field_stores, right
from tests.forge import damage
from tests.forge.stores import copy_of

EMPTY_FILE = "zero-last-queue-file"


def between(store: Store, low: Version, high: Version) -> BrokerSettings:
    """The settings of a broker whose release is known in part."""
    return dataclasses.replace(broker_settings(store, conf={}), version_low=low, version_high=high)


def names(store: Store, low: Version, high: Version) -> list[str]:
    """The files because of which no possible release starts."""
    return [Path(str(one.file)).name for one in refused_by_all(store, between(store, low, high))]


def test_a_foreign_file_in_the_log_is_named_where_every_possible_release_refuses_it(tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path)
    store = open_store(root)
    assert names(store, (4, 9, 7), (4, 9, 7)) == []
    before = set((root / "commitlog").iterdir())
    damage.foreign_file(root / "commitlog")
    [foreign] = set((root / "commitlog").iterdir()) - before
    store = open_store(root)
    assert names(store, (4, 9, 7), (4, 9, 7)) == [foreign.name]
    assert names(store, (4, 9, 7), (5, 5, 0)) == [foreign.name]
    assert names(store, (4, 4, 0), (4, 4, 0)) == []
    assert names(store, (4, 4, 0), (4, 9, 7)) == []  # one of them starts, so transactions have deadlines


def test_a_damaged_configuration_with_a_backup_is_named(tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path)
    file = root / "config" / "consumerOffset.json"
    damage.truncate(file, 20)
    shutil.copy(file, file.with_name(f"{file.name}.bak"))
    assert names(open_store(root), (4, 9, 7), (4, 9, 7)) == [file.name]


def test_an_empty_last_queue_file_stops_the_releases_that_real_brokers_showed(tmp_path: Path) -> None:
    root = field_stores(EMPTY_FILE, tmp_path) / "store"
    store, refused = open_store(root), right(EMPTY_FILE)["start_refused"]
    for version in ((4, 9, 7), (5, 1, 4), (5, 3, 3), (5, 5, 0)):
        word = ".".join(map(str, version))
        assert bool(refused_by_all(store, between(store, version, version))) == refused.get(word, False), word
    assert refused["5.3.3"]
    assert not refused.get("5.5.0", False)
    assert refused_by_all(store, between(store, (5, 3, 3), (5, 5, 0))) == []


def test_it_may_be_the_only_file_of_its_queue(tmp_path: Path) -> None:
    """The files before it expired; a start of 5.0.0 was seen on histories (docs/histories.md)."""
    root = field_stores(EMPTY_FILE, tmp_path) / "store"
    for queue in (root / "consumequeue").glob("*/*"):
        *others, last = sorted(queue.iterdir())
        if others and not any(last.read_bytes()):
            for file in others:
                damage.drop(file)
    store = open_store(root)
    assert refused_by_all(store, between(store, (5, 0, 0), (5, 0, 0)))
    assert not refused_by_all(store, between(store, (4, 9, 7), (4, 9, 7)))


def test_releases_whose_starts_differ_are_all_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One start is refused, another leaves a queue: a deadline of one of them only would be a guess."""
    store = open_store(field_stores(EMPTY_FILE, tmp_path) / "store")
    found = differing_starts(store, between(store, (5, 3, 3), (5, 5, 0)))
    assert len(found) > 1
    assert found == sorted(found)
    assert len(differing_starts(store, between(store, (5, 3, 3), (5, 3, 3)))) <= 1
    # 4.4.0 leaves one state of the queues, 4.5.2 to 4.9.8 another one, 5.0.0 to 5.4.0 do not start, 5.5.0 starts.
    every = [(4, 4, 0), (4, 9, 8), (5, 4, 0), (5, 5, 0)]
    assert differing_starts(store, between(store, (4, 4, 0), (5, 5, 0))) == every
    assert len(differing_starts(store, between(store, (4, 4, 0), (5, 5, 0)), only_refusals=True)) == 2
    monkeypatch.setattr(next_start, "is_bundle", lambda _: True)
    assert differing_starts(store, between(store, (5, 3, 3), (5, 5, 0))) == []


def test_releases_whose_starts_are_the_same_are_played_once(tmp_path: Path) -> None:
    """Else each page of a sound store would say that its future depends on the release."""
    store = open_store(copy_of("common-4.9.7", tmp_path))
    assert len(differing_starts(store, between(store, (4, 9, 7), (5, 5, 0)))) == 1
