"""`rmqtx producers` on real brokers: clients that live, groups without a client, several groups of one process."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.brokers import maven
from tests.brokers.forcing.conftest import VERSIONS
from tests.brokers.forcing.stage import TOPIC, Stage
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


CLIENTS = ("4.4.0", "4.9.7", "5.1.4", "5.5.0")
PRODUCERS_SINCE = (4, 9, 4)
"""From here on one request lists all producers of a broker, and mqadmin has a command for it."""


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_clients_of_several_releases_are_listed_as_mqadmin_lists_them(version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path, {}) as stage:
        for client in CLIENTS:
            program = (maven.classpath(client), maven.scenario(client)[0], stage.rig.name_server)
            agent = stage.rig.agent(f"client-{client}.log", stage.take, program)
            group = f"g-{client.replace('.', '-')}"
            agent.do("producer", group=group, topic=TOPIC)
            agent.do("send", group=group, topic=TOPIC, kind="ordinary", case=f"o.{client}", body="eA==")
        listed = stage.tool().run("producers", "--format", "jsonl")
        assert listed.status == 0, str(listed)
        rows = {row["producer_group"]: row for row in listed.rows}
        assert {group: rows[group]["client_version"] for group in rows if group.startswith("g-")} == {
            f"g-{client.replace('.', '-')}": client for client in CLIENTS
        }
        if stage.rig.release < PRODUCERS_SINCE:
            pytest.skip(f"mqadmin {version} lists no producers of a broker")
        admin = subprocess.run(
            ["java", *stage.rig.options, "-cp", stage.rig.classpath,
             "org.apache.rocketmq.tools.command.MQAdminStartup", "producer", "-b", stage.rig.address],
            env=dict(os.environ, ROCKETMQ_HOME=str(stage.rig.home)), capture_output=True, text=True, check=False,
            timeout=180,
        )
        named = set(re.findall(r"(g-[0-9-]+).*?clientId=([^,\]\s]+)", admin.stdout))
        assert named == {(group, rows[group]["client_id"]) for group in rows if group.startswith("g-")}, admin.stdout
