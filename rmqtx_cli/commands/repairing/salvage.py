"""`rmqtx salvage`: a clean store from records wherever they lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import BrokerConfOption, NewStoreOption, VoiceOptions
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.sizes import parse_size_bytes
from rmqtx_cli.words.text import count, size

if TYPE_CHECKING:
    from readers.store.store import Store
    from repairs.records.store_sizes import StoreSizes
    from repairs.salvage.salvage import Salvaged

NAME = "salvage"
SHORT = "a clean store from damaged, misnamed or loose files, or a disk image"
EXAMPLES = (
    Example("rmqtx salvage STORE --to NEW", "a damaged store: its log without holes, everything else from it"),
    Example("rmqtx salvage disk.img --to NEW --segment-size 1GiB --config etc/config", "an image of a disk"),
    Example("rmqtx salvage lost+found STORE --to NEW", "loose files and what is left of the store, together"),
)

#: mappedFileSizeCommitLog is an int of Java.
_SEGMENT_BYTES_MAX = (1 << 31) - 1

FileArguments = Annotated[
    list[Path],
    typer.Argument(metavar="FILE", help="Files of any name, devices, directories of files, roots of stores."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="DIR", help="The broker's config/, copied; without it that of a STORE given."),
]
SegmentSizeOption = Annotated[
    int | None,
    typer.Option(
        "--segment-size", parser=parse_size_bytes, metavar="SIZE",
        help="Length of the log's files (mappedFileSizeCommitLog); else as files, --broker-conf or blank records say, "
        "or 1GiB.",
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
    """Make a store that a broker can open from every record that is found, wherever it lies.

    A record says itself where in the log it belongs: names of files and places in them do not matter. Where copies of
    a record contradict each other, the one with a sound body is taken. Holes between records are filled, so that
    brokers walk over them; queues, index and checkpoint are made anew. What is read is not changed.
    """
    from readers.store.broker_conf import read_broker_conf
    from repairs.salvage.salvage import salvage
    from rmqtx_cli.words.progress import shown

    if segment_bytes is not None and segment_bytes > _SEGMENT_BYTES_MAX:
        raise BadRequest(f"--segment-size: no broker has log files longer than {_SEGMENT_BYTES_MAX} bytes")
    conf = None if broker_conf is None else read_broker_conf(broker_conf)
    store = _store_of(files)
    if config is None and store is not None and store.has("config"):
        config = Path(store.root) / "config"
    if config is None:
        voice.note("no config/: the new store knows no topics and no cursors (--config gives them)")
    sizes, is_guess = _sizes(files, store, conf, segment_bytes)
    with shown("salvaging", voice) as progress:
        result = salvage(
            files, to, sizes, config=config, with_tags=_has_tags(store, conf), old_store=store,
            infers_segments=is_guess, progress=progress,
        )
    return _say_result(result, to, voice, is_guess=is_guess)


def _has_tags(store: Store | None, conf: Mapping[str, str] | None) -> bool:
    """Whether the index of the store that was given has entries for tags."""
    from readers.store.broker_settings import broker_settings
    from repairs.rebuild.rebuild import index_has_tags

    return store is not None and index_has_tags(store, broker_settings(store, conf=conf))


def _say_result(result: Salvaged, to: Path, voice: Voice, *, is_guess: bool) -> int:
    """Print what was found and written; returns the exit status. `is_guess`: the log files' length is inferred."""
    from rmqtx_cli.output.accounting import amounts_of

    if is_guess:
        voice.note(f"{to}: log files of {size(result.segment_bytes)}; --segment-size if the broker's are not that long")
    voice.findings(result.findings)
    for line in _lines(result):
        voice.note(f"{to}: {line}")
    amounts = amounts_of(result.coverage)
    if amounts is not None:
        voice.note(amounts)
    is_whole = not any(finding.kind.severity == "error" for finding in result.findings) and not result.lost_bytes
    return exit_status.DONE if is_whole else exit_status.INCOMPLETE


def _store_of(files: list[Path]) -> Store | None:
    """The store among what was given, whose configuration and lengths of files hold for the new one.

    Raises: BadRequest where there are several; StoreInUse.
    """
    from readers.model.errors import NotAStore, StoreInUse
    from readers.store.store import open_store

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
            "several stores are given", advice="give one, and of others the files of their logs: STORE/commitlog"
        )
    return found[0] if found else None


def _sizes(
    files: list[Path], store: Store | None, conf: Mapping[str, str] | None, segment_bytes: int | None
) -> tuple[StoreSizes, bool]:
    """The lengths of the new store's files: as said, as configured, as the files are that are named like segments.

    Shape: and whether nothing says how long those of the log are.
    """
    from repairs.records.store_sizes import store_sizes, usual_log_file_bytes, with_log_files_of
    from repairs.salvage.scan_for_records import sources_of

    sizes = store_sizes(store, conf)
    is_configured = any(key.lower().endswith("filesizecommitlog") for key in conf or ())
    if segment_bytes is None and not is_configured:
        found = sources_of(files)
        segment_bytes = usual_log_file_bytes((Path(source.file).name, source.size_bytes) for source in found)
    is_guess = segment_bytes is None and not is_configured and (store is None or not store.commit_log)
    return with_log_files_of(sizes, segment_bytes), is_guess


def _lines(result: Salvaged) -> list[str]:
    """What was found and made."""
    chosen, made = result.chosen, result.made
    twice = f", {count(chosen.duplicates_count, 'copy', 'copies')} of them too" if chosen.duplicates_count else ""
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
            f"lost: {size(result.lost_bytes)} inside the log, {count(result.lost_numbers_count, 'number')} of queues; "
            f"{count(result.stand_ins_count, 'empty message')} in their place"
        )
    entries = count(made.slots_count, "entry", "entries")
    lines.append(
        f"{count(made.queues_count, 'queue')} with {entries}, {count(made.index_files_count, 'index file')} with "
        f"{count(made.index_entries_count, 'entry', 'entries')}"
    )
    if result.has_state_table:
        lines.append(
            "state table and redo log are copied as they were: rmqtx verify holds them against the log, rmqtx rebuild "
            "statetable makes them anew"
        )
    if result.lacks_rocksdb:
        lines.append(
            "rocksdbstore/ is not taken: which half messages in it are open, dropped or checked before is not known "
            "there any more"
        )
    return lines
