"""docs/corpus.md: its generated parts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.brokers import corpus
from tests.brokers.expectation import states
from tests.brokers.histories import HISTORIES
from tests.brokers.maven import VERSIONS
from tests.brokers.old_histories import OLD_HISTORIES
from tests.brokers.recipes import release
from tests.brokers.script import Act

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "corpus.md"
NOT_TRANSACTIONS = ("ordinary", "batch", "delayed_ordinary", "refused_by_consumer")
REASONS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], str], ...] = (
    ("resumed_.*|pending_resumed", (0,), (4, 5, 2), "request 323 exists from 4.5.2 on"),
    ("compressed_checked", (0,), (4, 6), "before 4.6 such a half cannot be read again: see poison"),
    ("poison.*", (4, 6), (99,), "compressed halves survive being put back from 4.6 on"),
    ("poison_later.*", (4, 3), (4, 6), "played on 4.5.0, whose check stops as that of 4.3.0 and 4.4.0"),
    ("op_batch_lost", (0,), (5, 1), "ops are written at once before 5.1"),
    ("codecs_.*", (0,), (5, 0), "the client knows only zlib"),
    ("delayed_timer", (0,), (5, 0), "timers come with 5.0"),
    ("decision_names_discard", (0,), (4, 5, 2), "no discard copy is written before 4.5.2"),
    ("refused_by_consumer", (0,), (5, 1), "topics over 127 bytes come with 5.1"),
    ("light", (0,), (99,), "the stores with light message queues are of 4.9.3 and 5.3.2"),
    ("commit_within_30s|late_.*_lost.*|remoting_.*|pending_behind_proxy", (0,), (99,), "it was played behind a proxy"),
    ("chain_.*|failover_.*|rolled_back_then_discarded|timer_.*", (0,), (99,), "only a store made for it has it"),
    ("between|after_restart|pending_before_restart", (0,), (99,), "only a store that several brokers wrote has it"),
    (
        "refused_by_consumer",
        (5, 5),
        (99,),
        "client and broker refuse group names over 120 bytes, so no topic gets that long",
    ),
)
"""Why a history is missing: its plan, from which version, below which version, the reason."""


def reason(plan: str, version: str) -> str | None:
    """Why a version has none of a plan."""
    for pattern, since, below, why in REASONS:
        if re.fullmatch(pattern, plan) and since <= release(version) < below:
            return why
    return None


def counts() -> dict[str, Counter[str]]:
    """How often each plan was played, by version."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name in corpus.corpus_names():
        version = corpus.recipe(name)["version"]
        for row in corpus.expected(name):
            found[row["plan"]][version] += 1
        for line in corpus.truth(name):
            if line["event"] == "sent" and line["plan"] in NOT_TRANSACTIONS:
                found[line["plan"]][version] += 1
    return found


def history_table() -> str:
    """Histories by versions."""
    played = counts()
    notes: list[str] = []
    lines = [f"| history | {' | '.join(VERSIONS)} |", f"|---|{'---|' * len(VERSIONS)}"]
    for plan in sorted(played):
        cells = []
        for version in VERSIONS:
            count = played[plan][version]
            why = None if count else reason(plan, version) or "MISSING"
            if why is not None and why not in notes:
                notes.append(why)
            cells.append(str(count) if why is None else f"0 [{notes.index(why) + 1}]")
        lines.append(f"| {plan} | {' | '.join(cells)} |")
    lines.append("")
    lines += [f"[{number}] {why}.  " for number, why in enumerate(notes, 1)]
    return "\n".join(lines)


def store_table() -> str:
    """The stores."""
    lines = [
        "| store | broker | stop | seed | transactions | states | what is in it |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in corpus.all_names():
        recipe = corpus.recipe(name)
        versions = [*recipe.get("earlier", ()), *(recipe[key] for key in ("version", "upgrade") if key in recipe)]
        version = ", then ".join(versions)
        rows = corpus.expected(name)
        counted = Counter(" or ".join(sorted(states(row))) for row in rows)
        told = ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))
        cells = (name, version, recipe["stop"], recipe["seed"], len(rows), told, recipe["about"])
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def words(histories: Mapping[str, Act]) -> str:
    """What the histories are."""
    return "\n".join(f"- **{name}**: {' '.join(act.words.split())}" for name, act in histories.items())


def write() -> None:
    """Put the generated parts between their marks in the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    parts = {
        "histories": words(HISTORIES),
        "old_histories": words(OLD_HISTORIES),
        "counts": history_table(),
        "stores": store_table(),
    }
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda found, part=part: f"{found.group(1)}\n{part}\n\n{found.group(2)}", text)  # type: ignore[misc]
    DOCUMENT.write_text(text, encoding="utf-8")
