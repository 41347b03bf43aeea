"""The planned histories: what may happen to a transaction, one small program each."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from tests.brokers.rig import COMMIT, DISCARD_TOPIC, ROLLBACK
from tests.brokers.stage import Act, Play, Transaction, order

Program = Callable[[Play, int, Random], None]
HISTORIES: dict[str, Act] = {}
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"


def history(phase: int = 0) -> Callable[[Program], Program]:
    """Register a history under its function's name."""

    def register(program: Program) -> Program:
        name = program.__name__
        HISTORIES[name] = Act(name, program, (program.__doc__ or "").strip(), phase)
        return program

    return register


# ---- what everybody does


@history()
def commit(play: Play, count: int, rng: Random) -> None:
    """Committed at once by the local transaction."""
    for number in range(count):
        play.send("commit", number, rng, first="COMMIT", flag=rng.choice((None, 7)))
        time.sleep(rng.random() / 20)


@history()
def rollback(play: Play, count: int, rng: Random) -> None:
    """Rolled back at once by the local transaction."""
    for number in range(count):
        play.send("rollback", number, rng, first="ROLLBACK")
        time.sleep(rng.random() / 20)


@history()
def commit_at_check_1(play: Play, count: int, rng: Random) -> None:
    """UNKNOW first, COMMIT at the first check."""
    play.until_checked(play.send_all("commit_at_check_1", count, rng, checks="COMMIT"), 1)


@history()
def commit_at_check_2(play: Play, count: int, rng: Random) -> None:
    """UNKNOW first and at the first check, COMMIT at the second."""
    play.until_checked(play.send_all("commit_at_check_2", count, rng, checks="UNKNOWN,COMMIT"), 2)


@history()
def rollback_at_check_1(play: Play, count: int, rng: Random) -> None:
    """UNKNOW first, ROLLBACK at the first check."""
    play.until_checked(play.send_all("rollback_at_check_1", count, rng, checks="ROLLBACK"), 1)


@history()
def rollback_at_check_2(play: Play, count: int, rng: Random) -> None:
    """UNKNOW first and at the first check, ROLLBACK at the second."""
    play.until_checked(play.send_all("rollback_at_check_2", count, rng, checks="UNKNOWN,ROLLBACK"), 2)


@history()
def local_transaction_throws(play: Play, count: int, rng: Random) -> None:
    """The local transaction throws (the client then says UNKNOW); COMMIT at the first check."""
    play.until_checked(play.send_all("local_transaction_throws", count, rng, first="THROW", checks="COMMIT"), 1)


@history()
def never_answered(play: Play, count: int, rng: Random) -> None:
    """UNKNOW to everything, until the broker gives up."""
    play.until_discarded(play.send_all("never_answered", count, rng))


@history()
def producer_group_gone(play: Play, count: int, rng: Random) -> None:
    """The only producer of the group leaves before the first check; checks are counted and nobody hears them, until
    the discard.
    """
    play.join_group("gone")
    sent = play.send_all("producer_group_gone", count, rng, group="gone")
    play.agent.do("leave", group="gone")
    play.record("left", group="gone")
    play.until_discarded(sent)


# ---- message forms


@history()
def immunity(play: Play, count: int, rng: Random) -> None:
    """CHECK_IMMUNITY_TIME_IN_SECONDS: put back without being asked until it is over; then committed at the first
    check, or never.
    """
    waiting = [
        play.send(
            "immunity", number, rng, checks=rng.choice(("COMMIT", "UNKNOWN")), **{f"p.{IMMUNITY}": rng.choice((3, 4))}
        )
        for number in range(count)
    ]
    for one in waiting:
        play.until(f"{one.case} decided or discarded", lambda one=one: bool(one.deliveries or one.discards))  # type: ignore[misc]


@history()
def compressed(play: Play, count: int, rng: Random) -> None:
    """A body over 4096 bytes, which the client compresses; committed or rolled back at once."""
    for number in range(count):
        body = order(rng, f"compressed.{number}", rng.randrange(5000, 9000))
        play.send("compressed", number, rng, first=("COMMIT", "ROLLBACK")[number % 2], body=body)


