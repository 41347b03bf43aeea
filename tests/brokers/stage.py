"""A run: planned histories played on a real broker, and a second run on a copy that shows what the broker asks again.

The truth of a run is what the client, the consumers and the broker reported, never what a reader of this project found
in the store: `sent`, `decision`, `check`, `delivered`, `discard_logged` while the store was written; `after_check`,
`after_delivered`, `after_record`, `after_put_back` and `after_cursor` from the second run, whose producers answer every
check with UNKNOW and whose broker discards nothing.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random

from tests.brokers import rig as rigs
from tests.brokers.rig import COMMIT, HALF_TOPIC, Event
from tests.brokers.script import BETWEEN, Act, Script
from tests.brokers.second_run import SecondRun
from tests.brokers.transaction import Transaction, order, same


class Play(SecondRun):
    """One run on one store, as histories see it: they send, decide, resume, and wait for what follows."""

    def __init__(self, script: Script, out: Path, say: Callable[[str], None] = print) -> None:
        super().__init__(script, out, say)
        self.epilogues: list[tuple[str, Callable[[], None]]] = []
        """Parts of histories that are played at the end, together with the histories of phase 1."""
        self.beside: Path | None = None
        """The store of another broker, which has some of the transactions too."""

    def send(self, plan: str, number: int, rng: Random, **wanted: object) -> Transaction:
        """Begin one transaction (or send another message); the results are reported as events."""
        case = f"{plan}.{number}"
        transaction = Transaction(case, plan)
        with self._changed:
            self.cases[case] = transaction
        body = wanted.pop("body", None)
        if body is None:
            body = order(rng, case)
        assert isinstance(body, bytes)
        defaults: dict[str, object] = {
            "kind": "transaction",
            "group": self.script.groups[number % len(self.script.groups)],
            "topic": rng.choice(list(self.script.topics)),
            "first": "UNKNOWN",
            "keys": f"K-{self.script.seed}-{case}",
            "tags": rng.choice(("created", "paid", "shipped")),
        }
        fields = {name: value for name, value in (defaults | wanted).items() if value is not None}
        details = {name: value for name, value in fields.items() if name not in ("group", "topic")}
        self.record(
            "planned", case=case, plan=plan, body_length_bytes=len(body), body_crc32=zlib.crc32(body), **details
        )
        encoded = base64.b64encode(body).decode()
        self.agent.start("send", case=case, plan=plan, body=encoded, **fields)
        return transaction

    def send_all(self, plan: str, count: int, rng: Random, **wanted: object) -> list[Transaction]:
        """Begin several transactions of one kind, and wait until the broker has their halves."""
        sent = [self.send(plan, number, rng, **wanted) for number in range(count)]
        self.until_sent(sent)
        return sent

    def until_sent(self, transactions: Iterable[Transaction]) -> None:
        """Wait until the broker has acknowledged them."""
        for one in transactions:
            self.until(f"{one.case} sent", lambda one=one: one.sent is not None)  # type: ignore[misc]

    def until_delivered(self, transactions: Iterable[Transaction], times: int = 1) -> None:
        """Wait until a consumer received each of them `times` times."""
        for one in transactions:
            self.until(f"{one.case} delivered", lambda one=one: len(one.deliveries) >= times)  # type: ignore[misc]

    def until_checked(self, transactions: Iterable[Transaction], times: int) -> None:
        """Wait until the broker checked each of them `times` times."""
        for one in transactions:
            self.until(f"{one.case} checked", lambda one=one: len(one.checks) >= times)  # type: ignore[misc]

    def until_discarded(self, transactions: Iterable[Transaction], times: int = 1, seconds: float = 60) -> None:
        """Wait until the broker discarded each of them `times` times."""
        for one in transactions:
            self.until(f"{one.case} discarded", lambda one=one: len(one.discards) >= times, seconds)  # type: ignore[misc]

    def end(self, transaction: Transaction, what: int, place: tuple[int, int], wait: bool = True) -> Event:
        """Send END_TRANSACTION by hand for a record at a queue offset and commit-log offset; return the response."""
        queue_offset, commit_log_offset = place
        self.record(
            "decision",
            case=transaction.case,
            transaction_id=transaction.known["transaction_id"],
            what="COMMIT_MESSAGE" if what == COMMIT else "ROLLBACK_MESSAGE",
            by="tool",
            queue_offset=queue_offset,
            commit_log_offset=commit_log_offset,
        )
        answer = self.rig.request(
            self.agent,
            rigs.REQUEST_END_TRANSACTION,
            producerGroup=transaction.known["producer_group"],
            commitOrRollback=what,
            tranStateTableOffset=queue_offset,
            commitLogOffset=commit_log_offset,
            fromTransactionCheck="true",
            msgId=transaction.known["transaction_id"],
            transactionId=transaction.known["transaction_id"],
        )
        self.record("decision_answer", case=transaction.case, code=answer["code"], remark=answer["remark"])
        return answer

    def resume(self, transaction: Transaction, offset_message_id: str) -> Event:
        """Ask the broker to check a transaction again from the start (request 323)."""
        answer = self.rig.request(self.agent, rigs.REQUEST_RESUME, msgId=offset_message_id)
        self.record(
            "resumed",
            case=transaction.case,
            offset_message_id=offset_message_id,
            code=answer["code"],
            remark=answer["remark"],
        )
        return answer

    def copies(self, transaction: Transaction, topic: str = HALF_TOPIC) -> list[Event]:
        """The transaction's records in a system topic, as the broker serves them."""
        found = self.rig.pull(self.agent, topic)
        return [record for record in found if same(record, transaction)]

    @property
    def checks_max(self) -> int:
        """Number of checks that the broker sends before it discards a half message."""
        return int(self.rig.conf["transactionCheckMax"])

    def last_copy(self, transaction: Transaction, topic: str = HALF_TOPIC) -> tuple[int, int]:
        """Queue offset and commit-log offset of the transaction's newest record in a system topic."""
        newest = self.copies(transaction, topic)[-1]
        return newest["queue_offset"], newest["commit_log_offset"]

    def run(self, acts: Mapping[str, Act]) -> None:
        """Play the script's histories phase by phase, those of a phase together, each in a thread; then stop."""
        self.rig.start_names()
        self.boot()
        failures: list[str] = []

        def guarded(name: str, part: Callable[[], None]) -> None:
            try:
                part()
            except Exception as failure:
                failures.append(f"{name}: {failure!r}")

        def whole(name: str) -> Callable[[], None]:
            count, rng = self.script.histories[name], Random(f"{self.script.seed}/{name}")
            return lambda: acts[name].play(self, count, rng)

        stopping = threading.Event()

        def watch_log() -> None:
            while not stopping.wait(0.3):
                self.read_log()

        watcher = threading.Thread(target=watch_log, daemon=True)
        watcher.start()
        phases = [0, *([BETWEEN] * (len(self.script.earlier) - 1)), 1, 2]
        coming = iter((*self.script.earlier, self.script.version)[1:])
        for phase in phases:
            parts = [(name, whole(name)) for name in self.script.histories if acts[name].phase == phase]
            parts += self.epilogues if phase == 1 else []
            threads = [threading.Thread(target=guarded, args=part, daemon=True) for part in parts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if phase in (0, BETWEEN):
                self.settle()
                if self.script.restart is not None:
                    self.restart(self.script.restart)
                if self.script.earlier:
                    self.become(next(coming))
        for failed in self.agent.failed:
            failures.append(f"client: {failed}")
        if failures:
            raise RuntimeError("; ".join(failures))
        self.halt(self.script.stop)
        stopping.set()
        watcher.join()
        if self.script.half_cursor is not None:
            self.set_half_cursor(self.script.half_cursor, with_backup=False)
