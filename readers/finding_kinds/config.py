"""Findings about cursors, checkpoint and other files of settings."""

from __future__ import annotations

from rmqtx.readers.finding_kinds.kind import Kind, Severity

KINDS: dict[str, Kind] = {
    "cursors-twice": Kind(
        Severity.NOTE,
        "cursors that are stored both in a file and in RocksDB",
        "those with the higher version are used, as a broker with cursors in RocksDB does; other brokers read the file",
    ),
    "cursors-contradict": Kind(
        Severity.WARNING,
        "two cursor files, and the older one has the higher cursors",
        "enableLmq was switched, or the store was copied without its file times: the file written last is used, and "
        "half messages that are still ahead of its check cursor may have been checked long ago",
        "find out which file the broker uses: with enableLmq=true it is config/lmqConsumerOffset.json",
    ),
    "cursors-not-loaded": Kind(
        Severity.WARNING,
        "cursors that the broker does not read when it starts",
        "after the next start the check begins again with the first half message: copies of decided transactions are "
        "put back and checked, may be committed a second time, and are discarded in the end",
        "rmqtx simulate lists these copies; brokers 4.9.4 and later read config/lmqConsumerOffset.json; if enableLmq "
        "was switched, copy the cursors to the other file name: the check then continues where it was",
    ),
    "checkpoint-damaged": Kind(
        Severity.WARNING,
        "a checkpoint with a wrong length or impossible values",
        "only the times in it are unknown",
    ),
    "checkpoint-ahead": Kind(
        Severity.WARNING,
        "the checkpoint refers to a later record than the log contains",
        "the last records of the log may be lost, and decisions with them",
        "look for the last files of the log in a backup or on a slave",
    ),
    "config-missing": Kind(
        Severity.WARNING,
        "a configuration file of the broker is missing",
        "cursors are unknown: transactions whose state depends only on them are UNDECIDABLE",
        "add the store's config/consumerOffset.json (with enableLmq=true: config/lmqConsumerOffset.json)",
    ),
    "config-backup": Kind(
        Severity.WARNING,
        "a configuration file cannot be read and its .bak was used",
        "cursors may be up to one persist interval (5 s) older than the broker's",
        "the broker reads the .bak too; to end this finding, copy the .bak to the name of the file while the broker is "
        "stopped",
    ),
    "config-damaged": Kind(
        Severity.ERROR,
        "a configuration file and its .bak cannot be parsed",
        "their content is unknown",
        "restore the file from a backup",
    ),
    "cursor-beyond-end": Kind(
        Severity.ERROR,
        "the check cursor lies beyond the end of its queue",
        "the broker will reset it; half messages in between are never checked (the queue was deleted, or the log was "
        "cut)",
        "find out whether the end of the log was lost: look in a backup or on a slave; rmqtx cursor set sets the "
        "cursor",
    ),
    "cursor-before-begin": Kind(
        Severity.ERROR,
        "the check cursor lies before the first half message that is left",
        "half messages expired before the check reached them",
        "find the expired half messages in a backup; without them only the application shows the outcome of their "
        "transactions",
    ),
    "group-cursor-beyond-end": Kind(
        Severity.WARNING,
        "a consumer group's cursor beyond the end of its queue",
        "the queue was cut or rebuilt: the group skips messages up to the cursor, or its client starts over",
    ),
    "group-cursor-before-begin": Kind(
        Severity.NOTE,
        "a consumer group's cursor before the first slot that is left",
        "messages expired before the group read them, or the group has not run since they expired",
    ),
}
