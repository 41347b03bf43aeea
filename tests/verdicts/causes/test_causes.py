"""Causes: found where the history of a store has them, and nowhere claimed beyond the evidence."""

from __future__ import annotations

import functools
import itertools
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.model.releases import OP_THREAD_SPINS, SLAVE_DELETES_TOPICS, SLAVE_REFUSES_TYPES, parse_version
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending, show
from rmqtx.verdicts.causes.diagnosing import DIAGNOSES, Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from rmqtx.verdicts.causes.judging import store_evidence
from rmqtx.verdicts.causes.strengths import CAUSES, cause_counts, cause_words, have_causes, with_causes
from rmqtx.verdicts.evidence.store_facts import known_until_ms, store_facts
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, TRACE, StoreEvidence
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened
from tests.representatives import few_quick
from tests.verdicts.causes.__main__ import filled
from tests.verdicts.causes.diagnosed import diagnosed, proven, strengths, version_of

#: Stores whose check began again at an older cursor: the cursor file was edited, a slave took over, or a kill lost it.
#: 4.9.3 forgets its cursors, so the check of lmq-4.9.3 goes back at its next start.
WENT_BACK = ("cursorback-", "cursoredited-", "failover-", "lmq-switched-", "lmq-4.9.3", "parallel-")
#: Plans of the designs before 4.3, and of the first releases with RocksDB, whose clients report no decisions.
DECIDED_TWICE = ("double_commit", "rollback_then_commit", "commit_then_rollback", "first_decided_late")


#: Causes that no broker can be made to have, shown by changed files: a power loss.
FORGED = ("cursors-unreadable",)
#: Causes that stores of public reports, or changed files, show: tests/field/test_field_causes.py.
IN_FIELD = (
    "slave-deletes-topics", "slave-deletes-groups", "slave-behind-master", "group-shared-by-applications",
    "decision-lost-on-the-way",
)
#: Causes that recorded histories show (tests/histories/found.py), and test_op_messages.py.
IN_HISTORIES = ("op-names-another-slot",)
#: Causes that stores of other brokers show, beside those of the corpus (test_roles.py).
BESIDE = ("rocksdb-slave-drops",)
#: Causes that no store of the corpus shows: tests/brokers/test_causes.py provokes them.
NO_STORE = (
    "producer-not-connected", "sent-to-half-topic", "op-queue-deleted", "proxy-loses-remoting-decision",
    "proxy-vouches-for-the-dead",
)
#: Causes that a broker's log shows, and some of them a trace; stores have none. See test_broker_logs.py.
FROM_LOGS = tuple(word for word, cause in CAUSES.items() if {BROKER_LOG} <= {*cause.shows_in} <= {BROKER_LOG, TRACE})
#: Causes whose stores are not made yet.
FROM_SOURCES = ("check-thread-ended", "proxy-forgot-producer")
#: Causes of stores that tests/brokers/test_traced_answers.py plays.
PLAYED = ("answered-late", "answered-otherwise")
#: Causes that leave the same records as their rivals.
SAME_RECORDS = (
    "rocksdb-asks-again", "decided-only-at-checks", "acting-slave-gave-up", "topic-refused-by-slave",
    "proxy-forgot-half",
    "op-cursor-jumped", "pool-hides-half", "discarded-before-op-read",
)
#: Causes that real brokers had when a disk was full or a log was damaged: no store of the corpus has that.
NOT_IN_CORPUS = ("op-write-failed", "op-unreadable-exception")
#: Causes that only one history has.
PLANS = {
    "ops-lost-at-stop": "ops_lost_at_stop", "op-waits-twice": "first_ops_after_start",
    "no-room-for-check": "no_room_for_properties", "light-queue-shows-half": "light_half",
    "resume-spoils-compressed": "resumed_compressed", "discarded-before-op-read": "discarded_before_ops_were_read",
    "op-write-failed": "", "op-unreadable-exception": "",
}


