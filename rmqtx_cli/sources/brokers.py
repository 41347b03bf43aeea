"""Live brokers as a source of transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.readers.model.findings import few
from rmqtx.readers.model.identities import NameForms
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import LIVE_TRANSACTIONS, NOBODY, PROXY
from rmqtx.readers.store.store import Store
from rmqtx.remoting.connections.batched_reads import Pace
from rmqtx.remoting.live.half_and_op_tables import groups_asked_through, read_halves, read_ops
from rmqtx.remoting.live.lookups import LiveSurroundings, audit, lookup, pending, show, with_or_without_causes
from rmqtx.remoting.live.store_facts import LiveStore, live_store
from rmqtx.verdicts.transactions.measures import MEASURES
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.output.views import View, transactions_view
from rmqtx_cli.sources.check_queues import CheckQueue, check_queues_of_broker
from rmqtx_cli.sources.live_brokers import Live, open_live
from rmqtx_cli.sources.opening import conf_lines
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    import pyarrow as pa
    import typer

    from rmqtx.readers.model.reading import Bounds, Reading
    from rmqtx.remoting.connections.broker import Broker
    from rmqtx.verdicts.audit.timeline import TimelineSource
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx_cli.options.engine import EngineOptions
    from rmqtx_cli.options.options import ProvenanceOptions
    from rmqtx_cli.sources.provenance import MetaCarrier

#: Groups without producers that have a line of their own.
_GROUPS_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class BrokerOpener:
    """See `SourceOpener`. `rate`: maximum of requests for records per second. `trace_topic`: another than usual."""

    options: LiveOptions
    voice: Voice
    rate: float | None = None
    trace_topic: str | None = None

    @property
    def live(self) -> str:
        """See `SourceOpener`."""
        return arguments(self.options)

    @property
    def schema(self) -> pa.Schema:
        """See `SourceOpener`."""
        return LIVE_TRANSACTIONS

    def view(self, now_ms: int, *, with_state: bool, with_deadline: bool = False) -> View:
        """See `SourceOpener`."""
        return transactions_view(
            now_ms, with_state=with_state, with_store=True, with_producers=True, with_deadline=with_deadline
        )

    @contextmanager
    def opened(self, *written: Path | None) -> Iterator[BrokerSource]:  # noqa: ARG002 -- no file of theirs is here
        """See `SourceOpener`. Connections end with the block."""
        with self.looked_up() as source:
            source.facts.extend(live_store(one, self.trace_topic, source.pace) for one in source.brokers.brokers)
            for fact in source.facts:
                self.voice.note(f"{fact.root}: {fact.describe(verbose=self.voice.verbose)}")
            for line in source.conf_lines():
                self.voice.note(line)
            yield source

    @contextmanager
    def looked_up(self) -> Iterator[BrokerSource]:
        """See `SourceOpener`. Connections end with the block."""
        with open_live(self.options) as live:
            yield BrokerSource(live, Pace(self.rate), self.live, self.voice)

    @contextmanager
    def tables(self, *written: Path | None) -> Iterator[BrokerTables]:  # noqa: ARG002
        """See `SourceOpener`. Connections end with the block."""
        with open_live(self.options) as live:
            yield BrokerTables(live, Pace(self.rate), self.voice)


@dataclass(frozen=True, slots=True)
class BrokerSource:
    """Live brokers as a command reads them. See `Source`.

    Shape: `facts`: those of each broker, read before anything else and used by one query. Empty where transactions
           are only looked up.
    """

    brokers: Live
    pace: Pace
    live: str
    voice: Voice
    facts: list[LiveStore] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """See `Source`."""
        return [f"rocketmq://{fact.root}" for fact in self.facts]

    @property
    def arguments(self) -> str:
        """See `Source`."""
        return self.live

    def pending(
        self, *, at_ms: int | None = None, scan: bool = False, with_causes: bool = True,  # noqa: ARG002 -- refused
    ) -> VerdictReading:
        """See `Source`."""
        live = self.brokers
        reading = pending(
            live.brokers, members=live.members, pace=self.pace, facts=self.facts, with_causes=with_causes
        )
        reading.batches = reading.table().to_batches()
        return reading

    def show(
        self, identity: str, *, at_ms: int | None = None, scan: bool = False, with_causes: bool = True,  # noqa: ARG002
    ) -> VerdictReading:
        """See `Source`."""
        live = self.brokers
        return show(
            live.brokers, identity, members=live.members, pace=self.pace, facts=self.facts, forms=NameForms.PLACES,
            columns=with_or_without_causes(with_causes=with_causes),
        )

    def lookup(self, ids: Sequence[str]) -> VerdictReading:
        """See `Source`."""
        return lookup(self.brokers.brokers, ids, pace=self.pace)

    @contextmanager
    def audited(
        self, context: typer.Context, listing: MetaCarrier, engine: EngineOptions, provenance: ProvenanceOptions,  # noqa: ARG002
        at_ms: int | None,  # noqa: ARG002 -- refused
        columns: Collection[str],
    ) -> Iterator[VerdictReading]:
        """See `Source`. All that the half queues hold, with all columns of transactions."""
        live = self.brokers
        measures = [name for name in MEASURES.names if name in columns]
        yield audit(live.brokers, members=live.members, pace=self.pace, facts=self.facts, measures=measures)

    def add_provenance(self, context: typer.Context, listing: MetaCarrier) -> None:
        """See `Source`. Responses of a broker are not stored: they have no provenance."""

    def record(self, store: str, commit_log_offset: int) -> bytes | None:
        """See `Source`."""
        broker = next(one for one in self.brokers.brokers if one.root == store)
        return broker.view(commit_log_offset)

    def surroundings(self) -> Sequence[TimelineSource]:
        """See `Source`."""
        return [LiveSurroundings(fact) for fact in self.facts]

    def describe(self) -> list[str]:
        """See `Source`."""
        return [f"{fact.root}: {fact.describe()}" for fact in self.facts] + self.conf_lines()

    def conf_lines(self) -> list[str]:
        """See `Source`. By the configuration that the brokers report."""
        return conf_lines((fact.settings for fact in self.facts), is_reported=True)

    def check_queues(self) -> list[CheckQueue]:
        """See `Source`."""
        return [queue for fact in self.facts for queue in check_queues_of_broker(fact)]

    def say_producers(self, rows: pa.Table) -> None:
        """See `Source`."""
        groups = groups_asked_through(rows, NOBODY)
        for group in groups[:_GROUPS_NAMED_MAX]:
            self.voice.note(f"no producer of group {group} is connected: no process answers the checks")
        if len(groups) > _GROUPS_NAMED_MAX:
            self.voice.note(f"no producer is connected in {len(groups) - _GROUPS_NAMED_MAX} more groups")
        if groups and any(fact.has_proxy for fact in self.facts):
            self.voice.note(
                "a proxy uses the broker: an application may run and be connected to a proxy that forgot its group; "
                "rmqtx explain proxy-forgot-producer"
            )
        if behind := groups_asked_through(rows, PROXY):
            named = few(behind)
            self.voice.note(
                f"asked through a proxy: {'group' if len(behind) == 1 else 'groups'} {named}; whether the application "
                "is connected to the proxy is unknown"
            )

    def present_conf(self, store: str) -> Mapping[str, str] | None:
        """See `Source`."""
        found = next((broker for broker in self.brokers.brokers if broker.root == store), None)
        return None if found is None else found.config()


@dataclass(frozen=True, slots=True)
class BrokerTables:
    """The half and op queues of live brokers. See `Tables`."""

    live: Live
    pace: Pace
    voice: Voice

    def halves(self, bounds: Bounds) -> list[Reading]:
        """See `Tables`."""
        return [read_halves(broker, bounds, self.pace) for broker in self._noted()]

    def ops(self, bounds: Bounds) -> list[Reading]:
        """See `Tables`."""
        return [read_ops(broker, bounds, self.pace) for broker in self._noted()]

    def _noted(self) -> list[Broker]:
        """The brokers, after a line about each."""
        for broker in self.live.brokers:
            self.voice.note(f"{broker.root}: a live broker, read over the network")
        return self.live.brokers


def arguments(options: LiveOptions) -> str:
    """The options that connect to the same brokers, quoted for a shell."""
    words = []
    for name in ("namesrv", "broker", "cluster", "namespace", "credentials", "tls_ca", "tls_cert", "tls_key",
                 "tls_server_name"):
        value = getattr(options, name)
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is not None:
                words += [f"--{name.replace('_', '-')}", quoted(str(one))]
    words += [f"--{name.replace('_', '-')}" for name in ("tls", "tls_insecure") if getattr(options, name)]
    return " ".join(words).replace("--namesrv", "-n")
