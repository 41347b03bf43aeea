"""`rmqtx rebuild`: make queues, index, checkpoint, or the tables of 3.0 and 3.1 again from the commit log."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.options.options import NewStoreOption, StoreOptions, VoiceOptions
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store
    from rmqtx.repairs.rebuild.rebuild import Rebuilt

NAME = "rebuild"
EXAMPLES = (
    Example("rmqtx rebuild queues STORE --to NEW", "the consume queues"),
    Example(
        "rmqtx rebuild index STORE --to NEW --broker-conf broker.conf",
        "the index, with the broker's file lengths",
    ),
    Example("rmqtx rebuild all STORE --to NEW", "queues, index and checkpoint"),
    Example(
        "rmqtx rebuild statetable STORE --to NEW",
        "a state table (3.0, 3.1), so that transactions can be decided again",
    ),
)


class Part(StrEnum):
    """Parts that can be rebuilt."""

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
        help="Part to rebuild: queues, index, checkpoint, statetable, redolog, or all that the store has",
    ),
]
StoreArgument = Annotated[
    str, typer.Argument(metavar="STORE", help="Root of a stopped broker's store; it is not changed")
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
    """Copy a store and rebuild its queues, index or checkpoint from the commit log.

    Each record contains its queue, its queue offset and its keys, so these files can be made again, byte for byte as
    the broker wrote them. Everything else is copied. Queues without a record in the log are copied too, so that their
    offsets continue.

    In a rebuilt state table (3.0, 3.1) each undecided transaction has the slot that its prepared record names: only
    then does a broker accept an answer. A broker that did not stop cleanly destroys its state table at its next start;
    for such a store all parts are rebuilt, and the copy looks like the store of a broker that stopped cleanly.
    """
    from rmqtx.readers.store.broker_conf import read_broker_conf
    from rmqtx.repairs.rebuild.rebuild import index_has_tags, rebuild
    from rmqtx.repairs.records.store_sizes import store_sizes
    from rmqtx_cli.sources.opening import consistency, open_stores
    from rmqtx_cli.words.progress import shown

    opened = open_stores([store], files)
    (source,) = opened.stores
    conf = None if files.broker_conf is None else read_broker_conf(files.broker_conf)
    settings = opened.settings_of(source)
    voice.note(f"{source.root}: {consistency(source)}; broker {settings.broker}")
    with_tags = index_has_tags(source, settings)
    parts, sizes = _parts(part, source), store_sizes(source, conf)
    if "queues" in parts and sizes.assumption is not None:
        voice.note(sizes.assumption)
    with shown("rebuilding", voice) as progress:
        made = rebuild(parts, source, to, sizes, with_tags=with_tags, conf=conf, progress=progress)
    return _say_made(made, parts, store, to, voice)


def _parts(part: Part, source: Store) -> tuple[str, ...]:
    """Return the parts to rebuild: the part given, or all that the store has."""
    from rmqtx.repairs.rebuild.rebuild import OLD_PARTS, PARTS, has_old_parts, is_made_clean

    every = (*PARTS, *(OLD_PARTS if has_old_parts(source) else ()))
    return every if part is Part.ALL or is_made_clean({part.value}, source) else (part.value,)


def _say_made(made: Rebuilt, parts: tuple[str, ...], store: str, to: Path, voice: Voice) -> int:
    """Print what was rebuilt; return the exit status."""
    from rmqtx_cli.output.accounting import amounts_of

    voice.findings(made.findings)
    for line in _lines(parts, made):
        voice.note(f"{to}: {line}")
    amounts = amounts_of(made.coverage)
    if amounts is not None:
        voice.note(amounts)
    errors = {finding.code for finding in made.findings if finding.is_error}
    if errors - {"log-missing"}:
        salvage = carried(f"rmqtx salvage {quoted(str(store))} --to DIR")
        voice.note(f"a broker cuts its log at the damage; for a log without holes: {salvage}")
    if "log-missing" in errors:
        voice.note("the copy keeps cursors and queues of missing records: add the missing files, then rebuild again")
    return exit_status.INCOMPLETE if errors else exit_status.DONE


def _lines(parts: tuple[str, ...], made: Rebuilt) -> list[str]:
    """Return one line for each part that was made."""
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
        lines.append("marked as cleanly stopped, because a broker would otherwise destroy the state table at its start")
    if "checkpoint" in parts:
        lines.append("checkpoint " + ", ".join(f"{name} {value}" for name, value in made.checkpoint.items() if value))
    return lines
