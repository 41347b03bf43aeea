"""What the releases of RocketMQ do differently when they open a store: one row of answers per version, read in source.

A start loads files, recovers queues, walks the log from some file to where it ends, cuts what lies behind, and enters
what the queues lack. Each of these steps has changed; what is here is what changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from readers.log.record_layout import MAGIC_V1, MAGIC_V2
from readers.store.broker_settings import BrokerSettings, Version

#: The last release of each family, and those between which a rule changed: enough where only bounds are known.
_FAMILIES: tuple[Version, ...] = (
    (4, 3, 0), (4, 4, 0), (4, 5, 2), (4, 9, 8), (5, 0, 0), (5, 1, 4), (5, 3, 3), (5, 3, 4), (5, 5, 0),
)
_FILES_BACK_MAX = 10


@dataclass(frozen=True, slots=True)
class RecoveryRules:
    """How brokers of one version open a store; equal where two versions do the same.

    Shape: `dispatches`: what a start after a clean stop enters into the queues: `nothing`, `behind_queues` (all that
           lies behind the furthest slot), `past_queues` (records that begin past that place: one that begins exactly
           there is left out). `reads_queues_again`: whether the cut of the queues comes after what the walk enters, and
           reads their last files afresh: old slots behind what was entered count again. `files_back_max`: how many
           files back the walk begins at most; None: no limit.
    Source: store/MappedFileQueue.java load, CommitLog.java recoverNormally and recoverAbnormally,
            ConsumeQueue.java, DefaultMessageStore.java start of each release; docs/formats/store.md#segments,
            docs/formats/record.md#validation, docs/formats/recovery.md#normal, docs/formats/consume_queues.md#recovery,
            docs/formats/consume_queues.md#dispatch.
    """

    version: Version = field(compare=False)
    refuses_other_sizes: bool
    skips_directories: bool
    deletes_empty_last: bool
    magics: tuple[int, ...]
    knows_ipv6: bool
    bounds_lengths: bool
    counts_mismatched: bool
    starts_three_files_back: bool
    starts_at_queues_offset: bool
    queue_maximum_is_end: bool
    cuts_queues_after_clean_stop: bool
    destroys_queues_without_log: bool
    dispatches: str
    reads_queues_again: bool
    files_back_max: int | None

    @property
    def name(self) -> str:
        """The version as people write it."""
        return ".".join(map(str, self.version))


def rules_of(version: Version, conf: Mapping[str, str] | None = None) -> RecoveryRules:
    """The rules of a version; `conf`: its configuration where that is known."""
    rechecks = (conf or {}).get("recheckReputOffsetFromCq", "").lower() == "true"
    if version >= (5, 3, 2):
        dispatches = "past_queues"
    elif (4, 5, 0) <= version < (5, 0, 0) or rechecks:
        dispatches = "behind_queues"
    else:
        dispatches = "nothing"
    return RecoveryRules(
        version=version,
        refuses_other_sizes=version >= (4, 5, 0) and version != (4, 9, 2),
        skips_directories=version >= (5, 1, 0),
        deletes_empty_last=version >= (5, 1, 3),
        magics=(MAGIC_V1, MAGIC_V2) if version >= (5, 1, 0) else (MAGIC_V1,),
        knows_ipv6=version >= (4, 6, 0),
        bounds_lengths=version >= (5, 3, 2),
        counts_mismatched=version < (4, 3, 2),
        starts_three_files_back=version < (5, 3, 2),
        starts_at_queues_offset=version >= (5, 5, 0),
        queue_maximum_is_end=version >= (4, 5, 0),
        cuts_queues_after_clean_stop=version >= (4, 3, 2),
        destroys_queues_without_log=version >= (4, 5, 0),
        dispatches=dispatches,
        reads_queues_again=version >= (5, 3, 4),
        files_back_max=_files_back_max(conf or {}) if version >= (5, 4, 0) else None,
    )


def _files_back_max(conf: Mapping[str, str]) -> int:
    """What commitLogRecoverMaxNum says. Source: store/CommitLog.java recoverNormally, recoverAbnormally."""
    text = conf.get("commitLogRecoverMaxNum", "")
    return int(text) if text.isdecimal() and int(text) else _FILES_BACK_MAX


def possible_rules(settings: BrokerSettings, conf: Mapping[str, str] | None = None) -> list[RecoveryRules]:
    """The rules of every version that a store's broker may be of, each kind once, oldest first."""
    low, high = settings.version_low, settings.version_high
    versions = [
        version
        for version in _FAMILIES
        if (low is None or version >= low) and (high is None or version <= high)
    ]
    versions = sorted({*versions, *(version for version in (low, high) if version is not None)})
    kinds: dict[RecoveryRules, RecoveryRules] = {}
    for version in versions:
        rules = rules_of(version, conf)
        kinds.setdefault(rules, rules)
    return list(kinds.values())
