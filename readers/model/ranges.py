"""Ranges of offsets and numbers: which places lie in them, and how several lists of ranges are merged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s


@dataclass(frozen=True, slots=True)
class LogRanges:
    """The parts of a log that can hold records.

    Shape: `damaged`: rows [begin, end) that are damaged, were not read or are in no file; `segments`: rows
           [begin, end) that files hold; both ascending. `end_offset`: past the last record.
    Units: bytes of the commit log.
    """

    begin_offset: int
    end_offset: int
    damaged: Int64s
    segments: Int64s

    def is_damaged(self, offsets: Int64s) -> Bools:
        """Whether each place lies in damaged or unread bytes."""
        return inside(self.damaged, offsets)

    def is_held(self, offsets: Int64s) -> Bools:
        """Whether a file holds each place, before the end of the records."""
        return inside(self.segments, offsets) & (offsets < self.end_offset)


def inside(ranges: Int64s, offsets: Int64s) -> Bools:
    """Return which places lie in the ranges [from, to), which are ascending and do not overlap."""
    if not len(ranges):
        return np.zeros(len(offsets), np.bool_)
    at = np.searchsorted(ranges[:, 0], offsets, "right") - 1
    inside: Bools = (at >= 0) & (offsets < ranges[np.maximum(at, 0), 1])
    return inside


def merged(runs: list[Int64s]) -> Int64s:
    """Return the ranges [from, to) of several lists as one list without overlaps. Order: ascending."""
    every = np.concatenate([np.empty((0, 2), np.int64), *runs])
    if not len(every):
        return every
    every = every[np.argsort(every[:, 0], kind="stable")]
    ends = np.maximum.accumulate(every[:, 1])
    cuts = np.flatnonzero(every[1:, 0] > ends[:-1])
    return np.stack([every[np.r_[0, cuts + 1], 0], ends[np.r_[cuts, len(every) - 1]]], axis=1)


def between(ranges: Int64s, begin: int, end: int) -> Int64s:
    """Return the parts of [begin, end) outside the ranges, which are ascending and do not overlap."""
    edges = np.clip(np.concatenate([[begin], ranges.ravel(), [end]]), begin, max(begin, end)).reshape(-1, 2)
    kept: Int64s = edges[edges[:, 0] < edges[:, 1]]
    return kept


def runs_of(numbers: Int64s) -> Int64s:
    """Return numbers as runs [from, to) without gaps, one row each, ascending."""
    unique = numbers if (np.diff(numbers) > 0).all() else np.unique(numbers)
    if not len(unique):
        return np.empty((0, 2), np.int64)
    cuts = np.flatnonzero(np.diff(unique) != 1)
    return np.stack([unique[np.r_[0, cuts + 1]], unique[np.r_[cuts, len(unique) - 1]] + 1], axis=1)
