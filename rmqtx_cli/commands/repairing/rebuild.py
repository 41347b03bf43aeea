"""`rmqtx rebuild`: make queues, index, checkpoint, or the tables of 3.0 and 3.1 again from the commit log."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.old_tables.beside_tables import has_tables
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.store import Store
from rmqtx.repairs.rebuild.rebuild import OLD_PARTS, PARTS, Rebuilt, index_has_tags, is_made_clean, rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx_cli.commands.declared.repair import Part, RebuildCommand
from rmqtx_cli.options.next_commands import carried
from rmqtx_cli.output.accounting import amounts_of
from rmqtx_cli.sources.opening import consistency, open_stores
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count


def run(options: RebuildCommand) -> int:
    """Run the command; return its exit status."""
    opened = open_stores([options.store], options.files)
    (source,) = opened.stores
    conf = None if options.files.broker_conf is None else read_broker_conf(options.files.broker_conf)
    settings = opened.settings_of(source)
    options.voice.note(f"{source.root}: {consistency(source)}; broker {settings.broker}")
    with_tags = index_has_tags(source, settings)
    parts, sizes = _parts(options.part, source), store_sizes(source, conf)
    if "queues" in parts and sizes.assumption is not None:
        options.voice.note(sizes.assumption)
    with shown("rebuilding", options.voice) as progress:
        made = rebuild(parts, source, options.to, sizes, with_tags=with_tags, conf=conf, progress=progress)
    return _say_made(made, parts, options.store, options.to, options.voice)


def _parts(part: Part, source: Store) -> tuple[str, ...]:
    """Return the parts to rebuild: the part given, or all that the store has."""
    every = (*PARTS, *(OLD_PARTS if has_tables(source) else ()))
    return every if part is Part.ALL or is_made_clean({part.value}, source) else (part.value,)


def _say_made(made: Rebuilt, parts: tuple[str, ...], store: str, to: Path, voice: Voice) -> int:
    """Print what was rebuilt; return the exit status."""
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
