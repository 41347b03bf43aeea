"""Commands about the installation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.options import (
    BrokerConfOption,
    BrokerVersionOption,
    OptionalStoreArguments,
    OutputOptions,
    VoiceOptions,
    WhereOption,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCommand(Command):
    """Test this installation: packages, extras, Java, folders, settings, and whether stores can be read.

    With --engine spark, --master or --remote it also starts Spark, runs a task on each executor, and lists its Python,
    its packages, and whether it reads the stores. Of credentials only names are printed, never values.

    With --broker-conf it names each line that brokers do not take as written (a setting that they do not have, a value
    that they cannot parse), with the value in force.

    Exit status 0: no problem was found; notes name parts without which the rest works.
    """

    NAME = "doctor"
    MODULE = "installing.doctor"
    EXAMPLES = (
        Example("rmqtx doctor", "packages, extras, Java, folders, settings, credentials of this machine"),
        Example("rmqtx doctor s3://evidence/broker-a/store", "also: can this machine read the store?"),
        Example("rmqtx doctor --engine spark --master spark://HOST:7077", "a task on each executor of a cluster"),
        Example("rmqtx doctor --broker-conf broker.conf", "does the broker take each line as written?"),
        Example("rmqtx doctor --where 'outcome = problem' --format json", "what is wrong, for a script"),
    )

    store: OptionalStoreArguments = None
    where: WhereOption = None
    broker_conf: BrokerConfOption = None
    broker_version: BrokerVersionOption = None
    output: OutputOptions
    engine: EngineOptions
    voice: VoiceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkArchiveCommand(Command):
    """Pack pyarrow, numpy, pandas and what makes scans faster, for executors of Spark that have only Python.

    The archive has the packages of this environment and a script bin/python, which runs a Python of the executor with
    them. It suits executors with the system, the processor and the minor version of Python of this machine. rmqtx
    itself is not in it: each session sends its own.
    """

    NAME = "spark-archive"
    MODULE = "installing.spark_archive"
    EXAMPLES = (
        Example("rmqtx spark-archive -o env.tar.gz", "the packages of this environment"),
        Example(
            "rmqtx audit STORE --master spark://HOST:7077 --conf spark.archives=env.tar.gz#env "
            "--conf spark.pyspark.python=./env/bin/python -o verdicts/",
            "use it on a cluster whose executors have only Python",
        ),
    )

    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write the archive to FILE, a .tar.gz")
    ]
    voice: VoiceOptions


COMMANDS: tuple[type[Command], ...] = (
    DoctorCommand,
    SparkArchiveCommand,
)
