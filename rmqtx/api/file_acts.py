"""What `.plan` and `.apply` of stores in files need of the acts; an audit does not load it."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from rmqtx.api.opening import StoreSettings, opened_stores
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.outputs import refuse_inside
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.acts.file_medium import FileMedium
from rmqtx.repairs.acts.file_preconditions import require_known_release
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.changes.in_progress_mark import undo_file_exists
from rmqtx.repairs.plans.plan_sources import FilePlanSource


def plan_source(stores: list[Store], settings_of: Callable[[Store], BrokerSettings]) -> FilePlanSource:
    """Return what plans of opened stores are made from."""
    return FilePlanSource(stores, settings_of)


def medium(
    open_now: Callable[[], tuple[list[Store], Callable[[Store], BrokerSettings]]], settings: StoreSettings,
    to: str | PathLike[str] | None, undo: str | PathLike[str] | None,
) -> tuple[str, FileMedium]:
    """Return the absolute path of the one open store, which receipts contain, and the store, for acts on its files.

    Raises: BadRequest if not exactly one of `to` and `undo` is given, if it exists, or if several stores are open.
    """
    if (to is None) == (undo is None):
        raise BadRequest(
            "acts on files need either to= or undo=",
            advice="to=DIR makes a changed copy, undo=FILE changes the store itself",
        )
    changed, saved = (None if one is None else Path(one) for one in (to, undo))
    if changed is not None and os.path.lexists(changed):
        raise BadRequest(f"{changed} exists already", advice="give a new directory")
    if saved is not None and os.path.lexists(saved):
        raise undo_file_exists(saved)
    require_known_release(settings.broker_version)
    places = [store.root if store.is_remote else str(Path(store.root).absolute()) for store in open_now()[0]]
    if len(places) != 1:
        raise BadRequest(f"{len(places)} stores are open", advice="a plan is carried out on one: rmqtx.open(STORE)")
    stores, settings_of = opened_stores(places, settings)
    for one in (changed, saved):
        refuse_inside(one, stores)
    conf = settings.conf or {}
    return stores[0].root, FileMedium(stores[0], settings_of, conf, Destination(changed, saved), open_store)
