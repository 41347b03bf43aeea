"""Histories in which rmqtx was wrong once, as short as they can be; each is recorded on several releases."""

from __future__ import annotations

from tests.histories.steps import Step

RELEASES = ("4.3.0", "4.4.0", "4.9.7", "5.0.0", "5.3.3", "5.5.0")
_CONF = {
    "transactionTimeOut": "6000", "transactionCheckMax": "15", "transactionCheckInterval": "30000",
    "fileReservedTime": "72",
}


def _half(number: int, body_bytes: int = 8, **properties: str) -> Step:
    return {
        "do": "half", "number": number, "group": "orders", "topic": "TopicA", "properties": properties,
        "body_bytes": body_bytes, "has_id": True,
    }


def _end(number: int, decision: str) -> Step:
    return {"do": "end", "number": number, "decision": decision, "named": "newest", "is_check": False}


def _wait(ms: int) -> Step:
    return {"do": "wait", "ms": ms}


def _damage(kind: str, place: float) -> Step:
    return {"do": "damage", "kind": kind, "place": place}


_CHECK: Step = {"do": "check", "answers": ["none"]}
_STOP: Step = {"do": "stop"}

#: A power loss takes the next half message and leaves its slot, and a COMMIT record is written to that place.
_LEFT_SLOT: list[Step] = [
    *(_half(number) for number in range(3)), _wait(7_000), _end(0, "rollback"), {"do": "batch"}, {"do": "flush"},
]
_COMMITTED_OVER_IT: list[Step] = [
    {"do": "kill", "lost": 1.0}, {"do": "restart", "conf": None}, _wait(7_000), _end(1, "commit"), {"do": "batch"},
    _wait(7_000), _STOP,
]

