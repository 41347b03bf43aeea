"""`rmqtx commit`, `rollback`, `discard`, `resume`, `close`: act on one or several transactions."""

from __future__ import annotations

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx_cli.acting.acted_on import acted_on
from rmqtx_cli.acting.confirmed_acts import act_on, conduct_of, receipts_listing, refuse_many
from rmqtx_cli.commands.declared.settle import ActCommand


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
