"""Histories of a transaction on a broker without half topics, one function each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import Random
from typing import cast

from tests.brokers.old_rig import FIRST_CHECK_SECONDS
from tests.brokers.old_stage import LaterPlay, OldPlay
from tests.brokers.rig import COMMIT, ROLLBACK
from tests.brokers.script import Act
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction, order

Program = Callable[[OldPlay, int, Random], None]
OLD_HISTORIES: dict[str, Act] = {}
PATIENCE_SECONDS = FIRST_CHECK_SECONDS + 60.0


def history(phase: int = 0) -> Callable[[Program], Program]:
    """Register a history under its function's name."""

    def register(program: Program) -> Program:
        name = program.__name__
        words = (program.__doc__ or "").strip()
        OLD_HISTORIES[name] = Act(name, cast("Callable[[Play, int, Random], None]", program), words, phase)
        return program

    return register


def until_asked(play: OldPlay, sent: Iterable[Transaction], times: int) -> None:
    """Wait until the producer received `times` checks of each; 3.1.4 begins a minute after a table file is created."""
    for one in sent:
        play.until(f"{one.case} asked", lambda one=one: len(one.checks) >= times, PATIENCE_SECONDS)  # type: ignore[misc]


def until_decided(play: OldPlay, sent: Iterable[Transaction]) -> None:
    """Wait until the client has sent its decisions, and a little longer for the broker."""
    for one in sent:
        play.until(f"{one.case} decided", lambda one=one: bool(one.decisions))  # type: ignore[misc]
    time.sleep(0.5)


# ---- decided by the local transaction


@history()
def first_committed(play: OldPlay, count: int, rng: Random) -> None:
    """The log's first record, at offset 0; committed at once."""
    play.until_delivered([play.cases["first_committed.0"]])
    assert play.cases["first_committed.0"].original[1] == 0


@history()
def first_pending(play: OldPlay, count: int, rng: Random) -> None:
    """The log's first record, at offset 0; never decided."""
    assert play.cases["first_pending.0"].original[1] == 0


@history()
def commit(play: OldPlay, count: int, rng: Random) -> None:
    """Committed at once by the local transaction."""
    for number in range(count):
        play.send("commit", number, rng, first="COMMIT", flag=rng.choice((None, 7)))
        time.sleep(rng.random() / 20)


@history()
def rollback(play: OldPlay, count: int, rng: Random) -> None:
    """Rolled back at once by the local transaction."""
    for number in range(count):
        play.send("rollback", number, rng, first="ROLLBACK")
        time.sleep(rng.random() / 20)


@history()
def ordinary(play: OldPlay, count: int, rng: Random) -> None:
    """Messages without a transaction; one in four delayed."""
    for number in range(count):
        play.send("ordinary", number, rng, kind="ordinary", level=1 if number % 4 == 3 else None)


@history()
def compressed(play: OldPlay, count: int, rng: Random) -> None:
    """A body over 4096 bytes, which the client compresses; committed, rolled back or never decided."""
    for number in range(count):
        body = order(rng, f"compressed.{number}", rng.randrange(5000, 9000))
        play.send("compressed", number, rng, first=("COMMIT", "ROLLBACK", "UNKNOW")[number % 3], body=body)


@history()
def bare(play: OldPlay, count: int, rng: Random) -> None:
    """No keys, no tags, and an empty-looking body; committed, rolled back or never decided."""
    for number in range(count):
        first = ("COMMIT", "ROLLBACK", "UNKNOW")[number % 3]
        play.send("bare", number, rng, first=first, keys=None, tags=None, body=b" ")


@history()
def many_keys(play: OldPlay, count: int, rng: Random) -> None:
    """Several keys, and properties in other alphabets; committed at once."""
    for number in range(count):
        keys = f"K-{play.script.seed}-many_keys.{number} A-{number} B-{number}"
        play.send("many_keys", number, rng, first="COMMIT", keys=keys, **{"p.kunde": "Jörg \u8ba2\u5355"})


@history()
def delayed_commit(play: OldPlay, count: int, rng: Random) -> None:
    """With a delay level; committed at once, and delivered at once."""
    sent = [play.send("delayed_commit", number, rng, first="COMMIT", level=3) for number in range(count)]
    play.until_delivered(sent)


@history()
def local_transaction_throws(play: OldPlay, count: int, rng: Random) -> None:
    """The local transaction throws; the client then sends UNKNOW, also as the answer to all checks."""
    play.send_all("local_transaction_throws", count, rng, first="THROW")


