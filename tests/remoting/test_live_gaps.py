"""Records that a live broker does not return although its queues have their slots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups as live_lookups
from rmqtx.remoting.protocol.codes import RequestCode, ResponseCode
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.verdicts.audit.local_audit import audit
from tests.remoting.fake import response
from tests.remoting.test_live_questions import Served


def test_a_record_that_the_broker_passes_may_be_a_decision(tmp_path: Path, client: Client) -> None:
    """The broker returns nothing for the slot of a COMMIT record: the transaction was ROLLED_BACK with certainty."""
    one = Served("common-5.3.3", tmp_path, client)
    before = {row["transaction_id"]: row for row in audit([one.store], one.settings_of).table().to_pylist()}
    row = next(row for row in before.values() if row["state"] == "COMMITTED" and len(row["final_records"]) == 1)
    [final] = row["final_records"]
    pulled = one.answers._answers[RequestCode.PULL_MESSAGE]

    def passing(request: Frame) -> Frame:
        fields, answer = request.fields, pulled(request)
        first, count = int(fields["queueOffset"]), int(fields["maxMsgNums"])
        is_here = (fields["topic"], int(fields["queueId"])) == (final["topic"], final["queue_id"])
        if not is_here or not first <= (gone := final["queue_offset"]) < first + count:
            return answer
        if gone > first:
            return pulled(replace(request, fields={**fields, "maxMsgNums": str(gone - first)}))
        return response(
            request, ResponseCode.PULL_RETRY_IMMEDIATELY, nextBeginOffset=str(gone + 1), minOffset="0",
            maxOffset=answer.fields["maxOffset"],
        )

    one.answers._answers[RequestCode.PULL_MESSAGE] = passing
    with one.server:
        reading = live_lookups.audit([one.broker])
    after = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    assert "entries-unread" in {finding.code for finding in reading.findings}
    changed = {name for name in before if after[name]["state"] != before[name]["state"]}
    assert row["transaction_id"] in changed
    assert {after[name]["state"] for name in changed} == {"UNDECIDABLE"}
    end = final["commit_log_offset"]
    later = {name for name, one in before.items() if one["half_copies"][0]["commit_log_offset"] > end}
    assert later
    assert not changed & later
