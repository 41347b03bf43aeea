"""Opens what a plan is drafted from.

No `Source` (`rmqtx_cli/sources/source.py`): a plan prints no line about each store, chooses no engine, and needs facts
that no table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.plans.plan_sources import FilePlanSource, LivePlanSource, PlanSource
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.sources.live_brokers import open_live
from rmqtx_cli.sources.opening import open_stores
from rmqtx_cli.sources.source import refuse_file_options


@contextmanager
def plan_inputs(
    stores: Sequence[str], files: StoreOptions, live: LiveOptions, advice: str
) -> Iterator[PlanSource]:
    """Open the brokers or the stores that the command line names, for the duration of the block.

    Raises: BadRequest for both or neither, with the advice, and for options of files with live brokers; NotAStore,
            SourceError, RemotingError.
    """
    if live.instead_of(stores, advice):
        refuse_file_options(files)
        with open_live(live) as opened:
            medium = LiveMedium(opened.brokers, opened.members)
            yield LivePlanSource(opened.brokers, opened.members, medium, carried)
    else:
        opened_stores = open_stores(stores, files)
        yield FilePlanSource(opened_stores.stores, opened_stores.settings_of)
