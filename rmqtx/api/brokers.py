"""Live brokers: `rmqtx.connect`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from os import PathLike
from types import TracebackType
from typing import NoReturn, Self

import pyarrow as pa

from rmqtx.api.acting import Applied, Orders, Plan, Where, apply_known, known_plan, planned
from rmqtx.api.results import Rows, diagnosed
from rmqtx.api.rows import Diagnosis, Half, Op, Transaction
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.identities import NameForms
from rmqtx.readers.model.reading import Reading, chained
from rmqtx.readers.model.tables import HALVES, LIVE_TRANSACTIONS, OPS
from rmqtx.remoting.connections.batched_reads import Pace
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.connections.discovery import NameServers, chosen_brokers
from rmqtx.remoting.live.half_and_op_tables import read_halves, read_ops
from rmqtx.remoting.live.lookups import audit, lookup, pending, show
from rmqtx.remoting.live.store_facts import LiveStore, live_store
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.connection_settings import RemotingSettings, several
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.plans.plan_sources import LivePlanSource
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.transactions.measures import MEASURES


class Brokers:
    """Live brokers, connected. Made by `rmqtx.connect`; use it in a `with` block, which closes the connections."""

    def __init__(
        self, client: Client, brokers: list[Broker], members: list[BrokerAddresses], pace: Pace,
        trace_topic: str | None = None,
    ) -> None:
        self._client, self._brokers, self._members, self._pace = client, brokers, members, pace
        self._trace_topic = trace_topic
        self.names = tuple(broker.root for broker in brokers)

    def pending(self) -> Rows[Transaction]:
        """The transactions that the check will still reach, as `rmqtx pending -n --all-open`."""
        return Rows(Transaction, LIVE_TRANSACTIONS, lambda: pending(
            self._brokers, members=self._members, pace=self._pace, facts=self._facts()
        ))

    def audit(self) -> Rows[Transaction]:
        """The verdict on every transaction that the half queues hold, as `rmqtx audit -n`."""
        return Rows(Transaction, LIVE_TRANSACTIONS, self._audited)

    def diagnose(self) -> Rows[Diagnosis]:
        """The causes of unusual transactions that the half queues hold, as `rmqtx diagnose -n`."""
        return diagnosed(lambda: self._audited(MEASURES.names))

    def records(self, **_: object) -> NoReturn:
        """Only of files. Raises: BadRequest."""
        raise _only_of_files("records")

    def trace(self) -> NoReturn:
        """Only of files; `show` and `diagnose` read the traces of single transactions. Raises: BadRequest."""
        raise _only_of_files("trace")

    def verify(self, **_: object) -> NoReturn:
        """Only of files. Raises: BadRequest."""
        raise _only_of_files("verify")

    def simulate(self, table: str = "checks", **_: object) -> NoReturn:  # noqa: ARG002 -- as Stores
        """Only of files; `pending` predicts when the check discards each transaction. Raises: BadRequest."""
        raise _only_of_files("simulate")

    def tables(self) -> NoReturn:
        """Only of files. Raises: BadRequest."""
        raise _only_of_files("tables")

    def show(self, identity: str) -> Rows[Transaction]:
        """One transaction by id, short id, message id or key, as `rmqtx show -n`."""
        return Rows(Transaction, LIVE_TRANSACTIONS, lambda: show(
            self._brokers, identity, members=self._members, pace=self._pace, facts=self._facts(),
            forms=NameForms.PLACES,
        ))

    def lookup(self, ids: Iterable[str]) -> Rows[Transaction]:
        """Some transactions by id."""
        wanted = list(ids)
        return Rows(Transaction, LIVE_TRANSACTIONS, lambda: lookup(self._brokers, wanted, pace=self._pace))

    def halves(self) -> Rows[Half]:
        """Every half copy that the half queues hold, as `rmqtx decode half -n`."""
        return Rows(Half, HALVES, lambda: self._of_each(HALVES, lambda one: read_halves(one, pace=self._pace)))

    def ops(self) -> Rows[Op]:
        """Every op message that the op queues hold, as `rmqtx decode op -n`."""
        return Rows(Op, OPS, lambda: self._of_each(OPS, lambda one: read_ops(one, pace=self._pace)))

    def plan(
        self, action: str, *, reason: str, ids: Iterable[str] = (), where: Where | None = None,
        group: str | None = None,
    ) -> Plan:
        """A plan of one action, as `rmqtx plan -n`: commit, rollback, discard, resume, close or redeliver.

        `ids`: these transactions, by id, message id or key; without them all that the action may be for. `where`: only
        those that meet a condition. `group`: only this producer group.
        Raises: BadRequest, NoSuchTransaction, RemotingError.
        """
        source = LivePlanSource(self._brokers, self._members, LiveMedium(self._brokers, self._members))
        return planned(source, action, ids, where, group, reason, {})

    def apply(
        self, plan: Plan | str | PathLike[str], *, reason: str | None = None, yes: bool = False, dry_run: bool = False,
        require_approval: str | PathLike[str] | None = None, override: Sequence[str] = (), skip_stale: bool = False,
        exact: bool = False, wait: bool = True, max_per_second: float | None = None,
    ) -> Applied:
        """Carry out a plan file as `rmqtx apply -n`: guards, acts, proofs, receipts. Done steps are not repeated.

        `yes`: the confirmation for which the command asks; `dry_run`: return what would be done. `require_approval`:
        an allowed-signers file of ssh-keygen, by which FILE.sig must be the signature of a second person.
        Raises: BadRequest, NotApproved, StalePlan, RemotingError before anything is done; UnwritableFile.
        """
        orders = Orders(
            reason=reason, yes=yes, dry_run=dry_run, require_approval=require_approval, override=override,
            skip_stale=skip_stale, exact=exact, wait=wait, max_per_second=max_per_second,
        )
        medium = LiveMedium(self._brokers, self._members)
        return apply_known(known_plan(plan), medium, self.names, lambda one: not one.is_of_files, orders)

    def _audited(self, measures: Collection[str] = ()) -> VerdictReading:
        return audit(
            self._brokers, members=self._members, pace=self._pace, facts=self._facts(), measures=measures
        )

    def _facts(self) -> list[LiveStore]:
        return [live_store(broker, self._trace_topic, self._pace) for broker in self._brokers]

    def _of_each(self, schema: pa.Schema, read: Callable[[Broker], Reading]) -> Reading:
        return chained(schema, self._brokers, read)

    def close(self) -> None:
        """Close the connections; rows cannot be read afterwards."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<rmqtx brokers {', '.join(self.names)}>"


