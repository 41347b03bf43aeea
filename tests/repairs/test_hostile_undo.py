"""Undo files that come from elsewhere: forged ones with right hashes, of no store, with values of every kind."""

from __future__ import annotations

import functools
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.errors import FormatError, NotAStore, RmqtxError, StoreChanged, UnsafeStore
from rmqtx.repairs.changes.change_sets import ChangeSet, ReplaceFile, WriteAt
from rmqtx.repairs.changes.execution import execute, resume, state_and_differences, undo
from rmqtx.repairs.changes.undo_frames import END, MAGIC, PRINT, STATE, Frames, encoded
from tests.hostile_values import HOSTILE_VALUES, MISSING, Place, assert_plain, places_in, said_of, with_value
from tests.repairs.small_store import CURSORS, SEGMENT, facts

CHANGES = ChangeSet((WriteAt(SEGMENT, 3000, b"record"), ReplaceFile(CURSORS, b"{}")))


def frames_of(file: Path) -> list[tuple[bytes, bytes]]:
    with file.open("rb") as source:
        assert source.read(len(MAGIC)) == MAGIC
        frames = Frames(file, source)
        return [(kind, content) for kind, content, _ in frames.plan()] + [(STATE, one) for one in frames.states()]


def forge(file: Path, frames: list[tuple[bytes, bytes]]) -> None:
    """Write an undo file whose every hash is right."""
    data, chain = bytearray(MAGIC), b""
    for kind, content in frames:
        frame, chain = encoded(kind, content, chain)
        data += frame
    file.write_bytes(data)


def changed(frames: list[tuple[bytes, bytes]], number: int, change: Callable[[Any], Any]) -> list[tuple[bytes, bytes]]:
    kind, content = frames[number]
    plain = zlib.decompress(content) if kind == PRINT else content
    text = json.dumps(change(json.loads(plain))).encode()
    return [*frames[:number], (kind, zlib.compress(text) if kind == PRINT else text), *frames[number + 1 :]]


def swapped(place: Place, other: Any, value: Any) -> Any:
    return with_value(value, place, other)


def test_a_forged_root_that_is_no_store_is_not_written_to(store: Path, kept: Path, tmp_path: Path) -> None:
    """The same files in a directory that is none: only its log makes a store one, and its first record which one."""
    execute(CHANGES, store, kept)
    home = tmp_path / "home"
    home.mkdir()
    (home / "notes.txt").write_bytes(b"mine")
    frames = frames_of(kept)
    forge(kept, changed(frames, 0, lambda head: {**head, "root": str(home), "first_record": None}))
    before = facts(home)
    for act in (undo, resume, state_and_differences):
        with pytest.raises(NotAStore):
            act(kept)
    assert facts(home) == before


def test_another_store_is_refused_before_anything_is_made_in_it(store: Path, kept: Path, tmp_path: Path) -> None:
    execute(CHANGES, store, kept)
    other = tmp_path / "other"
    for path in (SEGMENT, CURSORS):
        (other / path).parent.mkdir(parents=True)
        (other / path).write_bytes((store / path).read_bytes())
    (other / SEGMENT).write_bytes(b"\xab" + (store / SEGMENT).read_bytes()[1:])
    before = facts(other)
    with pytest.raises(StoreChanged, match="the first record of its log is different"):
        undo(kept, other, times=False)
    assert facts(other) == before
    (other / SEGMENT).write_bytes((store / SEGMENT).read_bytes())  # the same begin, and other files
    before = facts(other)
    with pytest.raises(StoreChanged, match="has changed since the last use of"):
        undo(kept, other, times=False)
    assert facts(other) == before, "not even a lock"


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../home/.ssh/authorized_keys", "config/../../x", "lock", "authorized_keys", "etc/x", "", "a\0b"],
)
def test_a_forged_path_is_refused(store: Path, kept: Path, path: str) -> None:
    execute(CHANGES, store, kept)
    frames, before = frames_of(kept), facts(store)
    number = next(number for number, (kind, _) in enumerate(frames) if kind == b"edit")
    forge(kept, changed(frames, number, lambda edit: {**edit, "path": path}))
    with pytest.raises(FormatError):
        undo(kept)
    assert facts(store) == before


