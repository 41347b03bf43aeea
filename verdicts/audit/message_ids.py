"""Whether a record has an offset message id: its store host and its offset, not its offset alone.

An offset message id has the address of the broker that stored the record. Each young broker has a record at the first
offsets, so an id of another broker leads to a record here too. A moved store keeps the old address in its records, so
the id is compared with the record, and not with any configuration.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_layout import HEADER_BYTES_MAX, number_at, place_of
from rmqtx.readers.model.errors import EvidenceMissing, EvidenceUnreadable, NoSuchTransaction, RmqtxError, SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import NAMES_ADVICE, OFFSET_DIGITS, offset_of
from rmqtx.readers.model.units import time_text
from rmqtx.readers.storage.places import READ_ADVICE
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.audit.place_search import PLACES_ADVICE, PlaceSearch
from rmqtx.verdicts.model.reading import VerdictReading

_SHOWN_MAX = 3


def stores_of_message_id(stores: Sequence[Store], identity: str) -> frozenset[str]:
    """Return the roots of the stores with a record, sound or damaged, that has this offset message id."""
    offset = offset_of(identity)
    if offset is None:
        return frozenset()
    found: set[str] = set()
    for store in stores:
        with store.log() as log:
            if _has_id(log, offset, identity.upper()):
                found.add(store.root)
    return frozenset(found)


def other_id_words(stores: Sequence[Store], identity: str) -> str:
    """Return a clause about the records at the offset of a message id that have another id; empty without any."""
    offset, found = offset_of(identity), ""
    for store in stores if offset is not None else ():
        assert offset is not None
        with store.log() as log:
            own = _own_id(log, offset)
        if own is not None and own != identity.upper():
            found += other_id_clause(offset, own, store.root)
    return found


def other_id_clause(offset: int, own: str, where: str) -> str:
    """Return a clause about a record with another message id than the given one, which has the same offset."""
    return f"; the record at commit-log offset {offset} in {where} has the id {own}: this id names another broker"


def _own_id(log: SegmentedLog, offset: int) -> str | None:
    try:
        block = block_at(log, offset)
    except SourceError:
        return None
    return None if block is None else str(block.message_ids()[0])


def _has_id(log: SegmentedLog, offset: int, identity: str) -> bool:
    own = _own_id(log, offset)
    if own is not None:
        return own == identity
    # A damaged record still has its host.
    try:
        head = log.read(offset, HEADER_BYTES_MAX) if log.segment_at(offset) is not None else b""
    except SourceError:
        return False
    begin = place_of("store_address", number_at(head, "sys_flag"))
    host = bytes.fromhex(identity[:-OFFSET_DIGITS])
    return len(head) >= begin + len(host) and head[begin : begin + len(host)] == host


def not_found(
    stores: Sequence[Store], identity: str, reading: VerdictReading, similar: Sequence[str] = (),
    at_ms: int | None = None, search: PlaceSearch | None = None,
) -> RmqtxError:
    """Return the error if nothing in the stores has a name; `reading`: the completed audit that searched for it.

    `similar`: names that begin like it. `at_ms`: the past time as of which it was searched. `search`: the
    place that the name is, if it is one.

    Shape:  NoSuchTransaction only if the whole log was read and is sound (`actual`: a clause about records that have
            only the offset of a message id); EvidenceUnreadable if a file cannot be read; else EvidenceMissing, if
            records are damaged or missing.
    """
    roots = ", ".join(store.root for store in stores)
    if at_ms is not None:
        roots += f" at {time_text(at_ms)}"
    hiding = [finding for finding in reading.findings if finding.kind.hides_records]
    unreadable = [finding for finding in hiding if finding.code == "unreadable-file"]
    if not hiding and not reading.missing:
        other = other_id_words(stores, identity) if search is None else search.why_nothing()
        return NoSuchTransaction(
            f"no transaction {_quoted(identity)} in {roots}{other}", actual=other or None,
            advice=_advice(identity, similar) if search is None else PLACES_ADVICE,
        )
    unread = f"no transaction {_quoted(identity)} in the readable part of {roots}; some parts cannot be read"
    if unreadable:
        places = [f"{finding.file}: {finding.actual}".removesuffix(f" - {READ_ADVICE}") for finding in unreadable]
        return EvidenceUnreadable(f"{unread}: {_few(places)}", advice=READ_ADVICE)
    places = [f"{missing.what} ({missing.store})" for missing in reading.missing] or list(map(_place, hiding))
    return EvidenceMissing(
        f"{unread}: {_few(places)}", advice="search a backup or a slave; rmqtx verify lists the missing parts"
    )


def _advice(identity: str, similar: Sequence[str]) -> str:
    """Return what to type: a cell of a table may have several keys, and a name may be a part of another."""
    keys = identity.split()
    if len(keys) > 1:
        return f"keys are separated by spaces: give one of them, for example {keys[0]}"
    if similar:
        more = ", …" if len(similar) > _SHOWN_MAX else ""
        return f"did you mean {' or '.join(similar[:_SHOWN_MAX])}{more}? (rmqtx search finds parts)"
    return NAMES_ADVICE


def _quoted(identity: str) -> str:
    return repr(identity) if " " in identity else identity


def _few(places: Sequence[str]) -> str:
    more = len(places) - 1
    return places[0] + (f", and {more} more {'place' if more == 1 else 'places'}" if more else "")


def _place(finding: Finding) -> str:
    return f"{finding.code} ({finding.file or finding.store})"