# ---- END_TRANSACTION by hand


@history()
def double_commit(play: OldPlay, count: int, rng: Random) -> None:
    """Committed, and committed again by hand: a second COMMIT record, a second delivery."""
    sent = play.send_all("double_commit", count, rng, first="COMMIT")
    play.until_delivered(sent)
    for one in sent:
        play.end_by_hand(one, COMMIT)
    play.until_delivered(sent, 2)


@history()
def double_rollback(play: OldPlay, count: int, rng: Random) -> None:
    """Rolled back, and rolled back again by hand: two ROLLBACK records."""
    sent = play.send_all("double_rollback", count, rng, first="ROLLBACK")
    until_decided(play, sent)
    for one in sent:
        play.end_by_hand(one, ROLLBACK)


@history()
def commit_then_rollback(play: OldPlay, count: int, rng: Random) -> None:
    """Committed and delivered, then rolled back by hand: both records."""
    sent = play.send_all("commit_then_rollback", count, rng, first="COMMIT")
    play.until_delivered(sent)
    for one in sent:
        play.end_by_hand(one, ROLLBACK)


@history()
def rollback_then_commit(play: OldPlay, count: int, rng: Random) -> None:
    """Rolled back, then committed by hand: both records, and a delivery."""
    sent = play.send_all("rollback_then_commit", count, rng, first="ROLLBACK")
    until_decided(play, sent)
    for one in sent:
        play.end_by_hand(one, COMMIT)
    play.until_delivered(sent)


@history()
def late_commit(play: OldPlay, count: int, rng: Random) -> None:
    """UNKNOW first; committed by hand a little later."""
    sent = play.send_all("late_commit", count, rng)
    time.sleep(1)
    for one in sent:
        play.end_by_hand(one, COMMIT)
    play.until_delivered(sent)


@history()
def wrong_group(play: OldPlay, count: int, rng: Random) -> None:
    """Never decided; a COMMIT by hand that names another producer group is refused."""
    for one in play.send_all("wrong_group", count, rng):
        answer = play.end_by_hand(one, COMMIT, "wrong group", producerGroup="nobody")
        assert answer["code"] != 0, answer


@history()
def wrong_number(play: OldPlay, count: int, rng: Random) -> None:
    """Never decided; a COMMIT by hand that names another slot number is refused."""
    for one in play.send_all("wrong_number", count, rng):
        other = one.original[0] + 1
        answer = play.end_by_hand(one, COMMIT, "wrong number", tranStateTableOffset=other)
        assert answer["code"] != 0, answer


# ---- decided by a check (3.1 alone)


@history()
def commit_at_check_1(play: OldPlay, count: int, rng: Random) -> None:
    """UNKNOW first, COMMIT at the first check."""
    sent = play.send_all("commit_at_check_1", count, rng, checks="COMMIT")
    until_asked(play, sent, 1)
    play.until_delivered(sent)


@history()
def commit_at_check_2(play: OldPlay, count: int, rng: Random) -> None:
    """UNKNOW first and at the first check, COMMIT at the second."""
    sent = play.send_all("commit_at_check_2", count, rng, checks="UNKNOW,COMMIT")
    until_asked(play, sent, 2)
    play.until_delivered(sent)


@history()
def rollback_at_check_1(play: OldPlay, count: int, rng: Random) -> None:
    """UNKNOW first, ROLLBACK at the first check."""
    until_asked(play, play.send_all("rollback_at_check_1", count, rng, checks="ROLLBACK"), 1)
    time.sleep(0.5)


@history()
def asked_forever(play: OldPlay, count: int, rng: Random) -> None:
    """UNKNOW to four or more checks: 3.1 never discards."""
    until_asked(play, play.send_all("asked_forever", count, rng), 4)


@history()
def group_gone(play: OldPlay, count: int, rng: Random) -> None:
    """The only producer of the group leaves at once: no producer receives the checks."""
    play.join_group("gone")
    play.send_all("group_gone", count, rng, group="gone")
    play.agent.do("leave", group="gone")
    play.record("left", group="gone")


# ---- at the end


@history(phase=1)
def pending(play: OldPlay, count: int, rng: Random) -> None:
    """Not decided when the broker stops."""
    play.send_all("pending", count, rng)


@history(phase=2)
def last_second(play: OldPlay, count: int, rng: Random) -> None:
    """Sent and decided just before the stop."""
    for number in range(count):
        play.send("last_second", number, rng, first=("COMMIT", "ROLLBACK", "UNKNOW")[number % 3])
    time.sleep(0.4)


