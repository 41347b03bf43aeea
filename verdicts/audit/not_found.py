"""What to answer where nothing in some stores bears a name: that there is none, or that it cannot be known."""

from __future__ import annotations

from collections.abc import Sequence

from readers.model.errors import EvidenceMissing, EvidenceUnreadable, NoSuchTransaction, RmqtxError
from readers.model.findings import Finding
from readers.store.store import Store
from verdicts.model.reading import VerdictReading

_NAMES = "give a UNIQ_KEY, the message id of any of its records, or a business key"


def not_found(stores: Sequence[Store], identity: str, reading: VerdictReading) -> RmqtxError:
    """What to raise if nothing in the stores bears a name; `reading`: the audit that looked for it, read to its end.

    Shape:  NoSuchTransaction only where the whole log was read and is sound; EvidenceUnreadable where a file cannot be
            read, else EvidenceMissing where records are damaged or missing.
    """
    roots = ", ".join(store.root for store in stores)
    hiding = [finding for finding in reading.findings if finding.kind.hides_records]
    unreadable = [finding for finding in hiding if finding.code == "unreadable-file"]
    if not hiding and not reading.missing:
        return NoSuchTransaction(f"no transaction {identity} in {roots}", advice=_NAMES)
    unread = f"no transaction {identity} in what could be read of {roots}, but not all could be read"
    if unreadable:
        places = [f"{finding.file}: {finding.actual}" for finding in unreadable]
        return EvidenceUnreadable(f"{unread}: {_few(places)}", advice="ask as a user who may read it")
    places = [f"{missing.what} ({missing.store})" for missing in reading.missing] or list(map(_place, hiding))
    return EvidenceMissing(
        f"{unread}: {_few(places)}", advice="look for it in a backup or on a slave; rmqtx verify lists what is missing"
    )


def _few(places: Sequence[str]) -> str:
    more = len(places) - 1
    return places[0] + (f", and {more} more {'place' if more == 1 else 'places'}" if more else "")


def _place(finding: Finding) -> str:
    return f"{finding.code} ({finding.file or finding.store})"
