"""A file or directory that this user may not read is reported as that, by each command, and never as missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Warm
from tests.representatives import rest_is_slow

#: Takes from root the right to read everything.
_BARE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
PLACES = [
    "commitlog", "config/consumerOffset.json", "consumequeue", "", "config", "commitlog/00000000000000000000", "index",
    "consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0", "consumequeue/RMQ_SYS_TRANS_OP_HALF_TOPIC/0/00000000000000000000",
    "checkpoint", "config/topics.json", "config/transactionMetrics", "lock",
]
COMMANDS = [
    ["pending", "STORE"], ["audit", "STORE"], ["verify", "STORE", "--broker-version", "5.3.3"], ["stores", "STORE"],
    ["show", "X", "--store", "STORE"], ["diagnose", "STORE"], ["simulate", "STORE"], ["search", "STORE", "--key", "x"],
    ["report", "STORE", "-o", "NEW"], ["decode", "half", "STORE"], ["decode", "cursors", "STORE"],
    ["salvage", "STORE", "--to", "NEW"], ["rebuild", "all", "STORE", "--to", "NEW"],
    ["bundle", "STORE", "--transaction", "X", "--to", "NEW"],
    ["commit", "X", "--store", "STORE", "--to", "NEW", "--reason", "x", "--yes"], ["diff", "STORE", "OTHER"],
    ["audit", "STORE", "--processes", "2"], ["watch", "STORE", "--plain"],
]


def bare() -> list[str]:
    """The command that runs rmqtx without root's rights."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None or subprocess.run([*_BARE, "true"], check=False).returncode:
        pytest.skip("root may read everything, and setpriv cannot take that right away")
    return _BARE


RMQTX = Warm(bare)


@pytest.fixture
def store(common: Path, tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "perm" / "store"
    shutil.copytree(common, root)
    yield root
    subprocess.run(["chmod", "-R", "u+rwX", str(root.parent)], check=True)


def run(store: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    top = store.parent.parent
    given = {"STORE": str(store), "NEW": str(top / "new.html"), "OTHER": str(top / "other")}
    named = [given.get(word, word) for word in words]
    return subprocess.run([*RMQTX, *named], capture_output=True, text=True, check=False)


def denied(place: Path) -> str:
    return f"rmqtx: cannot read {place}: permission denied - run as the broker's user\n"


@pytest.mark.parametrize("place", rest_is_slow(PLACES, quick=2))
def test_the_place_is_named_first_and_nothing_follows_from_it(store: Path, place: str) -> None:
    closed = store / place
    if place == "lock":
        closed.touch()
    closed.chmod(0)
    done = run(store, ["verify", "STORE", "--broker-version", "5.3.3"])
    assert (done.returncode, done.stderr, done.stdout) == (10, denied(closed), "")
    done = run(store, ["check", "STORE"])
    assert done.returncode == 3
    assert done.stdout == f"RMQTX UNKNOWN - cannot read {closed}: permission denied - run as the broker's user\n"


@pytest.mark.parametrize("words", rest_is_slow(COMMANDS, quick=2), ids=lambda words: " ".join(words[:2]))
def test_every_command_that_opens_stores(store: Path, common: Path, words: list[str]) -> None:
    shutil.copytree(common, store.parent.parent / "other")
    closed = store / "config"
    closed.chmod(0)
    done = run(store, words)
    assert (done.returncode, done.stderr, done.stdout) == (10, denied(closed), "")
    assert not (store.parent.parent / "new.html").exists()


def test_nothing_is_predicted_if_a_queue_of_another_topic_cannot_be_read(store: Path) -> None:
    """The next events were unknown, and decided transactions had the flag open_after_decision, with status 0."""
    file = next((store / "consumequeue" / "orders").rglob("0000*"))
    file.chmod(0)
    for words in (["pending", "STORE"], ["audit", "STORE"], ["diagnose", "STORE"]):
        done = run(store, [*words, "--broker-version", "5.3.3"])
        assert (done.returncode, f"error: unreadable-file: {file}" in done.stderr) == (3, True), words


def test_a_queue_of_another_topic(store: Path) -> None:
    topic = next(one for one in (store / "consumequeue").iterdir() if "RMQ" not in one.name and "TRANS" not in one.name)
    topic.chmod(0)
    assert run(store, ["verify", "STORE"]).stderr.splitlines()[-1] + "\n" == denied(topic)
    topic.chmod(0o755)
    file = next(topic.rglob("0000*"))
    file.chmod(0)
    done = run(store, ["verify", "STORE", "--broker-version", "5.3.3", "--format", "csv", "--fields", "severity,code"])
    assert done.returncode == 1
    assert "error,unreadable-file" in done.stdout
    assert "start-deletes" not in done.stdout


def test_what_no_verdict_needs_may_be_closed(store: Path) -> None:
    for name in ("lost+found", "config/users", "kvStore"):
        (store / name).mkdir(exist_ok=True)
        (store / name).chmod(0)
    assert run(store, ["pending", "STORE"]).returncode == 0


def test_an_inventory_lists_the_others_and_names_those_it_cannot_read(store: Path) -> None:
    top = store.parent
    for name in ("a", "b", "c"):
        (top / name).mkdir()
    shutil.copytree(store, top / "a" / "store")
    shutil.copytree(store, top / "c" / "store")
    (top / "b").chmod(0)
    (top / "c" / "store" / "config").chmod(0)
    done = run(top, ["stores", "STORE", "--format", "csv", "--fields", "store"])
    assert done.stdout.splitlines() == ["store", str(top / "a" / "store"), str(store)]
    assert done.stderr == denied(top / "b") + denied(top / "c" / "store" / "config")
    assert done.returncode == 3


def test_a_name_that_is_not_utf_8_does_not_end_an_inventory(store: Path) -> None:
    top = store.parent
    strange = os.fsencode(top) + b"/b\xff"
    shutil.copytree(store, Path(os.fsdecode(strange)) / "store")
    done = run(top, ["stores", "STORE", "--format", "csv", "--fields", "store"])
    assert done.stdout.splitlines() == ["store", str(store)]
    assert done.returncode == 3
    link = top.parent / "link"
    advice = f"read it through a link: ln -s $'{top}/b\\xff/store' /tmp/store, then give /tmp/store"
    assert done.stderr == f"rmqtx: cannot read {top}/b\\xff/store: its name is not UTF-8 - {advice}\n"
    os.symlink(strange + b"/store", os.fsencode(link))  # noqa: PTH211 - pathlib takes no bytes
    named = run(link, ["pending", "STORE", "--format", "csv", "--fields", "id"])
    assert named.returncode == 0
    assert named.stdout == run(store, ["pending", "STORE", "--format", "csv", "--fields", "id"]).stdout
    named = run(Path(os.fsdecode(strange)) / "store", ["pending", "STORE"])
    assert (named.returncode, named.stderr) == (10, done.stderr)