# ---- after a crash (3.1: the table is rebuilt from the redo log, and numbered from 0)


@history()
def first_decided_late(play: OldPlay, count: int, rng: Random) -> None:
    """The log's first record, at offset 0; committed by hand just before the broker is killed (`recovered`)."""
    assert play.cases["first_decided_late.0"].original[1] == 0


@history()
def decided_late(play: OldPlay, count: int, rng: Random) -> None:
    """COMMIT or ROLLBACK by hand just before the broker is killed (`recovered`)."""
    play.send_all("decided_late", count, rng)


@history()
def late_end(play: OldPlay, count: int, rng: Random) -> None:
    """Never decided before the broker is killed and rebuilds its table (`recovered`); then COMMIT or ROLLBACK by hand
    with the earlier handle: the record is written and delivered, but the table is not updated.
    """
    play.send_all("late_end", count, rng)


@history(phase=2)
def recovered(play: OldPlay, count: int, rng: Random) -> None:
    """The broker is killed and started again; every check is then answered with COMMIT, which is refused where the
    slot's number has changed. New transactions have the new numbers: committed, or never decided.
    """
    deciding = [one for one in play.cases.values() if one.plan in ("first_decided_late", "decided_late")]
    for number, one in enumerate(deciding):
        play.end_by_hand(one, (COMMIT, ROLLBACK)[number % 2])
    play.until_delivered(deciding[::2])
    play.start_again("kill", strangers="COMMIT")
    late = [one for one in play.cases.values() if one.plan == "late_end"]
    for number, one in enumerate(late):
        play.end_by_hand(one, (COMMIT, ROLLBACK)[number % 2], "the handle from before the restart")
    play.until_delivered(late[::2])
    play.send_all("recovered", count, rng)
    committed = [play.send("recovered", count + number, rng, first="COMMIT") for number in range(count)]
    play.until_delivered(committed)
    waiting = [one for one in play.cases.values() if one.plan == "pending"]
    play.until("a check after the restart", lambda: any(one.checks for one in waiting), PATIENCE_SECONDS)
    time.sleep(10)


# ---- on the version that is started on the same directory after the old one


@history()
def later_commit(play: OldPlay, count: int, rng: Random) -> None:
    """After the upgrade: committed at once."""
    play.until_delivered([play.send("later_commit", number, rng, first="COMMIT") for number in range(count)])


@history()
def later_rollback(play: OldPlay, count: int, rng: Random) -> None:
    """After the upgrade: rolled back at once."""
    until_decided(play, [play.send("later_rollback", number, rng, first="ROLLBACK") for number in range(count)])


@history(phase=1)
def later_pending(play: OldPlay, count: int, rng: Random) -> None:
    """After the upgrade: never decided."""
    play.send_all("later_pending", count, rng)


@history()
def leftover(play: OldPlay, count: int, rng: Random) -> None:
    """After the upgrade: some earlier pending transactions are committed or rolled back by hand."""
    waiting = [one for one in play.cases.values() if one.plan == "pending"][:count]
    for number, one in enumerate(waiting):
        play.end_by_hand(one, (COMMIT, ROLLBACK)[number % 2], "after the upgrade")
    play.until_delivered(waiting[::2])


@history()
def leftover_refused(play: OldPlay, count: int, rng: Random) -> None:
    """After an upgrade to a version with half topics: COMMIT by hand for earlier prepared records; the broker refuses
    it with an error and writes nothing.
    """
    earlier = cast("LaterPlay", play).earlier
    for one in [one for one in earlier.cases.values() if one.plan == "pending"][:count]:
        answer = Play.end(play, one, COMMIT, one.original)
        assert answer["code"] != 0, answer


@history()
def leftover_rollback(play: OldPlay, count: int, rng: Random) -> None:
    """After an upgrade to a version with half topics, while its first half is pending: ROLLBACK by hand for two earlier
    prepared records. The broker writes an op with their number, which is 0, to the op queue with the id of their own
    queue: in queue 0 it masks the first half, and other op queues are never read.
    """
    victims = play.send_all("leftover_rollback", 1, rng)
    assert victims[0].original[0] == 0
    waiting = [one for one in cast("LaterPlay", play).earlier.cases.values() if one.plan == "pending"]
    queues = {bool(one.known["queue_id"]): one for one in waiting}
    for one in (queues[True], queues[False]):
        answer = Play.end(play, one, ROLLBACK, one.original)
        assert answer["code"] == 0, answer
    time.sleep(8)
