"""`rmqtx producers`: the clients that a check can reach."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqtx.verdicts.model.state import State
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import FailOnOption, GroupOption, OutputOptions, VoiceOptions, WhereOption
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx_cli.words.say import Voice

NAME = "producers"
EXAMPLES = (
    Example("rmqtx producers -n 10.0.0.1:9876", "all producers, and the pending transactions that wait for them"),
    Example("rmqtx producers -n 10.0.0.1:9876 --group pay_tx", "those of one group"),
    Example(
        "rmqtx producers -n 10.0.0.1:9876 --fail-on 'client_id is null'", "status 1 if a group has no client"
    ),
)


@with_option_groups
def command(
    group: GroupOption = None,
    where: WhereOption = None,
    fail_on: FailOnOption = None,
    *,
    output: OutputOptions,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """List the producers that are connected to live brokers: clients, addresses, releases, pending transactions.

    A check goes to one of the clients of the transaction's group that are connected to the broker. A group with pending
    transactions and without a client has a row without one: no process answers its checks. A producer that has not
    sent since its start is not listed by most brokers; behind a proxy the proxy is listed in place of its clients. The
    exit status is 3 where evidence is missing, so that pending transactions may be missing too.
    """
    from rmqtx.remoting.live.lookups import pending as pending_on
    from rmqtx.remoting.live.producer_list import PRODUCERS, connected_producers, producers_table
    from rmqtx_cli.options.live import open_live
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import PRODUCERS_VIEW

    listing = Listing(PRODUCERS, PRODUCERS_VIEW, output, where, fail_on, None, voice)
    name = None if group is None else live.full_name(group)
    with open_live(live) as given:
        reading = pending_on(given.brokers)
        pending = _counts(reading.table())
        found = []
        for broker in given.brokers:
            wanted = [waiting for store, waiting in pending if store == broker.root]
            found.append(connected_producers(broker, {*wanted, *([] if name is None else [name])}))
        table = producers_table(found, pending, name)
        listing.write(iter(table.to_batches()), answer=lambda: listing.rows_lines("row"))
    for one in found:
        if (note := one.note()) is not None:
            voice.note(note)
    rows = table.to_pylist()
    _say_waiting(pending, {(row["store"], row["producer_group"]) for row in rows if row["client_id"]}, voice)
    return listing.conclude(reading, has_undecidable=bool(reading.undecidable_count))


def _counts(transactions: pa.Table) -> Counter[tuple[str, str]]:
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
