"""Every action on transactions whose producer is dead, and its effects: deliveries, op, checks, receipt."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.brokers.forcing.naive import op_numbers
from tests.brokers.forcing.stage import Shop, Stage
from tests.brokers.forcing.tool import Ran, Row, Tool
from tests.brokers.rig import COMMIT, DISCARD_TOPIC
from tests.brokers.transaction import Transaction

COMPRESSIBLE = b"a body that the client compresses, for it is longer than four kibibytes; " * 90
RESUME_KEEPS_COMPRESSED_SINCE = (5, 3, 2)


@dataclass
class Act:
    """One action on a transaction, named by one of its identities, and the expected effects."""

    what: str
    action: str
    one: Transaction
    named_by: str
    deliveries: int
    outcome: str = "proved"
    codes: tuple[int, ...] = (0,)
    ran: Ran | None = None

    @property
    def receipts(self) -> list[Row]:
        """Its printed receipts."""
        assert self.ran is not None
        return [row for row in self.ran.rows if row["transaction_id"] == self.one.id]


@dataclass
class Result:
    """The effects of an act, and what is wrong with them."""

    act: Act
    delivered: int
    codes: list[int | None]
    wrong: list[str] = field(default_factory=list)


def play(stage: Stage, tool: Tool) -> list[Result]:
    """Run all actions at the same time, one command for each; then compare the effects."""
    shop = stage.shop("f-first")
    acts = [*_discarded(stage, shop), *_pending(stage)]
    commands: dict[str, subprocess.Popen[str]] = {}
    for action in dict.fromkeys(act.action for act in acts):
        names = [_identity(stage, act) for act in acts if act.action == action]
        commands[action] = tool.start(action, *names, "--reason", f"test of {action}", "--yes", "--format", "jsonl")
    ran = {action: tool.end(process) for action, process in commands.items()}
    for act in acts:
        act.ran = ran[act.action]
    back = stage.shop("f-resumed", strangers="COMMIT")  # its producer is back, and answers every check with COMMIT
    back.join("f-resumed-compressed", strangers="COMMIT")
    for number, group in enumerate(("f-resumed", "f-resumed-compressed")):
        back.begin("returned", number, first="ROLLBACK", group=group)
    back.until_decided()
    return _results(stage, acts)


def _discarded(stage: Stage, shop: Shop) -> list[Act]:
    """Acts on transactions that the broker has discarded."""
    names = ("discarded", "by-discard", "compressed", "resumed", "resumed-compressed")
    groups = {name: shop.join(f"f-{name}") for name in names}
    compressed = {"body": COMPRESSIBLE}
    committed = shop.begin("commit-discarded", 0, group=groups["discarded"])
    by_discard = shop.begin("commit-discarded-by-its-copy", 0, group=groups["by-discard"])
    large = shop.begin("commit-discarded-compressed", 0, group=groups["compressed"], **compressed)
    resumed = [shop.begin("resume", 0, group=groups["resumed"])]
    if stage.rig.release >= RESUME_KEEPS_COMPRESSED_SINCE:
        resumed.append(shop.begin("resume-compressed", 0, group=groups["resumed-compressed"], **compressed))
    all_of_them = [committed, by_discard, large, *resumed]
    shop.until_decided()
    shop.kill()
    stage.until_gone(groups["resumed"])
    stage.discard(all_of_them)
    acts = [
        Act("commit of a discarded one", "commit", committed, "UNIQ_KEY", 1),
        Act("commit of a discarded one", "commit", by_discard, "message id of its discard copy", 1),
        Act("commit of a discarded one, compressed", "commit", large, "UNIQ_KEY", 1),
    ]
    for one in resumed:
        what = f"resume of a discarded one{', compressed' if one.plan.endswith('compressed') else ''}"
        acts.append(Act(what, "resume", one, "UNIQ_KEY", 1, outcome="accepted"))
    return acts


def _pending(stage: Stage) -> list[Act]:
    """Acts on pending transactions: some were put back, one was decided by an old copy."""
    shop = stage.shop("f-old")
    names = ("commit-by-newest", "rollback-checked", "discard-checked", "close")
    checked = {name: shop.begin(name, 0, group=shop.join(f"f-{name}")) for name in names}
    shop.until_decided()
    stage.put_back(checked.values(), 2)
    closed = checked["close"]
    stage.end(closed, COMMIT, closed.original)
    fresh_names = ("commit-by-id", "commit-by-original", "commit-by-key", "commit-compressed", "rollback", "discard")
    bodies = {"commit-compressed": COMPRESSIBLE}
    fresh = {
        name: shop.begin(name, 0, group=shop.join(f"f-{name}"), body=bodies.get(name), keys=f"ORDER-{name}")
        for name in fresh_names
    }
    shop.until_decided()
    shop.kill()
    for one in (*checked.values(), *fresh.values()):
        stage.until_gone(str(one.known["producer_group"]))
    time.sleep(0.5)
    return [
        Act("commit", "commit", fresh["commit-by-id"], "UNIQ_KEY", 1),
        Act("commit", "commit", fresh["commit-by-original"], "message id of its half", 1),
        Act("commit", "commit", fresh["commit-by-key"], "business key", 1),
        Act("commit, compressed", "commit", fresh["commit-compressed"], "UNIQ_KEY", 1),
        Act("commit after checks", "commit", checked["commit-by-newest"], "message id of its newest copy", 1),
        Act("rollback", "rollback", fresh["rollback"], "UNIQ_KEY", 0),
        Act("rollback after checks", "rollback", checked["rollback-checked"], "message id of its half", 0),
        Act("discard", "discard", fresh["discard"], "UNIQ_KEY", 0),
        Act("discard after checks", "discard", checked["discard-checked"], "UNIQ_KEY", 0),
        Act("close of one whose commit named an old copy", "close", closed, "UNIQ_KEY", 1),
    ]


def _identity(stage: Stage, act: Act) -> str:
    one = act.one
    names: dict[str, Callable[[], str]] = {
        "UNIQ_KEY": lambda: one.id,
        "business key": lambda: str(one.known["keys"]),
        "message id of its half": lambda: str(one.known["offset_message_id"]),
        "message id of its newest copy": lambda: _message_id(one, stage.last_copy(one)[1]),
        "message id of its discard copy": lambda: _message_id(one, stage.last_copy(one, DISCARD_TOPIC)[1]),
    }
    return names[act.named_by]()


def _message_id(one: Transaction, commit_log_offset: int) -> str:
    """The message id of another record of the same broker: host and port as in the first one's."""
    return str(one.known["offset_message_id"])[:16] + f"{commit_log_offset:016X}"


