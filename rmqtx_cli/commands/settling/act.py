"""`rmqtx commit`, `rollback`, `discard`, `resume`, `close`, `redeliver`: act on one or several transactions."""

from __future__ import annotations

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx_cli.acting.acted_on import acted_on, acted_on_by_copies
from rmqtx_cli.acting.confirmed_acts import act_on, conduct_of, receipts_listing, refuse_many
from rmqtx_cli.commands.declared.settle import ActCommand, RedeliverCommand
from rmqtx_cli.options.act_options import OfflineOptions
from rmqtx_cli.options.options import StoreOptions


def run(options: ActCommand) -> int:
    """Run the command; return its exit status."""
    conduct = conduct_of(options.act, options.override, options.reason)
    refuse_many(options.ids)
    if options.copy is not None and len(set(options.ids)) > 1:
        raise BadRequest("--copy is for one transaction, and several are given")
    with acted_on(options.live, options.offline, options.act.live_only, options.voice) as found:
        request = ActRequest(ActKind(options.NAME), found.group_of(options.group), options.copy)
        return act_on(
            options.ids, request, options.reason, found, conduct, options.act,
            receipts_listing(options.output, options.voice),
        )


def run_redeliver(options: RedeliverCommand) -> int:
    """Run `rmqtx redeliver`; return its exit status."""
    if options.reason is None:
        raise BadRequest("redeliver needs --reason TEXT", advice="give what proves that its local transaction was done")
    refuse_many(options.ids, can_plan=not options.store)
    conduct = conduct_of(options.act, options.override, options.reason)
    if not options.live.is_asked:
        raise BadRequest("no live broker given", advice="add -n HOST:PORT (a name server) or --broker HOST:PORT")
    if not options.store and (options.to_broker is not None or options.as_half or options.files != StoreOptions()):
        raise BadRequest("--to-broker, --as-half and options of files need --store STORE")
    place = (
        acted_on_by_copies(
            options.store, options.files, options.live, options.to_broker, options.voice, as_half=options.as_half
        ) if options.store
        else acted_on(options.live, OfflineOptions(), {}, options.voice)
    )
    with place as found:
        request = ActRequest(ActKind.REDELIVER, found.group_of(options.group))
        return act_on(
            options.ids, request, options.reason, found, conduct, options.act,
            receipts_listing(options.output, options.voice),
        )
