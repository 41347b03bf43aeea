"""`rmqtx audit -o DIR/`: verdicts as a folder of Parquet, written where they are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.tables import findings_table
from rmqtx.verdicts.export.verdict_folder import VerdictFolder, Written, verdict_folder
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.options.options import OutputFolder
from rmqtx_cli.output.listing import concluded
from rmqtx_cli.sources.engine_run import engine_run
from rmqtx_cli.sources.provenance import TakenProvenance
from rmqtx_cli.words.text import count, grouped, size

if TYPE_CHECKING:
    import typer

    from rmqtx_cli.options.engine import EngineOptions
    from rmqtx_cli.options.options import OutputOptions, ProvenanceOptions
    from rmqtx_cli.sources.files import FileOpener


def folder_of(
    output: OutputOptions, partition_by: str | None, unfit: Mapping[str, Any]
) -> VerdictFolder:
    """Return the folder that `-o` names.

    `unfit`: values of the options that a folder does not support, by option name.
    Raises: BadRequest for one of these options, and for --partition-by without a folder.
    """
    place = output.output
    if not isinstance(place, OutputFolder):
        raise BadRequest("--partition-by is for folders", advice="add -o DIR/")
    for name, value in unfit.items():
        if value not in (None, False, [], ()):
            raise BadRequest(
                f"{name} does not go with -o {place.place}: a folder has all transactions with all columns",
                advice="select when you read it, or give -o a file",
            )
    names = [name.strip() for name in (partition_by or "").split(",") if name.strip()]
    return verdict_folder(place.place, names, has_timestamps=output.form.timestamps)


def audit_into_folder(
    context: typer.Context, folder: VerdictFolder, opener: FileOpener, engine: EngineOptions,
    provenance: ProvenanceOptions, at_ms: int | None,
) -> int:
    """Write the folder; return the exit status. Raises: BadRequest if the folder has files; UnwritableFile."""
    taken = TakenProvenance(opener.voice)
    with (
        opener.opened(OutputFolder(folder.place)) as source,
        folder.begun(),
        engine_run(context, "auditing", source.stores, taken, engine, provenance) as run,
    ):
        reading, written = run.engine.audit_into(
            folder, source.stores, source.opened.settings_of, at_ms=at_ms, progress=run.progress
        )
        folder.finish(written, findings_table(reading.findings), reading.coverage_table(), taken.meta or {})
    states = _states(written)
    files_bytes = [size_bytes for one in written for size_bytes in one.files_bytes.values()]
    opener.voice.note(
        f"{folder.place}: {count(states.total(), 'transaction')} in {count(len(files_bytes), 'file')} of "
        f"{size(sum(files_bytes))}{''.join(f', {grouped(number)} {state}' for state, number in sorted(states.items()))}"
    )
    return concluded(reading, opener.voice, has_undecidable=states[State.UNDECIDABLE] > 0)


def _states(written: list[Written]) -> Counter[str]:
    return sum((one.states for one in written), Counter())
