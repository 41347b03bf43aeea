"""`rmqtx rebuild`: queues, index or checkpoint anew from the log."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx_cli import exit_status
from rmqtx_cli.commands import Example
from rmqtx_cli.options import (
    BrokerConfOption,
    BrokerVersionOption,
    CommitLogOption,
    NewStoreOption,
    QuietOption,
    VerboseOption,
)
from rmqtx_cli.say import Voice
from rmqtx_cli.text import count

if TYPE_CHECKING:
    from repairs.rebuild import Rebuilt

NAME = "rebuild"
SHORT = "a copy of a store with queues, index or checkpoint made anew"
EXAMPLES = (
    Example("rmqtx rebuild queues STORE --to NEW", "consume queues from the log"),
    Example("rmqtx rebuild index STORE --to NEW --broker-conf broker.conf", "index files as long as the broker's"),
    Example("rmqtx rebuild all STORE --to NEW", "queues, index and checkpoint"),
)


class Part(StrEnum):
    """What can be made anew."""

    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    ALL = "all"


PartArgument = Annotated[
    Part, typer.Argument(metavar="PART", help="What to make anew: queues, index, checkpoint, or all of them.")
]
StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Root of a stopped broker's store; it is not changed.")
]


def command(
    part: PartArgument,
    store: StoreArgument,
    to: NewStoreOption,
    commit_log: CommitLogOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Make queues, index or checkpoint of a store anew from its log, in a copy of the store.

    Every record says which queue it is in, where in it, and by which keys it is found; so what a broker derives from
    its log can be made again, byte for byte as the broker did. Everything else is copied. Queues of which the log has
    no record are copied too, so that their numbers go on.
    """
    from readers.broker_settings import read_broker_conf
    from repairs.rebuild import PARTS, index_has_tags, rebuild
    from repairs.store_sizes import store_sizes
    from rmqtx_cli.accounting import amounts_of
    from rmqtx_cli.opening import consistency, open_stores
    from rmqtx_cli.progress import shown

    voice = Voice(verbose, quiet)
    opened = open_stores([store], commit_log, broker_conf, broker_version)
    (source,) = opened.stores
    conf = None if broker_conf is None else read_broker_conf(broker_conf)
    settings = opened.settings_of(source)
    voice.note(f"{source.root}: {consistency(source)}; broker {settings.version}")
    with_tags = index_has_tags(source, settings)
    with shown("rebuilding", voice) as progress:
        parts = PARTS if part is Part.ALL else (part.value,)
        made = rebuild(parts, source, to, store_sizes(source, conf), with_tags=with_tags, progress=progress)
    voice.findings(made.findings)
    for line in _lines(parts, made):
        voice.note(f"{to}: {line}")
    amounts = amounts_of(made.coverage)
    if amounts is not None:
        voice.note(amounts)
    if any(finding.kind.severity == "error" for finding in made.findings):
        voice.note(f"a broker cuts its log where it is damaged: rmqtx salvage {store} --to DIR makes one without holes")
        return exit_status.INCOMPLETE
    return exit_status.DONE


def _lines(parts: tuple[str, ...], made: Rebuilt) -> list[str]:
    """What was made, one line for each part."""
    lines = [f"made from {count(made.records_count, 'record')}"]
    if "queues" in parts:
        lost = f", {count(made.lost_numbers_count, 'number')} without a record" if made.lost_numbers_count else ""
        kept = f"; {count(len(made.kept_queues), 'queue')} without records kept" if made.kept_queues else ""
        entries = count(made.slots_count, "entry", "entries")
        lines.append(f"{count(made.queues_count, 'queue')} with {entries}{lost}{kept}")
    if "index" in parts:
        files = count(made.index_files_count, "index file")
        lines.append(f"{files} with {count(made.index_entries_count, 'entry', 'entries')}")
    if "checkpoint" in parts:
        lines.append("checkpoint " + ", ".join(f"{name} {value}" for name, value in made.checkpoint.items() if value))
    return lines
