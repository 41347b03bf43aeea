"""A plan of all four actions applied in place by the command, on a store that a real broker wrote: what it writes, in
which order, and every state that a crash can leave it in.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from rmqtx.readers.model import exit_status
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.main import status_of
from tests.brokers import corpus
from tests.forge.stores import copy_of
from tests.repairs.crash_states import Operation, Recorder, State, snapshot

#: Which of a store's histories is ended how.
ACTIONS = {"pending.0": "commit", "pending.1": "rollback", "pending.2": "discard", "pending.3": "commit",
           "never_answered.0": "resume"}
PLAN, BROKER_CONF, UNDO_FILE, STATE, STORE = "plan.json", "broker.conf", "kept/undo", "state", "store"


@dataclass(frozen=True)
class Told:
    """What a command said, and its exit status."""

    status: int
    err: str


class Scene:
    """A directory with a store, the plan for it, its undo file and its journal.

    Every command runs within the directory, with paths that hold wherever it lies.
    """

    def __init__(self, top: Path, name: str) -> None:
        self.top, self.name, self.version = top, name, corpus.recipe(name)["version"]
        self.store, self.undo_file, self.journal = top / STORE, top / UNDO_FILE, Journal(top / STATE / "receipts.jsonl")

    def prepare(self) -> None:
        """Lay out the store, and have the plan written by `rmqtx plan`."""
        copy_of(self.name, self.top)
        for directory in (self.undo_file.parent, self.top / STATE / "messages"):
            directory.mkdir(parents=True)
        (self.top / BROKER_CONF).write_text("".join(f"{key}={value}\n" for key, value in self.conf.items()))
        ids = self.ids()
        plans = []
        for action in dict.fromkeys(ACTIONS.values()):
            names = [ids[case] for case, other in ACTIONS.items() if other == action]
            made = self.run("plan", action, *names, "--store", self.store, *self.version_options, "--reason", "a test",
                            "-o", self.top / f"{action}.json")
            assert made.status == exit_status.DONE, made.err
            plans.append(json.loads((self.top / f"{action}.json").read_text()))
            (self.top / f"{action}.json").unlink()
        steps = [step for plan in plans for step in plan["steps"]]
        (self.top / PLAN).write_text(json.dumps({**plans[0], "steps": steps}))

    @property
    def conf(self) -> dict[str, str]:
        """The broker's configuration; nothing is too old."""
        return {**corpus.recipe(self.name)["broker_conf"], "fileReservedTime": "100000"}

    @property
    def version_options(self) -> tuple[object, ...]:
        """What a command is told of the broker."""
        return "--broker-conf", self.top / BROKER_CONF, "--broker-version", self.version

    def ids(self) -> dict[str, str]:
        """Transaction ids by history."""
        return {row["case"]: row["transaction_id"] for row in corpus.expected(self.name)}

    def run(self, *arguments: object) -> Told:
        """A command line, in this process."""
        err = io.StringIO()
        with (
            mock.patch.dict(os.environ, {"RMQTX_STATE_DIR": str(self.top / STATE)}),
            contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
        ):
            status = status_of([str(argument) for argument in arguments])
        return Told(status, err.getvalue())

    def apply(self, undo_file: Path | None = None, *more: str) -> Told:
        """`rmqtx apply PLAN --store STORE --in-place --undo FILE`.

        What clients saw says that what it commits was undecided, so it may on a killed store too.
        """
        return self.run("apply", self.top / PLAN, "--store", self.store, "--in-place", "--undo",
                        undo_file or self.undo_file, *self.version_options, "--override", "op-in-memory", "--reason",
                        "a test", *more, "--yes")

    def set_cursors(self, undo_file: Path | None = None) -> Told:
        """`rmqtx cursor set` of both cursors to the begin of their queues, which has decided ones asked for again."""
        return self.run("cursor", "set", "--half", "0", "--op", "0", "--store", self.store, "--in-place", "--undo",
                        undo_file or self.undo_file, *self.version_options, "--override", "asked-again", "--reason",
                        "a test", "--yes")

    def undo(self, *more: str) -> Told:
        """`rmqtx undo FILE`."""
        return self.run("undo", self.undo_file, "--store", self.store, "--yes", *more)

    def content(self) -> dict[str, bytes]:
        """The store's files."""
        return snapshot(self.store)

    def rows(self) -> dict[str, dict[str, Any]]:
        """Every transaction by its history, as `rmqtx audit` has it."""
        output = self.top / "rows.json"
        told = self.run("audit", self.store, *self.version_options, "-o", output, "--format", "json", "--quiet")
        assert told.status in (exit_status.DONE, exit_status.INCOMPLETE), told.err
        rows = json.loads(output.read_text())
        output.unlink()
        cases = {name: case for case, name in self.ids().items()}
        return {cases[row["transaction_id"]]: row for row in rows}


