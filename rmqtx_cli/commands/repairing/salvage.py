"""`rmqtx salvage`: build a clean store from all records that are found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.options.options import BrokerConfOption, NewStoreOption, VoiceOptions
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.sizes import parse_size_bytes
from rmqtx_cli.words.text import count, size

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store
    from rmqtx.repairs.records.store_sizes import StoreSizes
    from rmqtx.repairs.salvage.salvage import Salvaged

NAME = "salvage"
EXAMPLES = (
    Example("rmqtx salvage STORE --to NEW", "a damaged store: fill holes in the log, rebuild the rest"),
    Example("rmqtx salvage disk.img --to NEW --segment-size 1GiB --config etc/config", "a disk image"),
    Example("rmqtx salvage lost+found STORE --to NEW", "loose files and the rest of the store together"),
)

#: mappedFileSizeCommitLog is an int of Java.
_SEGMENT_BYTES_MAX = (1 << 31) - 1
#: The length of log files by default.
_SEGMENT_BYTES_DEFAULT = 1 << 30

FileArguments = Annotated[
    list[Path],
    typer.Argument(metavar="FILE", help="Files with any name, devices, directories of files, roots of stores"),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="DIR", help="The broker's config/ to copy; default: that of the store given"),
]
SegmentSizeOption = Annotated[
    int | None,
    typer.Option(
        "--segment-size", parser=parse_size_bytes, metavar="SIZE",
        help="Length of the log files (mappedFileSizeCommitLog); default: from the files, --broker-conf or blank "
        "records, else 1GiB",
    ),
]


@with_option_groups
def command(
    files: FileArguments,
    to: NewStoreOption,
    config: ConfigOption = None,
    segment_bytes: SegmentSizeOption = None,
    broker_conf: BrokerConfOption = None,
    *,
    voice: VoiceOptions,
) -> int:
    """Build a store that a broker can open from all records found in damaged, misnamed or loose files.

    Each record contains its own place in the log, so the names of the files and the positions in them do not matter. If
    copies of a record contradict each other, the copy with a valid body CRC is taken. Holes between records are filled,
    so that a broker reads past them; queues, index and checkpoint are rebuilt. The new store is verified: what is still
    wrong in it is printed, and the exit status is 3. The files given are not changed.
    """
    from rmqtx.readers.store.broker_conf import read_broker_conf
    from rmqtx.repairs.salvage.salvage import salvage
    from rmqtx_cli.words.progress import shown

    if segment_bytes is not None and segment_bytes > _SEGMENT_BYTES_MAX:
        raise BadRequest(f"--segment-size: no broker has log files longer than {_SEGMENT_BYTES_MAX} bytes")
    conf = None if broker_conf is None else read_broker_conf(broker_conf)
    store = _store_of(files)
    if config is None and store is not None and store.has("config"):
        config = Path(store.root) / "config"
    if config is None:
        voice.note("no config/ found: the new store has no topics and no cursors; add them with --config DIR")
    sizes, is_guess = _sizes(files, store, conf, segment_bytes)
    if store is not None and store.has_rocksdb_queues:
        voice.note(
            "this store has queues in RocksDB, and the new store has them in files: a broker with "
            "storeType=defaultRocksDB writes its own from the log at its start (seen on 5.5.0)"
        )
    elif sizes.assumption is not None:
        voice.note(sizes.assumption)
    with shown("salvaging", voice) as progress:
        result = salvage(
            files, to, sizes, config=config, with_tags=_has_tags(store, conf), old_store=store,
            infers_segments=is_guess, progress=progress,
        )
    status = _say_result(result, to, voice, is_guess=is_guess)
    if store is not None and (result.lost_bytes or result.lost_numbers_count):
        why = "keep it: its queues and index still decide transactions that are UNDECIDABLE in the new store"
        voice.note(next_line(f"rmqtx audit {quoted(store.root)}", why))
    return status


def _has_tags(store: Store | None, conf: Mapping[str, str] | None) -> bool:
    """Return whether the index of the store has entries for tags."""
    from rmqtx.readers.store.broker_settings import broker_settings
    from rmqtx.repairs.rebuild.rebuild import index_has_tags

    return store is not None and index_has_tags(store, broker_settings(store, conf=conf))


def _say_result(result: Salvaged, to: Path, voice: Voice, *, is_guess: bool) -> int:
    """Print what was found and written; return the exit status. `is_guess`: the length of the log files is inferred."""
    from rmqtx_cli.output.accounting import amounts_of

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
    from rmqtx.readers.model.errors import NotAStore, StoreInUse
    from rmqtx.readers.store.store import open_store

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
) -> tuple[StoreSizes, bool]:
    """Return the file lengths of the new store: from --segment-size, the configuration, or files named like segments.

    Shape: the second value is whether the length of log files is a guess.
    """
    from rmqtx.repairs.records.store_sizes import are_single, store_sizes, usual_log_file_bytes, with_log_files_of
    from rmqtx.repairs.salvage.scan_for_records import sources_of

    sizes = store_sizes(store, conf)
    is_configured = any(key.lower().endswith("filesizecommitlog") for key in conf or ())
    if segment_bytes is None and not is_configured:
        found = [(Path(source.file).name, source.size_bytes) for source in sources_of(files)]
        segment_bytes = usual_log_file_bytes(found)
        if segment_bytes is not None and segment_bytes != _SEGMENT_BYTES_DEFAULT and are_single(found):
            return with_log_files_of(sizes, segment_bytes), True  # the only file may have been cut off
    is_guess = segment_bytes is None and not is_configured and (store is None or not store.commit_log)
    return with_log_files_of(sizes, segment_bytes), is_guess


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