def decisions(name: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in corpus.truth(name):
        if event["event"] == "decision" and event["what"] in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE"):
            found[event["transaction_id"]].append(event)
    return found


@pytest.mark.parametrize("word", CAUSES)
def test_the_declaration_is_complete(word: str) -> None:
    cause = CAUSES[word]
    assert cause.word == word
    without = (
        *NO_STORE, *FORGED, *IN_FIELD, *BESIDE, *FROM_SOURCES, *PLAYED, *FROM_LOGS, *NOT_IN_CORPUS, *IN_HISTORIES,
    )
    assert cause.shown_by or word in without
    assert set(cause.shown_by) <= set(corpus.all_names())
    assert set(cause.rivals) <= set(CAUSES) - {word}
    assert all(change.what and change.source for change in cause.affected)
    for name in cause.shown_by:
        if (version := version_of(name)) is not None:
            assert cause.affects(parse_version(version), parse_version(version)), name


@functools.cache
def diagnosed_by_default(name: str) -> tuple[Diagnosis, list[dict[str, Any]]]:
    """What is found in a store of the corpus, once for all causes that it shows."""
    return diagnosed(name, version_of(name))


@pytest.mark.parametrize("word", CAUSES)
def test_stores_with_the_cause_show_it(word: str) -> None:
    found = [strengths(diagnosed_by_default(name)[1])[word] for name in CAUSES[word].shown_by]
    assert all(one.get("explains") or one.get("could_explain") for one in found), found
    open_ones = (
        *NO_STORE, *FORGED, *IN_FIELD, *BESIDE, *FROM_SOURCES, *PLAYED, *SAME_RECORDS, *FROM_LOGS, *NOT_IN_CORPUS,
        *IN_HISTORIES,
    )
    assert any("explains" in one for one in found) or word in open_ones


@pytest.mark.parametrize("name", few_quick(corpus.all_names()))
def test_no_cause_explains_what_did_not_happen(name: str) -> None:
    found, rows = diagnosed_by_default(name)
    explained = {row["cause"]: row["transactions_count"] for row in rows if row["strength"] == "explains"}
    assert ("cursor-went-back" in explained) <= name.startswith(WENT_BACK)
    assert ("ops-lost-in-memory" in explained) <= ("killed" in name or name.startswith(("opslost", "rollbackslost")))
    assert ("resumed-by-operator" in explained) <= any("resumed" in str(row["plan"]) for row in corpus.expected(name))
    assert ("half-unreadable-exception" in explained) <= name.startswith("poison-")
    assert any(row["cause"].startswith("proxy-") for row in rows) == name.startswith("proxy-")
    plans = {row["plan"] for row in corpus.expected(name)}
    for word, plan in PLANS.items():
        assert (word in explained) <= (plan in plans), word
    assert found.transactions_count == len(corpus.expected(name))
    assert found.unexplained_count == 0


@pytest.mark.slow
def test_the_page_of_seen_causes_is_current() -> None:
    text = Path("docs/causes_seen.md").read_text("utf-8")
    assert filled(text) == text, "make causes"


def test_decided_twice_by_the_history() -> None:
    for name in ("common-4.3.0", "common-5.3.3", "common-5.5.0", "masked-4.9.7", "killed-5.3.3", "prepared-3.2.6"):
        named = decisions(name)
        for row in proven("decided-twice", name):
            places = [one["commit_log_offset"] for one in named[row["transaction_id"]]]
            assert len(places) > len(set(places)) or row["plan"] in DECIDED_TWICE, row


def test_old_copies_by_the_history() -> None:
    """The client reports the moment of each decision: the next copy was in the log by then."""
    for name in ("common-4.3.0", "common-4.9.7", "common-5.1.4", "common-5.3.3", "killed-5.5.0", "cursoredited-4.9.7"):
        named = decisions(name)
        found = proven("decision-names-old-copy", name)
        assert found
        for row in found:
            copies = row["half_copies"]
            following = {
                copy["commit_log_offset"]: after for copy, after in itertools.pairwise(copies)
            }
            assert any(
                one["commit_log_offset"] in following
                and one["time_ms"] >= following[one["commit_log_offset"]]["store_time_ms"]
                for one in named[row["transaction_id"]]
            ), row


def test_the_release_decides_the_strength() -> None:
    word = "discarded-without-copy"
    for version, strength in (("4.4.0", "explains"), (None, "could_explain"), ("4.9.7", "ruled_out")):
        found, rows = diagnosed("common-4.4.0", version)
        if version == "4.9.7":  # its rule reads a reason that depends on the release too
            assert word not in strengths(rows)
            continue
        assert set(strengths(rows)[word]) == {strength}
        assert found.needs_release == (version is None)
    rows = [row for row in diagnosed("common-4.4.0")[1] if row["cause"] == word]
    assert rows[0]["would_decide"] == "the release of the broker: add --broker-version"


def test_a_rival_of_another_release_is_no_rival() -> None:
    stores = ("cursoredited-4.9.7", "cursoredited-4.4.0")
    new, old = (strengths(diagnosed(name, version_of(name))[1]) for name in stores)
    assert "explains" in new["cursor-went-back"]
    assert set(new["op-cursor-jumped"]) == {"ruled_out"}
    assert set(old["cursor-went-back"]) == {"could_explain"}


def test_batches_give_the_same_as_one_table() -> None:
    name = "common-5.3.3"
    store = opened(name)
    settings = broker_settings(store)
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    rows = reading.table()
    whole, parts = Diagnosis(reading.evidence), Diagnosis(reading.evidence)
    for batch in rows.combine_chunks().to_batches():
        whole.add(batch)
    for first in range(0, rows.num_rows, 7):
        for batch in rows.slice(first, 7).combine_chunks().to_batches():
            parts.add(batch)
    assert parts.table().equals(whole.table())
    assert whole.table().schema == DIAGNOSES


@pytest.mark.parametrize("name", ["common-5.3.3", "killed-5.3.3", "poison-4.5.0", "cursoredited-4.4.0"])
def test_the_column_and_the_table_of_causes_are_one_decision(name: str) -> None:
    reading = audit([opened(name)], broker_settings)
    rows = reading.table()
    found = Diagnosis(reading.evidence)
    for batch in rows.combine_chunks().to_batches():
        found.add(batch)
    listed = {
        (row["cause"], row["strength"]): row["transactions_count"]
        for row in found.table().to_pylist() if row["strength"] != "ruled_out"
    }
    assert listed == {(word, strength): count for (_, word, strength), count in cause_counts(rows).items()}
    assert {cause for causes in rows["causes"].to_pylist() for cause in causes} <= set(cause_words())
    assert rows["causes"].null_count == 0
    for row in rows.to_pylist():  # a batch of one transaction, as any other
        alone = pa.Table.from_pylist([row | {"causes": None}], rows.schema)
        assert with_causes(Evidence(alone, reading.evidence))["causes"].to_pylist() == [row["causes"]]
        assert have_causes(alone.drop_columns(["causes"]), reading.evidence) == bool(row["causes"])


def test_pending_and_show_have_the_causes_of_the_audit() -> None:
    store = opened("killed-5.3.3")
    whole = {row["transaction_id"]: row["causes"] for row in audit([store], broker_settings).table().to_pylist()}
    rows = pending([store], broker_settings).table().to_pylist()
    assert {row["transaction_id"]: row["causes"] for row in rows} == {
        row["transaction_id"]: whole[row["transaction_id"]] for row in rows
    }
    assert sum("ops-lost-in-memory" in row["causes"] for row in rows) == 4
    (row,) = show([store], broker_settings, rows[0]["transaction_id"]).table().to_pylist()
    assert row["causes"] == whole[row["transaction_id"]]


def test_no_causes_for_a_past_time() -> None:
    """The facts of the store are those of now."""
    store = opened("common-5.3.3")
    reading = audit([store], broker_settings, at_ms=known_until_ms(store))
    rows = reading.table()
    assert rows.num_rows
    assert rows["causes"].null_count == rows.num_rows
    assert not reading.evidence


def test_the_last_op_is_found_behind_the_end_of_its_queue(tmp_path: Path) -> None:
    """A killed broker may leave the queue of op messages shorter than its log."""
    root = copy_of("killed-5.3.3", tmp_path / "store")
    whole = audit([open_store(root)], broker_settings)
    rows = whole.table().to_pylist()
    (queue,) = (root / "consumequeue/RMQ_SYS_TRANS_OP_HALF_TOPIC/0").iterdir()
    data = bytearray(queue.read_bytes())
    end = len(data.rstrip(b"\0")) // 20 * 20
    data[end - 60 : end + 20] = bytes(80)
    queue.write_bytes(data)
    cut = audit([open_store(root)], broker_settings)
    assert {row["transaction_id"]: row["causes"] for row in cut.table().to_pylist()} == {
        row["transaction_id"]: row["causes"] for row in rows
    }
    assert cut.evidence[str(root)].last_op_offset == whole.evidence[str(root)].last_op_offset


def test_nothing_read_is_nothing_found() -> None:
    found = Diagnosis({"store": StoreEvidence()})
    assert found.table().num_rows == 0
    assert found.unusual_count == 0


@pytest.mark.parametrize("damage", ["deleted", "zeroed"])
def test_a_missing_op_queue_proves_no_lost_op(damage: str, tmp_path: Path) -> None:
    root = copy_of("killed-5.3.3", tmp_path / "store")
    queue = root / "consumequeue/RMQ_SYS_TRANS_OP_HALF_TOPIC"
    if damage == "deleted":
        shutil.rmtree(queue)
    else:
        for file in queue.rglob("*/*"):
            file.write_bytes(bytes(file.stat().st_size))
    assert store_evidence(store_facts(open_store(root), broker_settings)).last_op_offset is None
    assert store_evidence(store_facts(opened("killed-5.3.3"), broker_settings)).last_op_offset is not None


@pytest.mark.parametrize("word", CAUSES)
def test_an_advice_to_upgrade_names_the_defects_of_that_release(word: str) -> None:
    """Slaves of 5.3.2 to 5.4.0 lose topics, and from 5.5.0 on a thread uses a whole core."""
    change = CAUSES[word].change
    for text in re.findall(r"upgrade to (\d+\.\d+\.\d+)", change):
        release = parse_version(text)
        if SLAVE_REFUSES_TYPES.holds(release) or SLAVE_DELETES_TOPICS.holds(release):
            assert "for slaves 5.5.0 or later" in change
        assert ("a whole core" in change) == OP_THREAD_SPINS.holds(release) or "for slaves" in change


def test_late_op_messages_are_first_answered_by_a_setting() -> None:
    assert CAUSES["op-waits-twice"].change.startswith("set transactionOpBatchInterval to 1000")
    assert "5.3.4" not in CAUSES["topic-refused-by-slave"].change.partition(";")[0]
    assert "a whole core" in CAUSES["op-written-late"].change


def test_releases_as_text() -> None:
    assert CAUSES["discarded-without-copy"].releases == "4.3.0 to 4.5.1"
    assert CAUSES["op-written-late"].releases == "5.1.0 and later"
    assert CAUSES["decided-twice"].releases == "all releases"