#: What was wrong, and the steps.
FOUND: dict[str, list[Step]] = {
    # The cut of a queue that leads behind the end of the log was not part of the simulation.
    "lost-pages": [
        _wait(61_000), _half(0), _half(1, 900), {"do": "flush"}, _wait(31_000), _CHECK, _wait(7_000),
        {"do": "kill", "lost": 1.0}, _wait(40), {"do": "kill", "lost": 0.0}, _wait(600_000), _STOP,
    ],
    # New half copies get no slot while the last slot leads behind the end of the log.
    "filler-at-the-end": [
        *(_half(number) for number in range(5)), _wait(7_000), _STOP, _damage("fillers in the half queue", 0.9),
    ],
    # A body that does not match its CRC cuts the log at the start; only verify said so.
    "wrong-body": [
        *(_half(number, 900) for number in range(4)), _wait(7_000), _CHECK, _wait(7_000), _STOP,
        _damage("flipped byte of the log", 0.06),
    ],
    # Without a cursor, decided transactions were said to have no next event.
    "no-cursors": [
        _half(0), _half(1), _end(0, "commit"), _wait(7_000), {"do": "batch"}, _wait(7_000), _CHECK, _wait(7_000), _STOP,
        _damage("no cursors", 0.5),
    ],
    # pending read no op message behind a filler, and listed what had been rolled back.
    "filler-for-the-op": [
        _half(0), _half(1), _half(2), _wait(7_000), _end(1, "rollback"), _wait(7_000), {"do": "batch"}, _STOP,
        _damage("fillers in the op queue", 0.4),
    ],
    # An op cursor outside its queue is corrected, and that pull gives no op.
    "no-op-queue": [
        *(_half(number) for number in range(4)), _end(0, "rollback"), _wait(7_000), {"do": "batch"}, _CHECK,
        _end(2, "commit"), _wait(7_000), {"do": "batch"}, _wait(7_000), _STOP, _damage("no op queue", 0.1),
    ],
    # Slots that a power loss left lead to what was written there later: to another topic, or between two records.
    "slot-of-another": [
        _half(1), _half(2, 60), _half(3, 900), _half(4), _wait(31_000),
        {"do": "check", "answers": ["rollback", "none", "none", "none", "none"]}, {"do": "kill", "lost": 0.5},
        _end(4, "commit"), _STOP,
    ],
    "slot-within": [
        _half(0, 60), _half(1, 900), {"do": "kill", "lost": 1.0}, _end(0, "commit"), {"do": "restart", "conf": None},
        _half(4, 60), *(_half(number) for number in (8, 9, 10)), _wait(288_000_000), _STOP,
    ],
    # The same before the halves are too old: on 4.3.0 the copies of a round move the end of the log over the slot's.
    "slot-over-the-end": [
        _half(0, 60), _half(1, 900), {"do": "kill", "lost": 1.0}, _end(0, "commit"), {"do": "restart", "conf": None},
        _half(4, 60), *(_half(number) for number in (8, 9, 10)), _STOP,
    ],
    # No slot of the first file of the half queue leads into the log: the queue begins there until the file is deleted.
    "queue-file-outlives-log": [
        *(_half(number, 400) for number in range(9)), _wait(7_000), _CHECK,
        *(_half(number, 400) for number in range(9, 24)), _wait(7_000), _STOP, _damage("first log file deleted", 0.5),
    ],
    # For place 0 the store returns the first record that the log still has; here that was rolled back, or is decided.
    "slot-of-place-0": [
        *(_half(number, 400) for number in range(30)), _end(23, "rollback"), _end(0, "commit"), _wait(7_000),
        {"do": "batch"}, _wait(7_000), _STOP, _damage("first log file deleted", 0.5),
    ],
    "slot-of-place-0-fits": [
        _half(0, 900), *(_half(number, 400) for number in range(1, 30)), _wait(7_000), _STOP,
        _damage("first log file deleted", 0.5),
    ],
    # That record is longer than the one of the slot was: it cannot be decoded, until the queue file is deleted.
    "slot-of-place-0-shorter": [
        _half(0), *(_half(number, 400) for number in range(1, 30)), _wait(7_000), _STOP,
        _damage("first log file deleted", 0.5),
    ],
    # A start deletes the empty last file of a queue if the file before it is not full, and is not refused for it.
    "empty-file-deleted": [
        *(_half(number) for number in range(22)), _wait(7_000), _STOP, _damage("zeroed end of the half queue", 0.98),
    ],
    # The file before it is full: the recovery of 5.3.3 dispatches records into the empty file, and the start succeeds.
    "empty-file-dispatched": [
        *(_half(number) for number in range(24)), _wait(7_000), _STOP, _damage("zeroed end of the half queue", 0.98),
    ],
    # The only file of a queue has no slot and does not begin at 0: the same, and pending did not report the refusal.
    "only-file-empty": [
        *(_half(number, 900) for number in range(24)), _wait(7_000), _STOP, _damage("first log file deleted", 0.5),
        _damage("only an empty half queue file", 0.5),
    ],
    "only-file-empty-killed": [
        *(_half(number, 900) for number in range(24)), _wait(7_000), {"do": "end by kill"},
        _damage("first log file deleted", 0.5), _damage("only an empty half queue file", 0.5),
    ],
    # The same, where the log lost its first file: before 5.0.0 the queue begins at 0, later at its end. Without
    # cursors, and with a check before.
    "only-file-empty-reached": [
        *(_half(number, 900) for number in range(24)), {"do": "message", "topic": "TopicA"}, _wait(7_000), _STOP,
        _damage("first log file deleted", 0.5), _damage("only an empty half queue file", 0.5),
    ],
    "only-file-empty-checked": [
        *(_half(number, 900) for number in range(12)), _wait(31_000), {"do": "check", "answers": ["rollback"] * 12},
        {"do": "batch"}, *(_half(number, 900) for number in range(12, 24)), {"do": "message", "topic": "TopicA"},
        _wait(7_000), _STOP, _damage("first log file deleted", 0.5), _damage("only an empty half queue file", 0.5),
    ],
    # The slot of a committed half message is lost, and the batch with its op message: no round reads its copy.
    "slot-and-op-lost": [
        *(_half(number) for number in range(3)), _wait(7_000), _end(2, "commit"), {"do": "end by kill"},
        _damage("zeroed end of the half queue", 0.0), _damage("no abort", 0.5),
    ],
    # The queues reach the end of the log: the start counts the first slot of the empty file. The store returns the
    # record of the next slot for it, so one half copy is asked about twice.
    "empty-slot-counted": [
        *(_half(number) for number in range(24)), _end(3, "commit"), _wait(7_000), {"do": "batch"}, _STOP,
        _damage("zeroed end of the half queue", 0.98),
    ],
    # The only file of a queue has no slot: the start counts its first one. Of an op queue no round has an effect then.
    "only-op-slot-counted": [
        _half(0), _half(1), _wait(7_000), _end(0, "rollback"), _wait(7_000), {"do": "batch"}, _half(2), _wait(7_000),
        _STOP, _damage("zeroed end of the op queue", 0.0),
    ],
    "only-half-slot-counted": [
        _half(0), _end(0, "rollback"), _wait(7_000), {"do": "batch"}, _wait(7_000), _STOP,
        _damage("zeroed end of the half queue", 0.0),
    ],
    # After a kill the recovery dispatches the op message first.
    "only-op-slot-dispatched": [
        _half(0), _end(0, "commit"), _wait(7_000), {"do": "batch"}, _half(1), _half(2), _wait(7_000), _STOP,
        _damage("zeroed end of the op queue", 0.0), _damage("abort", 0.5),
    ],
    # The half queue lost its end after a clean stop: some releases dispatch it again, and pending listed nothing.
    "queue-end-lost": [
        _half(8), _half(9, 60), _wait(600_000), {"do": "check", "answers": ["none", "rollback"]}, _half(10, 900),
        _half(11, 60), _STOP, _damage("zeroed end of the half queue", 0.8244),
    ],
    # The half queue lost its end, another queue did not: op messages have the next numbers, so the check passes the end
    # and begins again at 0 (simulate ended with an error); pending listed nothing.
    "ops-behind-the-end": [
        *(_half(number) for number in range(4)), _wait(31_000),
        {"do": "check", "answers": ["commit", "rollback", "none", "commit"]}, _wait(7_000), {"do": "batch"}, _STOP,
        _damage("zeroed end of the half queue", 0.98),
    ],
    # Behind a filler no op message is read, or gets a slot: an act was allowed, and the check asked again.
    "filler-hides-ops": [
        _half(0), _half(1), _half(2), _end(0, "rollback"), _wait(7_000), {"do": "batch"}, _end(1, "rollback"),
        _wait(7_000), {"do": "batch"}, _STOP, _damage("fillers in the op queue", 0.5),
    ],
    # A start makes a queue again, behind fillers: where the log begins at 0, releases before 5.0.0 begin there.
    "half-queue-made": [
        *(_half(number) for number in range(3)), _end(0, "rollback"), _wait(7_000), {"do": "batch"}, _half(3),
        _wait(7_000), _STOP, _damage("no half queue", 0.5),
    ],
    "op-queue-made": [
        *(_half(number) for number in range(3)),
        *(step for number in range(2) for step in (_end(number, "rollback"), _wait(7_000), {"do": "batch"})), _half(3),
        _end(2, "rollback"), _wait(7_000), {"do": "batch"}, _wait(7_000), _STOP, _damage("no op queue", 0.5),
    ],
    # A half copy with all its checks, in a slot that fillers have replaced: before 4.5.2 it counted as discarded.
    "filler-before-discard": [
        _half(5), _half(6), _wait(61_000), _CHECK, _wait(61_000), _CHECK, _STOP,
        _damage("fillers in the half queue", 0.6142),
    ],
    # After a clean stop, 4.3.0 and 4.3.1 keep the slots behind the place at which they cut off the log.
    "kept-slots": [_half(2), _half(3, 900), _half(4), _wait(7_000), _STOP, _damage("flipped byte of the log", 0.1)],
    # A power loss took the end of a record: its REAL_QID. The check puts it back, and asks no producer.
    "torn-queue-number": [
        _half(0, TAGS="red", KEYS="a b"), _half(1, KEYS="123456"), _half(2, 60), _half(3, 900, KEYS="order-1"),
        _wait(31_000), {"do": "check", "answers": ["rollback", "none", "none", "none", "none"]},
        {"do": "kill", "lost": 0.5},
    ],
    # The commit-log offset in the header of a record is damaged: brokers read it, rmqtx counted it as damage.
    "own-place": [
        *(_half(number) for number in range(4)), _end(1, "rollback"), _wait(7_000), {"do": "batch"}, _wait(7_000),
        _STOP, _damage("own place of a record", 0.5),
    ],
    # The recovery gives the record with number 0 a second slot, which leads to the damaged offset: it is cut again.
    "own-place-of-first": [
        *(_half(number) for number in range(3)), _wait(7_000), _STOP, _damage("own place of a record", 0.006),
        _damage("abort", 0.5),
    ],
    # Within the log that slot stays, and the check ends there.
    "own-place-in-log": [
        _half(0), _wait(7_000), _STOP, _damage("own place of a record", 0.007), _damage("abort", 0.5),
    ],
    # The record lacks its slot: the new one leads elsewhere.
    "own-place-without-slot": [
        *(_half(number) for number in range(4)), _wait(7_000), _STOP, _damage("own place of a record", 0.998),
        _damage("zeroed end of the half queue", 0.0), _damage("abort", 0.5),
    ],
    "own-place-lacks-slots": [
        *(_half(number) for number in range(4)), _wait(7_000), _STOP, _damage("own place of a record", 0.622),
        _damage("zeroed end of the half queue", 0.6), _damage("abort", 0.5),
    ],
    # A slot that a power loss left is the last of a full queue file: the recovery makes the next file, and 5.0.0 to
    # 5.4.0 do not start with one that has no slot.
    "last-slot-overtaken": [
        *(_half(number) for number in range(14)), {"do": "flush"}, *(_half(number) for number in range(14, 20)),
        {"do": "kill", "lost": 1.0}, *(_half(number, 900) for number in range(20, 25)), {"do": "end by kill"},
    ],
    # A filler as the only op slot: 4.3.0 and 4.4.0 give the op message with number 0 a second slot after a kill; later
    # releases give no half copy a slot, because of the file `abort` that such a broker leaves.
    "filler-as-first-op": [_half(0), _end(0, "commit"), _damage("fillers in the op queue", 0.858)],
    "filler-as-first-op-killed": [
        _half(0), _end(0, "commit"), {"do": "end by kill"}, _damage("fillers in the op queue", 0.858),
    ],
    # The last op slot is a filler: 4.3.0 and 4.4.0 give the op message with number 0 a second slot after a kill.
    "filler-as-last-op-killed": [
        *(_half(number) for number in range(4)), *(_end(number, "rollback") for number in range(3)),
        {"do": "end by kill"}, _damage("fillers in the op queue", 0.7),
    ],
    # Before 4.6.0 a compressed copy ends each round with an exception, and its op messages are read once only.
    "compressed-ends-rounds": [
        _half(1, 900), _half(2, 900), {**_half(9), "is_compressed": True}, _wait(600_000), _CHECK, _end(2, "rollback"),
    ],
    # The last slot leads exactly to the end of the log: before 4.5.0 the first new copy, which begins there, gets none.
    "slot-to-the-end": [
        _half(1, 900), _half(3, 2_000), _half(8, 900), {"do": "kill", "lost": 0.5}, _STOP,
    ],
    # Copies of a half message without UNIQ_KEY have its body, and before 4.6.0 the inflated one; so has a discard copy.
    "compressed-without-id": [
        {**_half(10), "is_compressed": True, "has_id": False}, _wait(61_000), _CHECK, _STOP,
    ],
    "compressed-without-id-expired": [
        {**_half(0), "is_compressed": True, "has_id": False}, _wait(288_000_000), _CHECK, _STOP,
    ],
    # A power loss left the header of a record, to which the last slot leads: the recovery after a clean stop ends
    # there.
    "torn-in-header": [
        _half(0), _half(1, 3467), _half(2, 60), {"do": "kill", "lost": 0.5}, _wait(31_000), _STOP,
    ],
    # The same, where the slot names fewer bytes than the copy has that 4.3.0 writes there: the copy cannot be decoded.
    "torn-in-short-header": [
        _half(0), _half(1, 3519), _half(2), {"do": "kill", "lost": 0.5}, _wait(31_000), _STOP,
    ],
    # The slot leads over the end of the log, and over the end of its page: the copies of a round do not reach that end.
    "slot-over-the-page": [
        *(_half(number) for number in range(6)), _wait(7_000), _end(0, "rollback"), {"do": "batch"}, {"do": "flush"},
        _half(6, 3_000), {"do": "kill", "lost": 1.0}, {"do": "restart", "conf": None}, _wait(7_000),
        _end(3, "rollback"), {"do": "batch"}, _wait(7_000), _STOP,
    ],
    # The same within its page: the end of the log was rounded up to the page, so copies got slots. Dispatch of 4.5.0
    # to 4.9.8 begins where the slot leads; a copy across that place got a slot.
    "slot-within-the-page": [*_LEFT_SLOT, _half(6, 700), *_COMMITTED_OVER_IT],
    "slot-ends-in-a-copy": [*_LEFT_SLOT, _half(6, 400), *_COMMITTED_OVER_IT],
    # Op messages are also read once only in a round that ends at a half which is too young.
    "young-before-decided": [_half(0), _wait(150_000), _half(1), _half(2), _end(2, "commit"), _STOP],
    # 4.9.7 takes a half message with a timer; the check of 5.0.0 discards it because of its age.
    "timer-expired": [
        _half(0), _half(1, TIMER_DELIVER_MS="1790000600000"), _wait(288_000_000), {"do": "upgrade"},
    ],
    # A rollback names a COMMIT record, whose queue offset is the next number of the half queue: before 4.6.0 the check
    # passes the end, and begins again.
    "op-names-the-end": [
        _half(0), _end(0, "commit"), _end(0, "commit"), {**_end(0, "rollback"), "named": "delivered"}, _wait(7_000),
        {"do": "batch"}, _wait(7_000), _STOP,
    ],
    # A discarded one is committed, and the broker ends with its op message in memory: the records look like those of a
    # decision that names the discard copy.
    "committed-late-stopped": [
        _half(0), _wait(31_000), _CHECK, _wait(61_000), _CHECK, _wait(7_000), _end(0, "commit"), _STOP,
    ],
    "committed-late-killed": [
        _half(0), _half(1), _wait(31_000), _CHECK, _wait(61_000), _CHECK, _wait(7_000), _end(1, "commit"),
        {"do": "end by kill"},
    ],
    # A half message with too many properties is refused, on 5.0.0 after it got a number: those after it are in slots
    # before their numbers, and the next start numbers by slots again. The causes of one that is decided were wrong.
    "refused-half": [
        _half(0), _half(9, note="x" * 33_000), _half(1), _half(2), _half(3), _wait(7_000), _end(1, "commit"),
        _wait(7_000), {"do": "batch"}, _wait(31_000), _CHECK, _wait(31_000), _CHECK, _STOP,
    ],
    "refused-half-restarted": [
        _half(0), _half(9, note="x" * 33_000), _half(1), _half(2), _half(3), _wait(7_000),
        {"do": "restart", "conf": None}, _half(4), _wait(7_000), _end(3, "rollback"), _wait(7_000), {"do": "batch"},
        _wait(31_000), _CHECK, _wait(31_000), _CHECK, _STOP,
    ],
    # The start gives the first op message a second slot, behind a filler: its record was read in one of both only, and
    # each round ended at the other one.
    "second-slot-of-the-first-op": [
        _half(0), _half(1, 900, note="x" * 9_000), _half(2, 900, note="x" * 9_000), _half(3), _wait(7_000),
        _end(0, "rollback"), _wait(7_000), {"do": "batch"}, _end(3, "commit"), _wait(7_000), {"do": "batch"},
        _wait(7_000), {"do": "end by kill"}, _damage("fillers in the op queue", 0.6),
    ],
    # One alone between a refused one and a start, or the next refused one: its number was taken for a damaged one.
    "refused-half-one-restarted": [
        _half(0), _half(9, note="x" * 33_000), _half(1), _wait(7_000), {"do": "restart", "conf": None}, _half(2),
        _wait(7_000), _end(1, "rollback"), _wait(7_000), {"do": "batch"}, _wait(31_000), _CHECK, _STOP,
    ],
    "refused-half-one-upgraded": [
        _half(0), _half(9, note="x" * 33_000), _half(1), _wait(7_000), {"do": "upgrade"}, _half(2), _wait(7_000),
        _end(1, "rollback"), _wait(7_000), {"do": "batch"}, _wait(31_000), _CHECK, _STOP,
    ],
    "refused-halves-in-turn": [
        _half(0), _half(8, note="x" * 33_000), _half(1), _half(9, note="x" * 33_000), _half(2), _wait(7_000),
        _end(1, "rollback"), _wait(7_000), {"do": "batch"}, {"do": "restart", "conf": None}, _half(3), _half(4),
        _wait(31_000), _CHECK, _STOP,
    ],
    # A start of 5.3.4 or later writes slots in place of zeros and keeps those behind them: two lead to one half
    # message, and the check asks for each.
    "zeroed-half-slots": [
        *(_half(number) for number in range(5)), _wait(7_000), _STOP,
        _damage("zeroed slots of the half queue", 0.45),
    ],
}


#: What still differs: the title and the release.
OPEN: frozenset[tuple[str, str]] = frozenset()
#: Settings of single histories.
_OTHER_CONF = {
    "filler-before-discard": {"transactionCheckMax": "2"},
    "young-before-decided": {"transactionTimeOut": "120000"},
    "committed-late-stopped": {"transactionCheckMax": "1"},
    "committed-late-killed": {"transactionCheckMax": "1"},
}


def found_history(name: str) -> Step:
    """One of these histories."""
    return {"seed": 0, "conf": _CONF | _OTHER_CONF.get(name, {}), "steps": FOUND[name]}
