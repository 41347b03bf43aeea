"""Lookups at live brokers: pending transactions, single transactions, all transactions.

A live broker is a source of the same witnesses as files; `rmqtx.verdicts.causes.judging` judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.cursors import CheckCursors
from rmqtx.readers.model.errors import NoSuchTransaction
from rmqtx.readers.model.identities import (
    NAMES_ADVICE,
    SHORT_ID_LENGTH_MIN,
    NamedPlace,
    NameForms,
    are_short_for,
    keys_of_cell,
    named_place,
)
from rmqtx.readers.model.reading import Note, NoteKind
from rmqtx.readers.model.tables import LIVE_TRANSACTIONS
from rmqtx.remoting.connections.batched_reads import Pace, views
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.connection import Request
from rmqtx.remoting.live.deadlines import live_stops, predict_from_live
from rmqtx.remoting.live.producer_list import with_producers
from rmqtx.remoting.live.record_reads import range_words
from rmqtx.remoting.live.store_facts import LiveStore, live_store
from rmqtx.remoting.live.witnesses import LiveWitnesses, Named
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.errors import BadFrame, Refused
from rmqtx.remoting.protocol.frames import parsed_json
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.audit.lookups import short_note, undecidable_findings, undecidable_of
from rmqtx.verdicts.audit.place_search import PlaceWords
from rmqtx.verdicts.audit.timeline import GroupCursor, RecordName, record_names
from rmqtx.verdicts.causes.judging import Judging
from rmqtx.verdicts.model.marked_copies import MarkedCopies
from rmqtx.verdicts.model.predicted import open_rows
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.trace_evidence import Traces
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.model.witnesses import Witnesses
from rmqtx.verdicts.transactions.measures import MEASURES


def lookup(
    brokers: Sequence[Broker], transaction_ids: Sequence[str], *, members: Sequence[BrokerAddresses] = (),
    pace: Pace | None = None, facts: Sequence[LiveStore] | None = None, with_check: bool = False,
) -> VerdictReading:
    """Return exactly these transactions as they are on the brokers now; no row for an id that no broker has.

    `members`: all addresses of the brokers' sets, whose producers are listed. `facts`: facts of each broker, if known.
    `with_check`: and what the check does next; else rows lack `discard_at_ms` and `causes`.
    Shape:  rows of LIVE_TRANSACTIONS. Order: first half copy.
    Raises: Unreachable, NoAnswer, Refused.
    """

    def by_ids(sources: list[LiveWitnesses]) -> Named:
        return _named(sources, transaction_ids, only_ids=True)

    return _reading(_known(brokers, facts), members, pace, by_ids, with_check=with_check)


def pending(
    brokers: Sequence[Broker], *, members: Sequence[BrokerAddresses] = (), pace: Pace | None = None,
    facts: Sequence[LiveStore] | None = None, with_causes: bool = True,
) -> VerdictReading:
    """Return the transactions that the brokers' checks will still reach: PENDING, or decided and checked again.

    Shape:  rows of LIVE_TRANSACTIONS, as a reading of the brokers' files would give at this moment; without `causes` if
            these are not needed.
    Order:  first half copy.
    Raises: Unreachable, NoAnswer, Refused.
    """

    def by_window(sources: list[LiveWitnesses]) -> Named:
        return _union(source.window() for source in sources)

    return _reading(
        _known(brokers, facts), members, pace, by_window, choose=open_rows,
        columns=with_or_without_causes(with_causes=with_causes),
    )


def show(
    brokers: Sequence[Broker], identity: str, *, members: Sequence[BrokerAddresses] = (), pace: Pace | None = None,
    facts: Sequence[LiveStore] | None = None, forms: NameForms = NameForms.EXACT,
    columns: Collection[str] = LIVE_TRANSACTIONS.names,
) -> VerdictReading:
    """Return the transactions named by an id, the message id of any of their records, or a business key.

    `forms`: what may name them; short are ids in the half queues, and a note reports this.
    Shape:  rows of LIVE_TRANSACTIONS with some columns; without `state`, checks, producers and causes are not read.
    Order:  first half copy.
    Raises: NoSuchTransaction; Unreachable, NoAnswer, Refused.
    """

    def by_name(sources: list[LiveWitnesses]) -> Named:
        if place is not None and (at_place := _at_place(sources, place, starts)):
            for source in sources:
                source.ask_index([identity])  # a key may have the form of a place
            return _union([at_place, *(source.named_by([identity]) for source in sources)])
        if cell:
            each = [_named(sources, [word]) for word in cell]
            return {name: topic for name, topic in each[0].items() if all(name in one for one in each)}
        named = _named(sources, [identity])
        others.extend(source.other_id_words(identity) for source in sources)
        if not named and forms >= NameForms.SHORT and len(identity) >= SHORT_ID_LENGTH_MIN:
            every = _union(source.window(is_whole=True) for source in sources)
            are_short = are_short_for(identity, pa.array(every, pa.string())).to_pylist()
            named = {one: every[one] for one, is_short in zip(every, are_short, strict=True) if is_short}
            shortened.extend(named)
        return named

    shortened: list[str] = []
    others: list[str] = []
    starts: dict[str, int] = {}
    place = named_place(identity) if forms >= NameForms.PLACES else None
    cell = keys_of_cell(identity) if forms >= NameForms.PLACES else ()
    facts = _known(brokers, facts)
    reading = _reading(facts, members, pace, by_name, with_check="state" in columns, columns=columns)
    if place is not None:
        roots = {fact.root for fact in facts if place.is_in(fact.root, fact.broker.name)}
        reading.notes += PlaceWords(place, roots, starts).notes(reading.table(), identity)
        if not place.is_of_log:
            what = "the broker returns only the record to which its queue leads; its files show others of that number"
            reading.notes.append(Note(NoteKind.HOW, what))
        others.extend(range_words(fact, place) for fact in facts)
    if shortened:
        reading.notes.append(short_note(identity, shortened))
    if not reading.table().num_rows:
        raise NoSuchTransaction(
            f"no transaction {identity} on {', '.join(broker.root for broker in brokers)}{''.join(others)}",
            actual="".join(others) or None,
            advice=NAMES_ADVICE,
        )
    return reading


def audit(
    brokers: Sequence[Broker], *, members: Sequence[BrokerAddresses] = (), pace: Pace | None = None,
    facts: Sequence[LiveStore] | None = None, measures: Collection[str] = (),
) -> VerdictReading:
    """Return every transaction with a record in the brokers' half queues.

    Shape:  rows of LIVE_TRANSACTIONS, and the given columns of MEASURES. Order: first half copy.
    Raises: Unreachable, NoAnswer, Refused.
    """

    def by_queue(sources: list[LiveWitnesses]) -> Named:
        return _union(source.window(is_whole=True) for source in sources)

    columns = {*LIVE_TRANSACTIONS.names, *measures}
    return _reading(_known(brokers, facts), members, pace, by_queue, columns=columns)


def with_or_without_causes(*, with_causes: bool) -> set[str]:
    """Return the columns of LIVE_TRANSACTIONS; without `causes` if these are not needed."""
    return {*LIVE_TRANSACTIONS.names} - (set() if with_causes else {"causes"})


def _named(sources: list[LiveWitnesses], words: Sequence[str], *, only_ids: bool = False) -> Named:
    """The transactions that some words name: from the indexes, else from the queues of all brokers."""
    words = list(dict.fromkeys(words))
    unknown = [set(source.ask_index(words)) for source in sources]
    left = [word for word in words if all(word in missing for missing in unknown)]
    for source in sources if left else ():
        source.search_without_index(left)
    return _union(source.named_by(words, only_ids=only_ids) for source in sources)


def _at_place(sources: list[LiveWitnesses], place: NamedPlace, starts: dict[str, int]) -> Named:
    """Return the transactions at a place; `starts` gets where the record is that begins there, by broker."""
    named: Named = {}
    for source in sources:
        found, offsets = source.at_place(place)
        named.update(found)
        if offsets and place.is_of_log:
            starts[source.root] = place.number
    return named


def _union(parts: Iterable[Named]) -> Named:
    named: Named = {}
    for part in parts:
        named.update(part)
    return named


def _known(brokers: Sequence[Broker], facts: Sequence[LiveStore] | None) -> Sequence[LiveStore]:
    return [live_store(broker) for broker in brokers] if facts is None else facts


def _reading(
    known: Sequence[LiveStore], members: Sequence[BrokerAddresses], pace: Pace | None,
    name: Callable[[list[LiveWitnesses]], Named], *, choose: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    with_check: bool = True, columns: Collection[str] = LIVE_TRANSACTIONS.names,
) -> VerdictReading:
    sources = [LiveWitnesses(fact, pace) for fact in known]
    named = name(sources)
    witnesses = Witnesses.joined([source.witnesses(named) for source in sources])
    for fact, source in zip(known, sources, strict=True) if with_check else ():
        fact.check_stops[:] = live_stops(fact, source)
        fact.future = predict_from_live(fact, source)
    for source in sources:
        source.note_unread()
    del named  # so that many transactions take the memory of their rows only once
    schema = pa.schema([one for one in (*LIVE_TRANSACTIONS, *MEASURES) if one.name in columns])
    judging = Judging(
        {fact.root: fact.view() for fact in known}, tuple(schema.names),
        {fact.root: fact.evidence() for fact in known} if with_check else {},
        {fact.root: fact.future for fact in known if fact.future is not None},
        tuple(fact.copies for fact in known),
    )
    judged = judging.judged(witnesses)
    del witnesses
    rows = choose(judged)
    del sources
    reading = VerdictReading(schema, [], findings=[finding for fact in known for finding in fact.findings])
    if "state" in columns:
        reading.undecidable = undecidable_of(judged)
    reading.findings.extend(undecidable_findings(reading.undecidable) if rows.num_rows < judged.num_rows else [])
    reading.check_stops.extend(stop for fact in known for stop in fact.check_stops)
    judging.report(reading)
    if "reason" in columns:
        brokers = [fact.broker for fact in known]
        rows = with_producers(_with_what_cannot_be_known(rows, known), brokers, members)
    reading.habits = judging.habits(judged)
    reading.batches = judging.with_causes(rows).to_batches()
    return reading


def _with_what_cannot_be_known(rows: pa.Table, known: Sequence[LiveStore]) -> pa.Table:
    """Add to reasons that a recent rollback may not be visible: a broker from 5.1.0 keeps its op in memory a while."""
    for fact in known:
        if fact.settings.batches_ops is False:
            continue
        held_ms = fact.settings.transaction_op_batch_interval_ms
        here = pc.and_(pc.equal(rows["store"], fact.root), pc.equal(rows["state"], State.PENDING))
        longer = pc.binary_join_element_wise(
            rows["reason"], f"; a rollback of the last {held_ms} ms may still be in the broker's memory", ""
        )
        place = rows.schema.get_field_index("reason")
        rows = rows.set_column(place, rows.schema.field(place), pc.if_else(here, longer, rows["reason"]))
    return rows


@dataclass(frozen=True, slots=True)
class LiveSurroundings:
    """A live broker as a `rmqtx.verdicts.audit.timeline.TimelineSource`."""

    facts: LiveStore

    @property
    def root(self) -> str:
        """The broker's name and address."""
        return self.facts.root

    def records(self, offsets: Iterable[int]) -> dict[int, RecordName]:
        """From the records themselves, which contain the broker's address at that time."""
        bodies = (body for _, body in views(self.facts.broker, dict.fromkeys(offsets), Pace()) if body is not None)
        return {
            offset: name
            for block in blocks_of(bodies, self.root, [])
            for offset, name in record_names(block, self.facts.settings).items()
        }

    def cursors(self) -> list[GroupCursor]:
        """The cursors of all groups; empty if the broker refuses the request."""
        broker = self.facts.broker
        try:
            frame = broker.client.call(broker.address, Request(RequestCode.GET_ALL_CONSUMER_OFFSET))
        except Refused:  # access control: this requires an administrator's account
            return []
        table = parsed_json(frame.body).get("offsetTable") or {}
        try:
            return [
                GroupCursor(topic, group, int(queue_id), int(offset))
                for name, queues in table.items()
                for topic, _, group in [str(name).partition("@")]
                for queue_id, offset in queues.items()
            ]
        except (AttributeError, TypeError, ValueError) as error:
            raise BadFrame(f"cannot parse the cursors from {broker.address}: {error}") from error

    def check_cursors(self) -> CheckCursors:
        """The cursors at the start of the reading."""
        return CheckCursors({0: self.facts.half_cursor}, {0: self.facts.op_cursor})

    @property
    def traces(self) -> Traces:
        """By one query of the broker's index for each transaction."""
        return self.facts.traces

    @property
    def copies(self) -> MarkedCopies:
        """Among the records that were read."""
        return self.facts.copies

    def stopped_time_ms(self) -> int | None:
        """None: the broker runs."""
        return None
