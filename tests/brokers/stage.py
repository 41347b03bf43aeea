"""A run: planned histories played on a real broker, and a second run on a copy that shows what the broker asks again.

What is said to happen (the truth) is what the client, the consumers and the broker itself reported, never what a reader
of ours made of the store: `sent`, `decision`, `check`, `delivered`, `discard_logged` while the store was written;
`after_check`, `after_delivered`, `after_record`, `after_put_back` and `after_cursor` from the second run, whose
producers answer every check with UNKNOW and whose broker never gives up.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from tests.brokers import rig as rigs
from tests.brokers.rig import COMMIT, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Agent, Event, Rig, now_ms
from tests.brokers.store_files import allow_reading_ops, log_end

Stop = Literal["clean", "kill"]
DEFAULT_TOPICS = {"orders": 4, "payments": 2}
DISCARD_COPIES_SINCE = (4, 5, 2)
FORGETTING = ("4.9.3",)
"""Versions that do not load config/lmqConsumerOffset.json when they start."""
CURSORS = "consumerOffset.json"
NEVER = "100000"
BETWEEN = 3
QUIET_SECONDS = 4.0


class Transaction:
    """What is known so far about one planned transaction."""

    def __init__(self, case: str, plan: str) -> None:
        self.case = case
        self.plan = plan
        self.sent: Event | None = None
        self.decisions: list[Event] = []
        self.checks: list[Event] = []
        self.deliveries: list[Event] = []
        self.discards: list[Event] = []

    @property
    def id(self) -> str:
        """The transaction id."""
        return str(self.known["transaction_id"])

    @property
    def known(self) -> Event:
        """The `sent` event."""
        assert self.sent is not None, self.case
        return self.sent

    @property
    def original(self) -> tuple[int, int]:
        """Queue offset and commit-log offset of the first half copy."""
        return self.known["queue_offset"], self.known["commit_log_offset"]

    @property
    def newest(self) -> tuple[int, int]:
        """Queue offset and commit-log offset of the newest half copy that the client heard of."""
        found = [self.original, *((check["queue_offset"], check["commit_log_offset"]) for check in self.checks)]
        return max(found)


@dataclass
class Script:
    """What a run is to do: the recipe without its name."""

    version: str
    seed: int
    histories: Mapping[str, int]
    stop: Stop = "clean"
    conf: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_TOPICS))
    attributes: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ("shop",)
    host: str = "127.0.0.1"
    half_cursor: int | None = None
    """Where to set the half cursor after the stop."""
    design: str = "half_topic"
    """How the store keeps transactions and records, where readers must know more than the half topic's design."""
    restart: Mapping[str, str] | None = None
    """Stop cleanly after the first phase, and start again with these settings."""
    earlier: tuple[str, ...] = ()
    """Versions that the store had before: the first phase is the first one's, `between` that of the others."""
    as_is: bool = False
    """Start the same version once more on a copy as it is, with the same settings, and note what it does."""


