"""Where the transactions of a plan are read from: live brokers, or the files of stores."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from readers.model.errors import BadRequest
from rmqtx_cli.options.live import LiveOptions, open_live
from rmqtx_cli.options.options import StoreOptions

if TYPE_CHECKING:
    import typer

    from repairs.acts.situation import Situation
    from verdicts.model.reading import VerdictReading

_COMMAND = "plan"


class PlanSource(Protocol):
    """Where transactions are read from, while it is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def refuse_inside(self, output: Path) -> None:
        """A plan never becomes a file of a store.

        Raises: BadRequest.
        """

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """Rows of the transactions that some names mean."""

    def open(self) -> VerdictReading:
        """Rows of what is before the check."""

    def everything(self) -> VerdictReading:
        """Rows of all transactions."""

    def situations(self, rows: list[dict[str, Any]]) -> list[Situation]:
        """What is known of some rows."""

    def facts(self, context: typer.Context, roots: set[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Rows of PLAN_STORES, and the custody."""


def plan_source(stores: Sequence[str], files: StoreOptions, live: LiveOptions, advice: str) -> PlanSource:
    """Where transactions are read from, of which exactly one must be named.

    Raises: BadRequest, with the advice where both or neither is named.
    """
    return FromBrokers(live) if live.instead_of(stores, advice) else FromFiles(stores, files)


class FromBrokers:
    """Live brokers."""

    def __init__(self, live: LiveOptions) -> None:
        self._opening = open_live(live)

    def __enter__(self) -> Self:
        from repairs.acts.live_medium import LiveMedium

        self._live = self._opening.__enter__()
        self._medium = LiveMedium(self._live.brokers, self._live.members)
        return self

    def __exit__(self, *error: Any) -> None:
        self._opening.__exit__(*error)

    def refuse_inside(self, output: Path) -> None:
        """See `PlanSource`. No file of a live broker is ours to write."""

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """See `PlanSource`."""
        from remoting.live.lookups import lookup
        from rmqtx_cli.acting.acted_on import resolved

        return lookup(self._live.brokers, resolved(self._live.brokers, ids), members=self._live.members)

    def open(self) -> VerdictReading:
        """See `PlanSource`."""
        from remoting.live.lookups import pending

        return pending(self._live.brokers, members=self._live.members)

    def everything(self) -> VerdictReading:
        """See `PlanSource`."""
        from remoting.live.lookups import audit

        return audit(self._live.brokers, members=self._live.members)

    def situations(self, rows: list[dict[str, Any]]) -> list[Situation]:
        """See `PlanSource`."""
        return self._medium.situations(rows, settled_ms=0)

    def facts(self, context: typer.Context, roots: set[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """See `PlanSource`."""
        from repairs.plans.plan_steps import live_plan_store
        from rmqtx_cli.sources.provenance import asked_options
        from verdicts.audit.provenance import EngineFacts, provenance

        stores = [live_plan_store(broker) for broker in self._live.brokers if broker.root in roots]
        made_from = provenance(
            [{"store": one["store"], "taken_time_ms": one["taken_time_ms"]} for one in stores],
            command=_COMMAND, options=asked_options(context), engine=EngineFacts("live"),
            made_time_ms=time.time_ns() // 1_000_000,
        )
        return stores, made_from


class FromFiles:
    """Stores, by their files."""

    def __init__(self, paths: Sequence[str], files: StoreOptions) -> None:
        self._paths, self._files = paths, files
        self._reading: VerdictReading | None = None

    def __enter__(self) -> Self:
        from rmqtx_cli.sources.opening import open_stores

        self._opened = open_stores(self._paths, self._files)
        return self

    def __exit__(self, *error: object) -> None:
        return

    def refuse_inside(self, output: Path) -> None:
        """See `PlanSource`."""
        from rmqtx_cli.sources.opening import refuse_inside

        refuse_inside(output, self._opened.stores)

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """See `PlanSource`."""
        import pyarrow as pa

        from readers.model.tables import TRANSACTIONS
        from verdicts.audit.lookups import show
        from verdicts.model.reading import VerdictReading

        whole = VerdictReading(TRANSACTIONS, [])
        self._reading = whole
        tables, known = [], set()
        for name in dict.fromkeys(ids):
            found = show(self._opened.stores, self._opened.settings_of, name)
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

    def open(self) -> VerdictReading:
        """See `PlanSource`."""
        from verdicts.audit.lookups import pending

        return self._remembered(pending(self._opened.stores, self._opened.settings_of))

    def everything(self) -> VerdictReading:
        """See `PlanSource`."""
        from verdicts.audit.local_audit import audit

        return self._remembered(audit(self._opened.stores, self._opened.settings_of))

    def _remembered(self, reading: VerdictReading) -> VerdictReading:
        """The reading, whose findings are known to the guards once its rows were read."""
        self._reading = reading
        return reading

    def situations(self, rows: list[dict[str, Any]]) -> list[Situation]:
        """See `PlanSource`."""
        from repairs.acts.file_situations import file_situations

        findings = [] if self._reading is None else self._reading.findings
        return file_situations(self._opened.stores, self._opened.settings_of, rows, findings)

    def facts(self, context: typer.Context, roots: set[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """See `PlanSource`."""
        from repairs.receipts.planner import fingerprint
        from rmqtx_cli.sources.provenance import asked_options
        from verdicts.audit.provenance import EngineFacts, provenance, store_provenance

        stores = [store for store in self._opened.stores if store.root in roots]
        facts = [store_provenance(store) for store in stores]
        made_from = provenance(
            facts, command=_COMMAND, options=asked_options(context), engine=EngineFacts("local"),
            made_time_ms=time.time_ns() // 1_000_000,
        )
        return [fingerprint(store, one) for store, one in zip(stores, facts, strict=True)], made_from
