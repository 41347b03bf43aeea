"""Operators of a world: a journal on disk, and processes of rmqtx that act, apply, answer, hold, drain and release."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.discovery import NameServers, chosen_brokers
from rmqtx.remoting.producer.producer import Membership
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.repairs.acts.carry_out import carry_out, checked_acts
from rmqtx.repairs.acts.claims import GroupWatch, claim_on
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.acts.orders import ActOrder, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.holds.changes import change_settings, checked_drain, checked_hold, checked_release
from rmqtx.repairs.holds.draining import Drain, DrainEnd, wait_until_drained
from rmqtx.repairs.holds.standing_holds import standing_holds
from rmqtx.repairs.plans.apply_plan import Application, application
from rmqtx.repairs.plans.draft_plan import digest_of, drafted, live_plan_store, plan_of
from rmqtx.repairs.receipts import journal as journal_module
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import BEGUN, WENT_ON, Journal
from rmqtx.repairs.receipts.plan_file import parse_plan
from rmqtx.repairs.receipts.recheck import record_recheck
from rmqtx.repairs.stand_in.answer_source import PlanAnswers
from rmqtx.repairs.stand_in.stand_in import StandIn, StandInConduct
from rmqtx.verdicts.audit.provenance import EngineFacts, provenance
from tests.wire.world import Process, World

NAME_SERVER = "10.0.0.100:9876"
_REASON = "OPS-4711"


class Office:
    """One user on one machine: the journal, and what was written there before anything was sent.

    Shape: `lines_count`: lines that record an intent, by what is acted on; `receipt_of`: the last receipt of a process
           for what is acted on.
    """

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.directory = world, directory
        directory.mkdir(mode=0o700)
        self.lines_count: Counter[str] = Counter()
        self.receipt_of: dict[tuple[str, str], str] = {}

    @property
    def journal(self) -> Journal:
        """Its journal."""
        return Journal(self.directory / "receipts.jsonl")

    @property
    def plan(self) -> Path:
        """The plan's file."""
        return self.directory / "plan.json"

    def written(self, process: Process, data: bytes) -> None:
        """Note a line that is in the journal."""
        value = json.loads(data)
        if value["line"] in (BEGUN, WENT_ON):
            about = value["transaction_id"] or value["store"]
            self.lines_count[about] += 1
            self.receipt_of[process.name, about] = value["receipt_id"]


@contextmanager
def journals(world: World, office_of: Callable[[Process], Office]) -> Iterator[None]:
    """Put seams around each line of a journal."""

    def write(descriptor: int, data: bytes) -> int:
        process = world.current.process
        assert process is not None
        process.seam("journal before")
        try:
            process.seam("journal torn")
        except BaseException:
            os.write(descriptor, data[: world.random.randrange(len(data))])
            raise
        count = os.write(descriptor, data)
        office_of(process).written(process, data)
        process.seam("journal after")
        return count

    def nothing(_: int) -> None:
        """Sync nothing: a killed process loses no page of the file."""

    names = {name: getattr(os, name) for name in dir(os) if not name.startswith("__")}
    with (
        mock.patch.object(journal_module, "os", SimpleNamespace(**{**names, "write": write, "fsync": nothing})),
        mock.patch.object(journal_module, "on_disk", return_value=None),
    ):
        yield


@contextmanager
def opened(names: Sequence[str] = ()) -> Iterator[tuple[Client, list[Broker], list[BrokerAddresses]]]:
    """Open the brokers, as `open_live` does; `names`: addresses."""
    with Client(RemotingSettings()) as client:
        servers = None if names else NameServers(client, [NAME_SERVER])
        yield client, *chosen_brokers(client, servers, names=names)


def act(office: Office, action: ActKind, ids: Sequence[str], conduct: Conduct) -> None:
    """Do what the acting commands do."""
    with opened() as (_, brokers, members):
        medium = LiveMedium(brokers, members)
        orders = [ActOrder(name, ActRequest(action), _REASON) for name in ids]
        acts = checked_acts(orders, medium, conduct)
        carry_out(acts, medium, office.journal, conduct, office.world.note)


