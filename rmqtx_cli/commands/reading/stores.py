"""`rmqtx stores`: list stores and their properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import OutputFormat, OutputOptions, StoreOptions, VoiceOptions, WhereOption
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store
    from rmqtx_cli.output.listing import Listing

NAME = "stores"
EXAMPLES = (
    Example("rmqtx stores /data/rocketmq/store", "one store"),
    Example("rmqtx stores /evidence", "all stores below a directory"),
    Example("rmqtx stores 's3://evidence/*/store'", "stores in object storage, read in place"),
    Example("rmqtx stores", "the stores of the configuration file"),
    Example("rmqtx stores STORE --format json --fields store,half_lag", "one value, for a script"),
)

PathArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
        help="Roots of stores, or directories above them: paths, URIs, patterns; default: the stores of the "
        "configuration file",
    ),
]


@with_option_groups
def command(
    paths: PathArguments = None,
    where: WhereOption = None,
    *,
    output: OutputOptions,
    files: StoreOptions,
    voice: VoiceOptions,
) -> int:
    """List stores: design, broker version, settings, files, offsets, cursors, whether in use, what can be trusted.

    Reads only directory entries and small files, however large the logs are.
    """
    from rmqtx.readers.model.errors import BadRequest
    from rmqtx.readers.store.broker_conf import read_broker_conf
    from rmqtx.readers.store.broker_settings import broker_settings
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.pages.stores_table import STORES, STORES_VIEW, compared_copies, is_doubt, is_incomplete, store_row
    from rmqtx_cli.sources.opening import refuse_inside, say_conf_notes

    paths = paths or _configured(voice)
    if files.commit_log and len(paths) > 1:
        raise BadRequest("--commitlog is for one store, and several paths are given")
    listing = Listing(STORES, STORES_VIEW, output, where, voice=voice)
    conf = None if files.broker_conf is None else read_broker_conf(files.broker_conf)
    stores, worst = _found(paths, files)
    if not stores:
        return exit_status.UNREADABLE
    refuse_inside(output.output, stores)
    say_conf_notes(stores, files, voice)
    pairs = [store_row(store, broker_settings(store, conf=conf, version=files.broker_version)) for store in stores]
    findings = [*compared_copies([row for row, _ in pairs], stores), *(one for _, found in pairs for one in found)]
    _write([row for row, _ in pairs], listing)
    voice.findings(findings)
    if worst:
        return worst
    if any(map(is_doubt, findings)) or any(is_incomplete(row) for row, _ in pairs):
        return exit_status.INCOMPLETE
    return exit_status.DONE


def _write(rows: list[dict[str, Any]], listing: Listing) -> None:
    """Draw the stores for people, unless a format, columns or a condition is asked for."""
    from rmqtx_cli.output.streams import open_stream
    from rmqtx_cli.pages.stores_table import draw_stores, stores_table

    if listing.format is OutputFormat.TABLE and listing.asked.fields is None and listing.where is None:
        with open_stream(listing.asked.output) as stream:
            draw_stores(rows, stream)
    else:
        listing.write(iter(stores_table(rows).to_batches()))


def _found(paths: list[str], files: StoreOptions) -> tuple[list[Store], int]:
    """Return the stores at and below some paths, and the status of what could not be read, which is printed."""
    from rmqtx.readers.model.errors import SourceError
    from rmqtx.readers.storage.file_systems import expand
    from rmqtx_cli.sources.finding_stores import stores_below

    stores: list[Store] = []
    worst = exit_status.DONE
    for path in paths:
        try:
            for place in expand([path]):
                found, refused = stores_below(place, tuple(files.commit_log or ()))
                stores += found
                for error in refused:
                    say.error(str(error))
                    worst = max(worst, exit_status.INCOMPLETE)
        except SourceError as error:
            say.error(str(error))
            worst = exit_status.UNREADABLE
    return stores, worst


def _configured(voice: Voice) -> list[str]:
    """Return the places of the stores in the configuration file.

    Raises: BadRequest if it contains none.
    """
    from rmqtx.readers.model.errors import BadRequest
    from rmqtx_cli.options.configuration import configuration

    known = configuration()
    if not known.stores:
        raise BadRequest("no store given", advice="rmqtx stores PATH; or name stores in ~/.config/rmqtx/config.toml")
    for name, place in known.stores.items():
        voice.note(f"{name}: {place}")
    return list(known.stores.values())
