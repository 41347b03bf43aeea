"""`rmqtx redeliver`: deliver a transaction that the broker will not deliver, although it was done locally."""

from __future__ import annotations

from typing import Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acted_on import acted_on, acted_on_by_copies
from rmqtx_cli.acting.acting import (
    ActOptions,
    GroupOption,
    IdArguments,
    OverrideOption,
    ReasonOption,
    act_on,
    receipts_listing,
    refuse_many,
)
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import ReceiptOptions, StoreOptions, VoiceOptions
from rmqtx_cli.sources.offline import OfflineOptions

NAME = ActKind.REDELIVER
EXAMPLES = (
    Example("rmqtx redeliver ORDER-4711 -n NAMESRV --reason 'paid, OPS-4711' --dry-run", "show what would be done"),
    Example("rmqtx redeliver ORDER-4711 -n 10.0.0.1:9876 --reason 'paid, OPS-4711'", "verify, ask, deliver, prove"),
    Example(
        "rmqtx redeliver ORDER-4711 --store /rescue/store -n 10.0.0.2:9876 --reason 'paid, OPS-4711'",
        "its broker no longer starts: send a copy from its files to another cluster",
    ),
    Example(
        "rmqtx redeliver ID1 ID2 ID3 -n NAMESRV --reason OPS-4711 --max-per-second 5 --yes --format jsonl",
        "for a script: slowly, with the receipts as JSON",
    ),
)


StoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--store", metavar="STORE",
        help="Send a copy of the message from these files, for example of a broker that no longer starts; repeatable",
    ),
]
ToBrokerOption = Annotated[
    str | None,
    typer.Option("--to-broker", metavar="NAME", help="With --store: the broker that gets the copies, of several"),
]
AsHalfOption = Annotated[
    bool,
    typer.Option(
        "--as-half",
        help="With --store: send pending transactions of a dead broker as new half messages, which the broker checks",
    ),
]


@with_option_groups
def command(
    ids: IdArguments,
    group: GroupOption = None,
    reason: ReasonOption = None,
    override: OverrideOption = None,
    store: StoreOption = None,
    to_broker: ToBrokerOption = None,
    as_half: AsHalfOption = False,
    *,
    act: ActOptions,
    output: ReceiptOptions,
    voice: VoiceOptions,
    files: StoreOptions,
    live: LiveOptions,
) -> int:
    """Deliver transactions that were rolled back, discarded, dropped or lost, although their application did its part.

    The broker gets a COMMIT for the half message, which must still be in its log. With --store it gets an ordinary
    message instead: a copy from these files, for another cluster, or where the broker cannot deliver the half message
    itself. Use it only if the application proves that the local transaction was done: a rollback is right in most
    cases. A transaction that was delivered, by a decision or by a copy, or that the broker still checks, is refused: so
    a second redeliver is refused too, from any machine. --as-half moves what is pending: nothing is delivered, and the
    other cluster asks the producer. --reason is required. The first redelivery that the broker does not accept ends the
    run.
    """
    from rmqtx.repairs.acts.request import ActRequest

    if reason is None:
        raise BadRequest("redeliver needs --reason TEXT", advice="give what proves that its local transaction was done")
    refuse_many(ids, can_plan=not store)
    conduct = act.conduct(override, reason)
    if not live.is_asked:
        raise BadRequest("no live broker given", advice="add -n HOST:PORT (a name server) or --broker HOST:PORT")
    if not store and (to_broker is not None or as_half or files != StoreOptions()):
        raise BadRequest("--to-broker, --as-half and options of files need --store STORE")
    place = (
        acted_on_by_copies(store, files, live, to_broker, voice, as_half=as_half) if store
        else acted_on(live, OfflineOptions(), {}, voice)
    )
    with place as found:
        request = ActRequest(ActKind.REDELIVER, found.group_of(group))
        return act_on(ids, request, reason, found, conduct, act, receipts_listing(output, voice))
