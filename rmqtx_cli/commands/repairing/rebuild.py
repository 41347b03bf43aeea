"""`rmqtx rebuild`: queues, index, checkpoint, or the tables of 3.0 and 3.1 anew from the log."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import NewStoreOption, StoreOptions, VoiceOptions
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from readers.store.store import Store
    from repairs.rebuild.rebuild import Rebuilt

NAME = "rebuild"
SHORT = "a copy of a store with queues, index or checkpoint made anew"
EXAMPLES = (
    Example("rmqtx rebuild queues STORE --to NEW", "consume queues from the log"),
    Example("rmqtx rebuild index STORE --to NEW --broker-conf broker.conf", "index files as long as the broker's"),
    Example("rmqtx rebuild all STORE --to NEW", "queues, index and checkpoint"),
    Example("rmqtx rebuild statetable STORE --to NEW", "a state table (3.0, 3.1) whose slots take answers again"),
)


class Part(StrEnum):
    """What can be made anew."""

    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    STATE_TABLE = "statetable"
    REDO_LOG = "redolog"
    ALL = "all"


PartArgument = Annotated[
    Part,
    typer.Argument(
        metavar="PART",
        help="What to make anew: queues, index, checkpoint, statetable, redolog, or all that the store has.",
    ),
]
StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Root of a stopped broker's store; it is not changed.")
]


@with_option_groups
def command(
    part: PartArgument,
    store: StoreArgument,
    to: NewStoreOption,
    *,
    files: StoreOptions,
    voice: VoiceOptions,
) -> int:
    """Make queues, index or checkpoint of a store anew from its log, in a copy of the store.

    Every record says which queue it is in, where in it, and by which keys it is found; so what a broker derives from
    its log can be made again, byte for byte as the broker did. Everything else is copied. Queues of which the log has
    no record are copied too, so that their numbers go on.

    In a state table (3.0, 3.1) that is made anew each undecided transaction has the slot that its prepared record
    names: only then does a broker take an answer. A broker that did not stop cleanly destroys its table when it starts;
    of such a store everything is made anew, and the copy looks as if its broker had stopped cleanly.
    """
    from readers.store.broker_conf import read_broker_conf
    from repairs.rebuild.rebuild import index_has_tags, rebuild
    from repairs.records.store_sizes import store_sizes
    from rmqtx_cli.sources.opening import consistency, open_stores
    from rmqtx_cli.words.progress import shown

    opened = open_stores([store], files)
    (source,) = opened.stores
    conf = None if files.broker_conf is None else read_broker_conf(files.broker_conf)
    settings = opened.settings_of(source)
    voice.note(f"{source.root}: {consistency(source)}; broker {settings.version}")
    with_tags = index_has_tags(source, settings)
    with shown("rebuilding", voice) as progress:
        parts = _parts(part, source)
        made = rebuild(parts, source, to, store_sizes(source, conf), with_tags=with_tags, conf=conf, progress=progress)
    return _say_made(made, parts, store, to, voice)


def _parts(part: Part, source: Store) -> tuple[str, ...]:
    """What is rebuilt: the part that was named, or all that the store has."""
    from repairs.rebuild.rebuild import OLD_PARTS, PARTS, has_old_parts, is_made_clean

    every = (*PARTS, *(OLD_PARTS if has_old_parts(source) else ()))
    return every if part is Part.ALL or is_made_clean({part.value}, source) else (part.value,)


def _say_made(made: Rebuilt, parts: tuple[str, ...], store: str, to: Path, voice: Voice) -> int:
    """Print what was rebuilt; returns the exit status."""
    from rmqtx_cli.output.accounting import amounts_of

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
    if "statetable" in parts:
        slots, waiting = count(made.state_slots_count, "slot"), made.open_slots_count
        lines.append(f"state table with {slots}, {waiting} of them undecided")
    if "redolog" in parts:
        lines.append(f"redo log with {count(made.redo_entries_count, 'entry', 'entries')}")
    if made.is_clean:
        lines.append("it says that its broker stopped cleanly, or the state table would be destroyed at the next start")
    if "checkpoint" in parts:
        lines.append("checkpoint " + ", ".join(f"{name} {value}" for name, value in made.checkpoint.items() if value))
    return lines
