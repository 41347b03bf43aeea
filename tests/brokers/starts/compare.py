"""One case: what was foreseen, what the broker did, and where they differ."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from rmqtx.readers.jobs.job_runner import Tally
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.releases import parse_version
from rmqtx.readers.model.tables import FINDINGS
from rmqtx.readers.queues.slot_files import topic_text
from rmqtx.readers.store.store import Store, open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.protocol.connection_settings import RemotingSettings
from rmqtx.verdicts.compared.unclaimed_slots import QueueComparison
from rmqtx.verdicts.startup.queues import QueueFate
from rmqtx.verdicts.startup.recovery import PredictedStart, predict_start
from rmqtx.verdicts.startup.rules import rules_of
from rmqtx.verdicts.verify.verify import Verify, log_facts, log_ranges
from tests.brokers import corpus
from tests.brokers.rig import PATIENCE_SECONDS, Rig
from tests.brokers.starts.cases import Case, prepared

#: No check, no expiry: nothing is written after the start.
STILL = {"transactionCheckInterval": "100000000", "fileReservedTime": "1000000"}
#: A broker that does not listen after so long never will, or the machine is too busy to tell.
ENDLESS_SECONDS = 240
OF_THIS_MACHINE = ("storePathRootDir", "storePathCommitLog", "namesrvAddr", "listenPort")


@dataclass
class Outcome:
    """What a start leaves: where the log ends (None: it did not start), its files, each queue's end.

    A stray file is none of the log: brokers before 4.5 start with it, and leave it where it is.
    `is_endless`: the broker ran on and never listened. `entries` of all queues that lead to a record, as foreseen: a
    queue made anew begins with fillers, which 4.9.7 counts.
    """

    end_offset: int | None
    files: list[str] = field(default_factory=list)
    queues: dict[tuple[str, int], int] = field(default_factory=dict)
    is_endless: bool = False
    entries: int = 0

    def told(self) -> str:
        """A few words for a table."""
        if self.end_offset is None:
            return "never ends" if self.is_endless else "refuses"
        return f"ends at {self.end_offset}, {len(self.files)} files"


def foreseen_start(store: Store, version: str, conf: dict[str, str]) -> PredictedStart:
    """The start that is foreseen, in all detail."""
    job = Verify(version=version, conf=tuple(conf.items()))
    plan = plan_splits([store])
    tally = Tally(plan, Reading(FINDINGS, []))
    for split in plan:
        tally.add(split, job.of_split(split))
    splits = tally.carried[store.root]
    queues = QueueComparison(store, [split.queues for split in splits], log_ranges(store, splits))
    list(queues.findings())
    return predict_start(store, conf, log_facts(splits), queues.facts, rules_of(parse_version(version), conf))


def _records_count(fate: QueueFate) -> int:
    """How many records have a slot; what is entered before old slots that are kept has two."""
    return fate.end - fate.first - (fate.kept_from - fate.cut_end if fate.kept_from >= 0 else 0)


def foreseen(store: Store, version: str, conf: dict[str, str]) -> Outcome:
    """The outcome that is foreseen."""
    start = foreseen_start(store, version, conf)
    if start.refused:
        return Outcome(None)
    if start.waits_at is not None:
        return Outcome(None, is_endless=True)
    assert start.walk is not None
    end = start.walk.end_offset
    kept = [one for one in store.commit_log if one.base_offset <= end or one in start.left_out]
    return Outcome(
        end, [Path(segment.file).name for segment in kept],
        {(topic_text(fate.facts.name[1]), fate.facts.name[2]): fate.end for fate in start.fates},
        entries=sum(_records_count(fate) for fate in start.fates),
    )


def observed(rig: Rig, queues: list[tuple[str, int]]) -> Outcome:
    """What a broker makes of its store."""
    rig.start_seconds = ENDLESS_SECONDS
    try:
        rig.start_broker()
    except RuntimeError as error:
        return Outcome(None, is_endless="does not listen" in str(error))
    with Client(RemotingSettings(timeout_ms=PATIENCE_SECONDS * 1000)) as client:
        broker = Broker(client, rig.address, "broker-a", "rmqtx", 0)
        end = int(broker.runtime()["commitLogMaxOffset"])
        ends = {name: broker.max_offset(*name) for name in queues}
    files = sorted(path.name for path in (rig.store / "commitlog").iterdir() if path.name.isdecimal())
    return Outcome(end, files, ends)


@dataclass
class Result:
    """A case of one version."""

    case: Case
    version: str
    foreseen: Outcome
    observed: Outcome
    differences: list[str]


def compare(case: Case, version: str, out: Path) -> Result:
    """Damage a store, foresee, start the broker (it needs no name server for that), and compare."""
    name = f"{case.store}-{version}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    root = corpus.unpack(name, out)
    prepared(case, root)
    conf = {k: v for k, v in corpus.recipe(name)["broker_conf"].items() if k not in OF_THIS_MACHINE} | STILL
    with Rig(version, out, conf) as rig:
        wanted = foreseen(open_store(root), version, rig.full_conf())
        found = observed(rig, list(wanted.queues))
    differences = []
    if wanted.end_offset is None or found.end_offset is None:
        if wanted.told() != found.told():
            differences.append(f"{wanted.told()} foreseen, {found.told()} found")
    else:
        for what in ("end_offset", "files"):
            if getattr(wanted, what) != getattr(found, what):
                differences.append(f"{what}: {getattr(wanted, what)} foreseen, {getattr(found, what)} found")
        for queue, end in wanted.queues.items():
            if found.queues[queue] != end:
                differences.append(f"{queue[0]}/{queue[1]}: {end} foreseen, {found.queues[queue]} found")
    return Result(case, version, wanted, found, differences)
