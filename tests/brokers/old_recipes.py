"""The stores of the corpus that brokers without half topics wrote."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

from tests.brokers.old_expectation import design
from tests.brokers.old_rig import SMALL_REDO_LOG
from tests.brokers.old_stage import OldScript

GROUPS = ("shop", "billing")
PLAIN: Mapping[str, int] = {
    "commit": 8,
    "rollback": 5,
    "ordinary": 6,
    "compressed": 3,
    "bare": 3,
    "many_keys": 2,
    "delayed_commit": 1,
    "local_transaction_throws": 1,
    "double_commit": 2,
    "double_rollback": 1,
    "commit_then_rollback": 2,
    "rollback_then_commit": 2,
    "late_commit": 2,
    "wrong_group": 1,
    "wrong_number": 1,
    "pending": 6,
}
"""The histories of all old versions."""
CHECKED: Mapping[str, int] = {
    "commit_at_check_1": 3,
    "commit_at_check_2": 2,
    "rollback_at_check_1": 2,
    "asked_forever": 2,
    "group_gone": 2,
}
"""The histories with checks, which only 3.1 sends."""
FEW: Mapping[str, int] = {"commit": 5, "rollback": 3, "ordinary": 3, "compressed": 3, "rollback_then_commit": 1}
SEGMENTS: Mapping[str, str] = {"mappedFileSizeCommitLog": str(1 << 14)}
"""Commit-log files so small that there are several."""
CRASHING: Mapping[str, int] = {**FEW, "bare": 3, "double_commit": 1, "pending": 6, "last_second": 6}


def old_scripts(seed: int | None = None) -> Iterator[tuple[str, str, OldScript]]:
    """Every old store: its name, its description, and its script."""

    def script(
        name: str, about: str, version: str, histories: Mapping[str, int], **more: object
    ) -> tuple[str, str, OldScript]:
        usual = zlib.crc32(name.encode()) % 10000
        named = {"groups": GROUPS, "design": design(version), **more}
        made = OldScript(version, usual if seed is None else seed, dict(histories), **named)  # type: ignore[arg-type]
        return name, about, made

    yield script(
        "statetable-3.1.4",
        "State table and redo log, with everything that 3.1.4 can do; stopped cleanly. Several table and redo files.",
        "3.1.4",
        {"first_committed": 1, **PLAIN, **CHECKED, "last_second": 3},
        conf=SMALL_REDO_LOG,
    )
    yield script(
        "prepared-3.2.6",
        "Prepared, COMMIT and ROLLBACK records alone, no checks; stopped cleanly.",
        "3.2.6",
        {"first_pending": 1, **PLAIN, "last_second": 3},
    )
    yield script(
        "prepared-4.2.0",
        "Prepared, COMMIT and ROLLBACK records alone, with UNIQ_KEY; stopped cleanly.",
        "4.2.0",
        {"first_pending": 1, **PLAIN, "last_second": 3},
    )
    yield script(
        "statetable-killed-3.1.4",
        "State table and redo log as they were when the broker was killed (SIGKILL), some checks answered before.",
        "3.1.4",
        {"first_pending": 1, **CRASHING, "commit_at_check_1": 2, "rollback_at_check_1": 1},
        stop="kill",
        conf=SEGMENTS,
    )
    yield script(
        "statetable-recovered-3.1.4",
        "Killed and started again: the table was made anew and numbered from 0, so that answers to most checks are"
        " refused; decisions with the handles from before are written and delivered, and the table does not see them.",
        "3.1.4",
        {"first_committed": 1, **FEW, "pending": 8, "late_end": 4, "recovered": 3},
    )
    yield script(
        "statetable-lossy-3.1.4",
        "Killed and started again with several redo log files, of which the broker reads the first alone: what was"
        " prepared later has no slot any more, and what was decided later is open again.",
        "3.1.4",
        {"first_decided_late": 1, **FEW, "decided_late": 3, "pending": 30, "recovered": 2},
        conf=SMALL_REDO_LOG,
    )
    yield script(
        "statetable-slave-3.1.4",
        "A slave's store: log and redo log as the master's, and no state table at all.",
        "3.1.4",
        {"first_committed": 1, **FEW, "pending": 6},
        slave=True,
    )
    yield script(
        "upgraded-3.1.4-3.2.6",
        "Begun by 3.1.4 and continued by 3.2.6, which leaves the state table as it was.",
        "3.1.4",
        {"first_committed": 1, **FEW, "pending": 8},
        upgrade="3.2.6",
        later={"later_commit": 3, "later_rollback": 2, "later_pending": 3, "leftover": 4},
    )
    for version in ("3.2.6", "4.2.0"):
        yield script(
            f"prepared-killed-{version}",
            "Prepared, COMMIT and ROLLBACK records; the broker was killed (SIGKILL).",
            version,
            {"first_committed": 1, **CRASHING},
            stop="kill",
            conf=SEGMENTS,
        )
    yield script(
        "upgraded-4.2.0-4.9.7",
        "Begun by 4.2.0 and continued by 4.9.7, which cannot decide prepared records: half topics beside them.",
        "4.2.0",
        {"first_pending": 1, **FEW, "pending": 4},
        upgrade="4.9.7",
        later={
            "commit": 5,
            "rollback": 3,
            "commit_at_check_1": 2,
            "rollback_at_check_1": 2,
            "never_answered": 1,
            "double_commit": 1,
            "leftover_refused": 3,
            "pending": 4,
        },
    )
    yield script(
        "upgraded-4.2.0-4.3.0",
        "Begun by 4.2.0 and continued by 4.3.0, where a ROLLBACK of an old prepared record masks the first half.",
        "4.2.0",
        {"first_committed": 1, "commit": 2, "rollback": 2, "pending": 8},
        upgrade="4.3.0",
        later={"leftover_rollback": 1, "leftover_refused": 1, "pending": 2},
    )