def _only_of_files(call: str) -> BadRequest:
    return BadRequest(
        f"{call}: a live broker does not give the files that it needs",
        advice=f"rmqtx.open(STORE).{call}() where the files are, or on a copy of them",
    )


def connect(
    namesrv: str | None = None, *, broker: Sequence[str] = (), cluster: str | None = None,
    settings: RemotingSettings | None = None, rate: float | None = None, trace_topic: str | None = None,
) -> Brokers:
    """Connect to live brokers.

    `namesrv`: HOST:PORT of a name server, several separated by `;`. `broker`: only these, by name or address; addresses
    need no name server. `cluster`: only brokers of it. `settings`: timeouts, credentials, TLS, namespace. `rate`:
    maximum of requests for records per second. `trace_topic`: of the message traces.
    Raises: BadRequest, Unreachable, NoAnswer, Refused.
    """
    addresses = several(namesrv or "")
    if not addresses and not broker:
        raise BadRequest("the address is missing", advice="rmqtx.connect('HOST:PORT'), of a name server")
    client = Client(settings or RemotingSettings())
    try:
        name_servers = NameServers(client, addresses) if addresses else None
        brokers, members = chosen_brokers(client, name_servers, names=broker, cluster=cluster)
    except BaseException:
        client.close()
        raise
    return Brokers(client, brokers, members, Pace(rate), trace_topic)