@history()
def compressed_checked(play: Play, count: int, rng: Random) -> None:
    """A compressed body that is put back for checks; committed at the first, or discarded."""
    for number in range(count):
        body = order(rng, f"compressed_checked.{number}", rng.randrange(5000, 9000))
        play.send("compressed_checked", number, rng, checks=("COMMIT", "UNKNOWN")[number % 2], body=body)
    sent = [play.cases[f"compressed_checked.{number}"] for number in range(count)]
    play.until_discarded(sent[1::2])


@history()
def codecs(play: Play, count: int, rng: Random) -> None:
    """Bodies compressed by LZ4 and by ZSTD (5.x clients); committed, rolled back, committed at the first check."""
    for group, codec in (("lz4_shop", "LZ4"), ("zstd_shop", "ZSTD"), ("zlib_shop", "ZLIB")):
        play.join_group(group, compress=codec)
        for number in range(count):
            body = order(rng, f"{codec}.{number}", rng.randrange(5000, 9000))
            first = ("COMMIT", "UNKNOWN", "ROLLBACK")[number % 3]
            play.send(f"codecs_{codec.lower()}", number, rng, group=group, first=first, checks="COMMIT", body=body)
        waiting = [play.cases[f"codecs_{codec.lower()}.{number}"] for number in range(1, count, 3)]
        play.until_delivered(waiting)


@history(phase=1)
def poison(play: Play, count: int, rng: Random) -> None:
    """A compressed half put back by a broker before 4.6 cannot be read again: each pass ends there, and repeats what
    came before it.
    """
    play.send_all("poison_before", count, rng)
    play.send_all("poison_commit_at_check", count, rng, checks="COMMIT")
    play.send_all("poison", count, rng, body=order(rng, "poison", 6000))
    play.send_all("poison_after", count, rng)
    play.send_all("poison_rollback", count, rng, first="ROLLBACK")
    time.sleep(7)


@history(phase=2)
def poison_later(play: Play, count: int, rng: Random) -> None:
    """Halves that come when a poison half has stopped the check: the broker never asks for them."""
    play.send_all("poison_later", count, rng)
    for what in ("COMMIT", "ROLLBACK"):
        play.send_all(f"poison_later_{what.lower()}", 2, rng, first=what)
    time.sleep(7)


@history()
def bare(play: Play, count: int, rng: Random) -> None:
    """One byte of body, no keys, no tags, no property of ours: as empty as the client permits."""
    wanted = {"body": b"x", "keys": None, "tags": None, "nocase": "yes"}
    for number in range(count):
        play.send("bare", number, rng, first=("COMMIT", "ROLLBACK")[number % 2], **wanted)


@history()
def foreign_words(play: Play, count: int, rng: Random) -> None:
    """Keys, tags, properties and bodies outside ASCII, also outside the basic plane."""
    words = ("订单", "заказ", "سفارش", "παραγγελία", "commande-é", "🛒")
    for number in range(count):
        word = words[number % len(words)]
        first = ("COMMIT", "ROLLBACK", "UNKNOWN")[number % 3]
        play.send(
            "foreign_words",
            number,
            rng,
            first=first,
            checks="COMMIT",
            keys=f"{word}-{number}",
            tags=word,
            body=f"{word} {number}".encode(),
            **{f"p.{word}": word * 3, "p.note": f"a=b;{word}"},
        )


@history()
def many_keys(play: Play, count: int, rng: Random) -> None:
    """Several business keys in KEYS."""
    for number in range(count):
        keys = " ".join(f"M{number}-{part}" for part in range(2 + number % 3))
        play.send("many_keys", number, rng, first=("COMMIT", "UNKNOWN")[number % 2], checks="COMMIT", keys=keys)


@history()
def ordinary(play: Play, count: int, rng: Random) -> None:
    """Messages outside any transaction."""
    for number in range(count):
        play.send("ordinary", number, rng, kind="ordinary")
        time.sleep(rng.random() / 20)


