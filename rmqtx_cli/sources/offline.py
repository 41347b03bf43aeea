"""Options for acting on the files of a stopped broker: which store, and where the result goes; declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx.readers.model.errors import BadRequest, FormatError, RmqtxError, UnreadableFile, UnsafeStore
from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.options.identities import identities
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import BrokerConfOption, CommitLogOption, StoreOptions
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.store.store import Store
    from rmqtx.repairs.acts.file_medium import FileMedium
    from rmqtx.repairs.changes.execution import Destination
    from rmqtx.verdicts.evidence.store_facts import SettingsOf
    from rmqtx_cli.sources.opening import Opened

#: Without the note of readers that another release is assumed: an act is refused.
ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--broker-version", metavar="X.Y.Z", help="The broker's version; default: detected from the store's files"
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help="Root of a stopped broker's store: act on its files."),
]
ToOption = Annotated[
    Path | None,
    typer.Option("--to", metavar="DIR", help="With --store: write the changed store to this new directory."),
]
InPlaceOption = Annotated[
    bool, typer.Option("--in-place", help="With --store: change the store itself; needs --undo.")
]
UndoOption = Annotated[
    Path | None,
    typer.Option("--undo", metavar="FILE", help="With --in-place: write the undo file here first (rmqtx undo)."),
]


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """The options for a stopped broker's files. Order of the fields: that of the help text."""

    store: StoreOption = None
    to: ToOption = None
    in_place: InPlaceOption = False
    undo: UndoOption = None
    commit_log: CommitLogOption = None
    broker_conf: BrokerConfOption = None
    broker_version: ReleaseOption = None

    def acts_on_files(self, live: LiveOptions, unfit: Mapping[str, Any]) -> bool:
        """Whether the options name files and not a live broker; one of the two is required.

        `unfit`: values of the options that are only for live brokers, by option name.
        Raises: BadRequest.
        """
        if self.store is None:
            given = [name for name in ("to", "in_place", "undo", "commit_log") if getattr(self, name)]
            if given:
                raise BadRequest(f"--{given[0].replace('_', '-').replace('commit-log', 'commitlog')} needs --store")
            return False
        if live.is_explicit:
            raise BadRequest("--store acts on files, -n and --broker on live brokers", advice="leave one out")
        for name, value in unfit.items():
            if value not in (None, False):
                raise BadRequest(f"{name} is for live brokers only")
        self._check_destination()
        self._check_release()
        return True

    def _check_release(self) -> None:
        """Refuse a release that is not known: an act writes records by the rules of one."""
        from rmqtx.readers.model.releases import dotted, parse_version, release_before

        given = None if self.broker_version is None else parse_version(self.broker_version)
        if given is None or (known := release_before(given)) in (None, given):
            return
        raise BadRequest(
            f"--broker-version: {dotted(given)} is not a known release, and releases write records differently",
            advice=f"is it a typing error? The nearest known release before it is {dotted(known)}",
        )

    def _check_destination(self) -> None:
        if self.in_place == (self.to is not None):
            raise BadRequest(
                "--store needs either --to or --in-place",
                advice="--to DIR makes a changed copy, --in-place --undo FILE changes the store itself",
            )
        if self.in_place != (self.undo is not None):
            raise BadRequest("--in-place needs --undo FILE, and --undo needs --in-place", advice="give both")
        if self.to is not None and os.path.lexists(self.to):
            raise BadRequest(f"{self.to} exists already", advice="give a new directory with --to")
        if self.undo is not None and os.path.lexists(self.undo):
            raise _undo_file_is_there(self.undo)

    def open(self, voice: Voice) -> tuple[FileMedium, Opened]:
        """The store, opened for actions on its files.

        Raises: StoreInUse, UnsafeStore, BadRequest, SourceError.
        """
        from rmqtx.readers.store.store import open_store
        from rmqtx.repairs.acts.file_medium import FileMedium
        from rmqtx.repairs.changes.execution import Destination

        opened, conf = self._opened(voice)
        destination = Destination(self.to, self.undo)
        return FileMedium(opened.stores[0], opened.settings_of, conf, destination, open_store), opened

    @contextmanager
    def locked(self, voice: Voice) -> Iterator[tuple[Store, SettingsOf, Destination, Callable[..., Store]]]:
        """The store to change, locked while the block runs, with its settings, its destination, and `open_store`.

        Raises: StoreInUse, UnsafeStore, BadRequest, SourceError.
        """
        from rmqtx.readers.store.store import open_store
        from rmqtx.repairs.acts.file_preconditions import require_stopped_master
        from rmqtx.repairs.changes.execution import Destination
        from rmqtx.repairs.changes.store_lock import store_locked, store_shared

        if self.store is None:
            raise BadRequest("no store is given", advice="add --store STORE")
        self._check_destination()
        opened, conf = self._opened(voice)
        store = opened.stores[0]
        require_stopped_master(store, opened.settings_of(store), conf)
        with (store_shared if self.to is not None else store_locked)(store.root):
            fresh = open_store(store.root, store.commit_log_directories)
            yield fresh, opened.settings_of, Destination(self.to, self.undo), open_store

    def _opened(self, voice: Voice) -> tuple[Opened, dict[str, str]]:
        """The store, and the broker's configuration, if given."""
        from rmqtx.readers.storage.places import is_uri
        from rmqtx.readers.store.broker_conf import read_broker_conf
        from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header

        # Absolute, because receipts contain it and are read from other directories.
        place = str(self.store) if is_uri(str(self.store)) else str(Path(str(self.store)).absolute())
        opened = open_stores([place], StoreOptions(self.commit_log, self.broker_conf, self.broker_version))
        if len(opened.stores) != 1:
            raise BadRequest(f"--store names {len(opened.stores)} stores", advice="give one store")
        for result in (self.to, self.undo):
            refuse_inside(result, opened.stores)
        say_header(opened, voice)
        return opened, {} if self.broker_conf is None else read_broker_conf(self.broker_conf)

    @property
    def warning(self) -> str:
        """What is changed, for the confirmation prompt."""
        if self.in_place:
            return f"the store itself is changed (rmqtx undo {quoted(str(self.undo))} reverts it)"
        return f"the store stays unchanged, {self.to} becomes the changed copy"

    def say_where(self, voice: Voice) -> None:
        """Print where the changed store is."""
        if self.to is not None:
            voice.note(f"{self.to} is the changed store; {self.store} is unchanged")
        else:
            undo = f"rmqtx undo {quoted(str(self.undo))}"
            voice.note(f"{self.store} was changed; until a broker opens it, {undo} reverts the change")


def _undo_file_is_there(file: Path) -> RmqtxError:
    """The error for an undo file that exists already; the advice depends on whether its changes are incomplete."""
    from rmqtx.repairs.changes.in_progress_mark import commands_to_finish
    from rmqtx.repairs.changes.undo_files import APPLYING, STATES, UNDOING, read_undo_file

    try:
        state = read_undo_file(Path(os.path.realpath(file))).state
    except (FormatError, UnreadableFile):
        return BadRequest(f"{file} exists already", advice="give a new file with --undo")
    what = f"{file} exists already: {STATES[state]}"
    if state in (APPLYING, UNDOING):
        return UnsafeStore(what, file=file, advice=commands_to_finish(file))
    return BadRequest(what, advice="give a new file with --undo")


def resolved_in_files(opened: Opened, ids: Sequence[str]) -> list[str]:
    """The transaction ids for some ids, message ids or keys in the opened stores; see `identities`."""
    from rmqtx.verdicts.audit.lookups import show

    def shown(name: str, short: bool) -> Reading:
        return show(opened.stores, opened.settings_of, name, short=short, with_causes=False)

    return identities(ids, shown, f"in {opened.names}", f" {opened.arguments}")
