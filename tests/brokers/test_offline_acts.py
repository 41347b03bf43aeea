"""Stores that were acted on without a broker, opened by a real one of their version: what it delivers, what it asks.

`RMQTX_BROKER_VERSIONS` names the versions (default: one; `make test-brokers` runs all), `RMQTX_OFFLINE_MANNERS` how the
stores are changed: `copy`, `in-place`. `RMQTX_OFFLINE_STORES` names the kinds of stores:

- `common`: one file with room, a clean stop;
- `killed`: many small files, and a broker that was killed; some have no room left for what is appended;
- `multipath`: many small files in two directories;
- `full`: `common`, and an ordinary message so long that its broker left room for nothing but a blank record;
- `closed`: `full`, killed when the blank record was written and the next file was not.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import BLANK
from rmqtx.readers.model import clock
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.log_tail import log_end
from rmqtx.repairs.acts.orders import Conduct
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.records.record_writer import blank_head
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import corpus, maven
from tests.brokers.rig import HALF_TOPIC, Agent, Rig
from tests.brokers.watching import CALM, Seen, booted, finding_codes
from tests.repairs.acting import act, medium_of

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split()
IS_SHORT = len(VERSIONS) == 1
KINDS = os.environ.get("RMQTX_OFFLINE_STORES", "killed" if IS_SHORT else "common killed multipath full closed").split()
MANNERS = os.environ.get("RMQTX_OFFLINE_MANNERS", "in-place" if IS_SHORT else "copy in-place").split()
WHY_NOT = maven.why_not()
#: Kinds that are made of a store of the corpus, by its name there.
MADE_OF = {"full": "common", "closed": "common"}
NAMES = [
    (kind, version) for version in VERSIONS for kind in KINDS
    if f"{MADE_OF.get(kind, kind)}-{version}" in corpus.corpus_names()
]

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

#: No half is old enough for the check while the broker only writes: 5.5.0 makes a round of it as it stops.
SILENT = {**CALM, "transactionCheckInterval": "3600000", "transactionTimeOut": "900000000000000"}
SEND_MESSAGE = 10
FILLER_TOPIC = "filler"


def orders_for(rows: list[corpus.Row]) -> dict[str, ActKind]:
    """What is done to which transaction: each action at least once where the store has one that it fits."""
    known = [row for row in rows if row["plan"] != "without_id"]
    plain = [row for row in known if row["state"] == "PENDING" and not set(row["flags_at_least"])]
    given_up = [row for row in known if row["state"] == "DISCARDED"]
    names = [row["transaction_id"] for row in plain]
    half = len(names) // 2
    orders = dict.fromkeys(names[:half], ActKind.COMMIT)
    orders |= dict(zip(names[half:], (ActKind.ROLLBACK, ActKind.DISCARD), strict=False))
    orders |= dict(zip((row["transaction_id"] for row in given_up), (ActKind.COMMIT, ActKind.RESUME), strict=False))
    decided = [row["transaction_id"] for row in known if row["state"] == "COMMITTED" and row["open"]]
    return orders | dict.fromkeys(decided[:1], ActKind.CLOSE)


@pytest.fixture(scope="module")
def full_stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Stores of kind `full`, each made once."""
    made: dict[str, Path] = {}

    def store_of(version: str) -> Path:
        if version not in made:
            made[version] = full_store(version, tmp_path_factory.mktemp(f"full-{version}"))
        return made[version]

    return store_of


def full_store(version: str, directory: Path) -> Path:
    """Have a broker write a message that leaves just as much room as a blank record takes, and stop it cleanly."""
    name = f"common-{version}"
    store = corpus.unpack(name, directory)
    with Rig(version, directory, {**corpus.recipe(name)["broker_conf"], **SILENT}) as rig:
        rig.start_names()
        with booted(rig) as agent:
            rig.create_topic(agent, FILLER_TOPIC, queues=1)
            for _ in range(2):
                send(rig, agent, 100)
            places = [one["commit_log_offset"] for one in rig.pull(agent, FILLER_TOPIC)]
            length = places[1] - places[0]
            segment_bytes = int(rig.conf["mappedFileSizeCommitLog"])
            left = segment_bytes - (places[1] + length) % segment_bytes
            send(rig, agent, left - BLANK.size_bytes - (length - 100))
            places = [one["commit_log_offset"] for one in rig.pull(agent, FILLER_TOPIC)]
    end = log_end(open_store(store))
    assert (end.segment.base_offset, end.position_bytes) == (0, segment_bytes - BLANK.size_bytes), (places, length)
    return store


def send(rig: Rig, agent: Agent, body_bytes: int) -> None:
    """An ordinary message as long as wanted: clients would compress its body."""
    answer = rig.request(
        agent, SEND_MESSAGE, b"f" * body_bytes, producerGroup="fillers", topic=FILLER_TOPIC, defaultTopic="TBW102",
        defaultTopicQueueNums=1, queueId=0, sysFlag=0, bornTimestamp=clock.now_ms(), flag=0,
        properties="WAIT\x01true\x02", reconsumeTimes=0, unitMode="false",
    )
    assert answer["code"] == 0, answer


