"""The provenance of a command's results: stores, digests, options, engine; printed by --verbose, stored in files."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from rmqtx.readers.model import clock
from rmqtx.verdicts.audit.provenance import EngineFacts, Provenance, file_provenance, provenance, store_provenance
from rmqtx_cli.words.text import count, size
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store
    from rmqtx_cli.sources.engine_port import StoreEngine
    from rmqtx_cli.words.say import Voice


class MetaCarrier(Protocol):
    """An output that may contain the provenance of its rows: a listing, or a report."""

    meta: Provenance | None

    @property
    def voice(self) -> Voice:
        """What is printed beside the output."""

    @property
    def carries_meta(self) -> bool:
        """Whether the output contains its provenance."""


@dataclass(slots=True)
class TakenProvenance:
    """Takes the provenance for what always contains it: a folder, a report, an export, a plan. See `MetaCarrier`."""

    voice: Voice
    meta: Provenance | None = None
    carries_meta: bool = True


#: Options that change nothing in the rows.
_WITHOUT_EFFECT = frozenset({"verbose", "quiet"})
_SECRET = re.compile(r"(?i)secret|password|passwd|token|credential|key")
_HIDDEN = "(not written down)"


def asked_options(context: typer.Context) -> dict[str, object]:
    """The arguments and options of the command as JSON values, without secrets."""
    return {
        name: _plain(value)
        for name, value in context.params.items()
        if name not in _WITHOUT_EFFECT and value is not None and value is not False and value != [] and value != ()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return without_secrets(str(value))


def without_secrets(text: str) -> str:
    """A setting KEY=VALUE, or a URL, with a possible password replaced or removed."""
    name, equals, _ = text.partition("=")
    if equals and "://" not in name and _SECRET.search(name) and re.fullmatch(r"[\w.\-]+", name):
        return f"{name}={_HIDDEN}"
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def take_provenance(
    context: typer.Context, listing: MetaCarrier, engine: StoreEngine, stores: list[Store], *, hash_all: bool,
    inputs: Sequence[Path] = (),
) -> Provenance | None:
    """The provenance of the rows that follow: passed to the listing, and printed with --verbose or --hash.

    `inputs`: other files that the rows depend on; of a directory all its files.
    It takes two reads per segment (`hash_all`: all bytes), so the result is None if it is neither printed nor stored.
    """
    voice = listing.voice
    is_printed = voice.verbose or (hash_all and not voice.quiet)
    if not (is_printed or listing.carries_meta):
        return None
    facts = provenance_of_stores(context, engine, stores, hash_all=hash_all, inputs=inputs)
    listing.meta = facts
    if is_printed:
        for line in provenance_lines(facts):
            voice.note(line)
    return facts


def add_provenance(context: typer.Context, listing: MetaCarrier, stores: list[Store]) -> None:
    """Add the provenance to a listing whose output contains one; for commands that run no engine.

    It takes two reads per segment.
    """
    listing.meta = provenance(
        [store_provenance(store) for store in stores], command=str(context.command.name),
        options=asked_options(context),
        engine=EngineFacts("local"), made_time_ms=clock.now_ms(),
    )


def provenance_of_stores(
    context: typer.Context, engine: StoreEngine, stores: list[Store], *, hash_all: bool, inputs: Sequence[Path] = ()
) -> Provenance:
    """The provenance of a command over some stores."""
    log_bytes = sum(segment.size_bytes for store in stores for segment in store.commit_log)
    found = engine.results(
        functools.partial(store_provenance, hash_all=hash_all), stores, log_bytes if hash_all else 0
    )
    return provenance(
        found, command=str(context.command.name), options=asked_options(context),
        engine=EngineFacts(engine.name, *_splits(engine, stores)), made_time_ms=clock.now_ms(),
        inputs=[file_provenance(file) for file in _files_of(inputs)],
    )


def _files_of(paths: Sequence[Path]) -> list[Path]:
    """The files at the paths; of a directory all files below it."""
    files: list[Path] = []
    for path in paths:
        files.extend(sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path])
    return files


def _splits(engine: StoreEngine, stores: list[Store]) -> tuple[int, int]:
    """Bytes of a split, and the number of splits."""
    split_bytes = engine.split_bytes_for(stores)
    splits = (-(-segment.size_bytes // split_bytes) for store in stores for segment in store.commit_log)
    return split_bytes, sum(splits)


def provenance_lines(facts: Mapping[str, Any]) -> list[str]:
    """The provenance for people: a line for the run, then one for each store and each of its files."""
    engine = facts["engine"]
    lines = [
        f"provenance: {facts['made_by']}, {facts['command']} at {time_text(facts['made_time_ms'])}, engine "
        f"{engine['name']}, {count(engine['splits_count'], 'split')} of {size(engine['split_bytes'])}"
    ]
    for store in facts["stores"]:
        lines.append(
            f"provenance: {store['store']} as of {time_text(store['taken_time_ms'])}: "
            f"{size(store['commit_log_bytes'])} of commit log, {store['digest']}"
        )
        lines.extend(_file_line(file) for file in (*store["segments"], *store["files"]))
    return [*lines, *(_file_line(file) for file in facts["inputs"])]


def _file_line(file: Mapping[str, Any]) -> str:
    digest = f"{file['digest']} ({file['digest_of']})" if file["digest"] else f"unreadable: {file['unreadable']}"
    length = "length unknown" if file["size_bytes"] is None else count(file["size_bytes"], "byte")
    return f"provenance: {file['file']}: {length}, {digest}"
