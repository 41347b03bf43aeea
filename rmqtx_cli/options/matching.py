"""The comparison of a transaction with a ledger row, as `--match` takes it: `keys = order_id and topic = topic_name`.

The left side is a column of TRANSACTIONS, the right side a column of the ledger. `keys` is a list of words; one of them
must match. `keys ~ "^order-([0-9]+)$" = order_id` compares the group of a regular expression.
"""

from __future__ import annotations

import pyarrow as pa

from rmqtx.readers.model.errors import BadRequest
from rmqtx.verdicts.ledger.matching import Match, Term, named_pattern
from rmqtx_cli.options.filters import tokens
from rmqtx_cli.words.near import did_you_mean

_HELP = 'write: keys = order_id, or keys ~ "^order-([0-9]+)$" = order_id; several joined by and'


def parse_match(text: str, transactions: pa.Schema, ledger: pa.Schema) -> Match:
    """Return the comparisons of `--match`.

    Raises: BadRequest for text that is not a comparison, or for an unknown column.
    """
    return Match(tuple(
        Term(
            _column(term.column, _comparable(transactions), "transactions have no column"),
            _column(term.ledger_column, ledger.names, "the ledger has no column"),
            term.pattern,
        )
        for term in parse_terms(text)
    ))  # fmt: skip


def parse_terms(text: str) -> tuple[Term, ...]:
    """Return the comparisons as written; their columns are not checked.

    Raises: BadRequest.
    """
    left = list(tokens(text, "--match"))
    terms = [_term(left)]
    while left:
        if left.pop(0) != ("word", "and"):
            raise BadRequest(f"--match: only 'and' can follow a comparison in {text!r}", advice=_HELP)
        terms.append(_term(left))
    return tuple(terms)


def _term(left: list[tuple[str, str]]) -> Term:
    column = _next(left, ("word",), "a column of transactions")
    operator = _next(left, ("operator",), "=")
    pattern = None
    if operator == "~":
        pattern = _next(left, ("word", "quoted"), "a regular expression")
        named_pattern(pattern)
        operator = _next(left, ("operator",), "=")
    if operator not in ("=", "=="):
        raise BadRequest(f"--match: expected =, found {operator!r}", advice=_HELP)
    return Term(column, _next(left, ("word", "quoted"), "a column of the ledger"), pattern)


def _next(left: list[tuple[str, str]], kinds: tuple[str, ...], wanted: str) -> str:
    if not left:
        raise BadRequest(f"--match: expected {wanted} at the end", advice=_HELP)
    kind, value = left.pop(0)
    if kind not in kinds:
        raise BadRequest(f"--match: expected {wanted}, found {value!r}", advice=_HELP)
    return value


def _comparable(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if not pa.types.is_nested(field.type)]


def _column(name: str, names: list[str], problem: str) -> str:
    if name not in names:
        raise BadRequest(f"--match: {problem} {name!r}", advice=did_you_mean(name, names))
    return name
