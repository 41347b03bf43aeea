"""The options that choose what reads whole stores, and set it up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.words.sizes import parse_size_bytes
from rmqtx_cli.words.text import size

#: The least that a task of a scan reads.
SPLIT_BYTES_MIN = 64 << 10


class EngineName(StrEnum):
    """What reads a whole store."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def parse_split_bytes(text: str) -> int:
    """The bytes of a log that one task reads.

    Raises: BadRequest for what is no size, or so small that tasks would cost more than what they read.
    """
    split_bytes = parse_size_bytes(text)
    if split_bytes < SPLIT_BYTES_MIN:
        raise BadRequest(f"--split-size {text} is too small: a task each costs more than it reads",
                         advice=f"at least {size(SPLIT_BYTES_MIN)}")  # fmt: skip
    return split_bytes


EngineOption = Annotated[
    EngineName,
    typer.Option("--engine", help="Processes of this machine, or Spark; auto decides by size and says so."),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master: local[4], spark://HOST:7077, yarn, k8s://..."),
]
RemoteOption = Annotated[
    str | None,
    typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://HOST:15002; SPARK_REMOTE says it too."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeat it for several."),
]
SplitSizeOption = Annotated[
    int | None,
    typer.Option(
        "--split-size", parser=parse_split_bytes, metavar="SIZE",
        help="How much of a log one task reads: 64KiB, 128MiB. The rows are the same whatever it is.",
    ),
]
ProcessesOption = Annotated[
    int | None,
    typer.Option("--processes", min=1, metavar="N", help="At most so many on this machine; one per core by default."),
]
TemporaryOption = Annotated[
    Path | None, typer.Option("--temp-dir", metavar="DIR", help="Where intermediate rows of large stores go.")
]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options that choose an engine and set it up, as they were given.

    Units: `split_bytes` of a commit log. Shape: `conf` are KEY=VALUE.
    Raises: BadRequest, for a setting without a value, and for options that contradict each other.
    """

    engine: EngineOption = EngineName.AUTO
    master: MasterOption = None
    remote: RemoteOption = None
    conf: ConfOption = None
    split_bytes: SplitSizeOption = None
    processes: ProcessesOption = None
    temporary: TemporaryOption = None

    def __post_init__(self) -> None:
        if self.master and self.remote:
            raise BadRequest("--master starts a driver here and --remote asks another one: give one of them")
        if self.remote and not self.remote.startswith("sc://"):
            raise BadRequest(f"--remote {self.remote!r} is no Spark Connect server: write it like sc://HOST:15002")
        if self.engine is EngineName.LOCAL and (self.master or self.remote or self.conf):
            raise BadRequest("--master, --remote and --conf are for Spark, and --engine local was asked for")
        for text in self.conf or ():
            if not text.partition("=")[0].strip() or "=" not in text:
                raise BadRequest(f"--conf {text!r} is not KEY=VALUE")
        if self.temporary is not None and not self.temporary.is_dir():
            raise BadRequest(f"--temp-dir {str(self.temporary)!r} is not a directory")

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark, by name; the last of a name counts."""
        parts = (text.partition("=") for text in self.conf or ())
        return {name.strip(): value for name, _, value in parts}

    @property
    def temporary_directory(self) -> str | None:
        """Where intermediate files go, as the engines take it."""
        return None if self.temporary is None else str(self.temporary)
