"""The example store: a day of a small shop, played in one minute."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from random import Random

from tests.brokers.recipes import Recipe
from tests.brokers.script import Act, Script
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction

VERSION = "5.3.3"
CUSTOMERS = ("amira", "björn", "chen", "dolores", "emeka", "françoise", "giulia", "hiroshi", "ingrid", "joão")
ARTICLES = (
    ("kettle", 2990),
    ("teapot", 3450),
    ("cup", 590),
    ("saucer", 390),
    ("oolong 100 g", 1290),
    ("strainer", 450),
)
ORDERS, PAYMENTS, SHIPPING = "order-service", "payment-service", "shipping-service"


def order(
    play: Play, number: int, rng: Random, first: str = "COMMIT", checks: str = "UNKNOWN", group: str = ORDERS
) -> Transaction:
    """A new order, as one transaction."""
    lines = [
        {"article": name, "cents": cents, "count": rng.randrange(1, 4)}
        for name, cents in rng.sample(ARTICLES, rng.randrange(1, 4))
    ]
    customer = rng.choice(CUSTOMERS)
    body = {"order": 20000 + number, "customer": customer, "lines": lines}
    return transaction(
        play,
        "order",
        number,
        rng,
        "orders",
        "created",
        f"order-{20000 + number} customer-{customer}",
        body,
        first,
        checks,
        group,
    )


def payment(play: Play, number: int, rng: Random, first: str = "COMMIT", checks: str = "UNKNOWN") -> Transaction:
    """The payment of an order, as one transaction."""
    body = {"order": 20000 + number, "cents": rng.randrange(390, 12000), "by": rng.choice(("card", "invoice", "bank"))}
    tag = rng.choice(("card", "invoice"))
    keys = f"payment-{70000 + number} order-{20000 + number}"
    return transaction(play, "payment", number, rng, "payments", tag, keys, body, first, checks, PAYMENTS)


def transaction(
    play: Play,
    plan: str,
    number: int,
    rng: Random,
    topic: str,
    tags: str,
    keys: str,
    body: Mapping[str, object],
    first: str,
    checks: str,
    group: str,
) -> Transaction:
    """One transaction of the shop: without a property of the tests, with a region as the shop's services set it."""
    text = json.dumps(body, ensure_ascii=False).encode()
    return play.send(
        plan,
        number,
        rng,
        topic=topic,
        tags=tags,
        keys=keys,
        body=text,
        first=first,
        checks=checks,
        group=group,
        nocase="yes",
        **{"p.region": rng.choice(("north", "south"))},
    )


def morning(play: Play, count: int, rng: Random) -> None:
    """Orders and payments; most are committed, some rolled back, some decided only at a check."""
    for group in (PAYMENTS, SHIPPING):
        play.join_group(group)
    play.agent.do("consumer", group="invoicing", topics="payments")
    for number in range(count):
        luck = rng.random()
        first, checks = (
            ("COMMIT", "UNKNOWN") if luck < 0.8 else ("ROLLBACK", "UNKNOWN") if luck < 0.92 else ("UNKNOWN", "COMMIT")
        )
        order(play, number, rng, first, checks)
        if luck < 0.7:
            payment(play, number, rng)
        time.sleep(rng.random() / 25)


def trouble(play: Play, count: int, rng: Random) -> None:
    """Orders that no producer decides until the broker discards them; one is then committed by hand."""
    lost = [order(play, 900 + number, rng, "UNKNOWN") for number in range(count)]
    play.until_sent(lost)
    play.until_discarded(lost)
    play.end(lost[0], 8, play.last_copy(lost[0]))


def evening(play: Play, count: int, rng: Random) -> None:
    """Open transactions at the end of the day: undecided orders, a decision that named an old copy, a service that
    stopped.
    """
    late = [order(play, 1000, rng, "COMMIT@1"), payment(play, 1001, rng, "ROLLBACK@1")]
    gone = [order(play, 1010 + number, rng, "UNKNOWN", group=SHIPPING) for number in range(2)]
    open_orders = [order(play, 1020 + number, rng, "UNKNOWN") for number in range(count)]
    play.until_sent([*gone, *open_orders])
    play.agent.do("leave", group=SHIPPING)
    play.until("late decisions", lambda: all(one.decisions for one in late))
    play.until_checked(open_orders, 2)


def last_minute(play: Play, count: int, rng: Random) -> None:
    """Sent just before the stop: not checked yet."""
    play.config(transactionTimeOut="60000")
    time.sleep(1.2)
    play.until_sent([payment(play, 1030 + number, rng, "UNKNOWN") for number in range(count)])


ACTS = {
    "morning": Act("morning", morning, morning.__doc__ or ""),
    "trouble": Act("trouble", trouble, trouble.__doc__ or ""),
    "evening": Act("evening", evening, evening.__doc__ or "", 1),
    "last_minute": Act("last_minute", last_minute, last_minute.__doc__ or "", 2),
}


def recipe(seed: int = 2026) -> Recipe:
    """The example's recipe."""
    script = Script(
        VERSION,
        seed,
        {"morning": 160, "trouble": 3, "evening": 3, "last_minute": 2},
        topics={"orders": 4, "payments": 2},
        conf={
            "transactionCheckMax": "15",
            "transactionTimeOut": "1500",
            "brokerClusterName": "shop",
            "brokerName": "shop-a",
        },
        groups=(ORDERS,),
    )
    return Recipe(
        f"orders-{VERSION}", "A small shop: orders and payments, stopped cleanly with transactions open.", script
    )
