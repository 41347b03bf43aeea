"""Find the mark of the fillers that `rmqtx salvage` writes. Most logs have none, and all of the log is searched."""

from __future__ import annotations

import numpy as np

from rmqtx.readers.log.kernels import accelerated
from rmqtx.readers.log.record_layout import FILLER_MARK

_WORD_BYTES = 4
#: The words of the mark that lie at a multiple of their length: one of them does, wherever the mark begins.
_WORDS = [int.from_bytes(FILLER_MARK[place : place + _WORD_BYTES], "little") for place in range(_WORD_BYTES)]
#: Words that are compared at once; they fit into the processor's caches.
_WORDS_AT_ONCE = 1 << 16


def holds_mark(data: bytes) -> bool:
    """Return whether the mark of fillers is in the data."""
    fast = accelerated()
    return (_may_hold_mark(data) if fast is None else fast.may_hold_mark(data)) and FILLER_MARK in data


def _may_hold_mark(data: bytes) -> bool:
    """Return False if the mark is not in the data; True if it may be. Sooner than a search for the text."""
    words = np.frombuffer(data, "<u4", len(data) // _WORD_BYTES)
    for begin in range(0, len(words), _WORDS_AT_ONCE):
        part = words[begin : begin + _WORDS_AT_ONCE]
        found = part == _WORDS[0]
        for word in _WORDS[1:]:
            found |= part == word
        if found.any():
            return True
    return False