@pytest.mark.parametrize("mode", [0o4755, 0o1000, -1])
def test_special_permissions_are_refused(store: Path, kept: Path, mode: int) -> None:
    execute(CHANGES, store, kept)
    frames = frames_of(kept)
    number = max(number for number, (kind, _) in enumerate(frames) if kind == b"edit")
    forge(kept, changed(frames, number, lambda edit: {**edit, "attributes": {**edit["attributes"], "mode": mode}}))
    with pytest.raises(FormatError, match="mode"):
        undo(kept)


def test_every_field_with_every_value_is_one_sentence(store: Path, kept: Path) -> None:
    """Each field of each frame, hashes right: only our own errors, and a store that is as before."""
    execute(CHANGES, store, kept)
    frames, before, tried = frames_of(kept), facts(store), 0
    for number, (kind, content) in enumerate(frames):
        if kind in (b"befo", b"aftr"):
            continue
        plain = json.loads(zlib.decompress(content) if kind == PRINT else content)
        for place in places_in(plain):
            for value in HOSTILE_VALUES.values():
                forge(kept, changed(frames, number, functools.partial(swapped, place, value)))
                assert_plain(said_of(lambda: state_and_differences(kept)))
                tried += 1
    assert tried > 300
    assert facts(store) == before
    assert MISSING in HOSTILE_VALUES.values()


def test_frames_in_another_order_and_a_bomb_are_refused(
    store: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtx.repairs.changes.undo_frames._PRINT_BYTES_MAX", 1 << 20)
    execute(CHANGES, store, kept)
    frames = frames_of(kept)
    bomb = zlib.compress(b" " * (1 << 21), 9)
    for others in (frames[::-1], frames[1:], [*frames[:1], (b"befo", b""), *frames[1:]], [frames[0], (END, b"{}")],
                   [frames[0], (PRINT, bomb), *frames[2:]], [frames[0], (PRINT, b"x"), *frames[2:]]):
        forge(kept, others)
        with pytest.raises(FormatError):
            state_and_differences(kept)


def test_a_pipe_is_no_undo_file(kept: Path) -> None:
    os.mkfifo(kept)
    with pytest.raises(FormatError, match="not a regular file"):
        state_and_differences(kept)


def test_a_link_out_of_the_store_is_not_written_through(store: Path, kept: Path, tmp_path: Path) -> None:
    target = tmp_path / "passwd"
    target.write_bytes(b"root")
    (store / CURSORS).unlink()
    (store / CURSORS).symlink_to(target)
    with pytest.raises(UnsafeStore, match=r"consumerOffset\.json leads out of the store, to .*passwd"):
        execute(CHANGES, store, kept)
    assert target.read_bytes() == b"root"
    assert not kept.exists()


def test_a_lock_that_is_a_link_makes_nothing_elsewhere(store: Path, kept: Path, tmp_path: Path) -> None:
    (store / "lock").unlink()
    (store / "lock").symlink_to(tmp_path / "made")
    with pytest.raises(RmqtxError, match="link"):
        execute(CHANGES, store, kept)
    assert not (tmp_path / "made").exists()


def test_a_file_with_two_names_is_not_written_into(store: Path, kept: Path, tmp_path: Path) -> None:
    os.link(store / SEGMENT, tmp_path / "backup")
    before = (tmp_path / "backup").read_bytes()
    with pytest.raises(UnsafeStore, match="has 2 hard links"):
        execute(CHANGES, store, kept)
    (tmp_path / "backup").unlink()
    execute(CHANGES, store, kept)
    os.link(store / SEGMENT, tmp_path / "backup")
    with pytest.raises(UnsafeStore, match="has 2 hard links"):
        undo(kept)
    assert (tmp_path / "backup").read_bytes() != before
