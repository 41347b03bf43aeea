"""`rmqtx salvage`: build a clean store from all records that are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest, NotAStore, StoreInUse
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.rebuild.rebuild import index_has_tags
from rmqtx.repairs.records.store_sizes import (
    StoreSizes,
    are_single,
    store_sizes,
    usual_log_file_bytes,
    with_log_files_of,
)
from rmqtx.repairs.salvage.salvage import Salvaged, salvage
from rmqtx.repairs.salvage.scan_for_records import sources_of
from rmqtx_cli.commands.declared.repair import SalvageCommand
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.output.accounting import amounts_of
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, size

#: mappedFileSizeCommitLog is an int of Java.
_SEGMENT_BYTES_MAX = (1 << 31) - 1
#: The length of log files by default.
_SEGMENT_BYTES_DEFAULT = 1 << 30


def run(options: SalvageCommand) -> int:
    """Run the command; return its exit status."""
    config = options.config
    if options.segment_bytes is not None and options.segment_bytes > _SEGMENT_BYTES_MAX:
        raise BadRequest(f"--segment-size: no broker has log files longer than {_SEGMENT_BYTES_MAX} bytes")
    conf = None if options.broker_conf is None else read_broker_conf(options.broker_conf)
    store = _store_of(options.files)
    if config is None and store is not None and store.has("config"):
        config = Path(store.root) / "config"
    if config is None:
        options.voice.note("no config/ found: the new store has no topics and no cursors; add them with --config DIR")
    sizes = _sizes(options.files, store, conf, options.segment_bytes)
    if store is not None and store.has_rocksdb_queues:
        options.voice.note(
            "this store has queues in RocksDB, and the new store has them in files: a broker with "
            "storeType=defaultRocksDB writes its own from the log at its start (seen on 5.5.0)"
        )
    elif sizes.assumption is not None:
        options.voice.note(sizes.assumption)
    with shown("salvaging", options.voice) as progress:
        result = salvage(
            options.files, options.to, sizes, config=config, with_tags=_has_tags(store, conf), old_store=store,
            progress=progress,
        )
    status = _say_result(result, options.to, options.voice, is_guess=sizes.is_log_file_guessed)
    if store is not None and (result.lost_bytes or result.lost_numbers_count):
        why = "keep it: its queues and index still decide transactions that are UNDECIDABLE in the new store"
        options.voice.note(next_line(f"rmqtx audit {quoted(store.root)}", why))
    return status


def _has_tags(store: Store | None, conf: Mapping[str, str] | None) -> bool:
    """Return whether the index of the store has entries for tags."""
    return store is not None and index_has_tags(store, broker_settings(store, conf=conf))


def _say_result(result: Salvaged, to: Path, voice: Voice, *, is_guess: bool) -> int:
    """Print what was found and written; return the exit status. `is_guess`: the length of the log files is inferred."""
    if is_guess:
        length = size(result.segment_bytes)
        voice.note(f"{to}: log files of {length}, which is a guess; set it with --broker-conf or --segment-size")
    voice.findings(result.findings)
    for line in _lines(result):
        voice.note(f"{to}: {line}")
    amounts = amounts_of(result.coverage)
    if amounts is not None:
        voice.note(amounts)
    is_damaged = any(finding.is_error for finding in result.findings)
    is_whole = not (is_damaged or result.lost_bytes or result.lost_numbers_count)
    return exit_status.DONE if is_whole else exit_status.INCOMPLETE


def _store_of(files: list[Path]) -> Store | None:
    """Return the store among the files given; its configuration and file lengths are used for the new one.

    Raises: BadRequest if there are several; StoreInUse.
    """
    found = []
    for path in files:
        if path.is_dir():
            try:
                found.append(open_store(path))
            except NotAStore:
                continue
    for store in found:
        if store.in_use:
            raise StoreInUse(f"a broker uses {store.root} (process {store.used_by_process})", advice="stop it first")
    if len(found) > 1 and len({store.root for store in found}) > 1:
        raise BadRequest(
            "several stores given", advice="give one store, and only the log files of the others: STORE/commitlog"
        )
    return found[0] if found else None


def _sizes(
    files: list[Path], store: Store | None, conf: Mapping[str, str] | None, segment_bytes: int | None
) -> StoreSizes:
    """Return the file lengths of the new store: of --segment-size, the configuration, or files named like segments."""
    sizes = store_sizes(store, conf)
    is_configured = any(key.lower().endswith("filesizecommitlog") for key in conf or ())
    if segment_bytes is None and not is_configured:
        found = [(Path(source.file).name, source.size_bytes) for source in sources_of(files)]
        segment_bytes = usual_log_file_bytes(found)
        if segment_bytes is not None and segment_bytes != _SEGMENT_BYTES_DEFAULT and are_single(found):
            sizes = replace(sizes, is_log_file_guessed=True)  # the only file may have been cut off
            return with_log_files_of(sizes, segment_bytes)
    is_guess = segment_bytes is None and not is_configured and (store is None or not store.commit_log)
    return with_log_files_of(replace(sizes, is_log_file_guessed=is_guess), segment_bytes)


def _lines(result: Salvaged) -> list[str]:
    """Return the lines about what was found and made."""
    chosen, made = result.chosen, result.made
    more = count(chosen.duplicates_count, "more copy", "more copies")
    twice = f", and {more}" if chosen.duplicates_count else ""
    lines = [
        f"{count(result.records_count, 'record')} in {count(result.segments_count, 'segment')}, "
        f"from {result.begin_offset} to {result.end_offset}{twice}"
    ]
    if chosen.left_out_count or chosen.contradictions_count:
        lines.append(
            f"left out: {count(chosen.left_out_count, 'record')}, "
            f"{count(chosen.contradictions_count, 'contradicting copy', 'contradicting copies')}"
        )
    if result.lost_bytes or result.lost_numbers_count:
        lines.append(
            f"lost: {size(result.lost_bytes)} inside the log, and the records of "
            f"{count(result.lost_numbers_count, 'queue offset')}; "
            f"{count(result.placeholders_count, 'empty message')} in their place"
        )
    entries = count(made.slots_count, "entry", "entries")
    lines.append(
        f"{count(made.queues_count, 'queue')} with {entries}, {count(made.index_files_count, 'index file')} with "
        f"{count(made.index_entries_count, 'entry', 'entries')}"
    )
    if result.has_state_table:
        lines.append(
            "state table and redo log are copied unchanged: compare them with the log by rmqtx verify, make them again "
            "by rmqtx rebuild statetable"
        )
    if result.is_of_killed:
        lines.append("abort is copied: the broker did not stop cleanly, so op messages in its memory may be lost")
    if result.lacks_timers:
        lines.append(
            "timerlog/ and timerwheel are not copied, and config/timercheck is: delayed messages that the timer had "
            "taken are not delivered - give STORE, not only its log"
        )
    if result.lacks_rocksdb:
        lines.append(
            "rocksdbstore/ is not copied: the new store does not show which half messages in it are open, dropped or "
            "were checked"
        )
    return lines
