"""What is the matter, in three sentences, and what to type next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx.verdicts.model.verdict_words import Strength
from rmqtx_cli.pages.causes import counts_lines
from rmqtx_cli.pages.headlines import check_sentence, next_lines, passed_sentences, refused_sentences

if TYPE_CHECKING:
    from rmqtx_cli.report.gathering import Gathered

_NEXT = "next: "


def sentences(found: Gathered) -> list[str]:
    """Return three sentences: harm, states, causes."""
    return [sentence(_harm(found)), sentence(found.summary.sentence(found.now_ms)), sentence(_causes(found))]


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def _harm(found: Gathered) -> str:
    """What is harmed, worst first; a check that is stopped; and whether damage may hide more."""
    stops = found.facts.stops
    predicted = found.facts.predicted
    parts = [*refused_sentences(predicted), *found.summary.harms.sentences(predicted), *passed_sentences(predicted)]
    parts += [check_sentence(stop, found.summary.never_asked_counts(stop.store)) for stop in stops[:1]]
    parts += [f"the check is stopped in {len(stops) - 1} more stores"] if len(stops) > 1 else []
    is_damaged = any(finding.is_error for finding in found.facts.findings)
    if is_damaged or found.has_undecidable:
        parts.append("evidence is missing or damaged, so that more may be wrong than is shown")
    return "; ".join(parts) or (
        "no stop of the check was found, no transaction is discarded, lost or delivered more than once, and none will "
        "be discarded soon"
    )


def _causes(found: Gathered) -> str:
    """How many transactions are unusual, and the cause of most of them."""
    counts = next(counts_lines(found.diagnosis))
    first = next((row for row in found.diagnosis.table().to_pylist() if row["strength"] == Strength.EXPLAINS), None)
    return counts if first is None else f"{counts}; most often {first['cause']}: {first['title']}"


def next_commands(found: Gathered) -> list[tuple[str, str]]:
    """Return the commands to type next, each with a comment."""
    facts, summary = found.facts, found.summary
    of_stop = [line for stop in facts.stops[:1] for line in next_lines(stop, facts.live)]
    damaged = [name for name in facts.names if name in summary.damaged(facts.findings)]
    of_harm = summary.next_line(facts.arguments)
    lines = [of_harm] if of_harm is not None and (summary.harms.is_soon or not of_stop) else []
    lines += of_stop
    lines += [summary.verify_line(damaged)] if damaged else []
    lines += list(summary.why_lines(facts.arguments))
    parted = [line.removeprefix(_NEXT).partition("   # ") for line in lines if "rmqtx " in line]
    return [(command, comment) for command, _, comment in parted]