@history()
def batch(play: Play, count: int, rng: Random) -> None:
    """Batches of ordinary messages."""
    for number in range(count):
        play.send("batch", number, rng, kind="batch", count=2 + number % 4, keys=None, tags=None)


@history()
def without_id(play: Play, count: int, rng: Random) -> None:
    """Half messages without UNIQ_KEY, as a client of another make might send them; committed, rolled back (by hand)."""
    for number in range(count):
        one = raw_half(play, "without_id", number, rng)
        play.end(one, (COMMIT, ROLLBACK)[number % 2], one.original)


def raw_half(play: Play, plan: str, number: int, rng: Random, **more: object) -> Transaction:
    """Send a half message without UNIQ_KEY by a raw request."""
    case = f"{plan}.{number}"
    one = play.cases[case] = Transaction(case, plan)
    topic = rng.choice(list(play.script.topics))
    group = play.script.groups[0]
    named = {"TRAN_MSG": "true", "PGROUP": group, "KEYS": f"K-{case}", "TAGS": "raw", "WAIT": "true", "case": case}
    named |= {name: str(value) for name, value in more.items()}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in named.items())
    answer = play.rig.request(
        play.agent,
        10,
        order(rng, case),
        producerGroup=group,
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=4,
        bornTimestamp=int(time.time() * 1000),
        flag=0,
        properties=properties,
        reconsumeTimes=0,
        unitMode="false",
        batch="false",
        maxReconsumeTimes=0,
    )
    if answer["code"] != 0:
        raise RuntimeError(f"{case}: {answer}")
    message_id = answer["fields"]["msgId"]
    play.record(
        "sent",
        case=case,
        plan=plan,
        kind="transaction",
        transaction_id=answer["fields"].get("transactionId"),
        message_id=message_id,
        producer_group=group,
        topic=topic,
        queue_id=0,
        queue_offset=int(answer["fields"]["queueOffset"]),
        commit_log_offset=int(message_id[-16:], 16),
        offset_message_id=message_id,
        keys=named["KEYS"],
        tags="raw",
        flag=0,
        status="SEND_OK",
    )
    return one


# ---- decisions that name an old copy


@history()
def late_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT after the first check has put a newer copy back: it names the old copy, the newer one is asked until the
    discard.
    """
    play.until_discarded(play.send_all("late_commit", count, rng, first="COMMIT@1"))


@history()
def late_rollback(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK after the first check has put a newer copy back: it names the old copy, the newer one is asked until
    the discard.
    """
    play.until_discarded(play.send_all("late_rollback", count, rng, first="ROLLBACK@1"))


@history()
def late_commit_then_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT naming an old copy, then COMMIT at the third check: delivered twice."""
    sent = play.send_all("late_commit_then_commit", count, rng, first="COMMIT@1", checks="UNKNOWN,UNKNOWN,COMMIT")
    play.until_delivered(sent, 2)


@history()
def late_rollback_then_commit(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK naming an old copy, then COMMIT at the third check: what was rolled back is delivered."""
    sent = play.send_all("late_rollback_then_commit", count, rng, first="ROLLBACK@1", checks="UNKNOWN,UNKNOWN,COMMIT")
    play.until_delivered(sent)


