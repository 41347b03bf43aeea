"""The journal: every act's receipt, appended before it is done and again when it is over. No act without a receipt.

One JSON object a line. `begun` is on disk before the request goes out, `went_on` before a further request of the same
act, `ended` holds the outcome, `rechecked` a later look. Each line has the whole receipt, so the last one of an id is
what is known; a receipt that only began has the outcome `unknown`. Several processes may write: a line is one write
under a lock. A crash can leave the last line torn: that is a finding, and the next writer begins on a new line.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from readers.model.declared_json import JsonForm, needed, parsed, shown
from readers.model.errors import BadText, UnreadableFile, UnwritableFile
from readers.model.findings import Finding, as_text
from readers.model.units import time_text
from repairs.receipts.receipts import RECHECK, RECHECK_FORM, STANDINGS, Receipt, receipt_of
from verdicts.export.partition_files import on_disk

JOURNAL_VERSION = 1
FILE_NAME = "receipts.jsonl"
BEGUN, WENT_ON, ENDED, RECHECKED = "begun", "went_on", "ended", "rechecked"

_LINE = JsonForm(
    "line of a journal", pa.struct([needed("journal_version", pa.int64()), needed("line", pa.string())]), is_open=True
)


def state_directory() -> Path:
    """Where receipts are kept, and what `check` and `verify` leave for their next runs.

    That is RMQTX_STATE_DIR, else rmqtx below XDG_STATE_HOME, which is ~/.local/state by default.
    """
    own = os.environ.get("RMQTX_STATE_DIR")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "rmqtx"


@dataclass(slots=True)
class Journalled:
    """What a journal holds.

    Order: receipts by id, that is by the time they began, oldest first.
    """

    receipts: list[Receipt] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Journal:
    """An append-only file of receipts; `path` as given, else receipts.jsonl in the state directory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_directory() / FILE_NAME

    @property
    def directory(self) -> Path:
        """Where it lies, and what is kept beside it."""
        return self.path.parent

    def prepare(self) -> None:
        """Make sure that it can be written, before anything is asked or sent.

        Raises: UnwritableFile.
        """
        with self._locked():
            pass

    def begin(self, receipt: Receipt) -> None:
        """Write down that something will be done; it is on disk when this returns.

        Raises: UnwritableFile: then nothing must be done.
        """
        self._append(BEGUN, receipt.row())

    def go_on(self, receipt: Receipt) -> None:
        """Write down what was done so far, before a further request goes out.

        Raises: UnwritableFile.
        """
        self._append(WENT_ON, receipt.row())

    def end(self, receipt: Receipt) -> None:
        """Write down the outcome; sets the time of it.

        Raises: UnwritableFile.
        """
        receipt.ended_time_ms = _now_ms()
        self._append(ENDED, receipt.row())

    def recheck(self, receipt_id: str, look: dict[str, Any]) -> None:
        """Write down a later look, a row of RECHECK.

        Raises: UnwritableFile.
        """
        named = {RECHECK.field(number).name: None for number in range(RECHECK.num_fields)}
        self._append(RECHECKED, {"receipt_id": receipt_id, "recheck": {**named, **look}})

    def read(self) -> Journalled:
        """Every receipt, the last that is known of it.

        Damage: lines that cannot be read are findings; a journal that is not there is empty.
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

    def _append(self, line: str, values: dict[str, Any]) -> None:
        kept = {name: value for name, value in values.items() if name != "rechecks"}  # they have lines of their own
        text = json.dumps({"journal_version": JOURNAL_VERSION, "line": line, **_with_times(kept)}, ensure_ascii=True)
        with self._locked() as descriptor:
            try:
                size = os.fstat(descriptor).st_size
                is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                data = (b"\n" if is_torn else b"") + text.encode("ascii") + b"\n"
                written = os.write(descriptor, data)
                if written != len(data):
                    raise self._unwritable(f"only {written} of {len(data)} bytes were taken: the disk is full")
                os.fsync(descriptor)
            except OSError as error:
                raise self._unwritable(error.strerror or str(error)) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The open file, for this process and thread alone."""
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
            f"the journal of receipts {self.path} cannot be written: {why}", file=self.path,
            advice="nothing is done without a receipt: make room or set RMQTX_STATE_DIR",
        )


class _Merged:
    """Lines of a journal on their way to receipts."""

    def __init__(self) -> None:
        self._receipts: dict[str, Receipt] = {}
        self._rechecks: dict[str, list[dict[str, Any]]] = {}

    def take(self, line: bytes) -> tuple[str, str] | None:
        """Take a line; gives the code of what is wrong with it, and what was found."""
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
            problem = "values too deep within each other"
        return None if problem is None else ("receipt-unreadable", problem)

    def _take(self, value: Any) -> str | None:
        """Take what a line holds; gives what is wrong with it.

        Raises: BadText.
        """
        _LINE.check(value, "a line")
        if value["journal_version"] != JOURNAL_VERSION:
            return f"version {value['journal_version']}"
        if value["line"] == RECHECKED:
            told = RECHECK_FORM.check(_without_times(value), "a line")
            if told["recheck"]["standing"] not in STANDINGS:
                return f"a standing {shown(told['recheck']['standing'])}"
            self._rechecks.setdefault(told["receipt_id"], []).append(dict(told["recheck"]))
            return None
        if value["line"] not in (BEGUN, WENT_ON, ENDED):
            return f"a line of kind {shown(value['line'])}"
        receipt = receipt_of(_without_times(value))
        if value["line"] != ENDED:
            if receipt.receipt_id in self._receipts and self._receipts[receipt.receipt_id].has_ended:
                return None
            receipt.outcome, receipt.ended_time_ms = "unknown", None
        self._receipts[receipt.receipt_id] = receipt
        return None

    def receipts(self) -> list[Receipt]:
        """What the lines come to."""
        for name, looks in self._rechecks.items():
            if name in self._receipts:
                self._receipts[name].rechecks = looks
        return [self._receipts[name] for name in sorted(self._receipts)]


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each line with its end, if it has one, and where it begins; only a line feed ends one."""
    position = 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        yield position, data[position:end]
        position = end


def _with_times(value: Any) -> Any:
    """The same with a readable twin after each time, as all JSON of rmqtx has it."""
    if isinstance(value, list):
        return [_with_times(one) for one in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for name, one in value.items():
        result[name] = _with_times(one)
        if name.endswith("time_ms") and (one is None or isinstance(one, int)):
            result[name.removesuffix("_ms")] = time_text(one) or None
    return result


def _without_times(value: Any) -> Any:
    """The same without the twins: the numbers count."""
    if isinstance(value, list):
        return [_without_times(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_times(one) for name, one in value.items() if f"{name}_ms" not in value}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
