"""`rmqtx prove`: check a proof of verdicts on a copy of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.storage.file_systems import expand
from rmqtx.verdicts.proofs.proof_file import opened_proof
from rmqtx.verdicts.proofs.proving import PROVED, Asked, Result, Row, prove
from rmqtx_cli.commands.declared.data import ProveCommand
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import PROVED_VIEW
from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header
from rmqtx_cli.words.text import count

_ROWS = 10_000


def run(options: ProveCommand) -> int:
    """Run the command; return its exit status."""
    asked = Asked(options.asked.sample, options.asked.seed, options.asked.transaction)
    if asked.sample is not None and asked.transaction is not None:
        raise BadRequest("--sample and --transaction choose verdicts: give only one")
    listing = Listing(PROVED, PROVED_VIEW, options.output, options.where, None, options.limit, options.voice)
    opened = open_stores(expand(options.store), options.files)
    refuse_inside(options.output.output, opened.stores)
    say_header(opened, options.voice)
    counts: Counter[str] = Counter()
    with opened_proof(options.proof) as reader:
        rows = _counted(prove(reader, opened.stores, opened.settings_of, asked), counts)
        listing.write(_batches(rows), to_the_end=True, answer=lambda: [_answer(counts)])
    listing.say_limit("row")
    if counts[Result.DIFFERS]:
        return exit_status.FINDINGS
    return exit_status.INCOMPLETE if counts[Result.UNKNOWN] else exit_status.DONE


def _counted(rows: Iterator[Row], counts: Counter[str]) -> Iterator[Row]:
    for row in rows:
        counts[row["result"]] += 1
        yield row


def _batches(rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    while some := list(islice(rows, _ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=PROVED)


def _answer(counts: Counter[str]) -> str:
    same = f"{count(counts[Result.SAME], 'verdict')} same"
    unlike = count(counts[Result.DIFFERS], "difference") if counts[Result.DIFFERS] else "no difference"
    return f"{same}, {unlike}, {counts[Result.UNKNOWN]} unknown"