@history()
def late_rollback_then_rollback(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK naming an old copy, then ROLLBACK at the third check."""
    sent = play.send_all(
        "late_rollback_then_rollback", count, rng, first="ROLLBACK@1", checks="UNKNOWN,UNKNOWN,ROLLBACK"
    )
    play.until_checked(sent, 3)


# ---- decisions that come again


@history()
def double_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT by the client and once more by hand: delivered twice."""
    sent = play.send_all("double_commit", count, rng, first="COMMIT")
    for one in sent:
        play.end(one, COMMIT, one.original)
    play.until_delivered(sent, 2)


@history()
def triple_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT by the client and twice more by hand: delivered three times."""
    sent = play.send_all("triple_commit", count, rng, first="COMMIT")
    for one in sent:
        play.end(one, COMMIT, one.original)
        play.end(one, COMMIT, one.original)
    play.until_delivered(sent, 3)


@history()
def commit_after_rollback(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK by the client, its op written, then COMMIT by hand: delivered."""
    sent = play.send_all("commit_after_rollback", count, rng, first="ROLLBACK")
    time.sleep(1.5)
    for one in sent:
        play.end(one, COMMIT, one.original)
    play.until_delivered(sent)


@history()
def rollback_after_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT by the client, then ROLLBACK by hand: stays delivered."""
    sent = play.send_all("rollback_after_commit", count, rng, first="COMMIT")
    play.until_delivered(sent)
    for one in sent:
        play.end(one, ROLLBACK, one.original)


@history()
def commit_after_discard(play: Play, count: int, rng: Random) -> None:
    """Discarded, then COMMIT by hand naming the last half copy: delivered."""
    sent = play.send_all("commit_after_discard", count, rng)
    play.until_discarded(sent)
    for one in sent:
        play.end(one, COMMIT, play.last_copy(one))
    play.until_delivered(sent)


@history()
def rollback_after_discard(play: Play, count: int, rng: Random) -> None:
    """Discarded, then ROLLBACK by hand naming the last half copy."""
    sent = play.send_all("rollback_after_discard", count, rng)
    play.until_discarded(sent)
    for one in sent:
        play.end(one, ROLLBACK, play.last_copy(one))


@history()
def resumed_then_commit(play: Play, count: int, rng: Random) -> None:
    """Discarded, resumed by request 323, COMMIT at the first check after that."""
    sent = play.send_all("resumed_then_commit", count, rng, checks="UNKNOWN," * play.checks_max + "COMMIT")
    play.until_discarded(sent)
    for one in sent:
        play.resume(one, offset_message_id(play, one))
    play.until_delivered(sent)


@history()
def resumed_then_discarded(play: Play, count: int, rng: Random) -> None:
    """Discarded, resumed by request 323, never answered: discarded again."""
    sent = play.send_all("resumed_then_discarded", count, rng)
    play.until_discarded(sent)
    for one in sent:
        play.resume(one, offset_message_id(play, one))
    play.until_discarded(sent, 2)


def offset_message_id(play: Play, one: Transaction, topic: str = DISCARD_TOPIC) -> str:
    """The id by place of the newest record in a system topic: the host of the first id, another offset."""
    found = play.last_copy(one, topic)
    return str(one.known["offset_message_id"])[:-16] + f"{found[1]:016X}"


# ---- numbers that hit the wrong half


@history()
def commit_names_final(play: Play, count: int, rng: Random) -> None:
    """COMMIT by hand naming a final record in queue 0: delivered again, and the op hides the half whose number the
    final has (before 5.5).
    """
    topic = next(iter(play.script.topics))
    victims = 0
    for number in range(count):
        probe = play.send("mask_probe", number, rng, first="ROLLBACK", topic=topic)
        play.until_sent([probe])
        here = max((record["queue_offset"] for record in play.rig.pull(play.agent, topic)), default=-1) + 1
        fill_queue(play, number, rng, topic, probe.original[0] + 6 - here)
        one = play.send("commit_names_final", number, rng, topic=topic, first="COMMIT")
        play.until_delivered([one])
        final = one.deliveries[0]
        while True:
            victim = play.send("mask_victim", victims, rng, topic=topic)
            victims += 1
            play.until_sent([victim])
            if victim.original[0] >= final["queue_offset"]:
                break
        play.record("masking", case=one.case, number=final["queue_offset"], victim=victim.case, half=victim.original[0])
        play.end(one, COMMIT, (final["queue_offset"], final["commit_log_offset"]))
    time.sleep(int(play.rig.conf["transactionTimeOut"]) / 1000 + int(play.rig.conf["transactionCheckMax"]) + 4)


def fill_queue(play: Play, number: int, rng: Random, topic: str, count: int) -> None:
    """Ordinary messages into queue 0 of a topic, by raw requests."""
    for extra in range(count):
        play.rig.request(
            play.agent,
            10,
            order(rng, "filler"),
            producerGroup="filler",
            topic=topic,
            defaultTopic="TBW102",
            defaultTopicQueueNums=4,
            queueId=0,
            sysFlag=0,
            bornTimestamp=int(time.time() * 1000),
            flag=0,
            reconsumeTimes=0,
            unitMode="false",
            batch="false",
            properties=f"UNIQ_KEY\x01FILLER{number:04}{extra:06}\x02",
            maxReconsumeTimes=0,
        )


@history()
def decision_names_discard(play: Play, count: int, rng: Random) -> None:
    """Discarded, then a decision by hand naming the discard copy: COMMIT delivers it, ROLLBACK changes nothing."""
    sent = play.send_all("decision_names_discard", count, rng)
    play.until_discarded(sent)
    for number, one in enumerate(sent):
        play.end(one, (COMMIT, ROLLBACK)[number % 2], play.last_copy(one, DISCARD_TOPIC))
    play.until_delivered(sent[::2])


# ---- delays


@history()
def delayed_level(play: Play, count: int, rng: Random) -> None:
    """A delay level on a transactional message; committed at once (5.5: by a raw request, its client refuses)."""
    if play.rig.release >= (5, 5):
        delayed_raw(play, "delayed_level", [{"DELAY": 2}] * count, rng)
        return
    sent = play.send_all("delayed_level", count, rng, first="COMMIT", **{"p.DELAY": 2})
    play.holds(lambda: all(one.deliveries for one in sent), 12)


@history()
def delayed_timer(play: Play, count: int, rng: Random) -> None:
    """A timer property (5.x) on a transactional message; committed at once or at each check (5.5: raw, at once)."""
    soon = int(time.time() * 1000) + 4000
    timers = ({"TIMER_DELAY_SEC": 3}, {"TIMER_DELAY_MS": 3000}, {"TIMER_DELIVER_MS": soon})
    if play.rig.release >= (5, 5):
        delayed_raw(play, "delayed_timer", [timers[number % 3] for number in range(count)], rng)
        return
    for number in range(count):
        first = ("COMMIT", "UNKNOWN")[number // 3 % 2]
        timer = {f"p.{name}": value for name, value in timers[number % 3].items()}
        play.send("delayed_timer", number, rng, first=first, checks="COMMIT", **timer)
    time.sleep(15)


def delayed_raw(play: Play, plan: str, delays: list[dict[str, int]], rng: Random) -> None:
    """Delayed halves as an older client sends them, each committed by hand under the place that the broker answered."""
    for number, delay in enumerate(delays):
        one = raw_half(play, plan, number, rng, **delay)
        play.end(one, COMMIT, one.original)
    time.sleep(12)


@history()
def delayed_ordinary(play: Play, count: int, rng: Random) -> None:
    """A delay level on ordinary messages."""
    play.send_all("delayed_ordinary", count, rng, kind="ordinary", **{"p.DELAY": 2})


# ---- other store forms


@history()
def fifteen_checks(play: Play, count: int, rng: Random) -> None:
    """Checked until transactionCheckMax and then discarded, with nothing else in the store."""
    play.until_discarded(
        play.send_all("fifteen_checks", count, rng, topic="orders", keys="ORDER-1", tags="created"), seconds=120
    )


LONG_GROUP = "consumer_of_a_very_long_name_" + "x" * 100


@history()
def refused_by_consumer(play: Play, count: int, rng: Random) -> None:
    """Messages that a group with a long name refuses once: they go to its retry topic (over 127 bytes: V2 records)."""
    topic = next(iter(play.script.topics))
    play.agent.do("consumer", group=LONG_GROUP, topics=topic, fail=1)
    play.send_all("refused_by_consumer", count, rng, kind="ordinary", topic=topic)
    play.until("redelivered", lambda: retried(play) >= count, 40)


def retried(play: Play) -> int:
    """How many deliveries came from a retry topic (the client shows the original topic again, so the place tells them
    apart).
    """
    places: dict[str, set[int]] = {}
    for event in list(play.truth):
        if event["event"] == "delivered" and str(event["case"]).startswith("refused_by_consumer"):
            places.setdefault(event["case"], set()).add(event["commit_log_offset"])
    return sum(len(found) > 1 for found in places.values())


@history()
def half_cursor_set_back(play: Play, count: int, rng: Random) -> None:
    """Broker stopped, the half cursor in consumerOffset.json set back to 0, broker started again for a few passes."""
    cursor_back(play, count, rng, with_backup=False)


@history()
def half_cursor_set_back_with_backup(play: Play, count: int, rng: Random) -> None:
    """The same, in consumerOffset.json.bak too."""
    cursor_back(play, count, rng, with_backup=True)


def cursor_back(play: Play, count: int, rng: Random, with_backup: bool) -> None:
    """The two histories above."""
    sent = play.send_all("cursor_back_commit", count, rng, first="COMMIT")
    play.send_all("cursor_back_rollback", count, rng, first="ROLLBACK")
    lost = play.send_all("cursor_back_discarded", 2, rng)
    play.until_delivered(sent)
    play.until_discarded(lost)
    play.halt("clean")
    play.set_half_cursor(0, with_backup)
    play.boot()
    time.sleep(3)


# ---- what the end of the store leaves open


@history(phase=1)
def pending(play: Play, count: int, rng: Random) -> None:
    """Not answered yet when the broker stops: in waves, so that some were never asked and some several times."""
    waves = 4
    for wave in range(waves):
        for number in range(wave, count, waves):
            play.send("pending", number, rng)
        if wave < waves - 1:
            time.sleep(1.1)
    play.until_sent(play.cases[f"pending.{number}"] for number in range(count))


@history(phase=2)
def pending_never_checked(play: Play, count: int, rng: Random) -> None:
    """Sent when transactionTimeOut has just been raised: not checked before the stop, nor is anything else while the
    broker shuts down.
    """
    play.config(transactionTimeOut="600000")
    time.sleep(1.2)
    play.send_all("pending_never_checked", count, rng)


@history(phase=1)
def pending_immune(play: Play, count: int, rng: Random) -> None:
    """Not answered yet and immune for an hour: put back at each pass, asked by nobody."""
    play.send_all("pending_immune", count, rng, **{f"p.{IMMUNITY}": 3600})
    time.sleep(2.5)


@history(phase=1)
def pending_late_commit(play: Play, count: int, rng: Random) -> None:
    """COMMIT naming an old copy shortly before the end: delivered, and still before the broker."""
    play.until_delivered(play.send_all("pending_late_commit", count, rng, first="COMMIT@1"))


@history(phase=1)
def pending_late_rollback(play: Play, count: int, rng: Random) -> None:
    """ROLLBACK naming an old copy shortly before the end: rolled back, and still before the broker."""
    sent = play.send_all("pending_late_rollback", count, rng, first="ROLLBACK@1")
    for one in sent:
        play.until(f"{one.case} decided", lambda one=one: bool(one.decisions))  # type: ignore[misc]
    time.sleep(1.2)


@history()
def pending_resumed(play: Play, count: int, rng: Random) -> None:
    """Discarded, resumed by request 323, not answered yet when the broker stops."""
    sent = play.send_all("pending_resumed", count, rng)
    play.until_discarded(sent)

    def resume() -> None:
        for one in sent:
            play.resume(one, offset_message_id(play, one))
        time.sleep(1.5)

    play.epilogues.append(("pending_resumed", resume))


@history(phase=2)
def pending_without_id(play: Play, count: int, rng: Random) -> None:
    """Half messages without UNIQ_KEY that nobody has decided when the broker stops."""
    for number in range(count):
        raw_half(play, "pending_without_id", number, rng)


@history(phase=1)
def op_batch_lost(play: Play, count: int, rng: Random) -> None:
    """Decisions whose ops wait in the broker's memory (5.1 and later, transactionOpBatchInterval raised) when it is
    killed.
    """
    play.config(transactionOpBatchInterval="60000")
    time.sleep(2)
    sent = [
        play.send("op_batch_lost", number, rng, first=("COMMIT", "ROLLBACK")[number % 2]) for number in range(count)
    ]
    play.until_delivered(sent[::2])
    for one in sent:
        play.until(f"{one.case} decided", lambda one=one: bool(one.decisions))  # type: ignore[misc]
    time.sleep(0.5)
