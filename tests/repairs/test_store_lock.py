"""The lock of a store: what a broker sees of ours, what we see of a broker's, and that looking does not lose it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import NotAStore, StoreInUse
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.changes.store_lock import store_locked, store_shared
from tests.repairs.broker_lock import locked_by_a_broker


def told_to_a_broker(store: Path) -> str:
    with locked_by_a_broker(store) as answer:
        return answer


def test_a_running_broker_keeps_us_out(store: Path) -> None:
    with locked_by_a_broker(store) as answer:
        assert answer == "locked"
        with pytest.raises(StoreInUse, match=r"process \d+ holds its lock"), store_locked(store):
            pass
        with pytest.raises(StoreInUse), store_shared(store):
            pass
    with store_locked(store):
        pass


def test_we_keep_a_broker_out_and_only_as_long_as_needed(store: Path) -> None:
    with store_locked(store):
        assert told_to_a_broker(store) == "refused"
        with store_locked(store):
            pass
        assert told_to_a_broker(store) == "refused"
    assert told_to_a_broker(store) == "locked"
    with store_shared(store):
        assert told_to_a_broker(store) == "refused"
    assert told_to_a_broker(store) == "locked"


def test_looking_at_the_store_does_not_lose_the_lock(store: Path) -> None:
    with store_locked(store):
        assert not open_store(store).in_use
        (store / "lock").read_bytes()  # a lock of the older kind would be gone now
        assert told_to_a_broker(store) == "refused"


def test_another_of_us_is_kept_out_and_sees_the_store_in_use(store: Path) -> None:
    program = (
        "import sys; from rmqtx.readers.store.store import open_store; print(open_store(sys.argv[1]).used_by_process)\n"
        "from rmqtx.repairs.changes.store_lock import store_locked\n"
        "with store_locked(sys.argv[1]): pass"
    )
    with store_locked(store):
        done = subprocess.run([sys.executable, "-c", program, str(store)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "-1"
    assert "StoreInUse" in done.stderr


def test_a_store_without_a_lock_gets_an_empty_one(store: Path) -> None:
    (store / "lock").unlink()
    with store_shared(store):
        assert not (store / "lock").exists()
    with store_locked(store):
        assert told_to_a_broker(store) == "refused"
    assert (store / "lock").read_bytes() == b""  # brokers before 4.0 have none, later ones write "lock" into theirs
    with pytest.raises(NotAStore), store_locked(store / "none"):
        pass
