"""`rmqtx decode dledger`: the entries of a DLedger commit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RangeOptions, RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, TopicOption, VoiceOptions

if TYPE_CHECKING:
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.store.store import Store

NAME = "dledger"
SHORT = "entries of a DLedger commit log (4.5.0+)"
EXAMPLES = (
    Example("rmqtx decode dledger STORE", "all entries: number, term, and place of the record"),
    Example("rmqtx decode commitlog STORE", "the records in a DLedger log"),
    Example("rmqtx decode dledger STORE --where 'body_crc_matches = false'", "entries whose record has changed"),
)


@with_option_groups
def command(
    store: StoreArguments,
    *,
    within: RangeOptions,
    topic: TopicOption = None,
    rows: RowsOptions,
    voice: VoiceOptions,
) -> int:
    """Decode the entries of dledger-*/data, which contain the records of a DLedger commit log.

    The other commands read records, queues and transactions of a DLedger store as of any other store.
    """
    from rmqtx.readers.log.dledger import scan_entries
    from rmqtx.readers.model.errors import BadRequest
    from rmqtx.readers.model.tables import DLEDGER_ENTRIES

    bounds = within.bounds(voice)
    if bounds.from_time_ms is not None or bounds.to_time_ms is not None:
        raise BadRequest("DLedger entries have no time: give --from and --to as commit-log offsets")

    def read(one: Store, _columns: list[str]) -> Reading:
        return scan_entries(one, from_offset=bounds.from_offset, to_offset=bounds.to_offset)

    return list_rows(
        rows.of(store, voice), "dledger_entries", read, named={"--topic": ("topic", topic)}, schema=DLEDGER_ENTRIES
    )
