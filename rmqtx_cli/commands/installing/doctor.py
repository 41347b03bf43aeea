"""`rmqtx doctor`: test the installation, and the executors of Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rmqtx.readers.model import exit_status
from rmqtx_cli.commands.declared.installation import DoctorCommand
from rmqtx_cli.doctor.executors import parts_of_executors
from rmqtx_cli.doctor.here import parts_here, parts_of_conf
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.options.options import VoiceOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.pages.installation import INSTALLATION, Part, installation_table, installation_view
from rmqtx_cli.sources.engines import asked_for_spark
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.text import count


def run(options: DoctorCommand) -> int:
    """Run the command; return its exit status."""
    listing = Listing(INSTALLATION, installation_view(), options.output, options.where, voice=options.voice)
    parts = list(_parts(options.store or [], options.engine, options.voice))
    if options.broker_conf is not None:
        parts += parts_of_conf(options.broker_conf, options.broker_version)
    outcomes = Counter(part.outcome for part in parts)

    def answer() -> Iterator[str]:
        found = f"{count(outcomes['problem'], 'problem')}" if outcomes["problem"] else "no problem"
        yield f"{found}, {count(outcomes['note'], 'note')}, {count(len(parts), 'part')} examined"

    listing.write(iter(installation_table(parts).to_batches()), answer=answer)
    return exit_status.FINDINGS if outcomes["problem"] else exit_status.DONE


def _parts(stores: list[str], engine: EngineOptions, voice: VoiceOptions) -> list[Part]:
    is_automatic = engine.engine is EngineName.AUTO and asked_for_spark(engine) is not None
    needs_spark = engine.engine is EngineName.SPARK or is_automatic
    needs_connect = needs_spark and engine.is_connected
    parts = list(
        parts_here(stores, engine.temporary_directory, needs_spark=needs_spark, needs_connect=needs_connect)
    )
    if needs_spark:
        with shown("asking Spark's executors", voice):
            parts += parts_of_executors(engine, stores)
    return parts
