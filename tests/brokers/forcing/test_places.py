"""`show` of a live broker by the place of a record, as tables and the broker's own logs print it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.brokers.forcing.conftest import VERSIONS, quick
from tests.brokers.forcing.stage import Stage


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_a_live_broker_are_shown_by_their_places(version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path, quick(version)) as stage:
        open_one = stage.orphans("open", 1)[0]
        shop = stage.shop("f-places")
        done = shop.begin_all("done", 1, first="COMMIT")[0]
        stage.until_delivered([done])
        stage.put_back([open_one], 1)
        tool = stage.tool()
        rows = {row["transaction_id"]: row for row in tool.run("audit", "--format", "jsonl").rows}
        assert set(rows) == {open_one.id, done.id}
        broker = stage.rig.conf["brokerName"]
        logged = (stage.rig.home / "logs" / "rocketmqlogs" / "transaction.log").read_text().splitlines()
        lines = [line for line in logged if open_one.id in line or "commitLogOffset" in line]
        for one in (open_one, done):
            row = rows[one.id]
            copy = row["half_copies"][-1]
            number, offset = copy["queue_offset"], copy["commit_log_offset"]
            handles = [f"half:{number}", f"at:{offset}", f"{broker}/half:{number}"]
            handles += [f"op:{mark['queue_offset']}" for mark in row["op_marks"]]
            handles += [f"final:{final['commit_log_offset']}" for final in row["final_records"]]
            for handle in handles:
                shown = tool.run("show", handle, "--format", "jsonl")
                assert shown.status == 0, str(shown)
                assert one.id in {row["transaction_id"] for row in shown.rows}, str(shown)
        pasted = [line for line in lines if re.search(r"commitLogOffset=\d+", line)]
        for line in pasted[-2:]:
            shown = tool.run("show", line, "--format", "jsonl")
            assert shown.status == 0, str(shown)
        print(f"{version}: {len(pasted)} lines of the broker's log")
