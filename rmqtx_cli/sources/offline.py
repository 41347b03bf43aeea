"""The files of a stopped broker, opened for acts: which store, and where the result goes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.identities import NameForms
from rmqtx.readers.storage.places import is_uri
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.acts.file_medium import FileMedium
from rmqtx.repairs.acts.file_preconditions import require_known_release, require_stopped_master
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.changes.in_progress_mark import undo_file_exists
from rmqtx.repairs.changes.store_lock import store_locked, store_shared
from rmqtx.repairs.plans.plan_sources import identities
from rmqtx.verdicts.audit.lookups import show
from rmqtx_cli.options.act_options import OfflineOptions
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.sources.opening import Opened, open_stores, refuse_inside, say_header
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from rmqtx.readers.model.reading import Reading
    from rmqtx.verdicts.evidence.store_facts import SettingsOf

def acts_on_files(
    offline: OfflineOptions, live: LiveOptions, unfit: Mapping[str, Any]
) -> bool:
    """Whether the options name files and not a live broker; one of the two is required.

    `unfit`: values of the options that are only for live brokers, by option name.
    Raises: BadRequest.
    """
    if offline.store is None:
        given = [name for name in ("to", "in_place", "undo", "commit_log") if getattr(offline, name)]
        if given:
            raise BadRequest(f"--{given[0].replace('_', '-').replace('commit-log', 'commitlog')} needs --store")
        return False
    if live.is_explicit:
        raise BadRequest("--store acts on files, -n and --broker on live brokers", advice="leave one out")
    for name, value in unfit.items():
        if value not in (None, False):
            raise BadRequest(f"{name} is for live brokers only")
    _check_destination(offline)
    require_known_release(offline.broker_version)
    return True


def _check_destination(offline: OfflineOptions) -> None:
    if offline.in_place == (offline.to is not None):
        raise BadRequest(
            "--store needs either --to or --in-place",
            advice="--to DIR makes a changed copy, --in-place --undo FILE changes the store itself",
        )
    if offline.in_place != (offline.undo is not None):
        raise BadRequest("--in-place needs --undo FILE, and --undo needs --in-place", advice="give both")
    if offline.to is not None and os.path.lexists(offline.to):
        raise BadRequest(f"{offline.to} exists already", advice="give a new directory with --to")
    if offline.undo is not None and os.path.lexists(offline.undo):
        raise undo_file_exists(offline.undo)


def open_offline(offline: OfflineOptions, voice: Voice) -> tuple[FileMedium, Opened]:
    """The store, opened for actions on its files. Raises: StoreInUse, UnsafeStore, BadRequest, SourceError."""
    opened, conf = _opened(offline, voice)
    destination = Destination(offline.to, offline.undo)
    return FileMedium(opened.stores[0], opened.settings_of, conf, destination, open_store), opened


@contextmanager
def locked_offline(
    offline: OfflineOptions, voice: Voice
) -> Iterator[tuple[Store, SettingsOf, Destination, Callable[..., Store]]]:
    """The store to change, locked while the block runs, with its settings, its destination, and `open_store`.

    Raises: StoreInUse, UnsafeStore, BadRequest, SourceError.
    """
    if offline.store is None:
        raise BadRequest("no store is given", advice="add --store STORE")
    _check_destination(offline)
    opened, conf = _opened(offline, voice)
    store = opened.stores[0]
    require_stopped_master(store, opened.settings_of(store), conf)
    with (store_shared if offline.to is not None else store_locked)(store.root):
        fresh = open_store(store.root, store.commit_log_directories)
        yield fresh, opened.settings_of, Destination(offline.to, offline.undo), open_store


def _opened(offline: OfflineOptions, voice: Voice) -> tuple[Opened, dict[str, str]]:
    """The store, and the broker's configuration, if given."""
    # Absolute, because receipts contain it and are read from other directories.
    place = str(offline.store) if is_uri(str(offline.store)) else str(Path(str(offline.store)).absolute())
    opened = open_stores([place], StoreOptions(offline.commit_log, offline.broker_conf, offline.broker_version))
    if len(opened.stores) != 1:
        raise BadRequest(f"--store names {len(opened.stores)} stores", advice="give one store")
    for result in (offline.to, offline.undo):
        refuse_inside(result, opened.stores)
    say_header(opened, voice)
    return opened, {} if offline.broker_conf is None else read_broker_conf(offline.broker_conf)


def resolved_in_files(opened: Opened, ids: Sequence[str]) -> list[str]:
    """The transaction ids for some ids, message ids or keys in the opened stores; see `identities`."""
    def shown(name: str, short: bool) -> Reading:
        forms = NameForms.SHORT if short else NameForms.EXACT
        return show(opened.stores, opened.settings_of, name, forms=forms, with_causes=False)

    return identities(ids, shown, f"in {opened.names}", f" {opened.arguments}", completed=carried)
