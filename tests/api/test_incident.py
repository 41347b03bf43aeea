"""The script of docs/api.md on a real broker and a store on S3; what became of it is what the official consumer saw."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.test_brokers import PAGE
from tests.brokers import maven
from tests.brokers.forcing.stage import PATIENCE_SECONDS, Stage
from tests.s3.server import serving

WHY_NOT = maven.why_not()
VERSION = "5.3.3"
_LINES_MAX = 60
ROOT = Path(__file__).parents[2]


def script() -> str:
    return PAGE.read_text("utf-8").partition("## A whole incident")[2].partition("```python\n")[2].partition("```")[0]


def test_the_script_is_short() -> None:
    assert 0 < len(script().splitlines()) <= _LINES_MAX


@pytest.mark.broker
@pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")
def test_a_user_settles_what_a_dead_producer_left(tmp_path: Path) -> None:
    waits = {"waitTimeMillsInTransactionQueue": "500", "transactionOpBatchInterval": "500"}
    key, signers, ledger = tmp_path / "giulia", tmp_path / "signers", tmp_path / "ledger.csv"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signers.write_text(f"giulia@shop {key.with_suffix('.pub').read_text()}")
    (tmp_path / "script.py").write_text(script())
    with Stage(VERSION, tmp_path / "rig", waits) as stage, serving() as s3:
        shop = stage.shop("e-shop")
        cancelled, paid = shop.begin_all("cancelled", 3), shop.begin_all("paid", 2)
        shop.kill()
        stage.until_gone("e-shop")
        words = {**dict.fromkeys(cancelled, "CANCELLED"), **dict.fromkeys(paid, "PAID")}
        ledger.write_text("order_id,status\n" + "".join(f"key-{one.case},{word}\n" for one, word in words.items()))
        cursors = stage.rig.store / "config" / "consumerOffset.json"
        stage.until("cursors on disk", cursors.exists, PATIENCE_SECONDS)
        copy = Path(shutil.copytree(stage.rig.store, tmp_path / "copy"))
        store = s3.upload(copy, "evidence/broker-a/store")
        s3.requests()
        environment = {
            **os.environ, **s3.environment, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state"),
        }
        command = [sys.executable, "script.py", stage.rig.name_server, *map(str, (ledger, store, signers, key))]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, ""), ran
        ids = sorted(one.id for one in cancelled)
        lines = ran.stdout.splitlines()
        assert [one for one in lines if not one.startswith("receipt: ")] == [
            f"in the store: {' '.join(ids)}", f"at the broker: {' '.join(ids)}", f"dry run: 0 {[()] * 3}", "left:",
        ]
        receipts = sorted(one for one in lines if one.startswith("receipt: "))
        assert receipts == [f"receipt: {one} rollback proved" for one in ids]
        assert [one for one in s3.requests() if not one.startswith(("GET", "HEAD"))] == []
        stage.until_consumed()
        assert [stage.delivered(one) for one in (*cancelled, *paid)] == [0] * 5
        assert stage.asked_again(cancelled) == []
