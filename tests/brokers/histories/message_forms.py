"""Histories of messages of every form: bodies, keys, properties, batches, messages without an id."""

from __future__ import annotations

import time
from random import Random

from tests.brokers.histories.raw_requests import raw_half
from tests.brokers.histories.registry import IMMUNITY, history
from tests.brokers.rig import COMMIT, ROLLBACK
from tests.brokers.stage import Play
from tests.brokers.transaction import order


@history()
def immunity(play: Play, count: int, rng: Random) -> None:
    """CHECK_IMMUNITY_TIME_IN_SECONDS: put back without a check until that time is over; then committed at the first
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
    """A compressed half that a broker before 4.6 put back cannot be read again: each round ends there, and repeats the
    actions before it.
    """
    play.send_all("poison_before", count, rng)
    play.send_all("poison_commit_at_check", count, rng, checks="COMMIT")
    play.send_all("poison", count, rng, body=order(rng, "poison", 6000))
    play.send_all("poison_after", count, rng)
    play.send_all("poison_rollback", count, rng, first="ROLLBACK")
    time.sleep(7)


@history(phase=2)
def poison_later(play: Play, count: int, rng: Random) -> None:
    """Halves that are sent after a poison half has stopped the check: the broker never checks them."""
    play.send_all("poison_later", count, rng)
    for what in ("COMMIT", "ROLLBACK"):
        play.send_all(f"poison_later_{what.lower()}", 2, rng, first=what)
    time.sleep(7)


@history()
def bare(play: Play, count: int, rng: Random) -> None:
    """The smallest message that the client permits: a body of one byte, no keys, no tags, no own properties."""
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
    """Half messages without UNIQ_KEY, as clients in other languages send them; committed or rolled back by hand."""
    for number in range(count):
        one = raw_half(play, "without_id", number, rng)
        play.end(one, (COMMIT, ROLLBACK)[number % 2], one.original)
