"""Causes that only traces show, on a real broker: decisions after the discard, and those of another client."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import maven
from tests.brokers.forcing.tool import Tool
from tests.brokers.rig import PATIENCE_SECONDS, Rig
from tests.brokers.traced import CONF, OUT_OF, SETTLE_SECONDS, Names, Played, Swallowing, _client, _read

WHY_NOT = maven.why_not()
VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "").split()
OTHER = {"COMMIT": "rollback", "ROLLBACK": "commit"}
EACH = 3

pytestmark = [
    pytest.mark.broker, pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}"),
]


class Gate(Swallowing):
    """Swallows all decisions while it is closed."""

    is_closed = True

    def fate(self, identity: str) -> int:
        """See `Swallowing`."""
        del identity
        return 0 if self.is_closed else OUT_OF


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "4.9"])
def test_late_and_other_decisions_are_explained_by_the_trace(version: str, tmp_path: Path) -> None:
    played = Played(version)
    with Rig(version, tmp_path, CONF) as rig:
        rig.start_names()
        rig.start_broker()
        broker = Gate(rig.address, 1)
        with broker, Names(rig.name_server, rig.address, broker.address) as names:
            client = _client(rig, names.address)
            assert client.stdin is not None
            ready = threading.Event()
            reader = threading.Thread(target=_read, args=(client.stdout, played, ready), daemon=True)
            reader.start()
            assert ready.wait(PATIENCE_SECONDS)
            for number, plan in enumerate(("C", "R") * EACH):
                client.stdin.write(f"other-{number}\t{plan}\n")
            client.stdin.flush()
            time.sleep(SETTLE_SECONDS)
            swallowed = dict(broker.swallowed)
            broker.is_closed = False
            for number, plan in enumerate(("Uc", "Ur") * EACH):
                client.stdin.write(f"late-{number}\t{plan}\n")
            client.stdin.flush()
            time.sleep(SETTLE_SECONDS * 2)
            client.stdin.close()
            client.wait(PATIENCE_SECONDS)
            reader.join(10)
            assert client.stdout is not None
            client.stdout.close()
        tool = Tool(rig.name_server, tmp_path / "state")
        for identity, decisions in swallowed.items():
            ran = tool.act(OTHER[decisions[0]], identity, "--reason", "by hand")
            assert [row["outcome"] for row in ran.rows] == ["proved"], str(ran)
        time.sleep(3)
        rig.stop("broker")
        table = audit([open_store(rig.store)], lambda one: broker_settings(one, conf=CONF, version=version)).table()
    rows = {row["transaction_id"]: row for row in table.to_pylist()}
    others = {identity: (rows[identity]["state"], rows[identity]["causes"]) for identity in swallowed}
    assert len(others) == 2 * EACH
    for identity, (state, causes) in others.items():
        assert state == {"COMMIT": "ROLLED_BACK", "ROLLBACK": "COMMITTED"}[swallowed[identity][0]], identity
        assert "answered-otherwise" in causes, (identity, causes)
    late = {identity: rows[identity] for identity in rows if identity not in swallowed}
    assert len(late) == 2 * EACH
    for identity, row in late.items():
        assert row["discard_copies"], identity
        assert row["state"] in ("COMMITTED", "ROLLED_BACK"), (identity, row["state"], played.said[identity])
        assert "answered-late" in row["causes"], (identity, row["causes"], played.said[identity])
