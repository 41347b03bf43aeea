"""Sorts the rows of a ledger comparison: first those that need an action."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.verdicts.ledger.reconcile import OUTCOMES, RECONCILED


def by_outcome(
    batches: Iterable[pa.RecordBatch], *, temporary_directory: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Return the rows of RECONCILED, those that need an action first.

    Order: of OUTCOMES, then as given. Rows with an action pass at once; the rest waits in files.
    """
    first, *later = OUTCOMES
    with RunFolder(directory=temporary_directory) as name:
        files = {outcome: Path(name) / f"{outcome}.arrow" for outcome in later}
        with ExitStack() as stack:
            writers = {}
            for outcome, file in files.items():
                sink = stack.enter_context(pa.OSFile(str(file), "wb"))
                writers[outcome] = stack.enter_context(pa.ipc.new_file(sink, RECONCILED))
            for batch in batches:
                for outcome in pc.unique(batch["outcome"]).to_pylist():
                    rows = batch.filter(pc.equal(batch["outcome"], outcome))
                    if outcome == first:
                        yield rows
                    else:
                        writers[outcome].write_batch(rows)
        for file in files.values():
            with pa.memory_map(str(file)) as opened:
                reader = pa.ipc.open_file(opened)
                yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
