"""One run of an engine over whole stores: the engine, its progress bar, and the provenance of what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.verdicts.audit.provenance import Provenance
from rmqtx_cli.sources.engine_port import StoreEngine
from rmqtx_cli.sources.engines import chosen_engine
from rmqtx_cli.sources.provenance import MetaCarrier, take_provenance
from rmqtx_cli.words.progress import shown

if TYPE_CHECKING:
    import typer

    from rmqtx.readers.jobs.workers import Progress
    from rmqtx.readers.store.store import Store
    from rmqtx_cli.options.engine import EngineOptions
    from rmqtx_cli.options.options import ProvenanceOptions


@dataclass(frozen=True, slots=True)
class EngineRun:
    """A running engine. `provenance`: None if it is neither printed nor stored."""

    engine: StoreEngine
    progress: Progress | None
    provenance: Provenance | None


@contextmanager
def engine_run(
    context: typer.Context, what: str, stores: list[Store], listing: MetaCarrier, engine: EngineOptions,
    provenance: ProvenanceOptions, *, inputs: Sequence[Path] = (),
) -> Iterator[EngineRun]:
    """Start the engine that the options ask for, and pass the listing its provenance.

    `what`: the label of the progress bar. `inputs`: see `take_provenance`.
    Raises: SparkUnavailable if Spark was asked for and cannot start.
    """
    voice = listing.voice
    with chosen_engine(engine, stores, voice) as given, shown(what, voice) as progress:
        facts = take_provenance(context, listing, given, stores, hash_all=provenance.hash_all, inputs=inputs)
        yield EngineRun(given, progress, facts)
