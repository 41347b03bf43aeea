"""Two applications in one producer group, on real brokers: the cause is found, and clean groups have none."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.groups import group_causes
from tests.brokers.forcing.conftest import VERSIONS, quick
from tests.brokers.forcing.stage import FILLER, TOPIC, Stage

WORD = "group-shared-by-applications"
GROUPS = int(os.environ.get("RMQTX_SHARED_GROUPS", "3"))
"""How many groups of each kind; the run of docs/causes_seen.md has 20."""
ROUNDS_SECONDS = 6


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_of_two_applications(version: str, tmp_path: Path) -> None:
    """Each application sends to a topic of its own, and rolls back what it does not know, as a shop does that finds no
    order. In a clean group two processes of one application send to both topics.
    """
    with Stage(version, tmp_path, quick(version) | {"transactionCheckMax": "100"}) as stage:
        first, second = stage.shop("g-first", strangers="ROLLBACK"), stage.shop("g-second", strangers="ROLLBACK")
        for number in range(GROUPS):
            for kind in ("shared", "clean"):
                for shop in (first, second):
                    shop.join(f"g-{kind}-{number}", strangers="ROLLBACK" if kind == "shared" else "UNKNOW")
        for turn, (number, kind, (shop, topic)) in itertools.product(
            range(2),  # both applications run at the same time
            itertools.product(range(GROUPS), ("shared", "clean"), ((first, TOPIC), (second, FILLER))),
        ):
            shop.group = f"g-{kind}-{number}"
            for one in (topic,) if kind == "shared" else (TOPIC, FILLER):
                plan = f"{kind}.{number}.{one}.{'a' if shop is first else 'b'}.{turn}"
                shop.begin_all(plan, 2, topic=one, first="COMMIT")
                shop.begin_all(f"{plan}.open", 2, topic=one, first="UNKNOWN", checks="UNKNOW")
        ledger = tmp_path / "ledger.csv"
        ledger.write_text("order_id,status\n1,PAID\n")
        words = ("--ledger", str(ledger), "--match", "keys = order_id", "--done", "status = PAID", "--not-done",
                 "status = VOID", "--dry-run")
        of_group = {name: stage.tool().run("answer", "--group", name, *words) for name in ("g-shared-0", "g-clean-0")}
        assert (of_group["g-shared-0"].status, "group-shared: several" in of_group["g-shared-0"].stderr) == (12, True)
        assert "group-shared" not in of_group["g-clean-0"].stderr, str(of_group["g-clean-0"])
        with stage.checks():
            time.sleep(ROUNDS_SECONDS)
        tool = stage.tool()
        live = tool.run("diagnose", "--format", "jsonl")
        first.kill()
        second.kill()
        stage.rig.stop("broker")
        reading = audit([open_store(stage.rig.store)], broker_settings)
        rows = reading.table().to_pylist()
    found = {group for _, word, group, _ in group_causes(reading.habits) if word == WORD}
    asked = {row["producer_group"] for row in rows if row["checks_count"]}
    groups = {kind: {f"g-{kind}-{number}" for number in range(GROUPS)} for kind in ("shared", "clean")}
    print(f"{version}: shared {len(found & groups['shared'])}/{GROUPS}, clean {len(found & groups['clean'])}/{GROUPS}, "
          f"live {live.status} {sum(WORD in str(row) for row in live.rows)}")
    assert asked >= groups["clean"]
    assert found & groups["clean"] == set()
    assert found >= groups["shared"]
