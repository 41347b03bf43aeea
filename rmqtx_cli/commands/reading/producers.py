"""`rmqtx producers`: the clients that a check can reach."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from rmqtx.remoting.live.lookups import pending as pending_on
from rmqtx.remoting.live.producer_list import PRODUCERS, connected_producers, producers_table
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.commands.declared.survey import ProducersCommand
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import PRODUCERS_VIEW
from rmqtx_cli.sources.live_brokers import full_name, open_live
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count


def run(options: ProducersCommand) -> int:
    """Run the command; return its exit status."""
    listing = Listing(PRODUCERS, PRODUCERS_VIEW, options.output, options.where, options.fail_on, None, options.voice)
    name = None if options.group is None else full_name(options.live, options.group)
    with open_live(options.live) as given:
        reading = pending_on(given.brokers)
        pending = pending_by_group(reading.table())
        found = []
        for broker in given.brokers:
            wanted = [waiting for store, waiting in pending if store == broker.root]
            found.append(connected_producers(broker, {*wanted, *([] if name is None else [name])}))
        table = producers_table(found, pending, name)
        listing.write(iter(table.to_batches()), answer=lambda: listing.rows_lines("row"))
    for one in found:
        if (note := one.note()) is not None:
            options.voice.note(note)
    rows = table.to_pylist()
    _say_waiting(pending, {(row["store"], row["producer_group"]) for row in rows if row["client_id"]}, options.voice)
    return listing.conclude(reading, has_undecidable=bool(reading.undecidable_count))


def pending_by_group(transactions: pa.Table) -> Counter[tuple[str, str]]:
    """Return the number of pending transactions by broker and producer group."""
    rows = transactions.select(["store", "producer_group", "state"]).to_pylist()
    return Counter(
        (row["store"], row["producer_group"])
        for row in rows
        if row["state"] == State.PENDING and row["producer_group"] is not None
    )


def _say_waiting(pending: Counter[tuple[str, str]], connected: set[tuple[str, str]], voice: Voice) -> None:
    """Print the groups for which transactions wait, and of which no client is connected to their broker."""
    for (store, group), number in sorted(pending.items()):
        if (store, group) not in connected:
            voice.note(
                f"{store}: {count(number, 'pending transaction')} of group {group}, and no client of it is connected: "
                "start a producer, or answer in its place: rmqtx answer"
            )
