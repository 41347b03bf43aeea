"""The numbers in the bodies of op messages: half queue offsets as decimal text, parsed for many bodies at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqtx.readers.model.columns import Bools, Bytes, Int64s

_DIGITS_MAX = 18
#: A number of up to eight digits is one word.
_WORD_DIGITS_MAX = 8
#: Text that is parsed at once: what is made of it stays in the processor's caches.
_EVEN_TEXT_BYTES = 64 << 10
_COMMA, _ZERO = ord(","), ord("0")


class _Numbers(NamedTuple):
    """Numbers of some bodies: how many each has, which are readable, and which have a comma."""

    values: Int64s
    counts: Int64s
    are_good: Bools
    have_comma: Bools


def parse_op_bodies(bodies: pa.Array, intact: Bools) -> tuple[pa.Array, pa.Array]:
    """Return numbers and form of op bodies: `123` (to 5.0.0) or `123,124,` (from 5.1.0).

    Shape:  (list<int64>, string); null list and form `unreadable` if a body is neither, or is not intact.
    Source: TransactionalMessageServiceImpl.fillOpRemoveMap; docs/formats/half_and_op.md#op.
    """
    count = len(bodies)
    if not count:
        return pa.array([], pa.list_(pa.int64())), pa.array([], pa.string())
    offsets = np.frombuffer(bodies.buffers()[1], np.int32, count + 1 + bodies.offset)[bodies.offset :].astype(np.int64)
    text = np.frombuffer(bodies.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    parts: list[_Numbers] = []
    for low, high, width in _runs(text, offsets):
        part, places = text[offsets[low] : offsets[high]], offsets[low : high + 1] - offsets[low]
        known = intact[low:high]
        even = _even_numbers(part, width) if width and known.all() else None
        if even is None:
            parts.append(_any_numbers(part, places, known))
        else:
            yes = np.ones(high - low, np.bool_)
            parts.append(_Numbers(even, np.diff(places) // (width + 1), yes, yes))
    found = _Numbers(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    list_offsets = np.append(0, np.cumsum(found.counts)).astype(np.int32)
    mask = None if found.are_good.all() else np.append(~found.are_good, False)
    numbers = pa.ListArray.from_arrays(pa.array(list_offsets, mask=mask), pa.array(found.values))
    forms = np.where(found.are_good, np.where(found.have_comma, "list", "single"), "unreadable")
    return numbers, pa.array(forms, pa.string())


def _runs(text: Bytes, offsets: Int64s) -> Iterator[tuple[int, int, int]]:
    """Divide bodies into runs whose numbers seem to have the same width, each with a comma after it.

    Shape: first body, the one after the last, and the number of digits; 0 if it varies.
    """
    count, lengths = len(offsets) - 1, np.diff(offsets)
    heads = np.zeros((count, _WORD_DIGITS_MAX + 1), np.uint8)
    for place in range(_WORD_DIGITS_MAX + 1):
        rows = np.flatnonzero(lengths > place)
        heads[rows, place] = text[offsets[rows] + place]
    widths = (heads == _COMMA).argmax(axis=1)  # 0 also without a comma
    widths[lengths % (widths + 1) != 0] = 0
    is_begin = np.append(True, (np.diff(widths) != 0) | (np.diff(offsets[:-1] // _EVEN_TEXT_BYTES) != 0))
    begins = np.flatnonzero(is_begin)
    if 2 * len(begins) > count:  # short runs cost more than they save
        yield 0, count, 0
        return
    yield from zip(begins.tolist(), [*begins[1:].tolist(), count], widths[begins].tolist(), strict=True)


def _even_numbers(text: Bytes, width: int) -> Int64s | None:
    """Return numbers that all have `width` digits and a comma; None if the text is anything else."""
    step = width + 1
    count = len(text) // step
    if (text[width::step] != _COMMA).any() or np.count_nonzero((text - np.uint8(_ZERO)) > 9) != count:
        return None
    padded = np.concatenate([text, np.zeros(8, np.uint8)])
    words = np.ndarray((count,), "<u8", padded, 0, (step,)).astype(np.uint64)
    words <<= np.uint64(8 * (_WORD_DIGITS_MAX - width))  # zeros before the digits, nothing after them
    return _eight_digits(words)


def _eight_digits(words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Int64s:
    """Return the numbers of eight digits, or zero bytes, in each word; changes the words."""
    words &= np.uint64(0x0F0F0F0F0F0F0F0F)
    for factor, bits, mask in (
        (10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0x00000000FFFFFFFF),
    ):
        upper = words >> np.uint64(bits)
        words *= np.uint64(factor)
        words += upper
        words &= np.uint64(mask)
    return words.view(np.int64)


def _any_numbers(text: Bytes, offsets: Int64s, intact: Bools) -> _Numbers:
    """Return the numbers of bodies of any form."""
    count = len(offsets) - 1
    breaks = np.flatnonzero((text - np.uint8(_ZERO)) > 9)  # bytes other than digits
    first_breaks = np.searchsorted(breaks, offsets)
    are_commas = text[breaks] == _COMMA
    strange = np.zeros(count, np.int64)
    if not are_commas.all():
        np.add.at(strange, np.searchsorted(offsets, breaks[~are_commas], side="right") - 1, 1)
    commas = np.append(0, np.cumsum(are_commas))[first_breaks]
    # A number ends at a break, or at the end of its body.
    ends = np.insert(breaks, first_breaks[1:], offsets[1:])
    is_break = np.insert(np.ones(len(breaks), np.int64), first_breaks[1:], 0)
    widths = np.diff(ends, prepend=0)
    widths[1:] -= is_break[:-1]
    ends, widths = ends[widths > 0], widths[widths > 0]
    counts = np.diff(np.searchsorted(ends, offsets, side="right"))
    if widths.max(initial=0) > _DIGITS_MAX:
        np.add.at(strange, np.repeat(np.arange(count), counts)[widths > _DIGITS_MAX], 1)
    good = (strange == 0) & (np.diff(offsets) > 0) & intact
    if not good.all():
        kept = np.repeat(good, counts)
        ends, widths, counts = ends[kept], widths[kept], np.where(good, counts, 0)
    return _Numbers(_decimal_numbers(text, ends, widths), counts, good, np.diff(commas) > 0)


def _decimal_numbers(text: Bytes, ends: Int64s, widths: Int64s) -> Int64s:
    """Return the numbers whose digits end before positions; eight digits at once, in one word."""
    padded = np.concatenate([np.zeros(3 * 8, np.uint8), text])
    words = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))
    values, unit = np.zeros(len(ends), np.int64), 1
    for back in range(0, _DIGITS_MAX, 8):
        rows = slice(None) if back == 0 else np.flatnonzero(widths > back)
        word = words[ends[rows] + (2 * 8 - back)]
        others = ((8 - np.minimum(widths[rows] - back, 8)) * 8).astype(np.uint64)  # bits before the number's digits
        values[rows] += _eight_digits(word >> others << others) * unit
        unit *= 10**8
        if widths.max(initial=0) <= back + 8:
            break
    return values
