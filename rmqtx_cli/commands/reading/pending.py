"""`rmqtx pending`: list the pending transactions."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model import clock
from rmqtx.readers.model.columns import rows_where
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.causes.strengths import have_causes
from rmqtx.verdicts.evidence.store_facts import known_until_ms, past_ms
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.verdict_words import OPEN_AGAIN_FLAG, State
from rmqtx.verdicts.transactions.futures import UNASKED_WORDS
from rmqtx_cli.commands.declared.look import PendingCommand, PendingOptions
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.output.listing import Listing, names_of, oldest_first
from rmqtx_cli.pages.headlines import (
    answer_lines,
    deadline_lines,
    never_asked_counts,
    passed_lines,
    pending_sentence,
    refused_lines,
    slave_sentences,
)
from rmqtx_cli.pages.order_of_harm import Harms
from rmqtx_cli.sources.source import Source, opener_of
from rmqtx_cli.words.of_old_stores import have_only_prepared
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import asked_time_ms, parse_duration_ms
from rmqtx_cli.words.unknown_names import say_unknown_names

_DEADLINE_NAMES = frozenset({"deadline", "discard_in", "discard_in_ms", "discard_at", "discard_at_ms"})


def run(options: PendingCommand) -> int:
    """Run the command; return its exit status."""
    voice = options.source.voice
    times = _Times.of(options.asked, options.output.sort, voice)
    opener = opener_of(
        options.source, options.store or [], "rmqtx pending STORE, or rmqtx pending -n HOST:PORT",
        {"--at": options.asked.at, "--scan": options.asked.scan},
    )
    view = opener.view(times.now_ms, with_state=options.asked.all_open, with_deadline=times.with_deadline)
    listing = Listing(
        opener.schema, view, options.output, options.asked.where, options.fail_on, options.asked.limit, voice,
        now_ms=times.now_ms,
    )
    with opener.opened(options.output.output) as opened:
        opened.add_provenance(options.context, listing)
        times.refuse_past(opened.stores)
        reading = opened.pending(at_ms=times.at_ms, scan=options.asked.scan, with_causes="causes" in listing.needed)
        rows = reading.table()
    if options.asked.topic is not None or options.asked.group is not None:
        named = {"--topic": ("topic", options.asked.topic), "--group": ("producer_group", options.asked.group)}
        say_unknown_names(rows, named, voice)
    chosen = oldest_first(listing.fulfilling(_chosen(rows, options.asked, times)))
    for line in () if voice.quiet else _lines(rows, chosen, reading, opened, times):
        voice.note(line)
    listing.write(iter(chosen.to_batches()), to_the_end=True, are_chosen=True)
    listing.say_limit("transaction")
    if not options.asked.all_open:
        _say_hidden(rows, voice)
    opened.say_producers(chosen)
    return listing.conclude(reading, has_undecidable=bool(reading.undecidable_count))


@dataclass(frozen=True, slots=True)
class _Times:
    """The time of the listing, and the limits for age and deadline. Units: epoch milliseconds."""

    at_ms: int | None
    now_ms: int
    stored_before_ms: int | None
    discarded_by_ms: int | None
    with_deadline: bool

    @classmethod
    def of(cls, asked: PendingOptions, sort: str | None, voice: Voice) -> _Times:
        """Return the times that the options give. Raises: BadRequest."""
        at_ms = asked_time_ms("--at", asked.at, voice, is_of_state=True)
        now_ms = at_ms if at_ms is not None else clock.now_ms()
        within_ms = None if asked.deadline_within is None else parse_duration_ms(asked.deadline_within)
        with_deadline = within_ms is not None or not _DEADLINE_NAMES.isdisjoint(names_of(sort))
        age_ms = None if asked.older_than is None else parse_duration_ms(asked.older_than)
        return cls(
            at_ms, now_ms, None if age_ms is None else now_ms - age_ms,
            None if within_ms is None else now_ms + within_ms, with_deadline,
        )

    def refuse_past(self, stores: Sequence[Store]) -> None:
        """Refuse a deadline where the time is before the end of a store: what came next is in the store itself.

        Raises: BadRequest.
        """
        for store in stores if self.with_deadline and self.at_ms is not None else ():
            if past_ms(store, self.at_ms, known_until_ms(store)) is not None:
                raise BadRequest(
                    f"{store.root}: --at is before its end, and deadlines are not predicted for a past time",
                    advice="leave out --deadline-within and --sort deadline",
                )


def _lines(
    rows: pa.Table, chosen: pa.Table, reading: VerdictReading, source: Source, times: _Times
) -> Iterator[str]:
    """The lines above the table: pending transactions, stopped checks, the first discard, the next command."""
    pending_count = pc.sum(pc.equal(rows["state"], State.PENDING)).as_py() or 0
    harms, predicted = Harms.of(chosen, times.now_ms), reading.predicted
    following, unknown_count = None, reading.undecidable_count
    if chosen.num_rows:
        following = harms.next_line(source.arguments)
    elif not pending_count and unknown_count:
        following = next_line(f"rmqtx audit {source.arguments} --where 'state = UNDECIDABLE'", "what could decide them")
    elif not pending_count and not have_only_prepared(source.stores):
        following = next_line(f"rmqtx audit {source.arguments} --summary", "LOST and DISCARDED transactions")
    is_incomplete = any(finding.is_error for finding in reading.findings)
    sentence = pending_sentence(chosen, harms.now_ms, pending_count, unknown_count, is_incomplete=is_incomplete)
    counts_of = functools.partial(never_asked_counts, rows)
    is_one_store = len(source.stores) == 1
    lines = answer_lines(sentence, reading.check_stops, counts_of, source.live, None, is_one_store=is_one_store)
    yield next(lines)
    yield from refused_lines(predicted)
    yield from slave_sentences(predicted)
    yield from passed_lines(predicted)
    yield from harms.start_sentences()
    yield from harms.soon_sentences(predicted, with_counts=False)
    later = {root: known for root, known in predicted.items() if root not in harms.stores_with_soon}
    yield from deadline_lines(chosen, later, harms.now_ms)
    if following is not None and (harms.is_soon or not reading.check_stops):
        yield following
    yield from lines
    if have_causes(chosen, reading.evidence):
        yield next_line(f"rmqtx diagnose {source.arguments}", "why")


#: Transactions that are open though not pending, by what the check does with them; each is counted once.
_HIDDEN = {
    "asked": ("decided or discarded transaction", " will be checked again"),
    "unasked": ("decided or discarded transaction", " with open copies, which the check discards without asking"),
    "others": ("decided or discarded transaction", " that the check may still reach"),
    "never": (
        "decided or discarded transaction",
        " would be checked again, but the check is stopped before reaching them",
    ),
    "perhaps": (
        "decided transaction",
        ": the RocksDB table, which was not read, decides whether the broker checks them again",
    ),
}


def _say_hidden(rows: pa.Table, voice: Voice) -> None:
    """Print how many transactions --all-open would add."""
    rows = rows.filter(pc.not_equal(rows["state"], State.PENDING))
    columns = ("reason_code", "flags", "answer_effect", "next_event")
    numbers: Counter[str] = Counter()
    for reason_code, flags, effect, event in zip(*(rows[name].to_pylist() for name in columns), strict=True):
        # The check of prepared records is not played: the flag alone shows that a broker 3.1 asks again.
        numbers[
            "perhaps" if reason_code == "commit_record_table_unread"
            else "never" if "never_asked" in flags
            else "asked" if effect is not None or OPEN_AGAIN_FLAG in flags
            else "unasked" if event in UNASKED_WORDS
            else "others"
        ] += 1
    for kind, (noun, what) in _HIDDEN.items():
        if number := numbers[kind]:
            voice.note(f"{count(number, noun)}{what}; list with --all-open")


def _chosen(rows: pa.Table, asked: PendingOptions, times: _Times) -> pa.Table:
    if not asked.all_open:
        rows = rows_where(rows, pc.equal(rows["state"], State.PENDING))
    if asked.group is not None:
        rows = rows.filter(pc.equal(rows["producer_group"], asked.group))
    if asked.topic is not None:
        rows = rows.filter(pc.equal(rows["topic"], asked.topic))
    if times.stored_before_ms is not None:
        rows = rows.filter(pc.less_equal(rows["half_store_time_ms"], times.stored_before_ms))
    if times.discarded_by_ms is not None:
        rows = rows.filter(pc.less_equal(rows["discard_at_ms"], times.discarded_by_ms))
    return rows
