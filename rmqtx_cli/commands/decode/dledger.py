"""`rmqtx decode dledger`: the entries of a DLedger commit log."""

from __future__ import annotations

from rmqtx.readers.log.dledger import scan_entries
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.tables import DLEDGER_ENTRIES
from rmqtx.readers.store.store import Store
from rmqtx_cli.commands.declared.decode import DecodeDledger
from rmqtx_cli.commands.decode.shared import asked_of, bounds_of, list_rows


def run(options: DecodeDledger) -> int:
    """Run the command; return its exit status."""
    bounds = bounds_of(options.within, options.voice)
    if bounds.from_time_ms is not None or bounds.to_time_ms is not None:
        raise BadRequest("DLedger entries have no time: give --from and --to as commit-log offsets")

    def read(one: Store, _columns: list[str]) -> Reading:
        return scan_entries(one, from_offset=bounds.from_offset, to_offset=bounds.to_offset)

    return list_rows(
        asked_of(
            options.rows, options.store, options.voice
        ), "dledger_entries", read, named={"--topic": ("topic", options.topic)}, schema=DLEDGER_ENTRIES
    )
