"""What the next orderly stop, or the next start, does to transactions that are already decided."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.jobs.workers import ONE_PROCESS_BYTES_MAX
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import OPS_LOST_AT_STOP, dotted
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.audit.lookups import open_transactions
from rmqtx.verdicts.model.state import State

_UNKNOWN = "which decided transactions the check reaches again: the queues do not lead to them; rmqtx audit STORE does"


def next_stop_findings(store: Store, settings: BrokerSettings) -> Iterator[Finding]:
    """Return what an orderly stop of a running broker loses."""
    loses = OPS_LOST_AT_STOP.between(settings.version_low, settings.version_high)
    if not store.in_use or not store.has("consumequeue", HALF_TOPIC) or loses is False:
        return
    held = f"op messages of up to {settings.transaction_op_batch_interval_ms / 1000:g} s (transactionOpBatchInterval)"
    if loses is None:
        held += f", if the broker is {dotted(OPS_LOST_AT_STOP.since)} or later: add --broker-version"
    yield Finding(store.root, "stop-loses-ops", actual=held)


def next_start_findings(store: Store, settings: BrokerSettings) -> Iterator[Finding]:
    """Return the decided transactions that the broker asks about again after a start, what its check passes, and
    whether that depends on its release.

    Shape: the verdicts are those of `pending`; the place is the first half copy of the first of them.
    Damage: a file that cannot be read is reported elsewhere; then nothing is predicted.
    """
    if store.in_use or not store.has("consumequeue", HALF_TOPIC):
        return
    try:
        found: list[Finding] = []
        rows = open_transactions([store], lambda _: settings, ONE_PROCESS_BYTES_MAX, found)
    except SourceError:
        return
    yield from found
    if rows is None:
        yield Finding(store.root, "start-unforeseen", actual=_UNKNOWN)
        return
    again = rows.filter(pc.or_(_has_flag(rows, "may_be_decided"), pc.not_equal(rows["state"], State.PENDING)))
    again = again.filter(pc.is_valid(again["answer_effect"]))  # what the check discards without asking is not checked
    if not again.num_rows:
        return
    counts = {state: pc.sum(pc.equal(again["state"], state)).as_py() for state in State}
    words = [f"{counts[state]} {state}" for state in State if counts[state] and state != State.PENDING]
    if counts[State.PENDING]:
        words.append(f"{counts[State.PENDING]} PENDING that may have been rolled back before the broker was killed")
    elif pending_count := _perhaps_rolled_back(store, settings, rows):
        words.append(f"{pending_count} PENDING of which some may have been rolled back just before the stop")
    text = ", ".join(words)
    copies = again["half_copies"].combine_chunks().flatten()
    place = pc.min(pc.struct_field(copies, "commit_log_offset")).as_py()
    yield Finding(
        store.root, "start-checks-again", commit_log_offset=place, actual=text,
        meaning=f"the broker checks again: {text}; an answer COMMIT delivers also what was delivered or rolled back",
    )


def _perhaps_rolled_back(store: Store, settings: BrokerSettings, rows: pa.Table) -> int:
    """Return the number of pending transactions, if an orderly stop lost the op messages of COMMIT records."""
    loses = OPS_LOST_AT_STOP.between(settings.version_low, settings.version_high)
    has_lost = pc.any(_has_flag(rows, "commit_without_op")).as_py()
    if store.was_killed or loses is False or not has_lost:
        return 0
    return int(pc.sum(pc.equal(rows["state"], State.PENDING)).as_py())


def _has_flag(rows: pa.Table, name: str) -> pa.Array:
    flags = rows["flags"].combine_chunks()
    owners = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), name))
    return pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=pc.cast(owners, pa.int64()))