def close_log(store: Path) -> None:
    """What a broker leaves that is killed between a blank record and the file behind it."""
    segment = open_store(store).commit_log[0]
    with Path(segment.file).open("r+b") as file:
        file.seek(segment.size_bytes - BLANK.size_bytes)
        file.write(blank_head(BLANK.size_bytes))
    (store / "abort").touch()
    for behind in list((store / "commitlog").iterdir())[1:]:
        behind.unlink()
    assert log_end(open_store(store)).offset == segment.size_bytes


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize(("kind", "version"), NAMES)
def test_a_broker_delivers_what_was_committed_while_it_was_down(
    kind: str, version: str, manner: str, tmp_path: Path, full_stores: Callable[[str], Path]
) -> None:
    name = f"{MADE_OF.get(kind, kind)}-{version}"
    made = corpus.recipe(name)
    rows = corpus.expected(name)
    store = tmp_path / "rig" / "store"
    store.parent.mkdir()
    source = store if manner == "in-place" else tmp_path / "source" / "store"
    if kind in MADE_OF:
        shutil.copytree(full_stores(version), source)
    else:
        corpus.unpack(name, source.parent)
    if kind == "closed":
        close_log(source)
    destination = Destination(undo_file=tmp_path / "undo") if source == store else Destination(copy=store)
    orders = orders_for(rows)
    conf = {**made["broker_conf"], **CALM}  # of the broker that opens it: however old the store is, nothing is too old
    begin = log_end(open_store(source)).segment.base_offset
    receipts = act(
        medium_of(source, version, destination, conf), Journal(tmp_path / "receipts.jsonl"), orders,
        Conduct(overrides=("immunity", "op-in-memory")),
    )
    assert {receipt.outcome for receipt in receipts} <= {"proved", "accepted"}, [one.notes for one in receipts]
    new_end = log_end(open_store(store))
    end, files_count = new_end.offset, (new_end.segment.base_offset - begin) // new_end.segment.size_bytes
    if kind in MADE_OF:
        assert files_count == 1
    cases = {row["transaction_id"]: row["case"] for row in rows}

    def done(*actions: str) -> set[str]:
        return {cases[one] for one, action in orders.items() if action in actions}

    seen = Seen(cases)
    with Rig(version, tmp_path / "rig", conf) as rig:
        rig.start_names()
        with booted(rig, seen.take) as agent:
            seen.meet_clients(agent, made)
            put_back = {seen.case(one) for one in rig.pull(agent, HALF_TOPIC) if one["commit_log_offset"] >= end}
            for one in done(ActKind.RESUME):
                commit(rig, agent, seen, one)
            seen.until_quiet()
    wanted = Counter({row["case"]: len(row["final_records"]) for row in rows if row["final_records"]})
    wanted.update(done(ActKind.COMMIT, ActKind.RESUME))
    known = {row["case"] for row in rows}
    assert {one: seen.delivered[one] for one in known if seen.delivered[one]} == dict(wanted)
    ended, resumed = done(ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD, ActKind.CLOSE), done(ActKind.RESUME)
    open_before = {row["case"] for row in rows if row["open"]}
    # A copy is put back for each check, also where a 5.x producer that has sent nothing yet is not asked.
    assert (put_back | seen.checks) & ended == set()
    assert resumed <= put_back
    assert put_back & known == (open_before | resumed) - ended
    counts = ", ".join(f"{count} {action}" for action, count in sorted(Counter(orders.values()).items()))
    print(
        f"BOOTED | {version} | {kind} | {manner} | {counts} | {sum(wanted.values())} | {len(put_back)} |"
        f" {files_count} |"
    )
    require_states(store, version, made["broker_conf"], rows, orders)
    assert finding_codes(store, tmp_path) == []


#: What a transaction is when its action was carried out, and a resumed one committed.
STATES = {"commit": "COMMITTED", "resume": "COMMITTED", "rollback": "ROLLED_BACK", "discard": "ROLLED_BACK"}


def require_states(
    store: Path, version: str, conf: dict[str, str], rows: list[corpus.Row], orders: dict[str, ActKind]
) -> None:
    """Each transaction is what was asked for, all others what they were; of what the broker left."""
    reading = audit([open_store(store)], lambda one: broker_settings(one, conf=conf, version=version))
    states = {row["transaction_id"]: row["state"] for row in reading.table().to_pylist()}
    wanted = {
        row["transaction_id"]: STATES.get(orders.get(row["transaction_id"], ""), row["state"]) for row in rows
    }
    assert {one: state for one, state in states.items() if state != wanted.get(one)} == {}
    assert states.keys() == wanted.keys()


def commit(rig: Rig, agent: Agent, seen: Seen, case: str) -> None:
    """What the producer of a resumed transaction says, naming its newest half copy."""
    copies = [one for one in rig.pull(agent, HALF_TOPIC) if seen.case(one) == case]
    rig.request(
        agent, 37, producerGroup="shop", tranStateTableOffset=copies[-1]["queue_offset"],
        commitLogOffset=copies[-1]["commit_log_offset"], commitOrRollback=8, fromTransactionCheck="true",
        msgId=copies[-1]["transaction_id"], transactionId=copies[-1]["transaction_id"],
    )
