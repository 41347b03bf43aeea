"""Columns with a closed list of values: a mistyped value is an error instead of a condition that is never met."""

from __future__ import annotations

import functools

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.findings import KINDS
from rmqtx.verdicts.model.verdict_words import ADVICE, STATES
from rmqtx_cli.words.near import did_you_mean


@functools.cache
def value_lists() -> dict[str, tuple[str, ...]]:
    """Return the lists by the name in the metadata `words` of a column; metadata `values` contains a list itself."""
    # The rules of all causes: most command lines have no condition.
    from rmqtx.verdicts.causes import register, strengths
    from rmqtx.verdicts.transactions import flags, reason_codes

    return {
        "states": tuple(STATES), "flags": tuple(flags.FLAGS),
        "advice": tuple(ADVICE), "reasons": tuple(reason_codes.REASONS), "findings": tuple(KINDS),
        "causes": tuple(register.CAUSES), "causes_found": tuple(strengths.cause_words()),
    }


def closed_values(field: pa.Field) -> tuple[str, ...]:
    """Return the values that a column can have; empty if it can have any."""
    metadata = field.metadata or {}
    if b"words" in metadata:
        return value_lists()[metadata[b"words"].decode()]
    return tuple(metadata[b"values"].decode().split(",")) if b"values" in metadata else ()


def check_pattern(name: str, values: tuple[str, ...], pattern: str, option: str) -> None:
    """Check a regular expression against a closed list of values.

    Raises: BadRequest if it matches none of them, so that no row could meet it.
    """
    if values and not pc.any(pc.match_substring_regex(pa.array(values), pattern)).as_py():
        raise BadRequest(f"{option}: no {name} matches {pattern!r}", advice=f"values: {', '.join(values)}")


def check_value(name: str, values: tuple[str, ...], text: str, option: str) -> None:
    """Check a text against a closed list of values.

    Raises: BadRequest if it is not one of them, so that no row could have it.
    """
    if values and text not in values:
        if name == "causes" and text in value_lists()["causes"]:
            advice = f"a cause of whole producer groups: rmqtx diagnose STORE --where 'cause = {text}'"
        else:
            advice = f"for unknown values: '{name} is null'" if text == "null" else did_you_mean(text, values)
        raise BadRequest(f"{option}: {name} is never {text!r}", advice=advice)
