"""The acts and the stores of the corpus on which they are killed: the same acts for every design of transactions."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from rmqtx.readers.model import exit_status
from rmqtx.readers.store.store import BEGUN_MARK
from rmqtx_cli.main import status_of
from tests.brokers import corpus
from tests.repairs.crash_states import snapshot

#: Design → its stores. Acts with --to use the first of each.
STORES = {
    "state table": ("statetable-3.1.4", "statetable-killed-3.1.4"),
    "prepared records": ("prepared-3.2.6", "prepared-killed-4.2.0"),
    "transactions in RocksDB": ("rocksdb-5.5.0", "rocksdb-killed-5.5.0"),
    "half topic": ("multipath-5.3.3", "killed-4.9.7"),
}
#: Act → the state of its transactions, and the designs that have the act (empty: all).
ACTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "commit": ("PENDING", ()),
    "rollback": ("PENDING", ()),
    "discard": ("PENDING", ()),
    "resume": ("DISCARDED", ("transactions in RocksDB", "half topic")),
    "apply": ("PENDING", ()),
    "cursor set": ("", ("half topic",)),
}
UNDO_FILE, COPY, STATE, CONF, PLAN = "kept/undo", "copy", "state", "broker.conf", "plan.json"
_TRIED_MAX = 6


@dataclass(frozen=True)
class Ended:
    """The exit status of a command, and its stderr."""

    status: int
    err: str


@dataclass
class Workplace:
    """A directory with a store, the command that will be killed, its undo file and its journal."""

    top: Path
    name: str
    act: str
    names: tuple[str, ...] = ()
    is_copy: bool = False

    @property
    def store(self) -> Path:
        """Where the store is."""
        return self.top / "store"

    @property
    def undo_file(self) -> Path:
        """The undo file, with --in-place."""
        return self.top / UNDO_FILE

    @property
    def changed(self) -> Path:
        """The changed store, or the copy."""
        return self.top / COPY if self.is_copy else self.store

    def lay_out(self, pristine: Path) -> None:
        """Make the directory as it is before the act."""
        shutil.rmtree(self.top, ignore_errors=True)
        shutil.copytree(pristine, self.store)
        (self.top / "kept").mkdir()
        (self.top / STATE / "messages").mkdir(parents=True)
        conf = {**corpus.recipe(self.name)["broker_conf"], "fileReservedTime": "100000"}
        (self.top / CONF).write_text("".join(f"{key}={value}\n" for key, value in conf.items()))

    @property
    def broker(self) -> tuple[object, ...]:
        """The options that describe the broker."""
        return "--broker-conf", self.top / CONF, "--broker-version", corpus.recipe(self.name)["version"]

    def words(self, undo_file: Path | None = None) -> list[str]:
        """The command line of the act."""
        where = ("--to", self.top / COPY) if self.is_copy else ("--in-place", "--undo", undo_file or self.undo_file)
        if self.act == "apply":
            given: list[object] = ["apply", self.top / PLAN, "--store", self.store, *where]
        elif self.act == "cursor set":
            given = ["cursor", "set", "--half", "0", "--op", "0", "--store", self.store, *where, "--override",
                     "asked-again", "--reason", "a test"]
        else:
            given = [self.act, *self.names, "--store", self.store, *where, "--reason", "a test"]
        return [str(word) for word in (*given, *self.broker, "--yes")]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the processes."""
        return {"RMQTX_STATE_DIR": str(self.top / STATE), "COLUMNS": "200"}

    def run(self, *arguments: object) -> Ended:
        """Run a command line in this process."""
        err = io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment), contextlib.redirect_stderr(err),
            contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
        ):
            status = status_of([str(argument) for argument in arguments])
        assert "Traceback" not in err.getvalue(), err.getvalue()
        return Ended(status, err.getvalue())

    def undo(self, undo_file: Path | None = None, *more: str) -> Ended:
        """`rmqtx undo FILE`."""
        return self.run("undo", undo_file or self.undo_file, "--store", self.store, "--yes", *more)

    def plan(self) -> bool:
        """For `apply`: write a plan with a commit, a rollback and a discard; return whether no guard refuses it."""
        plans = []
        for action, name in zip(("commit", "rollback", "discard"), self.names, strict=False):
            file = self.top / f"{action}.json"
            options = ("--store", self.store, *self.broker, "--reason", "a test", "-o", file)
            ended = self.run("plan", action, name, *options)
            if ended.status == exit_status.REFUSED_BY_GUARD:
                return False
            assert ended.status == exit_status.DONE, ended.err
            plans.append(json.loads(file.read_text()))
            file.unlink()
        steps = [step for plan in plans for step in plan["steps"]]
        (self.top / PLAN).write_text(json.dumps({**plans[0], "steps": steps}))
        return True

    def content(self) -> dict[str, bytes]:
        """The files of the store."""
        return snapshot(self.store)

    @property
    def is_begun(self) -> bool:
        """Whether the store has the mark of a change in progress."""
        return (self.store / BEGUN_MARK).exists()

    def rows(self, root: Path | None = None) -> dict[str, tuple[str, int, int, int]]:
        """Each transaction's state and its number of COMMIT records, op marks and half copies."""
        output = self.top / "rows.json"
        ended = self.run("audit", root or self.changed, *self.broker, "-o", output, "--format", "json", "--quiet")
        assert ended.status in (exit_status.DONE, exit_status.INCOMPLETE), ended.err
        rows = json.loads(output.read_text())
        output.unlink()
        return {
            str(row["transaction_id"] or row["half_copies"][0]["commit_log_offset"]): (
                row["state"], len(row["final_records"]), len(row["op_marks"]), len(row["half_copies"])
            )
            for row in rows
        }

    def wrong(self, root: Path | None = None) -> Counter[str]:
        """The number of errors and warnings of `rmqtx verify`, by code."""
        output = self.top / "findings.json"
        self.run("verify", root or self.changed, *self.broker, "-o", output, "--format", "json", "--quiet")
        found = Counter(row["code"] for row in json.loads(output.read_text()) if row["severity"] != "note")
        output.unlink()
        return found


@dataclass
class Case:
    """An act on a store that was carried out once without a kill: the state before, and the state after."""

    workplace: Workplace
    design: str
    before: dict[str, bytes]
    rows_before: dict[str, tuple[str, int, int, int]]
    rows_after: dict[str, tuple[str, int, int, int]]
    wrong_after: Counter[str]
    is_copy: bool
    seconds: float
    calls: int


def candidates(name: str, act: str) -> list[tuple[str, ...]]:
    """Transactions of a store that an act can be used on, the simplest first."""
    wanted, _ = ACTS[act]
    if not wanted:
        return [()]
    rows = [row for row in corpus.expected(name) if row["state"] == wanted and row["transaction_id"]]
    rows = [row for row in rows if "immune" not in row["flags_at_least"]]
    rows.sort(key=lambda row: len(row["half_copies"]))
    ids = [row["transaction_id"] for row in rows]
    if act == "apply":
        return [tuple(ids[first : first + 3]) for first in range(min(_TRIED_MAX, len(ids) - 2))]
    return [(one,) for one in ids[:_TRIED_MAX]]
