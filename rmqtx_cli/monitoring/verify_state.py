"""The state of `rmqtx verify --max-duration`: when each file of a log was last verified, in a small JSON file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqtx.readers.model.declared_json import JsonForm, needed
from rmqtx.readers.model.errors import BadText, UnreadableFile, UnwritableFile
from rmqtx.readers.storage.places import identity_of
from rmqtx.repairs.receipts.state_directory import state_directory
from rmqtx.verdicts.verify.time_budget import verify_within
from rmqtx_cli.output.streams import written_whole
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import duration_text, parse_duration_ms

if TYPE_CHECKING:
    from rmqtx.readers.jobs.workers import Progress
    from rmqtx.readers.model.reading import Reading
    from rmqtx.readers.store.store import Store
    from rmqtx.verdicts.verify.verify import Verify
    from rmqtx_cli.sources.engine_port import StoreEngine

_FORM = 1


def state_file(stores: list[Store]) -> Path:
    """The file for a set of stores, independent of their order."""
    names = "\0".join(sorted(identity_of(store.root) for store in stores))
    digest = hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return state_directory() / f"verify-{digest}.json"


def recall(file: Path) -> dict[str, int]:
    """Log file → time of its last verification in epoch milliseconds; empty without a state file of this format.

    Raises: UnreadableFile.
    """
    times = pa.map_(pa.string(), pa.field("verified_time_ms", pa.int64(), nullable=False))
    form = JsonForm("memory of rmqtx verify", pa.struct([needed("form", pa.int64()), needed("files", times)]))
    try:
        found = form.read(file.read_bytes(), str(file))
    except (FileNotFoundError, BadText):
        return {}
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=str(file)) from error
    return dict(found["files"]) if found["form"] == _FORM else {}


def remember(file: Path, checked: dict[str, int]) -> None:
    """Store the times for the next run. Raises: UnwritableFile."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(file) as stream:
            stream.write(json.dumps({"form": _FORM, "files": checked}, indent=1).encode())
    except OSError as error:
        raise UnwritableFile(
            f"cannot write {file}: {error.strerror}", file=str(file), advice="choose another file with --state"
        ) from error


def within_budget(
    job: Verify, stores: list[Store], engine: StoreEngine, text: str, file: Path, voice: Voice,
    progress: Progress | None,
) -> Reading:
    """The findings of as many log files as fit into a duration; stores their times and prints the progress.

    Raises: BadRequest for a text that is not a duration; UnreadableFile, UnwritableFile.
    """
    milliseconds = parse_duration_ms(text)
    partial = verify_within(
        job, stores, milliseconds / 1000, recall(file), engine.results, split_bytes=engine.split_bytes_for(stores),
        progress=progress,
    )
    here = {segment.file for store in stores for segment in store.commit_log if segment.size_bytes}
    known = {name: time for name, time in recall(file).items() if name in here} | partial.checked
    remember(file, known)
    unverified = len(here) - len(known)
    read = f"{len(partial.checked)} of {count(len(here), 'log file')} verified"
    if partial.is_whole:
        voice.note(f"{read}: the whole log")
    elif unverified:
        voice.note(f"{read}; {count(unverified, 'file')} not verified yet; the next run continues ({file})")
    else:
        now = max(partial.checked.values())
        voice.note(f"{read}; the others within the last {duration_text(now - min(known.values()))} ({file})")
    return partial.reading
