"""The stores of the corpus: for each name the version, the histories and what is unusual in it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.brokers.empty_stage import DESIGN as EMPTY
from tests.brokers.maven import VERSIONS
from tests.brokers.old_recipes import old_scripts
from tests.brokers.proxied_stage import OF_TRANSACTIONS, REMOTING_GROUP
from tests.brokers.rig import IPV6_NAME
from tests.brokers.rocks_recipes import rocks_recipes
from tests.brokers.script import Script

ALWAYS: Mapping[str, int] = {
    "commit": 16,
    "rollback": 8,
    "commit_at_check_1": 4,
    "commit_at_check_2": 3,
    "rollback_at_check_1": 3,
    "rollback_at_check_2": 2,
    "local_transaction_throws": 1,
    "never_answered": 3,
    "producer_group_gone": 2,
    "immunity": 4,
    "compressed": 4,
    "bare": 4,
    "foreign_words": 6,
    "many_keys": 3,
    "ordinary": 12,
    "batch": 3,
    "without_id": 2,
    "late_commit": 2,
    "late_rollback": 2,
    "late_commit_then_commit": 2,
    "late_rollback_then_commit": 1,
    "late_rollback_then_rollback": 1,
    "double_commit": 2,
    "triple_commit": 1,
    "commit_after_rollback": 2,
    "rollback_after_commit": 1,
    "commit_after_discard": 2,
    "rollback_after_discard": 1,
}
"""The histories of all versions."""
ENDING: Mapping[str, int] = {
    "pending": 8,
    "pending_immune": 2,
    "pending_late_commit": 2,
    "pending_late_rollback": 2,
    "pending_without_id": 1,
}
"""The histories with open transactions when the broker stops."""
REREADING: Mapping[str, int] = {"compressed_checked": 4}
"""A compressed half survives being put back (4.6 and later)."""
RESUMING: Mapping[str, int] = {"resumed_then_commit": 2, "resumed_then_discarded": 1, "pending_resumed": 2}
"""Request 323 (4.5.2 and later)."""
SOME = (
    "commit",
    "rollback",
    "commit_at_check_1",
    "rollback_at_check_1",
    "never_answered",
    "immunity",
    "compressed",
    "foreign_words",
    "ordinary",
    "batch",
    "late_commit",
    "late_rollback",
    "double_commit",
    "pending",
)
"""The histories of a store that shows a file format."""
LIGHT: Mapping[str, int] = {
    "commit": 8, "rollback": 4, "commit_at_check_1": 3, "commit_at_check_2": 3, "rollback_at_check_1": 3,
    "never_answered": 3, "compressed": 2, "late_commit": 2, "light": 3, "pending": 6,
}
"""The histories of a store with light message queues."""
SWITCHED: Mapping[str, int] = {
    "commit": 6, "rollback": 3, "commit_at_check_1": 2, "never_answered": 2, "pending_before_restart": 2,
    "after_restart": 6, "pending": 4,
}
"""The histories of a store whose broker was started again with light message queues."""
DOWNGRADED: Mapping[str, int] = {
    "commit": 6, "rollback": 3, "commit_at_check_1": 2, "never_answered": 2, "pending_before_restart": 2,
    "between": 4, "after_restart": 6, "pending": 4,
}
"""The histories of a store that older versions continue."""
SEGMENTS: Mapping[str, str] = {"mappedFileSizeCommitLog": str(1 << 14)}
"""Commit-log files so small that there are several."""


@dataclass(frozen=True)
class Recipe:
    """One store."""

    name: str
    about: str
    script: Script = field(repr=False)


def release(version: str) -> tuple[int, ...]:
    """A version as numbers."""
    return tuple(int(part) for part in version.split("."))


def common(version: str) -> dict[str, int]:
    """The common histories of a version."""
    newer = {**RESUMING, **REREADING} if release(version) >= (4, 6) else {}
    return {**ALWAYS, **newer, **ENDING}


def halved(histories: Mapping[str, int]) -> dict[str, int]:
    """The same histories with about half as many transactions."""
    return {name: (count + 1) // 2 for name, count in histories.items()}


def recipes(seed: int | None = None) -> dict[str, Recipe]:
    """Every store of the corpus by name; with another seed, stores of the same kinds."""
    made = {name: Recipe(name, about, script) for name, about, script in old_scripts(seed)}

    def add(name: str, about: str, version: str, histories: Mapping[str, int], **more: object) -> None:
        usual = zlib.crc32(name.encode()) % 10000
        script = Script(version, usual if seed is None else seed, dict(histories), **more)  # type: ignore[arg-type]
        made[name] = Recipe(name, about, script)

    for version in VERSIONS:
        five = release(version) >= (5, 0)
        add(
            f"common-{version}",
            "Every common history; stopped cleanly.",
            version,
            {**common(version), "pending_never_checked": 3},
        )
        ending = {**halved(common(version)), **({"op_batch_lost": 6} if five else {})}
        lost = "; the ops of the last decisions were still in its memory" if five else ""
        add(
            f"killed-{version}",
            f"Every common history; the broker was killed (SIGKILL){lost}. Several commit-log files.",
            version,
            ending,
            stop="kill",
            conf=SEGMENTS,
        )
        add(
            f"fifteen-{version}",
            "One transaction, never answered, checked fifteen times, then discarded.",
            version,
            {"fifteen_checks": 1},
            conf={"transactionCheckMax": "15", "transactionTimeOut": "1000"},
        )
        add(
            f"busystop-{version}",
            "Stopped cleanly while checks were going on: the broker puts halves back until its last moment.",
            version,
            {"commit": 4, "rollback": 2, "pending": 8},
            topics={"orders": 1},
        )
    for version in ("4.3.0", "4.4.0"):
        add(
            f"poison-{version}",
            "A compressed half that was put back, unreadable: the check loop ends there at each pass.",
            version,
            {"commit": 3, "never_answered": 1, "poison": 2},
        )
    add(
        "poison-4.5.0",
        "A compressed half that was put back, unreadable, and many halves behind it, which are never asked for.",
        "4.5.0",
        {"commit": 3, "never_answered": 1, "poison": 6, "poison_later": 12},
    )
    for version in VERSIONS:
        timer = {"timerWheelEnable": "true", "mappedFileSizeTimerLog": "65536"} if release(version) >= (5, 0) else {}
        delays = {"delayed_level": 2, **({"delayed_timer": 6} if timer else {}), "delayed_ordinary": 2, "commit": 2}
        add(f"delayed-{version}", "Delay levels and timers on transactional messages.", version, delays, conf=timer)
    for number, version in enumerate(VERSIONS):
        backup = ("half_cursor_set_back", "half_cursor_set_back_with_backup")[number % 2]
        add(
            f"cursorback-{version}",
            "The half cursor was set back while the broker was stopped; it then ran again.",
            version,
            {backup: 4},
        )
        add(
            f"cursoredited-{version}",
            "The half cursor was set back after the last stop.",
            version,
            {name: count for name, count in halved(common(version)).items() if name in SOME},
            half_cursor=0,
        )
        discards = {"decision_names_discard": 2} if release(version) >= (4, 6) else {}
        add(
            f"masked-{version}",
            "Decisions by hand that name final records and discard copies.",
            version,
            {"commit_names_final": 2, **discards},
            topics={"orders": 1},
            conf={"transactionTimeOut": "3000"},
        )
    for version in ("4.9.7", "5.1.4", "5.3.3", "5.5.0"):
        small = {name: count for name, count in halved(common(version)).items() if name in SOME}
        add(
            f"multipath-{version}",
            "A commit log over two directories.",
            version,
            small,
            conf={**SEGMENTS, "storePathCommitLog": "store/commitlog-a,store/commitlog-b"},
        )
        add(
            f"ipv6-{version}",
            "Broker, name server and clients on ::1: both hosts take 16 bytes.",
            version,
            small,
            host=IPV6_NAME if version == "5.1.4" else "[::1]",
            conf={"brokerIP1": IPV6_NAME, "bindAddress": "::"} if version == "5.1.4" else {"brokerIP1": "::1"},
        )
    for version in ("4.9.7", "5.3.3"):
        add(
            f"cqext-{version}",
            "Consume queue extension files (enableConsumeQueueExt).",
            version,
            {name: count for name, count in halved(common(version)).items() if name in SOME},
            conf={"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "65536"},
        )
    for version in ("5.1.4", "5.3.3", "5.5.0"):
        small = {name: count for name, count in halved(common(version)).items() if name in SOME}
        add(
            f"batchcq-{version}",
            "A topic with a batch consume queue (46-byte entries) and inner batches.",
            version,
            small,
            topics={"orders": 2, "archive": 2},
            attributes={"archive": "+queue.type=BatchCQ"},
            conf={"mapperFileSizeBatchConsumeQueue": "46000"},
        )
        if version != "5.5.0":  # it refuses group names that make so long a topic
            add(
                f"longtopic-{version}",
                "A retry topic of more than 127 bytes: records of the second magic.",
                version,
                {**small, "refused_by_consumer": 3},
            )
        add(f"codecs-{version}", "Bodies compressed by LZ4, ZSTD and ZLIB.", version, {"codecs": 6, "pending": 4})
    for version in ("5.3.3", "5.5.0"):
        add(
            f"propcrc-{version}",
            "A checksum in each record's properties (enabledAppendPropCRC).",
            version,
            {name: count for name, count in halved(common(version)).items() if name in SOME},
            conf={"enabledAppendPropCRC": "true"},
        )
    for version in ("4.9.3", "5.3.2"):
        add(
            f"lmq-{version}",
            "Light message queues (enableLmq): all cursors are in config/lmqConsumerOffset.json.",
            version,
            LIGHT,
            conf={"enableLmq": "true", "enableMultiDispatch": "true"},
            as_is=True,
        )
    add(
        "lmq-switched-5.3.3",
        "enableLmq was switched on: config/consumerOffset.json is there from before, and the check began again.",
        "5.3.3",
        SWITCHED,
        restart={"enableLmq": "true", "enableMultiDispatch": "true"},
    )
    add(
        "downgraded-5.5.0-5.3.3",
        "Begun by 5.5.0 and continued by 5.3.3.",
        "5.3.3",
        {name: count for name, count in DOWNGRADED.items() if name != "between"},
        earlier=("5.5.0",),
    )
    add(
        "downgraded-5.5.0-5.3.3-4.9.7",
        "Begun by 5.5.0, continued by 5.3.3, then by 4.9.7: what the younger ones made is still there.",
        "4.9.7",
        DOWNGRADED,
        earlier=("5.5.0", "5.3.3"),
    )
    add(
        "timer-5.3.0",
        "Timers on halves, the first of which is the log's first record; committed or not, every check unanswered.",
        "5.3.0",
        {"timer_unanswered": 6},
        conf={"timerWheelEnable": "true", "mappedFileSizeTimerLog": "65536", "transactionCheckMax": "3"},
    )
    seldom = {"flushConsumerOffsetInterval": "60000"}
    add(
        "parallel-5.3.3",
        "Killed between checks and started at older cursors: chains of copies go on side by side. Killed again.",
        "5.3.3",
        {"killed_between_checks": 12},
        stop="kill",
        conf=seldom,
    )
    for version in ("4.9.7", "5.3.3"):
        add(
            f"failover-{version}",
            "A slave's store that became the master's when the master was killed: the log goes on, at older cursors.",
            version,
            {"failed_over": 8},
            conf={"brokerIP2": "127.0.0.1"},
        )
    acting = {"brokerIP2": "127.0.0.1", "enableSlaveActingMaster": "true", "autoCreateTopicEnable": "false"}
    add(
        "escaped-5.3.3",
        "Halves that the acting slave of another master sent here, copy by copy; beside it the killed master's store.",
        "5.3.3",
        {"escaped": 3},
        topics={"orders": 2},
        conf=acting | {"enableRemoteEscape": "true"},
    )
    add(
        "acting-5.3.3",
        "A slave acted as its killed master, passed halves that it may not send, and became a master; it has not "
        "accepted a topic with message.type. Beside it the killed master's store.",
        "5.3.3",
        {"acting_gave_up": 6},
        topics={"orders": 2, "payments": 2},
        attributes={"payments": "+message.type=TRANSACTION"},
        conf=acting,
    )
    add(
        "opslost-5.3.3",
        "The ops of the last decisions were in its memory when it was killed; nothing else was open.",
        "5.3.3",
        {"commit": 2, "rollback": 2, "op_batch_lost": 20, "pending": 4},
        stop="kill",
    )
    add(
        "rollbackslost-5.3.3",
        "Rolled back, asked again and discarded while the ops were in its memory; then it was killed.",
        "5.3.3",
        {"commit": 2, "never_answered": 2, "rolled_back_then_discarded": 10},
        stop="kill",
        conf={"transactionCheckMax": "3", "flushConsumerOffsetInterval": "1000"},
    )
    add(
        "proxy-5.3.3",
        "Behind a proxy: gRPC clients, some of which decide after the proxy has forgotten the half message, and "
        "remoting clients, whose first decisions the proxy loses.",
        "5.3.3",
        {
            "commit": 6, "rollback": 3, "commit_within_30s": 2, "late_commit_lost": 4, "late_rollback_lost": 2,
            "late_commit_lost_then_unknown": 2, "remoting_commit_lost": 4, "remoting_rollback_lost": 2,
            "pending_behind_proxy": 3,
        },
        conf={"transactionTimeOut": "45000", "transactionCheckInterval": "3000", "transactionCheckMax": "3"},
        topics={"orders": 4},
        attributes={"orders": OF_TRANSACTIONS},
        groups=("orders", REMOTING_GROUP),
        proxy="5.3.3",
    )
    add(
        "lmqhalf-5.5.0",
        "Half messages that are also in light queues; then an orderly stop with op messages in the broker's memory.",
        "5.5.0",
        {"commit": 4, "light_half": 8, "ops_lost_at_stop": 6},
        conf={"enableLmq": "true", "enableMultiDispatch": "true"},
    )
    add(
        "oplate-5.3.3",
        "Op messages that waited for two intervals, by default settings: asked again, and committed again.",
        "5.3.3",
        {"first_ops_after_start": 8},
        conf={"transactionTimeOut": "6000", "transactionOpBatchInterval": "3000"},
    )
    add(
        "noroom-5.5.0",
        "A half message without room for the properties of the check: it and those behind it are never checked.",
        "5.5.0",
        {"commit": 4, "never_answered": 1, "no_room_for_properties": 3},
    )
    add(
        "discards-4.9.7",
        "Discarded before the op messages were read, and compressed bodies that a resume wrote decompressed.",
        "4.9.7",
        {"commit": 2, "discarded_before_ops_were_read": 3, "resumed_compressed": 2},
        conf={"transactionCheckMax": "3"},
    )
    add(
        "ahead-5.3.3",
        "A producer whose clock is ahead, and half messages that were discarded while they were immune.",
        "5.3.3",
        {"commit": 4, "rollback": 2, "clock_ahead": 4, "immunity_discarded": 4},
        conf={"transactionTimeOut": "20000"},
    )
    pool = {"transientStorePoolEnable": "true", "transactionTimeOut": "9000"}
    hidden = {"commitIntervalCommitLog": "3000", "commitCommitLogThoroughInterval": "3000"}
    add(
        "pool-5.3.3",
        "transientStorePoolEnable: decisions come before the broker can read the half message that they name.",
        "5.3.3",
        {"hidden_by_pool": 6},
        conf={**pool, **hidden},
    )
    add(
        "opjumped-4.5.0",
        "The check moved its op cursor to the end of the op queue: what is decided behind a young half is asked again.",
        "4.5.0",
        {"op_cursor_jumps": 3},
    )
    add(
        "ignored-4.3.1",
        "Its client does not use the result of the local transaction: every decision waits for a check.",
        "4.3.1",
        {"result_ignored": 10, "never_answered": 2},
    )
    for version in ("3.1.4", "3.2.6", "4.3.0", "4.9.7", "5.3.3", "5.5.0"):
        about = "Started and stopped; no message ever came"
        add(f"empty-{version}", f"{about}.", version, {}, design=EMPTY, topics={}, groups=())
        add(f"empty-killed-{version}", f"{about}; killed (SIGKILL).", version, {}, stop="kill", design=EMPTY,
            topics={}, groups=())
    for name, about, version, histories, more in rocks_recipes():
        add(name, about, version, histories, **more)
    return made
