"""Several stores on object storage are opened at the same time, in the order of their places."""

from __future__ import annotations

import threading

import pytest

from rmqtx.readers.store import opening_stores


def test_remote_stores_are_opened_together_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=300)

    def opened(place: str, directories: tuple[str, ...]) -> object:
        both.wait()  # breaks if one is opened after the other
        return place

    monkeypatch.setattr(opening_stores, "open_store", opened)
    places = ["s3://evidence/b", "s3://evidence/a"]
    assert list(map(str, opening_stores.open_all(places))) == places