class Watcher(Recorder):
    """Writes down also what the journal does, which has no `FileOperations`: what is there after each of its steps."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self._sizes = {path: len(content) for path, content in self.base.items()}

    def journalled(self) -> None:
        """Write down what the state directory has more than before, and that it was synced."""
        for file in sorted((self.top / STATE).rglob("*")):
            if not file.is_file():
                continue
            name, content = self._name(file), file.read_bytes()
            if name not in self.inodes:
                self.inodes[name], self.next_inode = self.next_inode, self.next_inode + 1
                self.operations.append(Operation("link", name, self.inodes[name]))
                self._sizes[name] = 0
                if not content:
                    self.operations.append(Operation("sync_directory", str(Path(name).parent)))
            size = self._sizes[name]
            if len(content) > size:
                inode = self.inodes[name]
                self.operations.append(Operation("write", name, inode, number=size, data=content[size:]))
                self.operations.append(Operation("sync_file", name, inode))
                self.operations.append(Operation("sync_directory", str(Path(name).parent)))
                self._sizes[name] = len(content)


def recorded(scene: Scene, act: Callable[[], Told]) -> tuple[Told, list[State]]:
    """What a command said, and every state that a crash can leave on the way."""
    watcher = Watcher(scene.top)
    from rmqtx.repairs.acts import carry_out
    from rmqtx.repairs.changes import execution
    from rmqtx.repairs.receipts import journal, saved_messages

    def after(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            finally:
                watcher.journalled()
        return called

    with (
        mock.patch.object(execution, "FileOperations", return_value=watcher),
        mock.patch.object(journal.Journal, "prepare", after(journal.Journal.prepare)),
        mock.patch.object(journal.Journal, "_append", after(journal.Journal._append)),
        mock.patch.object(carry_out, "save_message", after(saved_messages.save_message)),
    ):
        told = act()
    assert watcher.replayed() == snapshot(scene.top), "nothing is changed but through what is recorded"
    return told, list(watcher.states())


class Story:
    """Something done, undone and done again: the crash states of each, and the store before and after."""

    def __init__(self, top: Path, name: str, act: Callable[[Scene], Told] = Scene.apply) -> None:
        self.scene = scene = Scene(top, name)
        scene.prepare()
        self.before = scene.content()
        applied, self.applying = recorded(scene, lambda: act(scene))
        assert applied.status == exit_status.DONE, applied.err
        self.after = scene.content()
        undone, self.undoing = recorded(scene, scene.undo)
        assert (undone.status, scene.content()) == (exit_status.DONE, self.before), undone.err
        again, self.again = recorded(scene, lambda: scene.undo("--resume"))
        assert (again.status, scene.content()) == (exit_status.DONE, self.after), again.err
        self.states = [*self.applying, *self.undoing, *self.again]

    def laid_out(self, states: list[State]) -> Iterator[tuple[State, Scene]]:
        """Each state where the scene was: its plan, journal and undo file name paths."""
        for state in states:
            for file in [file for file in self.scene.top.rglob("*") if file.is_file() and file.name != "lock"]:
                if str(file.relative_to(self.scene.top)) not in state.content:
                    file.unlink()
            state.lay_out(self.scene.top)
            yield state, self.scene
