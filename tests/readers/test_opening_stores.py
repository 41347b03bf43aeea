"""Several stores on object storage are opened at the same time, in the order of their places."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.readers.queues.slot_files import SIMPLE, slot_files
from rmqtx.readers.store import store
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from tests.forge.stores import copy_of


def test_remote_stores_are_opened_together_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=300)

    def opened(place: str, directories: tuple[str, ...]) -> object:
        both.wait()  # breaks if one is opened after the other
        return place

    monkeypatch.setattr(store, "open_store", opened)
    places = ["s3://evidence/b", "s3://evidence/a"]
    assert list(map(str, store.open_all(places))) == places


def test_two_stores_with_one_path_and_time_do_not_share_listed_queues(tmp_path: Path) -> None:
    """Another store was moved to the place of the first one, within the same millisecond."""
    first = replace(open_store(copy_of("common-4.9.7", tmp_path)), taken_time_ms=1)
    name = (SIMPLE, HALF_TOPIC.encode(), 0)
    own = slot_files(first, name)
    second = replace(open_store(first.root), taken_time_ms=1)
    assert slot_files(first, name) is own
    assert slot_files(second, name) is not own
    assert slot_files(pickle.loads(pickle.dumps(first)), name) is own
