"""The page of `rmqtx show` for one transaction, read again: for screens and questions that show it in between."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rmqtx.readers.model import clock
from rmqtx.verdicts.causes.diagnosing import CauseRow, diagnosed_each
from rmqtx.verdicts.model.predicted import deadline_of
from rmqtx_cli.pages.drawing import Known, PageForm, draw

if TYPE_CHECKING:
    from rmqtx_cli.sources.source import SourceOpener


def write_page(
    opener: SourceOpener, identity: str, stream: IO[bytes], *, is_plain: bool = False
) -> list[CauseRow]:
    """Write the page of each transaction with this name; return the causes of the last one (rows of DIAGNOSES).

    `is_plain`: lines instead of tables.
    Raises: NoSuchTransaction; SourceError if a store cannot be read; Unreachable, NoAnswer, Refused.
    """
    row_causes: list[CauseRow] = []
    with opener.opened() as source:
        reading = source.show(identity)
        rows = reading.table()
        causes = diagnosed_each(rows, reading.evidence, None)
        now_ms = clock.now_ms()
        for row, row_causes in zip(rows.to_pylist(), causes, strict=True):
            deadline = deadline_of(row, reading.predicted)
            form = PageForm(is_plain=is_plain, is_quiet=True)
            draw(row, Known(source.surroundings(), deadline, now_ms, row_causes, []), stream, form)
    return row_causes