class Play:
    """One run on one store."""

    def __init__(self, script: Script, out: Path, say: Callable[[str], None] = print) -> None:
        self.script = script
        self.out = out
        self.say = say
        self.truth: list[Event] = []
        self.epilogues: list[tuple[str, Callable[[], None]]] = []
        """What histories left for the end: played together with those that end with the store."""
        self.cases: dict[str, Transaction] = {}
        self.ids: dict[str, Transaction] = {}
        self.system_topics: tuple[tuple[str, int], ...] = ((HALF_TOPIC, 1), (OP_TOPIC, 4), (DISCARD_TOPIC, 1))
        self._changed = threading.Condition(threading.RLock())
        self.log_file = self.out / "broker-logback.log"
        self._log_read = 0
        self.rig = Rig((*script.earlier, script.version)[0], out, script.conf, script.host)
        self.agent: Agent
        self._agent_number = 0
        self.groups: set[str] = set()

    # ---- what comes in

    def record(self, event: str, **fields: object) -> Event:
        """Add a line to the truth."""
        line: Event = {"event": event, **fields, "time_ms": now_ms()}
        self.take(line)
        return line

    def take(self, event: Event) -> None:
        """Keep an event, and sort it to its transaction."""
        with self._changed:
            self.truth.append(event)
            transaction = self.cases.get(event.get("case") or "") or self.ids.get(event.get("transaction_id") or "")
            kind = event["event"]
            if transaction is not None:
                if kind == "sent":
                    transaction.sent = event
                    if event["transaction_id"]:
                        self.ids[event["transaction_id"]] = transaction
                elif kind == "decision":
                    transaction.decisions.append(event)
                elif kind == "check":
                    transaction.checks.append(event)
                elif kind == "discard_logged" or (kind == "delivered" and event["topic"] == DISCARD_TOPIC):
                    transaction.discards.append(event)
                elif kind == "delivered":
                    transaction.deliveries.append(event)
            self._changed.notify_all()

    def until(self, what: str, true: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until something is true, or fail."""
        end = time.monotonic() + seconds
        with self._changed:
            while not true():
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"waited {seconds} s for: {what}")
                self._changed.wait(min(left, 0.5))

    def holds(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait for something that need not come true; says whether it did."""
        try:
            self.until("", true, seconds)
        except TimeoutError:
            return False
        return True

    # ---- what a history does

    def send(self, plan: str, number: int, rng: Random, **wanted: object) -> Transaction:
        """Begin one transaction (or another message); the answers come as events."""
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
        """Wait until a consumer got each of them so many times."""
        for one in transactions:
            self.until(f"{one.case} delivered", lambda one=one: len(one.deliveries) >= times)  # type: ignore[misc]

    def until_checked(self, transactions: Iterable[Transaction], times: int) -> None:
        """Wait until the producer was asked so many times about each of them."""
        for one in transactions:
            self.until(f"{one.case} checked", lambda one=one: len(one.checks) >= times)  # type: ignore[misc]

    def until_discarded(self, transactions: Iterable[Transaction], times: int = 1, seconds: float = 60) -> None:
        """Wait until the broker gave up on each of them."""
        for one in transactions:
            self.until(f"{one.case} discarded", lambda one=one: len(one.discards) >= times, seconds)  # type: ignore[misc]

    def end(self, transaction: Transaction, what: int, place: tuple[int, int], wait: bool = True) -> Event:
        """Send END_TRANSACTION by hand, naming a record by queue offset and commit-log offset; gives the broker's
        answer.
        """
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
        """How many CHECKs the broker sends before it gives up."""
        return int(self.rig.conf["transactionCheckMax"])

    def last_copy(self, transaction: Transaction, topic: str = HALF_TOPIC) -> tuple[int, int]:
        """Queue offset and commit-log offset of the transaction's newest record in a system topic."""
        newest = self.copies(transaction, topic)[-1]
        return newest["queue_offset"], newest["commit_log_offset"]

    def config(self, **values: str) -> None:
        """Change settings of the running broker."""
        self.rig.set_config(self.agent, **values)
        self.record("config", **values)

    def join_group(self, group: str, compress: str | None = None) -> None:
        """Start a producer."""
        self.agent.do("producer", group=group, topic=next(iter(self.script.topics)), compress=compress)
        self.groups.add(group)

    # ---- start, stop

    def boot(self) -> None:
        """Start the broker on the store, and the clients."""
        self.rig.start_broker()
        self._agent_number += 1
        self.agent = self.rig.agent(f"client-{self._agent_number}.log", self.take)
        self.rig.wait_broker(self.agent)
        for topic, queues in self.script.topics.items():
            self.rig.create_topic(self.agent, topic, queues, self.script.attributes.get(topic))
        self.record("started", version=self.rig.version)
        self.agent.do("consumer", group="warehouse", topics=",".join(self.script.topics))
        if self.rig.release >= DISCARD_COPIES_SINCE:
            self.agent.do("consumer", group="watch", topics=DISCARD_TOPIC)
        for group in sorted(self.groups) or self.script.groups:
            self.join_group(group)

    def halt(self, how: Stop) -> None:
        """Stop the broker, then the clients."""
        self.record("stopping", how=how)
        self.rig.stop("broker", signal.SIGKILL if how == "kill" else signal.SIGTERM)
        self.record("stopped", how=how)
        self.agent.kill()
        self.read_log()

    def restart(self, settings: Mapping[str, str]) -> None:
        """Stop cleanly and start again with some settings changed."""
        self.halt("clean")
        self.rig.conf.update(settings)
        self.record("config", **settings)
        self.boot()

    def become(self, version: str) -> None:
        """Stop cleanly and start another version on the same store."""
        self.halt("clean")
        self.rig.become(version)
        self.boot()

    def set_half_cursor(self, to: int, with_backup: bool) -> None:
        """Edit the half topic's committed offset in the stopped broker's configuration, as an operator would."""
        pattern = re.compile(r'("' + HALF_TOPIC + "@" + rigs.CHECK_GROUP + r'":\s*\{\s*"?0"?:\s*)(\d+)')
        for name in ("consumerOffset.json", *(("consumerOffset.json.bak",) if with_backup else ())):
            path = self.rig.store / "config" / name
            if not path.exists():  # no second flush has made the backup yet
                continue
            text = path.read_text()
            found = pattern.search(text)
            if found is None:
                raise RuntimeError(f"no half cursor in {path}")
            path.write_text(pattern.sub(lambda match: match.group(1) + str(to), text))
            self.record("edited", file=f"config/{name}", was=int(found.group(2)), now=to)

    def read_log(self) -> None:
        """Where a version writes no discard copy: its log line says that it gave up."""
        if self.rig.release < DISCARD_COPIES_SINCE:
            for line in self.new_log_lines():
                if "has been checked too many times" in line:
                    found = {name: _first(pattern, line) for name, pattern in LOGGED.items()}
                    self.record(
                        "discard_logged",
                        case=found["case"],
                        transaction_id=found["uniq"],
                        queue_offset=int(found["queue_offset"] or -1),
                        commit_log_offset=int(found["commit_log_offset"] or -1),
                        checks_count=found["checks"],
                    )

    def new_log_lines(self) -> list[str]:
        """What the broker has logged since the last call."""
        if not self.log_file.exists():
            return []
        with self._changed:
            with self.log_file.open("rb") as lines:
                lines.seek(self._log_read)
                text = lines.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._log_read += len(whole)
        return whole.decode("utf-8", "replace").splitlines()

    def settle(self, quiet: float = 1.5, seconds: float = 20) -> None:
        """Wait until deliveries stop coming."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self._changed:
                last = max(
                    (event["time_ms"] for event in self.truth if event["event"] in ("delivered", "decision")), default=0
                )
            if now_ms() - last > quiet * 1000:
                return
            time.sleep(0.1)

    def run(self, acts: Mapping[str, Act]) -> None:
        """Play the script's histories together, each in its own thread; the last ones when the others have ended;
        then stop.
        """
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

    def after(self, wait_seconds: float = 8) -> None:
        """Start the same version on a copy of the finished store, answer UNKNOW to every check, and note what is
        asked and put back.
        """
        end_of_log = log_end(self.rig.store)
        self.record("log_end", commit_log_offset=end_of_log)
        copy = self.out / "after"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.rig.store, copy / "store")
        allow_reading_ops(copy / "store" / "config" / "topics.json")
        (copy / "store" / "brokerIdentity").unlink(missing_ok=True)  # the second run's controller has not met it yet
        calm = {"transactionCheckMax": NEVER, "transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
        if self.script.version in FORGETTING and self.script.conf.get("enableLmq") == "true":
            # what is open is asked of a broker that starts where the check stood, which this one forgets
            calm["enableLmq"] = "false"
            shutil.copyfile(*(copy / "store" / "config" / name for name in ("lmqConsumerOffset.json", CURSORS)))
        with Rig(self.script.version, copy, dict(self.rig.conf) | calm, self.script.host) as rig:
            rig.start_names()
            rig.start_broker()
            agent = rig.agent("client.log", self._take_after)
            rig.wait_broker(agent)
            for group in sorted(self.groups):
                self.join_after(agent, group)
            agent.do("consumer", group="after", topics=",".join(self.script.topics))
            self._wait_asked(wait_seconds)
            for topic in (HALF_TOPIC, OP_TOPIC):
                self.record("after_cursor", topic=topic, queue_offset=rig.cursor(agent, topic))
            for topic, queues in (*self.system_topics, *self.script.topics.items()):
                for queue in range(queues):
                    for record in rig.pull(agent, topic, queue, bodies=topic == OP_TOPIC):
                        before = record["commit_log_offset"] < end_of_log
                        if before or topic == HALF_TOPIC:
                            record.pop("body_crc32" if topic != OP_TOPIC else "keys", None)
                            self.record("after_record" if before else "after_put_back", **record)
            agent.kill()
        shutil.rmtree(copy)

    def after_as_is(self, wait_seconds: float = 12) -> None:
        """Start the same version on a copy, with the same settings and without any client but ours that reads: note
        what it puts back and what it discards.
        """
        copy = self.out / "as-is"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.rig.store, copy / "store")
        end_of_log = log_end(self.rig.store)
        with Rig(self.script.version, copy, self.rig.conf, self.script.host) as rig:
            rig.start_names()
            rig.start_broker()
            agent = rig.agent("client.log")
            rig.wait_broker(agent)
            cursor, since = rig.cursor(agent, HALF_TOPIC), time.monotonic()
            self.record("as_is_first_cursor", queue_offset=cursor)
            while time.monotonic() - since < wait_seconds:  # until it has nothing more to put back
                time.sleep(0.5)
                now = rig.cursor(agent, HALF_TOPIC)
                if now != cursor:
                    cursor, since = now, time.monotonic()
            for topic, kind in ((HALF_TOPIC, "as_is_put_back"), (DISCARD_TOPIC, "as_is_discarded")):
                for record in rig.pull(agent, topic):
                    if record["commit_log_offset"] >= end_of_log:
                        record.pop("body_crc32", None)
                        self.record(kind, **record)
            agent.kill()
        shutil.rmtree(copy)

    def join_after(self, agent: Agent, group: str) -> None:
        """Start a producer of the second run."""
        agent.do("producer", group=group, topic=next(iter(self.script.topics)))

    def _take_after(self, event: Event) -> None:
        if event["event"] in ("check", "delivered"):
            self.take(event | {"event": "after_" + event["event"]})

    def _wait_asked(self, wait_seconds: float) -> None:
        begin = time.monotonic()
        asked: set[str] = set()
        last_new = begin
        while True:
            time.sleep(0.5)
            with self._changed:
                now = {str(event["transaction_id"]) for event in self.truth if event["event"] == "after_check"}
            if now - asked:
                asked, last_new = now, time.monotonic()
            if time.monotonic() - begin > wait_seconds and time.monotonic() - last_new > QUIET_SECONDS:
                return


@dataclass(frozen=True)
class Act:
    """A history as it is played."""

    name: str
    play: Callable[[Play, int, Random], None]
    words: str
    phase: int = 0
    """0: first; 1: what is open when the store ends, with the epilogues of the others; 2: after that, just before the
    stop; BETWEEN: under each broker between the first and the last.
    """


LOGGED = {
    "uniq": re.compile(r"UNIQ_KEY=([0-9A-F]+)"),
    "case": re.compile(r"[{ ]case=([\w.]+)"),
    "queue_offset": re.compile(r"queueOffset=(\d+)"),
    "commit_log_offset": re.compile(r"commitLogOffset=(\d+)"),
    "checks": re.compile(r"TRANSACTION_CHECK_TIMES=(\d+)"),
}


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found.group(1) if found else None


def same(record: Event, transaction: Transaction) -> bool:
    """Does a record served by the broker belong to the transaction?"""
    if transaction.known["transaction_id"] is not None:
        return bool(record["transaction_id"] == transaction.known["transaction_id"])
    return bool(record["case"] == transaction.case)


def order(rng: Random, case: str, length: int | None = None) -> bytes:
    """A body that looks like an order of a shop."""
    items = [
        {
            "sku": f"{rng.choice('ABCDEFG')}{rng.randrange(1000, 9999)}",
            "count": rng.randrange(1, 9),
            "cents": rng.randrange(99, 49999),
        }
        for _ in range(rng.randrange(1, 4))
    ]
    text = json.dumps({"order": case, "customer": rng.randrange(10**6), "items": items}, separators=(",", ":"))
    if length is not None:
        text = (text * (length // len(text) + 1))[:length]
    return text.encode()
