"""One course of events, drawn from a seed: brokers, transactions, operators, producers, faults, and what follows."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.remoting.connections import connection
from rmqtx.remoting.connections.connection import Request
from rmqtx.remoting.producer.producer import Check, Member
from rmqtx.remoting.protocol.codes import COMMIT, IS_ONEWAY, ROLLBACK, RequestCode, ResponseCode
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.remoting.protocol.errors import RemotingError
from rmqtx.remoting.protocol.frames import Frame, encoded
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.acts.orders import Conduct
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.verdicts.model.transaction import Transaction
from tests.wire import offices
from tests.wire.broker import Broker, Rules
from tests.wire.network import CHANGES, FAULTS, Faults, NameServer, Network, Wire
from tests.wire.offices import Office, said
from tests.wire.world import Task, World

ACTS = ("commit", "rollback", "discard", "resume", "close", "apply", "answer", "hold", "drain")
_IN_MEMORY = Path("/dev/shm")
#: The share of look-ups that send one request, where the state of the brokers is known.
_SHORT_LOOKS = 0.75
_GROUPS = ("shop", "pay")


@dataclass(frozen=True)
class Send:
    """A request of ours that changes something, as it was sent.

    Shape: `looked_ns`: when the last look-up of its process began; `reading_seconds`: how long a look-up takes at
           most; `lines_count`: the intents in the journal by then, and `sends_count`: the requests before this one,
           about the same transaction or broker.
    """

    time_ns: int
    process: str
    office: Office
    code: int
    about: str
    is_commit: bool
    opaque: int
    wire: Wire
    looked_ns: int
    lines_count: int
    sends_count: int
    receipt_id: str | None
    is_of_its_place: bool
    reading_seconds: float


@dataclass
class Course:
    """What happened, for the invariants.

    Shape: `targets`: the transactions that each process may touch, by its name; `order`: the act that each process was
           given. `drained`: for each broker that was safe to stop, its open transactions, and how many op
           marks only its memory had. `runs`: what was left to do in each run of `apply` after the faults were over.
    """

    seed: int
    act: str
    world: World
    brokers: list[Broker]
    halves: dict[str, Broker] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    order: dict[str, str] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)
    offices: list[Office] = field(default_factory=list)
    drained: list[tuple[int, str, tuple[str, ...], int]] = field(default_factory=list)
    settings_before: dict[str, dict[str, str]] = field(default_factory=dict)
    last_run_name: str = ""
    has_plan: bool = False
    was_healed_ns: int = 0
    errors: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Director:
    """Draws and plays one course."""

    def __init__(self, seed: int, act: str | None, home: Path) -> None:
        self.world = world = World(seed)
        self.random = world.random
        self.act = act or self.random.choice(ACTS)
        self.network = Network(world, self.random.choice((0.0005, 0.005, 0.03)))
        count = 3 if self.random.random() < 0.15 else 1
        rules = self._rules()
        self.brokers = [
            Broker(world, f"broker-{'abc'[n]}", f"10.0.0.{n + 1}", replace(rules, more={})) for n in range(count)
        ]
        self.course = Course(seed, self.act, world, self.brokers)
        for broker in self.brokers:
            self.network.hosts[broker.address] = broker
            broker.slow = self._slow
        self.names = NameServer(_cluster(self.brokers))
        self.network.hosts[offices.NAME_SERVER] = self.names
        self.network.on_change = self._sent
        self.home = home
        self.of_process: dict[str, Office] = {}
        self.looked_ns: dict[str, int] = {}
        self.slowness = self.random.choice((0.0, 0.0, 0.005, 0.1))
        #: Units: milliseconds.
        self.conduct = Conduct(prove_ms=self.random.choice((2_500, 2_500, 6_000)))

    def _rules(self) -> Rules:
        draw = self.random.choice
        version = draw(("5.3.3", "5.3.3", "4.9.7"))
        return Rules(
            version, check_max=draw((1, 2, 15, 15)), interval_ms=draw((7_000, 15_000, 30_000)),
            op_interval_ms=draw((500, 500, 3_000)), dispatch_seconds=draw((0.0, 0.0, 0.002, 0.2)),
        )

    def _slow(self) -> float:
        return self.random.uniform(0.0, self.slowness)

    # -- observing --------------------------------------------------------------------------------------------------

    def _sent(self, wire: Wire, frame: Frame) -> None:
        name = wire.process.name
        if name not in self.of_process:
            return
        office = self.of_process[name]
        broker = next(one for one in self.brokers if one.address == wire.address)
        about, is_of_its_place = broker.root, True
        if frame.code == RequestCode.END_TRANSACTION:
            half = broker.log.get(int(frame.fields["commitLogOffset"]))
            about = "" if half is None else half.transaction_id
            is_of_its_place = half is not None and half.queue_offset == int(frame.fields["tranStateTableOffset"])
        elif frame.code == RequestCode.RESUME_CHECK_HALF_MESSAGE:
            found = broker.log.get(int(frame.fields["msgId"][-16:], 16))
            about = "" if found is None else found.transaction_id
        self.course.sends.append(Send(
            self.world.now_ns, name, office, frame.code, about, frame.fields.get("commitOrRollback") == str(COMMIT),
            frame.opaque, wire, self.looked_ns.get(name, 0), office.lines_count[about],
            sum(one.about == about and one.office is office for one in self.course.sends),
            office.receipt_of.get((name, about)), is_of_its_place,
            2.0 + 200 * len(self.brokers) * self.network.latency_seconds + self.network.lost_seconds[name],
        ))
        self.world.note(f"{name} sends {RequestCode(frame.code).name} about {about}")

    def _looking(self) -> Callable[[LiveMedium, Sequence[str]], list[Transaction]]:
        """Return a look-up that is noted. What it takes most of the time for is done once for each state of the
        brokers: then three of four look-ups send one request, and return what the first one of that state found.
        """
        look = LiveMedium.look
        known: dict[Any, tuple[list[Transaction], dict[str, tuple[str, ...]]]] = {}

        def noted(medium: LiveMedium, ids: Sequence[str]) -> list[Transaction]:
            process = self.world.current.process
            assert process is not None
            self.looked_ns[process.name] = self.world.now_ns
            state = (tuple(ids), tuple(medium._brokers), *(broker.state() for broker in self.brokers))
            if state in known and self.random.random() < _SHORT_LOOKS:
                for broker in medium._brokers.values():
                    broker.runtime()
                rows, medium._unread = known[state]
                return list(rows)
            rows = look(medium, ids)
            if state[2:] == tuple(broker.state() for broker in self.brokers):
                known[state] = (rows, medium._unread)
            return rows

        return noted

    # -- the stage --------------------------------------------------------------------------------------------------

    def _lay_out(self) -> list[str]:
        """Store half messages; return those that the act is for."""
        draw, count = self.random, self.random.randint(1, 4)
        wanted: list[str] = []
        kinds = {
            "resume": ("discarded", "discarded", "open"), "close": ("reopened", "reopened", "open"),
        }.get(self.act, ("open", "open", "open", "open", "committed", "rolled back", "discarded", "young"))
        drawn = [draw.choice(kinds) for _ in range(count)]
        stories = sorted(drawn, key=lambda one: one != "discarded")  # the check's cursor has passed these
        for number, story in enumerate(stories):
            name = f"7F00000100{self.course.seed & 0xFFFFFFFF:08X}{number:06X}".ljust(32, "0")
            broker = draw.choice(self.brokers)
            group = draw.choice(_GROUPS) if draw.random() < 0.2 else _GROUPS[0]
            age_ms = draw.randint(100, 5_000) if story == "young" else draw.randint(7_000, 300_000)
            half = broker.send_half(name, group, "orders", age_ms)
            self.course.halves[name], self.course.groups[name] = broker, group
            self.world.note(f"half message {name} at {broker.name} of {group}: {story}")
            if story == "discarded" and broker.cursors[HALF_TOPIC] == half.queue_offset:
                broker.discard(half)
                broker.pass_half()
            fields = {
                "producerGroup": group, "tranStateTableOffset": str(half.queue_offset),
                "commitLogOffset": str(half.offset),
                "commitOrRollback": str(COMMIT if story != "rolled back" else ROLLBACK),
            }
            if story in ("committed", "rolled back", "reopened"):
                broker.end_transaction(fields, "before", is_ours=False, sent_ns=self.world.now_ns)
                broker.write_ops()
            if story == "reopened":  # the check put a copy back before it could read the op message
                broker.put_back(half)
            wanted.append(name)
        return draw.sample(wanted, draw.randint(1, len(wanted)))

    # -- processes --------------------------------------------------------------------------------------------------

    def _office(self) -> Office:
        office = Office(self.world, self.home / f"user-{len(self.course.offices)}")
        self.course.offices.append(office)
        return office

    def _rmqtx(
        self, office: Office, name: str, order: str, ids: Sequence[str], delay_seconds: float,
        kill_at: Callable[[str, int], bool] | None = None,
    ) -> Task:
        process = self.world.process(name, is_ours=True, kill_at=kill_at)
        self.of_process[name] = office
        self.course.targets[name], self.course.order[name] = tuple(ids), order
        return self.world.start(process, self._work(office, name, order, ids), delay_seconds)

    def _work(self, office: Office, name: str, order: str, ids: Sequence[str]) -> Callable[[], None]:
        if order == "apply":
            return said(office, name, offices.apply, self.conduct)
        if order == "answer":
            group = self.course.groups[ids[0]]
            return said(office, name, offices.answer, group, self.random.uniform(8.0, 40.0), self.conduct.prove_ms)
        if order == "hold":
            return said(office, name, offices.hold, 4)
        if order == "drain":
            return said(office, name, offices.drain, self.random.uniform(10.0, 60.0), self._drained)
        if order == "release":
            return said(office, name, offices.release, ("discards-pending",))
        return said(office, name, offices.act, ActKind(order), ids, self.conduct)

    def _drained(self, root: str) -> None:
        """Note what a stop of a broker would lose that rmqtx has just reported to be safe to stop."""
        broker = next(one for one in self.brokers if one.root == root)
        left = [name for name, its in self.course.halves.items() if its is broker and broker.is_open(name)]
        self.course.drained.append((self.world.now_ns, root, tuple(left), len(broker.marks_in_memory())))

    def _kill(self) -> Callable[[str, int], bool]:
        """Draw the seam at which a process is killed."""
        draw = self.random
        kind = draw.choice((
            "journal before", "journal torn", "journal after", "before END_TRANSACTION", "after END_TRANSACTION",
            "answer", "answer", "before UPDATE_BROKER_CONFIG", "after UPDATE_BROKER_CONFIG", "request", "request",
            "before RESUME_CHECK_HALF_MESSAGE", "after RESUME_CHECK_HALF_MESSAGE",
        ))
        most = {"request": 400, "answer": 12}.get(kind, 4)
        wanted, passed = draw.randint(1, most), Counter[str]()

        def is_now(seam: str, number: int) -> bool:
            if kind == "request":
                passed[kind] += 1
                return passed[kind] == wanted
            if kind == "answer":  # the first ones that arrive after something was changed
                if seam.startswith("after ") and seam != "after request":
                    passed["begun"] = 1
                passed[kind] += passed["begun"] and seam == "receive"
                return passed[kind] == wanted and seam == "receive"
            return seam == kind and number == wanted

        return is_now

    def _producer(self, name: str, broker: Broker, half_name: str, delay_seconds: float) -> None:
        """A producer connects, decides, answers checks for a while, and is gone."""
        draw, world, group = self.random, self.world, self.course.groups[half_name]
        decision = draw.choice((COMMIT, ROLLBACK))
        before, after = draw.uniform(0.0, 2.0), draw.uniform(1.0, 8.0)
        decides = draw.random() < 0.8

        def run() -> None:
            checks: list[Check] = []
            try:
                member = Member(RemotingSettings(), broker.address, [group], "10.0.0.9@1", checks.append)
                member.heartbeat()
                world.sleep(before)
                copies = broker.queues.get((HALF_TOPIC, 0), [])
                mine = [one for one in copies if one.transaction_id == half_name]
                if decides and mine:
                    self._decide(member, group, mine[-1].queue_offset, mine[-1].offset, decision)
                end = world.seconds + after
                while world.seconds < end:
                    world.sleep(0.1)
                    while checks:
                        check = checks.pop(0)
                        self._decide(member, group, check.queue_offset, check.commit_log_offset, decision)
                member.close()
            except RemotingError as error:
                world.note(f"{name}: {error}")

        world.start(world.process(name), run, delay_seconds)

    @staticmethod
    def _decide(member: Member, group: str, queue_offset: int, offset: int, decision: int) -> None:
        """As a client of RocketMQ decides after a check: the broker sends no response."""
        request = Request(RequestCode.END_TRANSACTION, {
            "producerGroup": group, "tranStateTableOffset": queue_offset, "commitLogOffset": offset,
            "commitOrRollback": decision, "fromTransactionCheck": True,
        })
        frame = Frame(request.code, 0, request.texts(), request.body, IS_ONEWAY)
        member._connection._refuse_closed()
        member._connection._send(request, encoded(frame))

    def _trouble(self) -> None:
        """Draw what happens to brokers, the name server and the network."""
        draw, world = self.random, self.world
        if draw.random() < 0.3:
            broker = draw.choice(self.brokers)
            is_killed = draw.random() < 0.6
            begin = draw.uniform(0.0, 16.0)

            def down() -> None:
                broker.stop(is_killed=is_killed)
                self.network.cut(broker.address)

            world.at(begin, down)
            world.at(begin + draw.uniform(0.3, 8.0), broker.start)
        if draw.random() < 0.1:
            refuses = draw.choice(self.brokers).refuses
            codes = draw.choice((CHANGES, {RequestCode.PULL_MESSAGE}, {RequestCode.GET_PRODUCER_CONNECTION_LIST}))
            words = (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
            code = draw.choice(words)
            world.at(draw.uniform(0.0, 10.0), lambda: refuses.update(dict.fromkeys(codes, code)))
        if draw.random() < 0.04:
            world.at(draw.uniform(0.0, 10.0), lambda: setattr(self.names, "is_up", False))
        kinds = FAULTS if draw.random() < 0.7 else (draw.choice(FAULTS),)
        self.network.faults = Faults(
            draw.choice((0.0, 0.15, 0.5)), draw.choice((0.0, 0.0, 0.01)), kinds, draw.choice((2.0, 6.0, 9.0, 45.0)),
        )

    def _heal(self) -> None:
        self.network.faults = Faults()
        self.names.is_up, self.slowness = True, 0.0
        for broker in self.brokers:
            broker.refuses.clear()
            assert broker.is_up, "brokers start again within the time of the first part"
        self.course.was_healed_ns = self.world.now_ns

    # -- the course -------------------------------------------------------------------------------------------------

    def play(self) -> Course:
        """Play the course to its end."""
        world, draw = self.world, self.random
        with ExitStack() as stack:
            stack.enter_context(world.patched())
            stack.enter_context(mock.patch.object(connection, "open_stream", self.network.open_stream))
            stack.enter_context(mock.patch.object(LiveMedium, "look", self._looking()))
            stack.enter_context(offices.journals(world, lambda process: self.of_process[process.name]))
            ids = self._lay_out()
            for broker in self.brokers:
                self.course.settings_before[broker.root] = broker.rules.conf(broker.name)
            world.sleep(draw.choice((0.0, 1.0, draw.uniform(0.0, 40.0))))
            first = self._office()
            if self.act in ("apply", "answer") and not self._plan(first, ids):
                self.act = "commit"
            begin = world.seconds
            self._trouble()
            tasks = [self._rmqtx(first, "A", self.act, ids, 0.0, self._kill() if draw.random() < 0.5 else None)]
            if draw.random() < 0.45:
                tasks.append(self._second(first, ids))
            for number in range(draw.choice((0, 0, 1, 2))):
                name = draw.choice(ids)
                self._producer(f"producer-{number}", self.course.halves[name], name, draw.uniform(0.0, 14.0))
            for task in tasks:
                self._join(task)
            world.sleep(max(0.0, begin + 26.0 - world.seconds))
            self._heal()
            world.sleep(draw.uniform(0.5, 15.0))
            self._again(first, ids)
            world.sleep(1.0)
            world.end()
        return self.course

    def _join(self, task: Task) -> None:
        if not self.world.join(task, 400.0):
            assert task.process is not None
            if not task.process.is_dead:
                self.course.errors.append(f"{task.process.name} does not end")
        if task.error is not None:
            raise task.error

    def _plan(self, office: Office, ids: Sequence[str]) -> bool:
        action = ActKind(self.random.choice(("commit", "commit", "rollback", "discard", "resume")))
        if self.act == "answer":
            action = ActKind(self.random.choice(("commit", "rollback")))
        process = self.world.process("planner", is_ours=True)
        self.of_process["planner"], self.course.targets["planner"] = office, ()
        task = self.world.start(process, said(office, "planner", offices.plan, action, ids))
        self._join(task)
        self.course.has_plan = office.plan.exists()
        self.course.order["plan"] = str(action)
        return self.course.has_plan

    def _second(self, first: Office, ids: Sequence[str]) -> Task:
        """Another rmqtx: of the same user or of another, with the same order or another one."""
        draw = self.random
        is_same = draw.random() < 0.4
        office = first if is_same else self._office()
        order = self.act if draw.random() < 0.5 else draw.choice(("commit", "rollback"))
        if order in ("apply", "answer"):
            if not first.plan.exists():
                order = "commit"
            elif not is_same:
                shutil.copy(first.plan, office.plan)
        return self._rmqtx(office, "B", order, ids, draw.uniform(0.0, draw.choice((3.0, 14.0))))

    def _again(self, office: Office, ids: Sequence[str]) -> None:
        """Give the order again, without trouble, until nothing is left of it."""
        if self.act in ("hold", "drain"):
            for number, order in enumerate((self.act, "release")):
                for user, one in enumerate(self.course.offices):
                    if order == "release" or (user == 0 and self.random.random() < 0.5):
                        self._join(self._rmqtx(one, f"again-{order}-{number}-{user}", order, ids, 0.0))
            return
        order = "apply" if self.act == "answer" else self.act
        if order == "apply" and not office.plan.exists():
            return
        for number in range(2 if order == "apply" or self.random.random() < 0.3 else 1):
            name = f"again-{number}"
            self.course.last_run_name = name if number else ""
            self._join(self._rmqtx(office, name, order, ids, self.random.uniform(0.0, 3.0)))


def _cluster(brokers: Sequence[Broker]) -> bytes:
    table = {
        one.name: {"cluster": "c", "brokerName": one.name, "brokerAddrs": {"0": one.address}} for one in brokers
    }
    return json.dumps({"brokerAddrTable": table, "clusterAddrTable": {"c": sorted(table)}}).encode()


def played(seed: int, act: str | None = None) -> Course:
    """Play the course of a seed."""
    directory = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="rmqtx-wire-", dir=directory) as home:
        director = Director(seed, act, Path(home))
        course = director.play()
        from tests.wire.invariants import violations

        course.errors += violations(course)
        return course
