"""Merge many small reads of a file into few: close places are read together, with the bytes between them.

The reads are planned in portions, so that memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Int64s = npt.NDArray[np.int64]

@dataclass(frozen=True, slots=True)
class Portion:
    """Reads of some places, one run of bytes after another in one buffer.

    Shape: `first` and `last` are the numbers of the first place and of the one after the last; `begins` and `ends` of
           the runs in the file; `starts` of each place in the buffer.
    Units: bytes.
    """

    first: int
    last: int
    begins: _Int64s
    ends: _Int64s
    starts: _Int64s


@dataclass(frozen=True, slots=True)
class Limits:
    """How the places of a source are read: each source has its own.

    `near_bytes`: two places with at most this distance are read together, because a read of its own costs more than the
    bytes between them. `portion_bytes`, `places_max`: the most bytes and places of a portion.
    """

    near_bytes: int
    portion_bytes: int
    places_max: int


#: A read of a local file costs as much as to copy some KiB.
LOCAL = Limits(near_bytes=8 << 10, portion_bytes=4 << 20, places_max=1 << 62)
#: A request of 50 ms, one of 32 under way, costs as much as to receive this number of bytes with 2.5 Gbit/s. A portion
#: must fit into the cache.
REMOTE = Limits(near_bytes=512 << 10, portion_bytes=16 << 20, places_max=2048)
#: A large read of a remote file is fetched in parts of about this size: one connection does not use all bandwidth.
REMOTE_PART_BYTES = 4 << 20


def portions(begins: _Int64s, ends: _Int64s, limits: Limits) -> Iterator[Portion]:
    """Plan the reads of places, in their order; places that overlap are read once.

    `begins`: usually ascending; where it is not, a new portion begins.
    Units: bytes.
    """
    falls = np.flatnonzero(np.diff(begins) < 0) + 1
    for low, high in zip([0, *falls.tolist()], [*falls.tolist(), len(begins)], strict=True):
        if low < high:
            yield from _ascending(low, begins[low:high], ends[low:high], limits)


def _ascending(first: int, begins: _Int64s, ends: _Int64s, limits: Limits) -> Iterator[Portion]:
    if len(begins) == 1:  # as most look-ups
        yield Portion(first, first + 1, begins, ends, np.zeros(1, np.int64))
        return
    reach = np.maximum.accumulate(ends)
    is_cut = np.append(True, begins[1:] > reach[:-1] + limits.near_bytes)
    added = np.where(is_cut, ends - begins, np.append(0, np.diff(reach)))
    portion_numbers = (np.cumsum(added) - added) // limits.portion_bytes
    inside = np.arange(len(begins)) - np.searchsorted(portion_numbers, portion_numbers)
    bounds = np.flatnonzero(np.append(True, (np.diff(portion_numbers) > 0) | (inside[1:] % limits.places_max == 0)))
    is_cut[bounds] = True
    cuts = np.flatnonzero(is_cut)
    run_begins, run_ends = begins[cuts], np.maximum.reduceat(ends, cuts)
    run_numbers = np.cumsum(is_cut) - 1
    places = np.cumsum(run_ends - run_begins) - (run_ends - run_begins)
    starts = places[run_numbers] + begins - run_begins[run_numbers]
    for low, high in zip(bounds.tolist(), [*bounds[1:].tolist(), len(begins)], strict=True):
        runs = slice(int(run_numbers[low]), int(run_numbers[high - 1]) + 1)
        yield Portion(
            first + low, first + high, run_begins[runs], run_ends[runs], starts[low:high] - places[run_numbers[low]]
        )
