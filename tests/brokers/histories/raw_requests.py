"""Messages sent by raw requests, which official clients do not send."""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random

from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction, order


def raw_half(play: Play, plan: str, number: int, rng: Random, **more: object) -> Transaction:
    """Send a half message without UNIQ_KEY by a raw request."""
    prepared = {"TRAN_MSG": "true", "PGROUP": play.script.groups[0]} | more
    return raw_record(play, plan, number, rng, rng.choice(list(play.script.topics)), 4, prepared)


def raw_record(
    play: Play, plan: str, number: int, rng: Random, topic: str, system_flag: int, properties: Mapping[str, object]
) -> Transaction:
    """Send a message without UNIQ_KEY by a raw request; it is reported as a half message."""
    case = f"{plan}.{number}"
    one = play.cases[case] = Transaction(case, plan)
    group = play.script.groups[0]
    named = {name: str(value) for name, value in properties.items()}
    named = {"KEYS": f"K-{case}", "TAGS": "raw", "WAIT": "true", "case": case} | named
    encoded = "".join(f"{name}\x01{value}\x02" for name, value in named.items())
    answer = play.rig.request(
        play.agent,
        10,
        order(rng, case),
        producerGroup=group,
        topic=topic,
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=0,
        sysFlag=system_flag,
        bornTimestamp=int(time.time() * 1000),
        flag=0,
        properties=encoded,
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


def fill_queue(play: Play, number: int, rng: Random, topic: str, count: int) -> None:
    """Send ordinary messages to queue 0 of a topic by raw requests."""
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
