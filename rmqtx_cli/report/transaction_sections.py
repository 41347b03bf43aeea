"""The sections of a report about causes and about single transactions; in three sentences, what is the matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmqtx.verdicts.model.verdict_words import State, Strength
from rmqtx_cli.pages.causes import STRENGTH_WORDS, amount_text, cause_line, cause_parts, counts_lines, example_text
from rmqtx_cli.pages.drawing import facts_of
from rmqtx_cli.pages.headlines import check_sentence, next_lines, passed_sentences, refused_sentences
from rmqtx_cli.report.document import Cell, Facts, Head, Items, Paragraph, Part, Section, Table, stored
from rmqtx_cli.report.drawings import copies_drawing
from rmqtx_cli.words.times import age_text, since_text, time_text

if TYPE_CHECKING:
    from rmqtx_cli.report.gathering import Facts as SourceFacts
    from rmqtx_cli.report.gathering import Gathered, ShownTransaction

_NEXT = "next: "
#: Events of a transaction that are listed: the first and the last half of them.
EVENTS_MAX = 24
#: Causes that are described.
CAUSES_MAX = 20


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


def causes_section(found: Gathered) -> Section:
    """Return the causes with their evidence, as `rmqtx diagnose` finds them."""
    rows = found.diagnosis.table().to_pylist()
    described: list[Part] = [Paragraph(sentence(line)) for line in counts_lines(found.diagnosis)]
    of_causes = cause_parts(rows)
    described += [_cause_section(part, f"cause-{number}") for number, part in enumerate(of_causes[:CAUSES_MAX], 1)]
    if len(of_causes) > CAUSES_MAX:
        described.append(Paragraph(f"{len(of_causes) - CAUSES_MAX} further causes: rmqtx diagnose lists all."))
    if ruled_out := [f"{row['cause']}: the records of {row['transactions_count']} would fit, but not the release of "
                     f"the broker, or its configuration ({row['releases']})"
                     for row in rows if row["strength"] == Strength.RULED_OUT]:
        described += [Paragraph("Ruled out:"), Items(ruled_out[:CAUSES_MAX])]
    return Section("Causes", "causes", described)


def _cause_section(rows: Sequence[Mapping[str, Any]], anchor: str) -> Section:
    best = rows[0]
    pairs = [("store", stored(best["store"]))]
    for row in rows:
        would_decide = [("would decide", row["would_decide"])] if row["would_decide"] else []
        pairs += [(STRENGTH_WORDS[row["strength"]], amount_text(row)), *would_decide]
    pairs += [("example", stored(example_text(one))) for one in best["examples"]]
    pairs += [
        (label, best[name])
        for label, name in (("follows", "consequence"), ("do now", "act"), ("change", "change"),
                            ("releases", "releases"), ("sources", "sources"))
        if best[name]
    ]
    return Section(f"{best['cause']}: {best['title']}", anchor, [Facts(pairs)])


def transaction_section(one: ShownTransaction, facts: SourceFacts, now_ms: int, anchor: str) -> Section:
    """Return a transaction: facts, its records along the log, its events, its causes."""
    row = one.row
    pairs = [(label, stored(text) if label in ("group", "topic", "keys") else text)
             for label, text in facts_of(row, one.deadline, now_ms, _age(one, now_ms))]
    pairs += [("store", stored(row["store"]))] if len(facts.names) > 1 else []
    pairs += [("check", line.removeprefix("check: ")) for line in one.check_lines]
    pairs += [("cause", cause_line(cause).strip()) for cause in one.causes]
    drawing = copies_drawing(row)
    found: list[Part] = [Facts(pairs), *([] if drawing is None else [drawing]), _events_table(one)]
    if one.consumers:
        found.append(_consumers_table(one.consumers))
    return Section(f"{stored(row['transaction_id'])}: {row['state']}", anchor, found)


def _age(one: ShownTransaction, now_ms: int) -> str:
    sent_ms = one.row["half_store_time_ms"]
    if sent_ms is None or one.row["state"] != State.PENDING:
        return ""
    return age_text(sent_ms, now_ms, one.stopped_ms)


def _events_table(one: ShownTransaction) -> Table:
    """The records that prove the state, each with its offsets."""
    events, left = one.events, max(0, len(one.events) - EVENTS_MAX)
    if left:
        events = [*events[: EVENTS_MAX // 2], *events[-EVENTS_MAX // 2:]]
    sent_ms = one.row["half_store_time_ms"]
    rows: list[list[Cell]] = [
        [event["event"], "" if event["time_ms"] is None else time_text(event["time_ms"]),
         since_text(event["time_ms"], sent_ms), _number(event["queue_offset"]), _number(event["commit_log_offset"]),
         stored(event["detail"])]
        for event in events
    ]
    if left:
        rows.insert(EVENTS_MAX // 2, ["…", "", "", "", "", f"{left} more events, not shown"])
    heads = [Head("event"), Head("time", True), Head("since sent", True), Head("queue offset", True),
             Head("log offset", True), Head("detail")]
    return Table("Events and the records that prove them", heads, rows)


def _consumers_table(consumers: Sequence[Mapping[str, Any]]) -> Table:
    rows: list[list[Cell]] = [
        [stored(one["group"]), stored(one["topic"]), _number(one["final_queue_offset"]),
         _number(one["next_queue_offset"]), "past" if one["is_past"] else "not past"]
        for one in consumers[:EVENTS_MAX]
    ]
    heads = [Head("group"), Head("topic"), Head("COMMIT at", True), Head("cursor", True), Head("COMMIT")]
    return Table("Consumer groups (a cursor past the COMMIT record does not prove consumption)", heads, rows)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
