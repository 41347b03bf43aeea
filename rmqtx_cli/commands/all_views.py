"""All views of printed tables, so that `rmqtx explain` can explain each head."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx_cli.commands.repairing import bundle, cursor
from rmqtx_cli.commands.settling import holds, plan, receipts, undo
from rmqtx_cli.output.views import (
    CASE_EVENTS_VIEW,
    COLUMNS_VIEW,
    DIFFERENCES_VIEW,
    PRODUCERS_VIEW,
    PROVED_VIEW,
    RECONCILED_VIEW,
    VIEWS,
    View,
    acts_view,
    answers_view,
    flights_view,
    settings_view,
    transactions_view,
)
from rmqtx_cli.pages import causes, drawing, installation, receipts_page, simulation_views, stores_table, summary


def all_views() -> Iterator[View]:
    """Return the views of all commands."""
    yield transactions_view(0, with_state=True, with_store=True, with_producers=True)
    yield from (RECONCILED_VIEW, DIFFERENCES_VIEW, PRODUCERS_VIEW, PROVED_VIEW, CASE_EVENTS_VIEW)
    yield from (summary.SUMMARY_VIEW, summary.COUNTS_VIEW)
    yield from (stores_table.STORES_VIEW, *VIEWS.values())
    yield causes.causes_view(with_store=True)
    yield installation.installation_view()
    yield answers_view(with_outcome=True)
    yield flights_view(with_store=True)
    for view in (simulation_views.checks_view, simulation_views.rounds_view, simulation_views.fates_view):
        yield view(with_store=True, with_configuration=True)
    yield from (acts_view(), settings_view(), holds.view())
    yield from drawing.views()
    yield from receipts_page.VIEWS
    yield from (receipts.view(with_standing=False), plan.steps_view(), undo.view(), cursor.view(), bundle.view())
    yield COLUMNS_VIEW