def plan(office: Office, action: ActKind, ids: Sequence[str]) -> bool:
    """Do what `plan` does; whether a plan was written."""
    with opened() as (_, brokers, members):
        medium = LiveMedium(brokers, members)
        draft = drafted(medium.situations(medium.look(ids), settled_ms=0), ActRequest(action), _REASON, "me@here")
        roots = {root for step in draft.steps for root in step.stores}
        stores = [live_plan_store(broker) for broker in brokers if broker.root in roots]
        made_from = provenance(
            [{"store": one["store"], "taken_time_ms": one["taken_time_ms"]} for one in stores], command="plan",
            options={}, engine=EngineFacts("live"), made_time_ms=office.world.now_ms,
        )
        if draft.steps:
            text = plan_of(draft, stores, made_from, office.world.now_ms).text()
            office.world.seam("plan before")
            office.plan.write_text(text)
            office.world.seam("plan after")
        return bool(draft.steps)


def apply(office: Office, conduct: Conduct) -> Application:
    """Do what `apply --skip-stale` does, and `--continue` where there are receipts."""
    data = office.plan.read_bytes()
    wanted = parse_plan(data, "plan.json")
    known_as = {"file": "plan.json", "digest": digest_of(data), "written_by": None, "approved_by": None}
    with opened() as (_, brokers, members):
        medium = LiveMedium(brokers, members)
        found = application(wanted, known_as, office.journal.read().receipts, medium, conduct)
        for receipt, standing in (*found.settled, *found.disputed):
            record_recheck(office.journal, receipt, standing)
        if found.acts:
            carry_out(found.acts, medium, office.journal, conduct, office.world.note)
        return found


def answer(office: Office, group: str, seconds: float, prove_ms: int) -> None:
    """Do what `answer --plan --for` does."""
    world = office.world
    data = office.plan.read_bytes()
    words = PlanAnswers(parse_plan(data, "plan.json"), "plan.json")
    conduct = StandInConduct(group, _REASON, plan={"file": "plan.json", "digest": digest_of(data)}, prove_ms=prove_ms)
    with opened() as (client, brokers, members):
        watch = GroupWatch(client, members, group)
        medium, journal = LiveMedium(brokers, members), office.journal
        roots = {broker.root: broker for broker in brokers}

        def check_cursor(root: str) -> int | None:
            return roots[root].consumer_offset(CHECK_GROUP, HALF_TOPIC)

        stand_in = StandIn(conduct, medium, check_cursor, words, journal, watch, world.note)
        stand_in.propose([row for row in medium.look(words.named) if row.producer_group == group])
        if conduct.refusal_of(watch.look()) is not None or watch.seen.unknown is not None:
            return
        medium.remember_log_ends()
        end = world.seconds + seconds
        addresses = [broker.address for broker in brokers]
        with Membership(client.settings, addresses, (group, claim_on(group)), stand_in.receive) as membership:
            watch.client_id = membership.client_id
            stand_in.run(lambda: world.seconds >= end)


def hold(office: Office, hours: int) -> None:
    """Do what `hold --no-wait` does."""
    holds = standing_holds(office.journal.read().receipts)
    with opened() as (_, brokers, _members):
        now_ms = office.world.now_ms
        until_ms = now_ms + hours * 3_600_000
        changes = [checked_hold(broker, holds.get(broker.root), now_ms, until_ms) for broker in brokers]
        change_settings(changes, office.journal, _REASON)


def drain(office: Office, seconds: float, on_safe: Callable[[str], None]) -> None:
    """Do what `drain --for` does. `on_safe`: called with a broker as soon as it is reported to be safe to stop."""
    journal, world = office.journal, office.world
    holds = standing_holds(journal.read().receipts)
    with opened() as (_, brokers, _members):
        changes = [checked_drain(broker, holds.get(broker.root)) for broker in brokers]
        change_settings(changes, journal, _REASON)

        def report(one: Drain) -> None:
            if one.end == DrainEnd.SAFE:
                on_safe(one.root)

        for one in wait_until_drained(changes, journal, int(seconds * 1000), world.event(), report):
            world.note(f"drain of {one.root}: {one.words()}")


def release(office: Office, overrides: Sequence[str] = ()) -> None:
    """Do what `release` does."""
    holds = standing_holds(office.journal.read().receipts)
    with opened() as (_, brokers, _members):
        held = [broker for broker in brokers if broker.root in holds] or brokers
        change_settings(
            [checked_release(broker, holds, overrides) for broker in held], office.journal, _REASON, overrides
        )


def said(office: Office, name: str, function: Callable[..., Any], *values: Any) -> Callable[[], None]:
    """Return a function that does something, and notes the error with which it ends."""

    def run() -> None:
        office.world.note(f"{name}: {function.__name__} {' '.join(str(one) for one in values)}")
        try:
            function(office, *values)
        except RmqtxError as error:
            office.world.note(f"{name}: {type(error).__name__}: {error}")
        else:
            office.world.note(f"{name}: done")

    return run
