"""The journal: the receipt of every act, appended before the act and again at its end. No act without a receipt.

One JSON object per line. `begun` is on disk before the request is sent, `went_on` before a further request of the same
act; `ended` has the outcome, `rechecked` the result of a recheck. Each line has the whole receipt, so the last line of
an id counts; a receipt without an end has the outcome `unknown`. Several processes may write: a line is one write under
a lock. A crash can leave the last line torn: that is a finding, and the next writer starts on a new line.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.model import clock
from rmqtx.readers.model.declared_json import JsonForm, needed, parsed, shown
from rmqtx.readers.model.errors import BadText, UnreadableFile, UnwritableFile
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.units import time_text
from rmqtx.repairs.receipts.act_words import STANDINGS, ActOutcome, StandingWord
from rmqtx.repairs.receipts.receipts import RECHECK_FORM, Receipt, Recheck, receipt_of
from rmqtx.repairs.receipts.state_directory import state_directory
from rmqtx.verdicts.export.folder import on_disk

JOURNAL_VERSION = 1
FILE_NAME = "receipts.jsonl"
BEGUN, WENT_ON, ENDED, RECHECKED = "begun", "went_on", "ended", "rechecked"

_LINE = JsonForm(
    "line of a journal", pa.struct([needed("journal_version", pa.int64()), needed("line", pa.string())]), is_open=True
)


@dataclass(slots=True)
class Journalled:
    """The content of a journal. Order: receipts by id, that is by start time, oldest first."""

    receipts: list[Receipt] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Journal:
    """An append-only file of receipts; `path` as given, else receipts.jsonl in the state directory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_directory() / FILE_NAME

    @property
    def directory(self) -> Path:
        """Its directory, which also contains the saved messages."""
        return self.path.parent

    def prepare(self) -> None:
        """Check that the journal can be written, before the operator is asked or anything is sent.

        Raises: UnwritableFile.
        """
        with self._locked():
            pass

    def begin(self, receipt: Receipt) -> None:
        """Record that an act begins; the line is on disk when this returns.

        Raises: UnwritableFile: then the act must not be done.
        """
        self._append(BEGUN, receipt.row())

    def go_on(self, receipt: Receipt) -> None:
        """Record what was done so far, before a further request is sent. Raises: UnwritableFile."""
        self._append(WENT_ON, receipt.row())

    def end(self, receipt: Receipt) -> None:
        """Record the outcome and its time. Raises: UnwritableFile."""
        receipt.ended_time_ms = clock.now_ms()
        self._append(ENDED, receipt.row())

    def recheck(self, receipt_id: str, look: Recheck) -> None:
        """Record a recheck. Raises: UnwritableFile."""
        self._append(RECHECKED, {"receipt_id": receipt_id, "recheck": asdict(look)})

    def read(self) -> Journalled:
        """Return every receipt as of its last line.

        Damage: lines that cannot be read are findings; a missing journal is empty.
        Raises: UnreadableFile.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Journalled()
        except OSError as error:
            raise UnreadableFile(f"cannot read {self.path}: {error.strerror}", file=self.path) from error
        result = Journalled()
        merged = _Merged()
        for position, line in _lines(data):
            problem = merged.take(line)
            if problem is not None:
                file, root = as_text(self.path), as_text(self.directory)
                code, what = problem
                result.findings.append(Finding(root, code, file, position, len(line), None, "a receipt", what))
        result.receipts = merged.receipts()
        return result

    def _append(self, line: str, values: dict[str, object]) -> None:
        kept = {name: value for name, value in values.items() if name != "rechecks"}  # they have lines of their own
        text = json.dumps({"journal_version": JOURNAL_VERSION, "line": line, **_with_times(kept)}, ensure_ascii=True)
        with self._locked() as descriptor:
            try:
                size = os.fstat(descriptor).st_size
                is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                data = (b"\n" if is_torn else b"") + text.encode("ascii") + b"\n"
                written = os.write(descriptor, data)
                if written != len(data):
                    raise self._unwritable(f"only {written} of {len(data)} bytes were written: the disk is full")
                os.fsync(descriptor)
            except OSError as error:
                raise self._unwritable(error.strerror or str(error)) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The open file, locked for this process and thread."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if is_new:
                    on_disk(self.directory)
            except OSError as error:
                raise self._unwritable(error.strerror or str(error)) from error
            yield descriptor
        finally:
            os.close(descriptor)

    def _unwritable(self, why: str) -> UnwritableFile:
        return UnwritableFile(
            f"cannot write the journal of receipts {self.path}: {why}; no act is possible without a receipt",
            file=self.path, advice="free some space, or set RMQTX_STATE_DIR to another directory",
        )


class _Merged:
    """Merges the lines of a journal into receipts."""

    def __init__(self) -> None:
        self._receipts: dict[str, Receipt] = {}
        self._rechecks: dict[str, list[Recheck]] = {}

    def take(self, line: bytes) -> tuple[str, str] | None:
        """Add a line; return the finding code and what was found if it cannot be read, else None."""
        if not line.strip():
            return None
        try:
            value = parsed(line, "a line", "receipt")
        except BadText as error:
            return "receipt-torn", error.message
        try:
            problem = self._take(value)
        except BadText as error:
            problem = str(error)
        except RecursionError:
            problem = "values are nested too deeply"
        return None if problem is None else ("receipt-unreadable", problem)

    def _take(self, value: Any) -> str | None:
        """Add the values of a line; return what is wrong with them, or None. Raises: BadText."""
        _LINE.check(value, "a line")
        if value["journal_version"] != JOURNAL_VERSION:
            return f"version {value['journal_version']}"
        if value["line"] == RECHECKED:
            recheck = RECHECK_FORM.check(_without_times(value), "a line")
            if recheck["recheck"]["standing"] not in STANDINGS:
                return f"a standing {shown(recheck['recheck']['standing'])}"
            values = recheck["recheck"]
            look = Recheck(
                values["rechecked_time_ms"], values.get("who"), StandingWord(values["standing"]),
                values["standing_reason"],
            )
            self._rechecks.setdefault(recheck["receipt_id"], []).append(look)
            return None
        if value["line"] not in (BEGUN, WENT_ON, ENDED):
            return f"a line of kind {shown(value['line'])}"
        receipt = receipt_of(_without_times(value))
        if value["line"] != ENDED:
            if receipt.receipt_id in self._receipts and self._receipts[receipt.receipt_id].has_ended:
                return None
            receipt.outcome, receipt.ended_time_ms = ActOutcome.UNKNOWN, None
        self._receipts[receipt.receipt_id] = receipt
        return None

    def receipts(self) -> list[Receipt]:
        """The receipts, with their rechecks."""
        for name, looks in self._rechecks.items():
            if name in self._receipts:
                self._receipts[name].rechecks = looks
        return [self._receipts[name] for name in sorted(self._receipts)]


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its position and its line feed, if it has one; only a line feed ends a line."""
    position = 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        yield position, data[position:end]
        position = end


def _with_times(value: Any) -> Any:
    """The value with a readable field after each time, as in all JSON of rmqtx."""
    if isinstance(value, list):
        return [_with_times(one) for one in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, object] = {}
    for name, one in value.items():
        result[name] = _with_times(one)
        if name.endswith("time_ms") and (one is None or isinstance(one, int)):
            result[name.removesuffix("_ms")] = time_text(one) or None
    return result


def _without_times(value: Any) -> Any:
    """The value without the readable times; the numbers count."""
    if isinstance(value, list):
        return [_without_times(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_times(one) for name, one in value.items() if f"{name}_ms" not in value}
