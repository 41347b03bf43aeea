"""Live decisions on prepared records: the handle that is sent, what is asked beside it, and what proves the effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.protocol.answers import BrokerAddresses
from rmqtx.remoting.protocol.codes import COMMIT, RequestCode, ResponseCode
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.repairs.acts.carry_out import carry_out, checked_acts
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.acts.log_tail import LogTail, log_end
from rmqtx.repairs.acts.orders import ActOrder, CheckedAct, Conduct
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.records.record_writer import commit_record_of, rollback_record_of
from tests.remoting.fake import response
from tests.remoting.test_live_questions import Served
from tests.repairs.log_records import number, records
from tests.repairs.test_prepared_ends import RULES

#: Corpus store → the number that a handle has there: the slot's, or 0.
NAMES = {"statetable-3.1.4": True, "prepared-3.2.6": False, "prepared-4.2.0": False}
ENDS_OF_QUEUES = (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET)
QUICK = Conduct(settle_ms=0, overrides=("decision-in-flight",), prove_ms=5_000)


class Acting(Served):
    """A served store whose broker does what END_TRANSACTION says, by the three tests of brokers 3.1 to 4.2."""

    def __init__(self, name: str, place: Path, client: Client) -> None:
        super().__init__(name, place, client)
        self.ends: list[dict[str, str]] = []
        self.topics: set[str] = set()
        ends_of_queues = {code: self.answers._answers[code] for code in ENDS_OF_QUEUES}

        def end_of_queue(request: Frame) -> Frame:
            self.topics.add(request.fields["topic"])
            return ends_of_queues[RequestCode(request.code)](request)

        self.answers._answers |= {RequestCode.END_TRANSACTION: self._end, RequestCode.HEART_BEAT: response}
        self.answers._answers |= dict.fromkeys(ENDS_OF_QUEUES, end_of_queue)

    def _end(self, request: Frame) -> Frame:
        fields = request.fields
        self.ends.append(dict(fields))
        offset = int(fields["commitLogOffset"])
        raw = next(one for one in records(self.store) if number(one, "commit_log_offset", 8) == offset)
        if int(fields["tranStateTableOffset"]) != number(raw, "queue_offset", 8):
            return response(request, ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        is_commit = int(fields["commitOrRollback"]) == COMMIT
        version = self.settings.version_low
        assert version is not None
        tail = LogTail(self.store, log_end(self.store), RULES, now_ms=0, abort=None, is_copied=False)
        placed = tail.append(commit_record_of(raw) if is_commit else rollback_record_of(raw, version))
        segment = self.store.commit_log[-1]
        with Path(segment.file).open("r+b") as file:
            file.seek(placed.commit_log_offset - segment.base_offset)
            file.write(placed.record)
        self.store = self.answers.store = open_store(self.store.root)
        return response(request)


def acted(one: Acting, action: ActKind, transaction_id: str, journal: Journal) -> CheckedAct:
    medium = LiveMedium([one.broker], [BrokerAddresses("c", "broker-a", {0: one.broker.address})])
    (taken,) = checked_acts([ActOrder(transaction_id, ActRequest(action))], medium, QUICK)
    carry_out([taken], medium, journal, QUICK, lambda _: None)
    return taken


@pytest.mark.parametrize("name", NAMES)
def test_the_records_own_handle_is_sent_and_the_effect_is_proved(name: str, tmp_path: Path, client: Client) -> None:
    one = Acting(name, tmp_path, client)
    journal = Journal(tmp_path / "state" / "receipts.jsonl")
    pending = [row for row in one.in_files() if row["state"] == "PENDING"]
    with one.server:
        for action, row in zip((ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD), pending[1:], strict=False):
            taken = acted(one, action, row["transaction_id"], journal)
            assert taken.begun().outcome == "proved", taken.begun().notes
            copy = row["half_copies"][0]
            assert bool(copy["queue_offset"]) == NAMES[name]
            sent = one.ends[-1]
            assert (int(sent["tranStateTableOffset"]), int(sent["commitLogOffset"]), sent["producerGroup"]) == (
                copy["queue_offset"], copy["commit_log_offset"], row["producer_group"],
            )
            assert (sent["commitOrRollback"] == str(int(COMMIT))) == (action == ActKind.COMMIT)
            again = acted(one, ActKind.COMMIT, row["transaction_id"], journal).begun()
            assert again.outcome == "refused_by_guard"
            assert again.notes[0].startswith("already-delivered" if action == ActKind.COMMIT else "already-decided")
    assert len(one.ends) == 3
    states = {row["transaction_id"]: row["state"] for row in one.in_files()}
    assert [states[row["transaction_id"]] for row in pending[1:4]] == ["COMMITTED", "ROLLED_BACK", "ROLLED_BACK"]
    asked = {code for code in one.answers.counts if code is not RequestCode.GET_BROKER_CONFIG}
    assert RequestCode.QUERY_CONSUMER_OFFSET not in asked
    # Only the queue of the message, which may have a copy of it: a broker makes a queue that it is asked for.
    assert one.topics <= {row["topic"] for row in pending}


def test_a_later_broker_is_not_told_to_decide_what_it_cannot(tmp_path: Path, client: Client) -> None:
    """A broker of 4.3 or later cannot decide a prepared record: nothing is sent to it."""
    one = Acting("prepared-4.2.0", tmp_path, client)
    one.answers.version = "4.9.7"
    row = next(row for row in one.in_files() if row["state"] == "PENDING")
    with one.server:
        taken = acted(one, ActKind.ROLLBACK, row["transaction_id"], Journal(tmp_path / "state" / "receipts.jsonl"))
    assert taken.begun().outcome == "refused_by_guard"
    assert "NumberFormatException" in taken.begun().notes[0]
    assert one.ends == []


