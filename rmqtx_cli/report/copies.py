"""The half copies of a batch of transactions that the check put back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, int64s


def put_back(batch: pa.RecordBatch) -> Bools:
    """Return which of all half copies, one after the other, the check put back: not the first of a transaction."""
    copies = batch["half_copies"]
    owners = int64s(pc.list_parent_indices(copies))
    is_later: Bools = np.zeros(len(owners), np.bool_)
    is_later[1:] = owners[1:] == owners[:-1]
    found: Bools = is_later & (int64s(pc.struct_field(pc.list_flatten(copies), "checks_count"), 0) > 0)
    return found
