"""What a plan is drafted from: rows of transactions, the facts that guards need, and fingerprints of the stores.

No `Source` (`rmqtx_cli/sources/source.py`): a plan prints no line about each store, chooses no engine, and needs facts
that no table has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rmqtx.readers.model.errors import BadRequest
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.sources.live_brokers import Live, open_live
from rmqtx_cli.sources.source import refuse_file_options

if TYPE_CHECKING:
    import typer

    from rmqtx.repairs.acts.live_medium import LiveMedium
    from rmqtx.repairs.acts.situation import Situation
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx_cli.sources.opening import Opened


class PlanInputs(Protocol):
    """Opened brokers or stores, as `rmqtx plan` reads them."""

    @property
    def roots(self) -> list[str]:
        """The brokers or stores."""

    def refuse_inside(self, output: Path) -> None:
        """Refuse to write the plan into a store.

        Raises: BadRequest.
        """

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """Rows of the transactions that ids, message ids or keys name."""

    def pending(self) -> VerdictReading:
        """Rows of the transactions that `rmqtx pending --all-open` lists."""

    def everything(self) -> VerdictReading:
        """Rows of all transactions."""

    def situations(self, rows: list[Transaction]) -> list[Situation]:
        """Each row with the facts that guards need. `rows`: all or some of those read before."""

    def facts(self, context: typer.Context, roots: set[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Rows of PLAN_STORES for the stores with these roots, and the provenance of the plan."""


@contextmanager
def plan_inputs(
    stores: Sequence[str], files: StoreOptions, live: LiveOptions, advice: str
) -> Iterator[PlanInputs]:
    """Open the brokers or the stores that the command line names, for the duration of the block.

    Raises: BadRequest for both or neither, with the advice, and for options of files with live brokers; NotAStore,
            SourceError, RemotingError.
    """
    if live.instead_of(stores, advice):
        refuse_file_options(files)
        from rmqtx.repairs.acts.live_medium import LiveMedium

        with open_live(live) as opened:
            yield LivePlanInputs(opened, LiveMedium(opened.brokers, opened.members))
    else:
        from rmqtx_cli.sources.opening import open_stores

        yield FilePlanInputs(open_stores(stores, files))


@dataclass(frozen=True, slots=True)
class LivePlanInputs:
    """Live brokers."""

    live: Live
    medium: LiveMedium

    @property
    def roots(self) -> list[str]:
        """See `PlanInputs`."""
        return [broker.root for broker in self.live.brokers]

    def refuse_inside(self, output: Path) -> None:
        """See `PlanInputs`. Live brokers have no store on this machine."""

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """See `PlanInputs`."""
        from rmqtx.remoting.live.lookups import lookup
        from rmqtx_cli.acting.acted_on import resolved

        return lookup(self.live.brokers, resolved(self.live.brokers, ids), members=self.live.members)

    def pending(self) -> VerdictReading:
        """See `PlanInputs`."""
        from rmqtx.remoting.live.lookups import pending

        return pending(self.live.brokers, members=self.live.members)

    def everything(self) -> VerdictReading:
        """See `PlanInputs`."""
        from rmqtx.remoting.live.lookups import audit

        return audit(self.live.brokers, members=self.live.members)

    def situations(self, rows: list[Transaction]) -> list[Situation]:
        """See `PlanInputs`."""
        return self.medium.situations(rows, settled_ms=0)

    def facts(self, context: typer.Context, roots: set[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """See `PlanInputs`."""
        from rmqtx.repairs.plans.plan_steps import live_plan_store
        from rmqtx.verdicts.audit.provenance import EngineFacts, provenance
        from rmqtx_cli.sources.provenance import asked_options

        stores = [live_plan_store(broker) for broker in self.live.brokers if broker.root in roots]
        made_from = provenance(
            [{"store": one["store"], "taken_time_ms": one["taken_time_ms"]} for one in stores],
            command=str(context.info_name), options=asked_options(context), engine=EngineFacts("live"),
            made_time_ms=time.time_ns() // 1_000_000,
        )
        return stores, made_from


@dataclass(slots=True)
class FilePlanInputs:
    """The files of stores."""

    opened: Opened
    _reading: VerdictReading | None = field(init=False, default=None)

    @property
    def roots(self) -> list[str]:
        """See `PlanInputs`."""
        return [store.root for store in self.opened.stores]

    def refuse_inside(self, output: Path) -> None:
        """See `PlanInputs`."""
        from rmqtx_cli.sources.opening import refuse_inside

        refuse_inside(output, self.opened.stores)

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """See `PlanInputs`."""
        import pyarrow as pa

        from rmqtx.readers.model.tables import TRANSACTIONS
        from rmqtx.verdicts.audit.lookups import show
        from rmqtx.verdicts.model.reading import VerdictReading

        whole = VerdictReading(TRANSACTIONS, [])
        self._reading = whole
        tables, known = [], set()
        for name in dict.fromkeys(ids):
            found = show(self.opened.stores, self.opened.settings_of, name)
            rows = found.table()
            if rows.num_rows > 1:
                raise BadRequest(
                    f"{rows.num_rows} transactions have the name {name!r}", advice="give a transaction id"
                )
            if rows["transaction_id"][0].as_py() not in known:  # named twice, by id and by key
                tables.append(rows)
            known.add(rows["transaction_id"][0].as_py())
            whole.findings.extend(found.findings)
            whole.notes.extend(found.notes)
        whole.batches = pa.concat_tables(tables).to_batches()
        return whole

    def pending(self) -> VerdictReading:
        """See `PlanInputs`."""
        from rmqtx.verdicts.audit.lookups import pending

        return self._remembered(pending(self.opened.stores, self.opened.settings_of))

    def everything(self) -> VerdictReading:
        """See `PlanInputs`."""
        from rmqtx.verdicts.audit.local_audit import audit

        return self._remembered(audit(self.opened.stores, self.opened.settings_of))

    def _remembered(self, reading: VerdictReading) -> VerdictReading:
        """The same reading; `situations` passes its findings to the guards once its rows are read."""
        self._reading = reading
        return reading

    def situations(self, rows: list[Transaction]) -> list[Situation]:
        """See `PlanInputs`."""
        from rmqtx.repairs.acts.file_situations import file_situations

        findings = [] if self._reading is None else self._reading.findings
        return file_situations(self.opened.stores, self.opened.settings_of, rows, findings)

    def facts(self, context: typer.Context, roots: set[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """See `PlanInputs`."""
        from rmqtx.repairs.receipts.plan_rows import fingerprint
        from rmqtx.verdicts.audit.provenance import EngineFacts, provenance, store_provenance
        from rmqtx_cli.sources.provenance import asked_options

        stores = [store for store in self.opened.stores if store.root in roots]
        facts = [store_provenance(store) for store in stores]
        made_from = provenance(
            facts, command=str(context.info_name), options=asked_options(context), engine=EngineFacts("local"),
            made_time_ms=time.time_ns() // 1_000_000,
        )
        return [fingerprint(store, one) for store, one in zip(stores, facts, strict=True)], made_from
