"""The options of the engine that reads whole stores: local processes or Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.units import parse_size_bytes
from rmqtx_cli.words.text import size

#: Smallest part of a log that one task reads.
SPLIT_BYTES_MIN = 64 << 10


class EngineName(StrEnum):
    """Engine that reads a whole store."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


def parse_split_bytes(text: str) -> int:
    """Return the bytes of a log that one task reads.

    Raises: BadRequest for text that is not a size, and for a size below the minimum.
    """
    split_bytes = parse_size_bytes(text)
    if split_bytes < SPLIT_BYTES_MIN:
        raise BadRequest(f"--split-size {text} is too small",
                         advice=f"at least {size(SPLIT_BYTES_MIN)}")
    return split_bytes


ProcessesOption = Annotated[
    int | None,
    typer.Option("--processes", min=1, metavar="N", help="At most N local processes; default: one per core"),
]
TemporaryOption = Annotated[
    Path | None, typer.Option("--temp-dir", metavar="DIR", help="Directory for temporary files of large stores")
]


def checked_temporary(directory: Path | None) -> None:
    """Refuse a directory for temporary files that does not exist. Raises: BadRequest."""
    if directory is not None and not directory.is_dir():
        raise BadRequest(f"--temp-dir {str(directory)!r} is not a directory")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The engine options as given.

    Units: `split_bytes` of a commit log. Shape: `conf` are KEY=VALUE.
    Raises: BadRequest for a setting without a value, and for options that exclude each other.
    """

    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine",
            help="Read with processes of this machine (local) or with Spark; auto chooses by the size of the logs",
        ),
    ] = EngineName.AUTO
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Spark master: local[4], spark://HOST:7077, yarn, k8s://..."),
    ] = None
    remote: Annotated[
        str | None,
        typer.Option(
            "--remote", metavar="URL", help="Spark Connect server, like sc://HOST:15002; default: $SPARK_REMOTE"
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; repeatable"),
    ] = None
    split_bytes: Annotated[
        int | None,
        typer.Option(
            "--split-size", parser=parse_split_bytes, metavar="SIZE",
            help="Part of a log that one task reads, like 64KiB or 128MiB; does not change the rows",
        ),
    ] = None
    processes: ProcessesOption = None
    temporary: TemporaryOption = None

    def __post_init__(self) -> None:
        if self.master and self.remote:
            raise BadRequest("--master starts a Spark driver here and --remote uses another one: give one of them")
        if self.remote and not self.remote.startswith("sc://"):
            raise BadRequest(f"--remote {self.remote!r} is not the URL of a Spark Connect server: expected sc://HOST:15002")
        if self.engine is EngineName.LOCAL and (self.master or self.remote or self.conf):
            raise BadRequest("--master, --remote and --conf are for Spark and do not go with --engine local")
        for text in self.conf or ():
            if not text.partition("=")[0].strip() or "=" not in text:
                raise BadRequest(f"--conf {text!r} is not KEY=VALUE")
        checked_temporary(self.temporary)

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings by name; the last one of a name counts."""
        parts = (text.partition("=") for text in self.conf or ())
        return {name.strip(): value for name, _, value in parts}

    @property
    def is_connected(self) -> bool:
        """Whether Spark is a server of Spark Connect, whose driver is not on this machine."""
        return self.remote is not None or (self.master is None and "SPARK_REMOTE" in os.environ)

    @property
    def temporary_directory(self) -> str | None:
        """Directory for temporary files, as the engines take it."""
        return None if self.temporary is None else str(self.temporary)