def _results(stage: Stage, acts: list[Act]) -> list[Result]:
    resumed = [act.one for act in acts if act.action == "resume"]
    others = [act.one for act in acts if act.action != "resume"]
    control = stage.orphans("control")
    with stage.checks():
        stage.until_delivered(resumed)
    asked = stage.asked_again([*others, *control])
    stage.until_consumed()
    numbers = op_numbers(stage.broker)
    assert f"{control[0].case}" in asked, "the broker asks nothing back: that nothing was asked again says nothing"
    return [_result(stage, act, asked, numbers) for act in acts]


def _result(stage: Stage, act: Act, asked: list[str], numbers: set[int]) -> Result:
    assert act.ran is not None
    delivered = stage.delivered(act.one)
    if act.ran.status != 0 or len(act.receipts) != 1:
        return Result(act, delivered, [], [str(act.ran)])
    receipt = act.receipts[0]
    codes = [request["response_code"] for request in receipt["requests"]]
    wrong = [
        f"{name}: {found!r}, not {wanted!r}"
        for name, found, wanted in (
            ("deliveries", delivered, act.deliveries),
            ("outcome", receipt["outcome"], act.outcome),
            ("response codes", codes, list(act.codes)),
            ("asked again", act.one.case in asked, False),
        )
        if found != wanted
    ]
    if act.action != "resume" and receipt["named_copy"]["queue_offset"] not in numbers:
        wrong.append(f"no op names half copy {receipt['named_copy']['queue_offset']}")
    wrong += _body_differs(stage, act) + _incomplete(receipt)
    return Result(act, delivered, codes, wrong)


def _body_differs(stage: Stage, act: Act) -> list[str]:
    found = {event["body_crc32"] for event in act.one.deliveries}
    return ["the delivered body is not the one that was sent"] if found - {stage.body_crcs[act.one.case]} else []


def _incomplete(receipt: Row) -> list[str]:
    """Missing parts of a receipt."""
    wanted = (
        "receipt_id", "action", "transaction_id", "store", "begun_time_ms", "ended_time_ms", "who", "made_by", "reason",
        "named_copy", "requests", "state_before", "state_after", "witnesses_before", "witnesses_after", "outcome",
    )
    return [f"the receipt lacks {name}" for name in wanted if not receipt.get(name)]
