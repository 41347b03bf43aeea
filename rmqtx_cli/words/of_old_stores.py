"""Texts that fit a store from before 4.3: nothing in it is a half message, an op message or a cursor of the check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqtx.readers.log.designs import are_before_half_topics, designs_of
from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.findings import KINDS, Finding
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN
from rmqtx.readers.storage.places import is_uri
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx_cli.words.text import count

_REBUILD = "rmqtx rebuild queues writes the queues again, in a copy of the store"


@dataclass(frozen=True, slots=True)
class OldTexts:
    """Texts that replace those of a kind. None: the text of the kind is right for these stores too."""

    title: str | None = None
    meaning: str | None = None
    advice: str | None = None


#: Texts of findings for stores whose transactions are all prepared records.
OF_PREPARED: dict[str, OldTexts] = {
    "config-missing": OldTexts(
        meaning="the cursors of the consumer groups are unknown; no state of a transaction depends on them",
        advice="add the store's config/consumerOffset.json",
    ),
    "config-backup": OldTexts(
        meaning="what was changed in the last persist interval (5 s) is missing; no state of a transaction depends on "
        "it",
    ),
    "copy-lacks-pending": OldTexts(
        meaning="a failover to this copy loses them: their prepared records were not copied, or the log of the copy "
        "begins later",
    ),
    "end-names-nothing": OldTexts(
        title="a COMMIT or ROLLBACK record whose reference leads to no prepared record of its transaction"
    ),
    "half-unreadable": OldTexts(
        title="a prepared record whose properties cannot be read", meaning="its group, topic and keys may be unknown"
    ),
    "slot-missing": OldTexts(meaning="no consumer receives it"),
    "start-empties-queues": OldTexts(meaning="consumers receive none of the messages"),
    "start-shifts": OldTexts(meaning="the cursors of consumer groups lead to other messages than before"),
    "start-skips": OldTexts(meaning="no consumer receives them", advice=_REBUILD),
}
#: Replacements of texts of flags, for transactions whose records are those of the designs before 4.3.
_FLAGS = {
    "commit_after_rollback": "a COMMIT record was written after a ROLLBACK record had ended it",
    "conflict": "both a COMMIT and a ROLLBACK record name it; consumers received the message",
    "open_after_decision": "decided, but its slot of the state table is still open: the broker checks it again",
    "never_asked": "open, and the broker never checks it: the state table has no slot for it, or will have none after "
    "a start that follows a crash and rebuilds the table",
    "orphan_op": "a ROLLBACK record names it, but its prepared record cannot be read",
}


def has_only_prepared(place: Store | str | None) -> bool:
    """Whether the transactions of a local store are prepared records; also without any, if its release has no others.

    `place`: the store, or its root. False where nothing is known.
    """
    try:
        store = _local(place)
        words = [] if store is None else [seen.word for seen in designs_of(store)]
        if words and not are_before_half_topics(words):
            return False  # its release, which takes longer to find, makes no difference
        return store is not None and (_is_before(store) or bool(words))
    except RmqtxError:
        return False


def have_only_prepared(places: Sequence[Store | str]) -> bool:
    """Whether there are stores, and the transactions of all of them are prepared records."""
    return bool(places) and all(map(has_only_prepared, places))


def copies_text(number: int, *, is_prepared: bool) -> str:
    """A number of half copies, or of prepared records."""
    return count(number, "prepared record") if is_prepared else count(number, "half copy", "half copies")


def is_before_half_topics(root: str | None) -> bool:
    """Whether the files of a local store show a broker before 4.3."""
    try:
        store = _local(root)
        return store is not None and _is_before(store)
    except RmqtxError:
        return False


def flag_text(flag: str, text: str, *, is_prepared: bool) -> str:
    """The text of a flag, for transactions of one or the other design."""
    return _FLAGS.get(flag, text) if is_prepared else text


def fitted(finding: Finding) -> Finding:
    """Return a finding with the texts for its store; texts of its own stay."""
    texts = _texts_of(finding.code, finding.store)
    if texts is None:
        return finding
    return replace(
        finding, title=finding.title or texts.title, meaning=finding.meaning or texts.meaning,
        advice=finding.advice or texts.advice,
    )


def fitted_rows(findings: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of FINDINGS with the texts for their stores; texts of their own stay."""
    rows = findings.select(["code", "store", "meaning", "advice"]).to_pylist()
    known = {pair: _texts_of(*pair) for pair in {(row["code"], row["store"]) for row in rows}}
    if not any(known.values()):
        return findings
    for name in ("meaning", "advice"):
        texts = [_text(row, name, known[row["code"], row["store"]]) for row in rows]
        number = findings.schema.get_field_index(name)
        field = findings.schema.field(number)
        findings = findings.set_column(number, field, pa.array(texts, field.type))
    return findings


def _text(row: dict[str, str], name: str, texts: OldTexts | None) -> str:
    usual, other = getattr(KINDS[row["code"]], name), None if texts is None else getattr(texts, name)
    if other is None or not (row[name] or "").startswith(usual):
        return row[name]
    return f"{other}{row[name][len(usual):]}"


def _texts_of(code: str, root: str) -> OldTexts | None:
    if code in OF_PREPARED and has_only_prepared(root):
        return OF_PREPARED[code]
    meaning = KINDS[code].old_meaning
    return OldTexts(meaning=meaning) if meaning is not None and is_before_half_topics(root) else None


def _local(place: Store | str | None) -> Store | None:
    if place is None or is_uri(place.root if isinstance(place, Store) else place):
        return None
    return place if isinstance(place, Store) else open_store(place)


def _is_before(store: Store) -> bool:
    settings = broker_settings(store)
    return settings.version_high is not None and not HALF_TOPIC_DESIGN.holds(settings.version_high)
