"""docs/forcing.md, from the figures of the runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.brokers.forcing.played import PART as TESTS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "forcing.md"
HEAD = """# Forcing transactions: what real brokers did

Written by `make test-forcing` (`python -m tests.brokers.forcing`): name server, broker and the official Java client of
each version, producers in processes that are killed by signal 9, an official consumer that counts. Figures are what
that consumer received and what the producers reported themselves, never the result of an rmqtx reader. The guards are
described in [safety.md](safety.md). A decision of a killed producer that rmqtx acted on, and whose message was
delivered once, had not reached the broker: it was lost. Naive forcing acts at once after the named look-up: none, of
the op queue, of the COMMIT record by its unique key ("final"), or both.

"""
RACES = {
    "a": "A producer decides 0 to 5 s before us, or not at all, and is killed",
    "b": "The check puts every copy back each second while we force; then a producer comes that commits it",
    "c": "Two people force the same transactions at the same moment",
}
COLUMNS = (
    ("version", "version"), ("how", "forced by"), ("transactions", "transactions"), ("undecided", "undecided"),
    ("forced", "of these forced and proved"), ("refused", "of these refused"), ("decided_before", "decided before"),
    ("decided_refused", "of these refused"), ("decided_acted_on", "of these acted on"),
    ("second_deliveries", "second deliveries"), ("rolled_back_delivered", "rolled back, yet delivered"),
    ("committed_lost", "committed, not delivered"),
)


def read(results: Path) -> list[dict[str, Any]]:
    """The figures of all parts that were played.

    Order: version, then part.
    """
    return [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]


def is_clean(results: Path) -> bool:
    """Whether rmqtx delivered nothing twice, nothing that was rolled back, and forced three in four undecided ones."""
    rows = [row for run in read(results) for row in run["rows"] if row.get("how") == "rmqtx"]
    return all(
        not (row["second_deliveries"] or row["rolled_back_delivered"] or row["committed_lost"])
        and row["forced"] >= 0.75 * row["undecided"]
        for row in rows
    )


def write(results: Path, document: Path) -> None:
    """Write the page."""
    runs = read(results)
    parts = [HEAD, *(_race(name, runs) for name in RACES), _after(runs), _bulk(runs), _tests(runs), _made(runs)]
    document.write_text("\n".join(part for part in parts if part), encoding="utf-8")


def _race(name: str, runs: list[dict[str, Any]]) -> str:
    rows = [row for run in runs for row in run["rows"] if row.get("race") == name]
    if not rows:
        return ""
    rows.sort(key=lambda row: (row["how"] != "rmqtx", row["version"], row["how"]))
    lines = [f"## {RACES[name]}", "", *_table(rows, COLUMNS), ""]
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]], columns: tuple[tuple[str, str], ...]) -> list[str]:
    head = [f"| {' | '.join(title for _, title in columns)} |", f"|{'---|' * len(columns)}"]
    return head + [f"| {' | '.join(_cell(row[name]) for name, _ in columns)} |" for row in rows]


def _cell(value: object) -> str:
    if isinstance(value, dict):
        total = sum(value.values())
        told = ", ".join(f"{name} {count}" for name, count in sorted(value.items()))
        return f"{total} ({told})" if value else "0"
    return str(value)


def _after(runs: list[dict[str, Any]]) -> str:
    rows = [{"version": run["version"], **row} for run in runs if run["part"] == "after" for row in run["rows"]]
    if not rows:
        return ""
    columns = (
        ("version", "version"), ("ours", "we"), ("theirs", "then the producer"), ("transactions", "transactions"),
        ("delivered", "delivered"), ("delivered_twice", "delivered twice"),
        ("contradicted", "receipt: contradicted"), ("flagged_by_audit", "flagged by audit"),
    )
    text = (
        "Nothing can prevent this: a broker does not check whether a transaction was decided before. The guard "
        "producer-connected\nwas overridden, the command watched for 12 s (`--wait-for 12s`), and the producer decided "
        "about a second after us."
    )
    return "\n".join(["## A producer decides after us", "", text, "", *_table(rows, columns), ""])


def _bulk(runs: list[dict[str, Any]]) -> str:
    rows = [{"version": run["version"], **row} for run in runs if run["part"] == "bulk" for row in run["rows"]]
    if not rows:
        return ""
    columns = (
        ("version", "version"), ("transactions", "transactions"), ("plan_seconds", "`plan`, s"),
        ("apply_seconds", "`apply`, s"), ("outcomes", "outcomes"), ("delivered_once", "delivered once"),
        ("delivered_twice", "delivered twice"),
    )
    return "\n".join(["## A plan of many, all guards on", "", *_table(rows, columns), ""])


def _tests(runs: list[dict[str, Any]]) -> str:
    played = [run for run in runs if run["part"] == TESTS]
    if not played:
        return ""
    columns = (("version", "version"), ("file", "tests"), ("passed", "passed"), ("failed", "failed"),
               ("error", "not begun"), ("skipped", "skipped"), ("date", "date"), ("commit", "commit"))
    rows = [run | row for run in played for row in run["rows"]]
    text = (
        "Each guard refuses with its sentence and does not refuse when overridden. Requests and responses are cut, "
        "dropped and delayed;\nbrokers are killed between act and proof; plans are applied twice, killed and "
        "continued; there is a slave, and an expired log."
    )
    return "\n".join(["## Guards, faults, plans: the tests", "", text, "", *_table(rows, columns), ""])


def _made(runs: list[dict[str, Any]]) -> str:
    columns = (("version", "version"), ("part", "part"), ("date", "date"), ("commit", "commit"), ("seed", "seed"),
               ("seconds", "seconds"))
    races = [run for run in runs if run["part"] != TESTS]
    return "\n".join(["## Runs", "", *_table(races, columns), ""])
