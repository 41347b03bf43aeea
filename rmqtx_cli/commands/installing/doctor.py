"""`rmqtx doctor`: test the installation, and the executors of Spark."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rmqtx_cli.commands import Example
from rmqtx_cli.options.engine import EngineName, EngineOptions
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    BrokerConfOption,
    BrokerVersionOption,
    OptionalStoreArguments,
    OutputOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.words import exit_status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqtx_cli.pages.installation import Part

NAME = "doctor"
EXAMPLES = (
    Example("rmqtx doctor", "packages, extras, Java, folders, settings, credentials of this machine"),
    Example("rmqtx doctor s3://evidence/broker-a/store", "also: can this machine read the store?"),
    Example("rmqtx doctor --engine spark --master spark://HOST:7077", "a task on each executor of a cluster"),
    Example("rmqtx doctor --broker-conf broker.conf", "does the broker take each line as written?"),
    Example("rmqtx doctor --where 'outcome = problem' --format json", "what is wrong, for a script"),
)


@with_option_groups
def command(
    store: OptionalStoreArguments = None,
    where: WhereOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    *,
    output: OutputOptions,
    engine: EngineOptions,
    voice: VoiceOptions,
) -> int:
    """Test this installation: packages, extras, Java, folders, settings, and whether stores can be read.

    With --engine spark, --master or --remote it also starts Spark, runs a task on each executor, and lists its Python,
    its packages, and whether it reads the stores. Of credentials only names are printed, never values.

    With --broker-conf it names each line that brokers do not take as written (a setting that they do not have, a value
    that they cannot parse), with the value in force.

    Exit status 0: no problem was found; notes name parts without which the rest works.
    """
    from rmqtx_cli.doctor.here import parts_of_conf
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.pages.installation import INSTALLATION, installation_table, installation_view
    from rmqtx_cli.words.text import count

    listing = Listing(INSTALLATION, installation_view(), output, where, voice=voice)
    parts = list(_parts(store or [], engine, voice))
    if broker_conf is not None:
        parts += parts_of_conf(broker_conf, broker_version)
    outcomes = Counter(part.outcome for part in parts)

    def answer() -> Iterator[str]:
        found = f"{count(outcomes['problem'], 'problem')}" if outcomes["problem"] else "no problem"
        yield f"{found}, {count(outcomes['note'], 'note')}, {count(len(parts), 'part')} examined"

    listing.write(iter(installation_table(parts).to_batches()), answer=answer)
    return exit_status.FINDINGS if outcomes["problem"] else exit_status.DONE


def _parts(stores: list[str], engine: EngineOptions, voice: VoiceOptions) -> list[Part]:
    from rmqtx_cli.doctor.executors import parts_of_executors
    from rmqtx_cli.doctor.here import parts_here
    from rmqtx_cli.sources.engines import asked_for_spark
    from rmqtx_cli.words.progress import shown

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
