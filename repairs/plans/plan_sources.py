"""What a plan is drafted from: rows of transactions, the facts that guards need, and fingerprints of the stores.

The rows are those of a condition, or those that some ids, message ids or business keys refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest, NoSuchTransaction
from rmqtx.readers.model.findings import few
from rmqtx.readers.model.identities import NAMES_ADVICE, NameForms
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.outputs import refuse_inside
from rmqtx.readers.store.store import Store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.live import lookups as live_lookups
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.repairs.acts.file_situations import file_situations
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.acts.situation import Situation
from rmqtx.repairs.plans.draft_plan import live_plan_store
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.plan_file import PlanStore
from rmqtx.repairs.receipts.plan_rows import fingerprint
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending, show
from rmqtx.verdicts.audit.provenance import EngineFacts, Provenance, provenance, store_provenance
from rmqtx.verdicts.evidence.store_facts import SettingsOf
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import Advice, State

if TYPE_CHECKING:
    from rmqtx.readers.model.reading import Reading

#: Completes a command that an error names, for example with the options of the command that failed.
Completed = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class AskedAs:
    """How a plan was asked for, as its provenance has it. `options` must contain no secret."""

    command: str
    options: Mapping[str, Any]


class PlanSource(Protocol):
    """Opened brokers or stores, as plans read them."""

    @property
    def roots(self) -> list[str]:
        """The brokers or stores."""

    def refuse_inside(self, output: Path) -> None:
        """Refuse to write the plan into a store. Raises: BadRequest."""

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """Rows of the transactions that ids, message ids or keys name."""

    def pending(self) -> VerdictReading:
        """Rows of the transactions that `rmqtx pending --all-open` lists."""

    def everything(self) -> VerdictReading:
        """Rows of all transactions."""

    def situations(self, rows: list[Transaction]) -> list[Situation]:
        """Each row with the facts that guards need. `rows`: all or some of those read before."""

    def facts(self, asked: AskedAs, roots: set[str]) -> tuple[list[PlanStore], Provenance]:
        """Rows of PLAN_STORES for the stores with these roots, and the provenance of the plan."""


def rows_for(source: PlanSource, action: ActKind, ids: Sequence[str]) -> VerdictReading:
    """Return the rows from which transactions are selected: those of the ids, else all that an action may be for."""
    if ids:
        return source.named(ids)
    return source.everything() if action == ActKind.RESUME else source.pending()


def selectable(rows: pa.Table, action: ActKind) -> pa.Table:
    """Return the rows that a plan of this action may select without their ids."""
    column, value = {ActKind.CLOSE: ("advice", Advice.CLOSE), ActKind.RESUME: ("state", State.DISCARDED)}.get(
        action, ("state", State.PENDING)
    )
    return rows.filter(pc.equal(rows[column], value))


@dataclass(frozen=True, slots=True)
class LivePlanSource:
    """Live brokers. `completed`: completes the commands that errors name."""

    brokers: Sequence[Broker]
    members: Sequence[BrokerAddresses]
    medium: LiveMedium
    completed: Completed = str

    @property
    def roots(self) -> list[str]:
        """See `PlanSource`."""
        return [broker.root for broker in self.brokers]

    def refuse_inside(self, output: Path) -> None:
        """See `PlanSource`. Live brokers have no store on this machine."""

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """See `PlanSource`."""
        found = named_at_brokers(self.brokers, ids, self.completed)
        return live_lookups.lookup(self.brokers, found, members=self.members)

    def pending(self) -> VerdictReading:
        """See `PlanSource`."""
        return live_lookups.pending(self.brokers, members=self.members)

    def everything(self) -> VerdictReading:
        """See `PlanSource`."""
        return live_lookups.audit(self.brokers, members=self.members)

    def situations(self, rows: list[Transaction]) -> list[Situation]:
        """See `PlanSource`."""
        return self.medium.situations(rows, settled_ms=0)

    def facts(self, asked: AskedAs, roots: set[str]) -> tuple[list[PlanStore], Provenance]:
        """See `PlanSource`."""
        stores = [live_plan_store(broker) for broker in self.brokers if broker.root in roots]
        made_from = provenance(
            [{"store": one["store"], "taken_time_ms": one["taken_time_ms"]} for one in stores],
            command=asked.command, options=asked.options, engine=EngineFacts("live"),
            made_time_ms=clock.now_ms(),
        )
        return stores, made_from


@dataclass(slots=True)
class FilePlanSource:
    """The files of stores."""

    stores: list[Store]
    settings_of: SettingsOf
    _reading: VerdictReading | None = field(init=False, default=None)

    @property
    def roots(self) -> list[str]:
        """See `PlanSource`."""
        return [store.root for store in self.stores]

    def refuse_inside(self, output: Path) -> None:
        """See `PlanSource`."""
        refuse_inside(output, self.stores)

    def named(self, ids: Sequence[str]) -> VerdictReading:
        """See `PlanSource`."""
        whole = VerdictReading(TRANSACTIONS, [])
        self._reading = whole
        tables, known = [], set()
        for name in dict.fromkeys(ids):
            found = show(self.stores, self.settings_of, name)
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
        """See `PlanSource`."""
        return self._remembered(pending(self.stores, self.settings_of))

    def everything(self) -> VerdictReading:
        """See `PlanSource`."""
        return self._remembered(audit(self.stores, self.settings_of))

    def _remembered(self, reading: VerdictReading) -> VerdictReading:
        """The same reading; `situations` passes its findings to the guards once its rows are read."""
        self._reading = reading
        return reading

    def situations(self, rows: list[Transaction]) -> list[Situation]:
        """See `PlanSource`."""
        findings = [] if self._reading is None else self._reading.findings
        return file_situations(self.stores, self.settings_of, rows, findings)

    def facts(self, asked: AskedAs, roots: set[str]) -> tuple[list[PlanStore], Provenance]:
        """See `PlanSource`."""
        stores = [store for store in self.stores if store.root in roots]
        facts = [store_provenance(store) for store in stores]
        made_from = provenance(
            facts, command=asked.command, options=asked.options, engine=EngineFacts("local"),
            made_time_ms=clock.now_ms(),
        )
        return [fingerprint(store, one) for store, one in zip(stores, facts, strict=True)], made_from


def named_at_brokers(brokers: Sequence[Broker], ids: Sequence[str], completed: Completed = str) -> list[str]:
    """Return the transaction ids for some ids, message ids or keys at live brokers; see `identities`."""
    where = f"at {', '.join(broker.root for broker in brokers)}"

    def shown(name: str, short: bool) -> VerdictReading:
        forms = NameForms.SHORT if short else NameForms.EXACT
        return live_lookups.show(brokers, name, forms=forms, columns=("transaction_id",))

    return identities(ids, shown, where, completed=completed)


def identities(
    ids: Sequence[str], show: Callable[[str, bool], Reading], where: str, arguments: str = "", *,
    completed: Completed = str,
) -> list[str]:
    """Return the transaction ids for some ids, message ids or keys, each once.

    `show`: rows of the transactions with an id or key, or, on request, with an id that begins or ends so.
    `where`: where it reads, for messages. `arguments`: options that make another command read there; `completed` adds
    others.
    Raises: NoSuchTransaction, with all that are not found; BadRequest for a part of an id, and if a key matches
            several transactions.
    """
    found: list[str] = []
    missing: list[str] = []
    others = ""
    for name in dict.fromkeys(ids):
        try:
            named = show(name, False).table()["transaction_id"].to_pylist()
        except NoSuchTransaction as error:
            missing.append(name)
            others += str(error.actual or "")
            continue
        if len(named) > 1:
            raise BadRequest(
                f"{len(named)} transactions match {name!r}",
                advice=f"give a transaction id; list them: {completed(f'rmqtx show {quoted(name)}{arguments}')}",
            )
        found += named
    for name in missing:
        _refuse_short(name, show)
    if missing:
        raise NoSuchTransaction(
            f"no transaction {', '.join(missing)} {where}{others}",
            advice=NAMES_ADVICE,
        )
    return list(dict.fromkeys(found))


def _refuse_short(name: str, show: Callable[[str, bool], Reading]) -> None:
    """Refuse a part of an id, as tables print it, with the whole id: an act on a guess would be final.

    Raises: BadRequest.
    """
    try:
        found = show(name, True).table()["transaction_id"].to_pylist()
    except NoSuchTransaction:
        return
    if len(found) == 1:
        raise BadRequest(f"{name!r} is a part of an id", advice=f"acts take whole ids, here it is: {found[0]}")
    raise BadRequest(f"{name!r} is a part of {len(found)} ids", advice=f"acts take whole ids: {few(found, 3)}")
