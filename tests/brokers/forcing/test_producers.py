"""`rmqtx producers` on real brokers: clients that live, groups without a client, several groups of one process."""


from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers.forcing.stage import Stage
from tests.representatives import rest_is_slow


@pytest.mark.parametrize("version", rest_is_slow(["5.3.3", "4.4.0"], quick=1))
def test_the_producers_of_a_broker(version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path, {}) as stage:
        stage.orphans("orphan", 2)
        shop = stage.shop("f-living")
        shop.begin_all("waiting", 3)
        other = shop.join("f-idle")
        result = stage.tool().run("producers", "--format", "jsonl")
        rows = {row["producer_group"]: row for row in result.rows}
        assert result.status == 0, result.stderr
        living = rows["f-living"]
        assert living["pending_count"] == 3
        assert living["client_version"] == version
        assert living["language"] == "JAVA"
        assert living["is_proxy"] is False
        assert living["address"].startswith("127.0.0.1:")
        (orphan,) = [row for row in rows.values() if row["client_id"] is None]
        assert (orphan["pending_count"], orphan["address"]) == (2, None)
        waiting = f"2 pending transactions of group {orphan['producer_group']}, and no client of it is connected"
        assert waiting in result.stderr
        if version == "4.4.0":
            assert "list the producers of one group at a time" in result.stderr
            assert living["last_heartbeat_time_ms"] is None
        else:
            assert living["last_heartbeat_time_ms"] > 0
            assert "CLIENT_INNER_PRODUCER" not in rows
        one = stage.tool().run("producers", "--group", other, "--format", "jsonl")
        assert [row["producer_group"] for row in one.rows] == [other]
        assert stage.tool().run("producers", "--fail-on", "client_id is null", "--quiet").status == 1
        page = stage.tool().run("producers")
        (tmp_path / "page.txt").write_text(page.stdout + page.stderr)
        print(page)
