"""Proofs beside the output of a command: `--proof FILE`."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.output.streams import PRIVATE, written_whole
from rmqtx_cli.sources.files import FileSource
from rmqtx_cli.sources.opening import refuse_inside
from rmqtx_cli.words.text import count, size

if TYPE_CHECKING:
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx.verdicts.proofs.writing import Choose
    from rmqtx_cli.words.say import Voice


@dataclass(frozen=True, slots=True)
class Proving:
    """What a proof is made of: by which command, as of which time, and whether it read all segments."""

    file: Path | None
    command: str
    at_ms: int | None
    is_whole: bool
    voice: Voice

    @contextmanager
    def of(self, reading: VerdictReading, source: object, choose: Choose = lambda rows: rows) -> Iterator[None]:
        """Write the proof of the rows that are read inside the block, those that are chosen; nothing without a file.

        Raises: BadRequest, UnwritableFile.
        """
        if self.file is None:
            yield
            return
        if not isinstance(source, FileSource):
            raise BadRequest("--proof is for files, not for live brokers")
        refuse_inside(self.file, source.stores)
        from rmqtx.verdicts.proofs.writing import ProofWriter  # with trees of hashes: few commands write a proof

        with written_whole(self.file, mode=PRIVATE) as stream:
            out = gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) if self.file.suffix == ".gz" else stream
            writer = ProofWriter(
                cast("IO[bytes]", out), source.stores, source.settings_of, self.command, self.at_ms,
                is_whole=self.is_whole,
            )
            reading.batches = writer.watching(reading, reading.batches, choose)
            yield
            for _ in reading.batches:
                pass
            writer.finish(reading)
            if out is not stream:
                out.close()
        self.voice.note(
            f"{self.file}: proof of {count(writer.verdicts_count, 'verdict')}, {size(self.file.stat().st_size)}; "
            f"check it with rmqtx prove {self.file} {source.arguments}"
        )
