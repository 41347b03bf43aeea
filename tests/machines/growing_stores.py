"""Stores that grow, are cut and get other cursors, and an audit or a table that follows them."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from rmqtx.readers.model.errors import FileChanged
from rmqtx.verdicts.growing.tables import table_name
from rmqtx_cli.exporter.reading import read
from rmqtx_cli.monitoring.numbers import Memory
from tests.cli.test_exporter import request
from tests.forge.stores import settings_of, unpacked
from tests.repairs.acting import rows_of
from tests.spark.growing import Growing
from tests.verdicts.follow.test_follow import set_cursors
from tests.verdicts.following import Followed
from tests.verdicts.growing.grown import GrownTable

_PARTS = 64


class _Grows(RuleBasedStateMachine):
    """A store that is written part by part; whatever follows it is compared after each step."""

    name = "killed-5.3.3"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="rmqtx-machine-"))
        self.growing = Growing(unpacked(self.name), self.folder / "store")
        self.place = self.growing.begin

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(parts=st.integers(1, 20), odd=st.integers(0, 400))
    def grow(self, parts: int, odd: int) -> None:
        """More of the log is written, to the middle of a record too."""
        length = self.growing.end - self.growing.begin
        self.place = min(self.growing.end, self.place + parts * length // _PARTS + odd)
        self.growing.write_to(self.place)

    @rule(half=st.none() | st.integers(0, 40), op=st.integers(0, 10))
    def move_cursors(self, half: int | None, op: int) -> None:
        """The check gets other cursors, or none."""
        set_cursors(self.growing.root, half, op)


class Following(_Grows):
    """`rmqtx follow`, which ends and begins again."""

    def __init__(self) -> None:
        super().__init__()
        self.followed = Followed([self.growing.root], self.folder / "checkpoint", settings_of(self.name))

    def teardown(self) -> None:
        self.followed.database.close()
        super().teardown()

    @rule(chunk=st.sampled_from([1, 5, 1000]))
    def compare(self, chunk: int) -> None:
        """A step; then all rows that were printed are those of an audit."""
        self.followed.assert_current(chunk)

    @rule()
    def restart(self) -> None:
        """The process ends, and another one continues."""
        self.followed.restart()

    @rule(parts=st.integers(1, 20))
    def cut(self, parts: int) -> None:
        """The log is cut: the next step fails if it lost what was read, and answers as before where it did not."""
        cut_to = max(self.growing.begin, self.place - parts * (self.growing.end - self.growing.begin) // _PARTS)
        self.growing.write_to(cut_to)
        try:
            self.followed.assert_current()
        except FileChanged:
            self.growing.write_to(self.place)
        else:
            self.growing.write_to(self.place)


class GrowingTable(_Grows):
    """A table of verdicts that `rmqtx table` keeps."""

    def __init__(self) -> None:
        super().__init__()
        table = table_name(str(self.folder / "table"))
        self.grown = GrownTable([self.growing.root], table, self.folder / "checkpoint", settings_of(self.name))

    @rule()
    def compare(self) -> None:
        """A step; then the current rows are those of an audit, and the history is what each audit had."""
        self.grown.step_and_compare()


class Exporting(_Grows):
    """The exporter: its counters never fall, and count no transaction more often than the log has it."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: Memory | None = None
        self.totals: Counter[str] = Counter()
        self.growing.write_to(self.growing.end)

    @rule()
    def read(self) -> None:
        """A reading; its gauges are what an audit of the same files counts."""
        found = read(replace(request(self.growing.root), before=self.memory))
        self.memory = found["memory"]
        for name, samples in found["growth"].items():
            assert all(value >= 0 for _, value in samples), name
            self.totals[name] += int(sum(value for _, value in samples))
        states = Counter(row["state"] for row in rows_of(self.growing.root, "5.3.3").values())
        for state in ("LOST", "DISCARDED"):
            assert self.totals[f"rmqtx_{state.lower()}_transactions_total"] <= states[state]

    @rule()
    def forget(self) -> None:
        """The exporter ends, and another one begins without its memory: it counts nothing that was there before."""
        self.memory = None
        self.read()
