"""Columns with a closed list of values: a mistyped value is an error instead of a condition that is never met."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.words.near import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa


def _states() -> Iterable[str]:
    from rmqtx.verdicts.transactions.states_and_advice import STATES

    return STATES


def _flags() -> Iterable[str]:
    from rmqtx.verdicts.transactions.flags import FLAGS

    return FLAGS


def _advice() -> Iterable[str]:
    from rmqtx.verdicts.transactions.states_and_advice import ADVICE

    return ADVICE


def _reasons() -> Iterable[str]:
    from rmqtx.verdicts.transactions.reason_codes import REASONS

    return REASONS


def _findings() -> Iterable[str]:
    from rmqtx.readers.model.findings import KINDS

    return KINDS


def _causes() -> Iterable[str]:
    from rmqtx.verdicts.causes.register import CAUSES

    return CAUSES


def _causes_found() -> Iterable[str]:
    from rmqtx.verdicts.causes.strengths import cause_words

    return cause_words()


#: The lists by the name that a column has in its metadata `words`; metadata `values` contains a list itself.
LISTS: dict[str, Callable[[], Iterable[str]]] = {
    "states": _states, "flags": _flags, "advice": _advice, "reasons": _reasons, "findings": _findings,
    "causes": _causes, "causes_found": _causes_found,
}  # fmt: skip


def closed_values(field: pa.Field) -> tuple[str, ...]:
    """Return the values that a column can have; empty if it can have any."""
    metadata = field.metadata or {}
    if b"words" in metadata:
        return tuple(LISTS[metadata[b"words"].decode()]())
    return tuple(metadata[b"values"].decode().split(",")) if b"values" in metadata else ()


def check_pattern(name: str, values: tuple[str, ...], pattern: str, option: str) -> None:
    """Check a regular expression against a closed list of values.

    Raises: BadRequest if it matches none of them, so that no row could meet it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if values and not pc.any(pc.match_substring_regex(pa.array(values), pattern)).as_py():
        raise BadRequest(f"{option}: no {name} matches {pattern!r}", advice=f"values: {', '.join(values)}")


def check_value(name: str, values: tuple[str, ...], text: str, option: str) -> None:
    """Check a text against a closed list of values.

    Raises: BadRequest if it is not one of them, so that no row could have it.
    """
    if values and text not in values:
        if name == "causes" and text in _causes():
            advice = f"a cause of whole producer groups: rmqtx diagnose STORE --where 'cause = {text}'"
        else:
            advice = f"for unknown values: '{name} is null'" if text == "null" else did_you_mean(text, values)
        raise BadRequest(f"{option}: {name} is never {text!r}", advice=advice)
