"""Salvaged and rebuilt stores in real brokers: they open them, cut nothing, and serve every record by its number.

`RMQTX_BROKER_VERSIONS` names the versions (default: one; `make test-brokers` runs all).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from readers.commit_log import scan_segments
from readers.store import open_store
from repairs.rebuild import PARTS, rebuild
from repairs.salvage import salvage
from repairs.store_sizes import store_sizes
from tests.brokers import corpus, maven
from tests.brokers.rig import Rig
from tests.brokers.stage import allow_reading_ops
from tests.forge import damage

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split()
WHY_NOT = maven.why_not()

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

Place = tuple[str, int, int, int]


def records_of(root: Path) -> list[Place]:
    """Topic, queue, number and place of every record, as a broker sees the log: fillers too."""
    found: list[Place] = []
    for block in scan_segments(open_store(root), [], [], with_fillers=True):
        columns = (block.header("queue_id"), block.header("queue_offset"), block.commit_log_offsets)
        numbers = zip(*(column.tolist() for column in columns), strict=True)
        found += [(topic, *rest) for topic, rest in zip(block.topic_texts().to_pylist(), numbers, strict=True)]
    return found


def served(version: str, out: Path, name: str) -> None:
    """Start the version on out/store, pull every queue, stop it, and compare."""
    before = records_of(out / "store")
    allow_reading_ops(out / "store" / "config" / "topics.json")
    conf = {key: value for key, value in corpus.recipe(name)["broker_conf"].items() if not key.startswith("storePath")}
    calm = {"transactionTimeOut": "600000", "transactionCheckInterval": "600000"}
    with Rig(version, out, conf | calm) as rig:
        rig.start_names()
        rig.start_broker()
        agent = rig.agent()
        rig.wait_broker(agent)
        for topic, queue in sorted({place[:2] for place in before if place[0] != "RMQTX_FILLER"}):
            wanted = [place[2:] for place in before if place[:2] == (topic, queue)]
            got = rig.pull(agent, topic, queue)
            assert [(one["queue_offset"], one["commit_log_offset"]) for one in got] == wanted, (topic, queue)
        agent.kill()
        rig.stop("broker")
    assert records_of(out / "store")[: len(before)] == before  # 5.5.0 checks once more when it stops


def available(version: str, kind: str) -> str:
    name = f"{kind}-{version}"
    if name not in corpus.corpus_names():
        pytest.skip(f"the corpus has no {name}")
    return name


@pytest.mark.parametrize("version", VERSIONS)
def test_a_salvaged_store_is_served_over_its_holes(version: str, tmp_path: Path) -> None:
    name = available(version, "killed")
    root = corpus.unpack(name, tmp_path)
    logs = damage.log_files(root)
    sizes = store_sizes(open_store(root))
    damage.drop(logs[len(logs) // 2])
    for log in (logs[0], logs[1]):
        records = damage.records_in(log)
        damage.zero_bytes(log, records[2][0], records[7][0] - records[2][0])
    result = salvage([root], tmp_path / "rig" / "store", sizes, config=root / "config")
    assert result.stand_ins_count
    served(version, tmp_path / "rig", name)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rebuilt_store_is_served(version: str, tmp_path: Path) -> None:
    name = available(version, "common")
    root = corpus.unpack(name, tmp_path)
    sizes = store_sizes(open_store(root))
    for part in ("consumequeue", "index", "checkpoint"):
        damage.drop(root / part)
    rebuild(PARTS, open_store(root), tmp_path / "rig" / "store", sizes)
    served(version, tmp_path / "rig", name)
