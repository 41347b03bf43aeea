"""`rmqtx hold --store`: print the lines with which a stopped broker discards no open transaction after its start."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, dotted
from rmqtx.repairs.holds.changes import settings_to_write
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.options.source_options import DatabaseOptions
from rmqtx_cli.output.listing import concluded
from rmqtx_cli.pages.deadlines import deadline_lines
from rmqtx_cli.sources.files import FileOpener
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text


def print_lines(store: str, files: StoreOptions, unfit: Mapping[str, Any], duration_ms: int, voice: Voice) -> int:
    """Print the lines for the broker's configuration file; nothing is written. Returns the exit status.

    `unfit`: values of the options that are for live brokers, by option name.
    Raises: BadRequest for one of these; NotAStore, UnreadableFile.
    """
    for name, value in unfit.items():
        if value not in (None, False, [], ()):
            raise BadRequest(f"{name} is for live brokers, not for --store", advice="leave one of them out")
    now_ms = time.time_ns() // 1_000_000
    with FileOpener([store], files, DatabaseOptions(), voice).opened() as source:
        if len(source.stores) != 1:
            raise BadRequest("--store is for one store, and several are given")
        (opened,) = source.stores
        settings = source.opened.settings_of(opened)
        if opened.in_use:
            say.error(f"{opened.root}: its broker runs: hold it live with -n or --broker; nothing was written")
            return exit_status.STORE_IN_USE
        high = settings.version_high
        if high is not None and not HALF_TOPIC_DESIGN.holds(high):
            say.error(f"{opened.root}: broker {dotted(high)} discards no transaction: it is older than 4.3.0")
            return exit_status.REFUSED_BY_GUARD
        reading = source.pending(at_ms=None)
    rows = reading.table()
    changes = settings_to_write(settings, rows, now_ms, now_ms + duration_ms)
    voice.note(f"{count(rows.num_rows, 'open transaction')}")
    for line in deadline_lines(rows, reading.predicted, now_ms):
        voice.note(line)
    for change in changes:
        sys.stdout.write(f"{change.setting}={change.after}\n")
    if not settings.given:
        voice.note(
            f"assumed: transactionCheckMax {settings.transaction_check_max} and fileReservedTime "
            f"{settings.file_reserved_time_hours}, the defaults; give the broker's file: --broker-conf FILE"
        )
    if changes:
        before = ", ".join(f"{change.setting}={change.before}" for change in changes)
        voice.note(
            f"nothing was written: put {'this line' if len(changes) == 1 else 'these lines'} into the broker's "
            f"configuration file before its start, until {time_text(now_ms + duration_ms)}; before: {before}"
        )
    else:
        voice.note("nothing to change: its limits are higher already")
    return concluded(reading, voice, has_undecidable=reading.undecidable_count > 0)
