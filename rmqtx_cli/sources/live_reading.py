"""Commands that read files, put to live brokers: the same options as far as they mean something, the same header."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from readers.model.errors import BadRequest
from rmqtx_cli.options.live import LiveOptions, open_live
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.model.reading import Reading
    from remoting.connections.batched_reads import Pace
    from remoting.connections.broker import Broker
    from remoting.live.store_facts import LiveStore
    from rmqtx_cli.options.bounds import Bounds
    from rmqtx_cli.options.live import Live
    from verdicts.audit.timeline import Surroundings
    from verdicts.model.reading import VerdictReading

#: Hints of groups without producers that are said one by one.
_GROUPS_SAID_MAX = 5


def refuse_with_live(options: Mapping[str, Any]) -> None:
    """Refuse options that only files know.

    Raises: BadRequest.
    """
    for name, value in options.items():
        if value not in (None, False, [], ()):
            raise BadRequest(f"{name} is for files: live brokers say what is now, and which version they are")


def refuse_without_live(rate: float | None) -> None:
    """Refuse options that only live brokers know.

    Raises: BadRequest.
    """
    if rate is not None:
        raise BadRequest("--max-requests-per-second is for live brokers", advice="name them with -n or --broker")


@dataclass(frozen=True, slots=True)
class LiveSource:
    """Live brokers as a command reads them.

    Shape: `facts` are those of each broker, asked before anything else; a question uses them once.
    """

    live: Live
    facts: list[LiveStore]
    pace: Pace

    def pending(self) -> VerdictReading:
        """What hangs."""
        from remoting.live.lookups import pending

        return pending(self.live.brokers, members=self.live.members, pace=self.pace, facts=self.facts)

    def show(self, identity: str) -> VerdictReading:
        """What became of one transaction."""
        from remoting.live.lookups import show

        return show(
            self.live.brokers, identity, members=self.live.members, pace=self.pace, facts=self.facts, short=True
        )

    def audit(self) -> VerdictReading:
        """What became of all that the half queues hold."""
        from remoting.live.lookups import audit

        return audit(self.live.brokers, members=self.live.members, pace=self.pace, facts=self.facts)

    def surroundings(self) -> list[Surroundings]:
        """What stands around the witnesses at each broker."""
        from remoting.live.surroundings import LiveSurroundings

        return [LiveSurroundings(fact) for fact in self.facts]


@contextmanager
def live_source(options: LiveOptions, voice: Voice, rate: float | None = None) -> Iterator[LiveSource]:
    """The live brokers that are asked for, with a line about each; connections end with the context.

    Raises: BadRequest, Unreachable, NoAnswer, Refused.
    """
    from remoting.connections.batched_reads import Pace
    from remoting.live.store_facts import live_store

    with open_live(options) as live:
        facts = [live_store(broker) for broker in live.brokers]
        for fact in facts:
            voice.note(f"{fact.root}: {fact.describe()}")
        yield LiveSource(live, facts, Pace(rate))


@dataclass(frozen=True, slots=True)
class LiveTables:
    """The queues of live brokers, as they lie there."""

    live: Live
    pace: Pace

    def halves(self, bounds: Bounds, voice: Voice) -> list[Reading]:
        """Half copies of each broker, read as they are asked for."""
        from remoting.live.half_and_op_tables import read_halves

        return [read_halves(broker, **asdict(bounds), pace=self.pace) for broker in self._said(voice)]

    def ops(self, bounds: Bounds, voice: Voice) -> list[Reading]:
        """Op messages of each broker, read as they are asked for."""
        from remoting.live.half_and_op_tables import read_ops

        return [read_ops(broker, **asdict(bounds), pace=self.pace) for broker in self._said(voice)]

    def _said(self, voice: Voice) -> list[Broker]:
        for broker in self.live.brokers:
            voice.note(f"{broker.root}: a live broker, asked over the wire")
        return self.live.brokers


@contextmanager
def live_tables_source(options: LiveOptions, rate: float | None = None) -> Iterator[LiveTables]:
    """The live brokers that are asked for, whose queues are listed; connections end with the context.

    Raises: BadRequest, Unreachable, NoAnswer, Refused.
    """
    from remoting.connections.batched_reads import Pace

    with open_live(options) as live:
        yield LiveTables(live, Pace(rate))


def say_producers(rows: pa.Table, voice: Voice) -> None:
    """The hint that explains most hanging: nobody is there to answer the checks."""
    from remoting.live.half_and_op_tables import groups_without_producer

    groups = groups_without_producer(rows)
    for group in groups[:_GROUPS_SAID_MAX]:
        voice.note(f"no producer of group {group} is connected: nobody answers the checks")
    if len(groups) > _GROUPS_SAID_MAX:
        voice.note(f"nor of {len(groups) - _GROUPS_SAID_MAX} more groups")


def arguments(options: LiveOptions) -> str:
    """The options that lead to the same brokers again, as a shell takes them."""
    words = []
    for name in ("namesrv", "broker", "cluster", "namespace", "credentials", "tls_ca", "tls_cert", "tls_key",
                 "tls_server_name"):
        value = getattr(options, name)
        for one in value if isinstance(value, tuple) else [value]:
            if one is not None:
                words += [f"--{name.replace('_', '-')}", shlex.quote(str(one))]
    words += [f"--{name.replace('_', '-')}" for name in ("tls", "tls_insecure") if getattr(options, name)]
    return " ".join(words).replace("--namesrv", "-n")
