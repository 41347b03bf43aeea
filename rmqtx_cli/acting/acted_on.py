"""The port for acting on live brokers or on the files of a stopped broker, and the choice between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.acts.send_medium import SendMedium
from rmqtx.repairs.plans.plan_sources import named_at_brokers
from rmqtx_cli.options.act_options import OfflineOptions
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.sources.live_brokers import Live, full_name, open_live
from rmqtx_cli.sources.offline import acts_on_files, open_offline, resolved_in_files
from rmqtx_cli.sources.opening import Opened, open_stores, say_header
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from rmqtx.repairs.acts.medium import Medium
    from rmqtx.repairs.receipts.receipts import Receipt

LIVE_WARNING = "a live act has no undo"


class ActedOn(Protocol):
    """Live brokers, or the files of a stopped broker."""

    @property
    def medium(self) -> Medium:
        """The medium that reads transactions and acts on them."""

    @property
    def roots(self) -> list[str]:
        """The brokers or the store."""

    @property
    def warning(self) -> str:
        """The warning in the confirmation prompt."""

    def resolved(self, ids: Sequence[str]) -> list[str]:
        """The transaction ids that some ids, message ids or keys name; see `identities`."""

    def group_of(self, name: str | None) -> str | None:
        """A producer group with its namespace."""

    def earlier(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """The receipts of earlier acts on the same brokers or the same store; a copy is another store."""

    def say_result(self, voice: Voice) -> None:
        """Print where the changed store is, if one was changed."""


@dataclass(frozen=True, slots=True)
class ActedOnBrokers:
    """Live brokers."""

    live: LiveOptions
    opened: Live
    medium: Medium
    warning: str = LIVE_WARNING

    @property
    def roots(self) -> list[str]:
        """See `ActedOn`."""
        return [broker.root for broker in self.opened.brokers]

    def resolved(self, ids: Sequence[str]) -> list[str]:
        """See `ActedOn`."""
        return named_at_brokers(self.opened.brokers, ids, carried)

    def group_of(self, name: str | None) -> str | None:
        """See `ActedOn`."""
        return None if name is None else full_name(self.live, name)

    def earlier(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """See `ActedOn`."""
        return [receipt for receipt in receipts if not receipt.is_of_files]

    def say_result(self, voice: Voice) -> None:
        """See `ActedOn`. No store is changed."""


@dataclass(frozen=True, slots=True)
class ActedOnFiles:
    """The files of a stopped broker."""

    offline: OfflineOptions
    opened: Opened
    medium: Medium

    @property
    def roots(self) -> list[str]:
        """See `ActedOn`."""
        return [store.root for store in self.opened.stores]

    @property
    def warning(self) -> str:
        """See `ActedOn`."""
        return self.offline.warning

    def resolved(self, ids: Sequence[str]) -> list[str]:
        """See `ActedOn`."""
        return resolved_in_files(self.opened, ids)

    def group_of(self, name: str | None) -> str | None:
        """See `ActedOn`."""
        return name

    def earlier(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """See `ActedOn`."""
        return [receipt for receipt in receipts if receipt.is_of_files and receipt.store in self.roots]

    def say_result(self, voice: Voice) -> None:
        """See `ActedOn`."""
        if not self.medium.is_untouched:
            self.offline.say_where(voice)


@dataclass(frozen=True, slots=True)
class ActedOnByCopies:
    """Live brokers that get copies of messages in the files of stores."""

    live: LiveOptions
    stores: Opened
    medium: Medium
    warning: str = "what is sent cannot be taken back"

    @property
    def roots(self) -> list[str]:
        """See `ActedOn`."""
        return [store.root for store in self.stores.stores]

    def resolved(self, ids: Sequence[str]) -> list[str]:
        """See `ActedOn`."""
        return resolved_in_files(self.stores, ids)

    def group_of(self, name: str | None) -> str | None:
        """See `ActedOn`."""
        return None if name is None else full_name(self.live, name)

    def earlier(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """See `ActedOn`."""
        return [receipt for receipt in receipts if not receipt.is_of_files]

    def say_result(self, voice: Voice) -> None:
        """See `ActedOn`. No store is changed."""


@contextmanager
def acted_on_by_copies(
    stores: Sequence[str], files: StoreOptions, live: LiveOptions, to_broker: str | None, voice: Voice, *,
    as_half: bool = False,
) -> Iterator[ActedOnByCopies]:
    """Open the stores that have the messages, and the brokers that get copies, for the duration of the block.

    `to_broker`: the name of the broker that gets them, of several; `as_half`: it gets new half messages.
    Raises: BadRequest, SourceError, RemotingError.
    """
    opened = open_stores(stores, files)
    say_header(opened, voice)
    with open_live(live) as brokers:
        names = [broker.name for broker in brokers.brokers]
        chosen = [one for one in brokers.brokers if to_broker is None or one.name == to_broker]
        if len(chosen) != 1:
            raise BadRequest(
                f"no broker {to_broker!r}" if not chosen else f"{len(chosen)} brokers can get the copies",
                advice=f"choose one of {', '.join(names)}: --to-broker NAME",
            )
        medium = SendMedium(
            brokers.brokers, brokers.members, chosen[0], opened.stores, opened.settings_of, as_half=as_half
        )
        yield ActedOnByCopies(live, opened, medium)


@contextmanager
def acted_on(
    live: LiveOptions, offline: OfflineOptions, unfit: Mapping[str, Any], voice: Voice
) -> Iterator[ActedOn]:
    """Open the brokers or the store. `unfit`: values of the options that are for live brokers only, by option name.

    Raises: BadRequest, StoreInUse, UnsafeStore, SourceError, RemotingError.
    """
    if acts_on_files(offline, live, unfit):
        medium, opened = open_offline(offline, voice)
        yield ActedOnFiles(offline, opened, medium)
        return
    if not live.is_asked:
        raise BadRequest(
            "no live broker and no store given",
            advice="add -n HOST:PORT (a name server), --broker HOST:PORT or --store STORE",
        )
    with open_live(live) as brokers:
        yield ActedOnBrokers(live, brokers, LiveMedium(brokers.brokers, brokers.members))
