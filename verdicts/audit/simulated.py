"""What a simulation is asked for: changed settings, cursors, and which of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from rmqtx.readers.cursors import CheckCursors, check_cursors
from rmqtx.readers.model.errors import BadRequest, BadText
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.check.window import has_op_lists
from rmqtx.verdicts.deadlines.predicting import predict_from_files
from rmqtx.verdicts.evidence.store_facts import future_findings
from rmqtx.verdicts.model.predicted import ROUNDS_MAX
from rmqtx.verdicts.model.verdict_inputs import CheckStop
from rmqtx.verdicts.simulation.simulation import SimulatedCheck
from rmqtx.verdicts.simulation.simulation_setup import (
    SimulatedConfiguration,
    has_half_queue,
    simulated_checks,
    with_cursors,
)
from rmqtx.verdicts.simulation.simulation_tables import (
    SIMULATED_CHECKS,
    SIMULATED_ROUNDS,
    SIMULATED_TRANSACTIONS,
    check_rows,
    round_rows,
    transaction_rows,
)

#: Rounds of the check without a number of them.
ROUNDS = 3
#: The tables of a simulation, by name.
TABLES = {"checks": SIMULATED_CHECKS, "rounds": SIMULATED_ROUNDS, "transactions": SIMULATED_TRANSACTIONS}
#: Numeric settings of the check.
_CHANGEABLE = (
    "transactionCheckMax", "transactionTimeOut", "transactionCheckInterval", "fileReservedTime",
    "checkTransactionMessageTimerInterval",
)
#: A setting that is true or false (3.0, 3.1).
_SWITCH = "checkTransactionMessageEnable"


def changed_settings(changes: Iterable[str], option: str = "--with") -> dict[str, str]:
    """Return the settings of texts NAME=VALUE. Raises: BadRequest."""
    changed: dict[str, str] = {}
    for text in changes:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or name not in (*_CHANGEABLE, _SWITCH):
            advice = f"one of {', '.join(f'{one}=N' for one in _CHANGEABLE)}, or {_SWITCH}=false"
            raise BadRequest(f"{option} {text}: not a setting of the check", advice=advice)
        if name == _SWITCH:
            if value not in ("true", "false"):
                raise BadRequest(f"{option} {text}: {value!r} is neither true nor false")
        elif not re.fullmatch(r"[0-9]{1,9}", value):
            raise BadRequest(f"{option} {text}: {value!r} is not a number that a broker accepts")
        changed[name] = value
    return changed


def configurations_of(
    store: Store, conf: Mapping[str, str], version: str | None, changed: Mapping[str, str]
) -> list[SimulatedConfiguration]:
    """Return the broker's settings as they are, and with the changes, if there are any."""
    wanted = {"as is": dict(conf)}
    if changed:
        wanted[" ".join(f"{key}={value}" for key, value in changed.items())] = {**conf, **changed}
    seen = has_op_lists(store)
    return [
        SimulatedConfiguration(name, broker_settings(store, conf=keys, version=version, has_op_lists=seen), keys)
        for name, keys in wanted.items()
    ]


def cursors_of(
    store: Store, settings: BrokerSettings, half: int | None = None, op: int | None = None
) -> CheckCursors | None:
    """Return where the check begins: the store's cursors, or the given ones; None if its check has none.

    Raises: BadText if they are not known.
    """
    if not has_half_queue(store, settings):
        return None
    cursors = check_cursors(store)
    wanted = with_cursors(cursors, half, op)
    if wanted.half is None or wanted.op is None:
        raise BadText(
            f"{store.root}: the cursors of the check are not known", file=cursors.file or store.place("config"),
            advice="add --half-cursor N --op-cursor M",
        )
    return wanted


@dataclass(frozen=True, slots=True)
class SimulatedStore:
    """The checks of one store. `starts`: whether the broker starts on it; `stops`: where its check is stopped."""

    checks: list[SimulatedCheck]
    findings: list[Finding]
    notes: list[str]
    stops: list[CheckStop]
    starts: bool


def simulated_store(
    store: Store, configurations: list[SimulatedConfiguration], cursors: CheckCursors | None, now_ms: int
) -> SimulatedStore:
    """Return the checks of a store under each configuration, with everything that was found."""
    stops: list[CheckStop] = []
    found, findings, notes = simulated_checks(store, configurations, cursors, now_ms, stops)
    begun = check_cursors(store) if cursors is None else cursors
    future = predict_from_files(store, configurations[0].settings, begun, now_ms, stops=stops)
    findings = [*store.findings, *findings, *future_findings(store, future)]
    return SimulatedStore(found, findings, notes, stops, starts=not future.refusals)


def simulated_rows(check: SimulatedCheck, table: str, rounds: int | None) -> list[pa.RecordBatch]:
    """Return the rows of one check. `table`: a name of TABLES."""
    if table == "transactions":
        return [transaction_rows(check, ROUNDS_MAX if rounds is None else rounds)]
    played = list(islice(check.rounds(), rounds or ROUNDS))
    return list(check_rows(check, played)) if table == "checks" else [round_rows(check, played)]
