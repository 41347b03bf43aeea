"""The clock of the exporter: one reading after the other, and what the last one gave."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rmqtx_cli.exporter.reading import END_SECONDS, Failed, ReadingProcess, Request
from rmqtx_cli.monitoring.metrics import Samples
from rmqtx_cli.monitoring.samples import added
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import duration_text

#: A reading is overdue this long after the time at which it should have ended.
_OVERDUE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class State:
    """The last reading, the counters, and the time of the next reading.

    Units: times as `time.time` gives them; None before the first reading.
    Shape: `samples`: of the last reading, none if that failed; `counters`: since the start. `ok_time`: when the last
           successful reading began; `running_since`: when the present reading began.
    """

    samples: Samples = field(default_factory=dict)
    counters: Samples = field(default_factory=dict)
    results: Counter[str] = field(default_factory=Counter)
    is_ok: bool = False
    ok_time: float | None = None
    duration_seconds: float | None = None
    running_since: float | None = None
    due_time: float = 0.0


class Schedule:
    """Reads at once and then every `interval_seconds`; a reading that takes longer delays the next."""

    def __init__(
        self, request: Request, interval_seconds: float, timeout_seconds: float, say: Callable[[str], None]
    ) -> None:
        self._request = request
        self._interval_seconds = interval_seconds
        self._timeout_seconds = timeout_seconds
        self._say = say
        self._process = ReadingProcess(timeout_seconds)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readings", daemon=True)
        self._state = State(due_time=time.time() + timeout_seconds)
        self._failure = ""

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End the present reading, and begin no other. One that hangs in the kernel is left behind."""
        self._stopped.set()
        self._process.close()
        self._thread.join(END_SECONDS)

    @property
    def state(self) -> State:
        """The state now. Each is a new object, so a scrape never sees half a reading."""
        return self._state

    @property
    def is_overdue(self) -> bool:
        """Whether a reading should have ended some time ago: the clock itself does not work."""
        return time.time() > self._state.due_time + 2 * _OVERDUE_SECONDS

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self._read()
            left = max(0.0, self._interval_seconds - (time.monotonic() - began))
            self._state = replace(
                self._state, due_time=time.time() + left + self._timeout_seconds + _OVERDUE_SECONDS
            )
            self._stopped.wait(left)

    def _read(self) -> None:
        now, began = time.time(), time.monotonic()
        before = replace(self._state, running_since=now)
        self._state = before
        try:
            answer = self._process.answer(self._request)
        except Failed as failure:
            if self._stopped.is_set():
                return
            result, ok_time, samples, counters = failure.result, before.ok_time, {}, before.counters
            self._report_failure(str(failure))
        else:
            self._request = replace(self._request, before=answer.memory)
            result, ok_time, samples = "ok", now, answer.samples
            counters = added(before.counters, answer.growth)
            self._report_success(samples, time.monotonic() - began)
        self._state = replace(
            before, samples=samples, counters=counters, results=before.results + Counter([result]),
            is_ok=result == "ok", ok_time=ok_time, duration_seconds=time.monotonic() - began, running_since=None,
        )

    def _report_failure(self, failure: str) -> None:
        """Print a failure once, with what follows from it: a wrong path in a unit file must be visible in its log."""
        if failure != self._failure:
            self._say(
                f"error: reading failed: {failure}; rmqtx_up is 0 until a reading succeeds, and one begins every "
                f"{duration_text(round(1000 * self._interval_seconds))}"
            )
        self._failure = failure

    def _report_success(self, samples: Samples, seconds: float) -> None:
        """Print the first success, and the first after a failure."""
        if self._failure or self._state.ok_time is None:
            again = " again" if self._state.ok_time is not None else ""
            self._say(f"reading succeeded{again} in {duration_text(round(1000 * seconds))}: {_pending_text(samples)}")
        self._failure = ""


def _pending_text(samples: Samples) -> str:
    pending = count(int(sum(value for _, value in samples["rmqtx_pending_transactions"])), "pending transaction")
    codes = ", ".join(labels["code"] for labels, _ in samples["rmqtx_evidence_missing"])
    return f"at least {pending}, evidence is missing or damaged: {codes}" if codes else pending
