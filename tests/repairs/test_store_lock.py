"""The lock of a store: what a broker sees of ours, what we see of a broker's, and that looking does not lose it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import NotAStore, StoreInUse
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.changes import store_lock
from rmqtx.repairs.changes.store_lock import leave_no_lock, store_locked, store_shared
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


def test_a_store_without_a_lock_has_an_empty_one_only_while_it_is_locked(store: Path) -> None:
    (store / "lock").unlink()
    before = sorted(path.name for path in store.iterdir())
    with store_shared(store):
        assert not (store / "lock").exists()
    with store_locked(store):
        assert (store / "lock").read_bytes() == b""  # later brokers write "lock" into theirs
        with store_locked(store):  # does not end with the inner one
            pass
        assert told_to_a_broker(store) == "refused"
    assert sorted(path.name for path in store.iterdir()) == before
    with pytest.raises(NotAStore), store_locked(store / "none"):
        pass


def test_a_lock_that_a_broker_has_opened_meanwhile_stays(store: Path) -> None:
    """A broker opens the lock when it begins to start, and locks it later: it must be the file that others lock."""
    (store / "lock").unlink()
    program = "import sys; file = open(sys.argv[1], 'r+b'); print('open', flush=True); sys.stdin.read()"
    with (
        store_locked(store),
        subprocess.Popen(
            [sys.executable, "-c", program, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as broker,
    ):
        assert broker.stdout is not None
        assert broker.stdin is not None
        assert broker.stdout.readline() == b"open\n"
        leave_no_lock(store)
        broker.stdin.close()
    assert not (store / "lock").exists()  # it had ended before the release
    with subprocess.Popen(
        [sys.executable, "-c", program.replace("'r+b'", "'a+b'"), str(store / "lock")], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        assert broker.stdout.readline() == b"open\n"
        number = (store / "lock").stat().st_ino
        with store_locked(store):
            leave_no_lock(store)
        assert (store / "lock").stat().st_ino == number
        broker.stdin.close()


def test_a_lock_with_the_word_of_a_broker_stays(store: Path) -> None:
    (store / "lock").write_bytes(b"lock")
    with store_locked(store):
        leave_no_lock(store)
    assert (store / "lock").read_bytes() == b"lock"
    (store / "lock").unlink()
    with store_locked(store):
        (store / "lock").write_bytes(b"lock")
    assert (store / "lock").read_bytes() == b"lock"


def test_a_lock_that_was_removed_while_it_was_taken_is_opened_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "lock").write_bytes(b"")
    taken = store_lock._take
    opened: list[Path] = []

    def slowly(descriptor: int, place: Path, kind: int) -> None:
        if not opened:
            place.unlink()  # as its maker does
        opened.append(place)
        taken(descriptor, place, kind)

    monkeypatch.setattr(store_lock, "_take", slowly)
    with store_locked(store):
        assert len(opened) == 2
        assert told_to_a_broker(store) == "refused"
