"""The options for a business ledger: its place, how its rows match transactions, and which rows are done.

`--match` compares a transaction with a row: `keys = order_id and topic = topic_name`. The left side is a column of
TRANSACTIONS, the right side a column of the ledger. `keys` is a list of words; one of them must match.
`keys ~ "^order-([0-9]+)$" = order_id` compares the group of a regular expression.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.repairs.acts.guard_rules import may_deliver_rolled_back
from rmqtx.verdicts.ledger.join import SEPARATOR, LedgerFit, LedgerTerms, Match, Term, named_pattern
from rmqtx.verdicts.ledger.reconcile import OUTCOMES, WORDS
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.options.filters import Filter, parse_filter, tokens
from rmqtx_cli.options.ledger_options import JDBC, PASSWORD_VARIABLE, USER_VARIABLE, holds_login, holds_secret, login
from rmqtx_cli.words.near import did_you_mean
from rmqtx_cli.words.text import count, escaped

if TYPE_CHECKING:
    import pyarrow as pa

_HELP = 'write: keys = order_id, or keys ~ "^order-([0-9]+)$" = order_id; several joined by and'


def parse_match(text: str, ledger: pa.Schema) -> Match:
    """Return the comparisons of `--match`.

    Raises: BadRequest for text that is not a comparison, or for an unknown column.
    """
    return Match(tuple(
        Term(
            _column(term.column, _comparable(TRANSACTIONS), "transactions have no column"),
            _column(term.ledger_column, ledger.names, "the ledger has no column"),
            term.pattern,
        )
        for term in parse_terms(text)
    ))


def parse_terms(text: str) -> tuple[Term, ...]:
    """Return the comparisons as written; their columns are not checked. Raises: BadRequest."""
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


@dataclass(frozen=True, slots=True)
class LedgerQuery:
    """The options for a ledger, before its columns are known.

    Raises: BadRequest for comparisons that cannot be parsed, and for a user or password in the address.
    """

    location: str
    table: str | None
    match: str
    done: str
    not_done: str
    driver_jar: str | None = None

    def __post_init__(self) -> None:
        parse_terms(self.match)
        if holds_secret(self.location) or (self.is_jdbc and holds_login(self.location)):
            raise BadRequest(
                "--ledger contains a user or a password, which other users can read",
                advice=f"set {USER_VARIABLE} and {PASSWORD_VARIABLE} in the environment",
            )
        if self.is_jdbc and self.table is None:
            raise BadRequest("--ledger-table is required with jdbc:", advice="give the table or view of the ledger")
        if self.driver_jar is not None and not self.is_jdbc:
            raise BadRequest("--ledger-driver-jar is for jdbc: ledgers")

    @property
    def is_jdbc(self) -> bool:
        """Whether only Spark can read it."""
        return self.location.startswith(JDBC)

    @property
    def files(self) -> tuple[Path, ...]:
        """Its files on this machine, if it has any."""
        place = Path(self.location.removeprefix("sqlite:///"))
        return () if self.is_jdbc or not place.exists() else (place,)

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.location if self.table is None else f"{self.location}, table {self.table}"

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Ledger columns that are compared as text."""
        return tuple(term.ledger_column for term in parse_terms(self.match))

    def login(self) -> tuple[str | None, str | None]:
        """Return user and password from the environment; they are only passed to the database."""
        return login()

    def parsed(self, ledger: pa.Schema) -> ParsedLedgerQuery:
        """Return the parsed options for the ledger's columns.

        Raises: BadRequest for an unknown column, or a value that the column cannot have.
        """
        match = parse_match(self.match, ledger)
        done = parse_filter(self.done, ledger, "--done")
        not_done = parse_filter(self.not_done, ledger, "--not-done")
        wanted = {*match.ledger_columns, *done.columns, *not_done.columns}
        return ParsedLedgerQuery(match, done, not_done, [name for name in ledger.names if name in wanted])

    def assert_fits(self, fit: LedgerFit) -> None:
        """Check that `--match` matches something. Raises: BadRequest, with an example of the compared values."""
        if not fit.rows_count and fit.keys_count:
            raise BadRequest(f"the ledger {self.name} has no rows", advice="is this the right file or table?")
        if fit.fits_nothing:
            raise BadRequest(
                f"--match {self.match!r} matches nothing: no transaction equals any of the ledger's "
                f"{count(fit.rows_count, 'row')}; a transaction has {_shown(fit.key)}, "
                f"a ledger row {_shown(fit.ledger_key)}",
                advice="compare other columns, or a part of one: --match \"keys ~ '^order-([0-9]+)$' = id\"",
            )


@dataclass(frozen=True, slots=True)
class ParsedLedgerQuery:
    """The parsed options for a ledger; `columns` are the ledger columns that they use."""

    match: Match
    done: Filter
    not_done: Filter
    columns: list[str]

    def terms(self, *, missing_is_not_done: bool = False) -> LedgerTerms:
        """Return what a comparison with the ledger needs."""
        return LedgerTerms(self.match, self.done.mask, self.not_done.mask, missing_is_not_done)


def _shown(key: str | None) -> str:
    return "nothing" if key is None else " and ".join(repr(escaped(part)) for part in key.split(SEPARATOR))


@dataclass(slots=True)
class Comparison:
    """Counts of the results of a comparison with a ledger."""

    outcomes: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    undecidable_count: int = 0
    to_override_count: int = 0
    advice: Counter[tuple[str, str]] = field(default_factory=Counter)
    fit: LedgerFit = field(default_factory=LedgerFit)

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches and count them."""
        for batch in batches:
            _count(self.outcomes, batch["outcome"])
            _count(self.words, batch["ledger_word"])
            pairs: Counter[str] = Counter()
            _count(pairs, pc.binary_join_element_wise(batch["outcome"], batch["advice"], " "))
            for pair, number in pairs.items():
                outcome, _, advice = pair.partition(" ")
                self.advice[outcome, advice] += number
            self.to_override_count += _to_override_count(batch)
            self.undecidable_count += int(pc.sum(pc.equal(batch["state"], State.UNDECIDABLE)).as_py() or 0)
            yield batch

    def answer(self) -> str:
        """Return the number of transactions of each outcome, in one line."""
        outcomes = ", ".join(f"{self.outcomes[outcome]} {outcome}" for outcome in OUTCOMES if self.outcomes[outcome])
        return f"{count(self.outcomes.total(), 'transaction')}{': ' + outcomes if outcomes else ''}"

    def lines(self) -> Iterator[str]:
        """Yield the lines below the rows: entries of the ledger, outcomes, ledger rows without a transaction."""
        words = ", ".join(f"{self.words[word]} {word}" for word in WORDS if self.words[word])
        if words:
            yield f"in the ledger: {words}"
        if self.words["unknown"] and not self.words["done"] + self.words["not_done"]:
            yield "no ledger row meets --done or --not-done: compare their values with those in the ledger"
        for outcome, meaning in OUTCOMES.items():
            if self.outcomes[outcome]:
                advised = sorted((advice, number) for (of, advice), number in self.advice.items() if of == outcome)
                counts = ", ".join(f"{number} {advice}" for advice, number in advised)
                yield f"{outcome}: {self.outcomes[outcome]} ({counts}): {meaning}"
            if outcome == "act" and self.to_override_count:
                yield self._override_line()
        if left := self.fit.unmatched_count:
            shown = "; ".join(escaped(text) for text in self.fit.unmatched)
            more = "; ..." if left > len(self.fit.unmatched) else ""
            of = count(self.fit.rows_count, "row")
            yield f"ledger: {left} of {of} match no transaction in the stores: {shown}{more}"

    def _override_line(self) -> str:
        number = self.to_override_count
        refused = "all of them" if number == self.outcomes["act"] else f"{number} of them"
        return (
            f"act: rmqtx apply refuses {refused} by op-in-memory: their producers may have rolled them back, and the "
            "killed broker kept that in its memory; where the ledger is certain: --override op-in-memory --reason TEXT"
        )

    def next_line(self, plan: Path | None) -> str | None:
        """Return the next command if there is something to act on. `plan`: the plan file that was written."""
        if not self.outcomes["act"]:
            return None
        if plan is not None:
            return f"next: rmqtx plan show {quoted(str(plan))}"
        return "next: run this again with --plan plan.json, then rmqtx plan show plan.json"


def _to_override_count(batch: pa.RecordBatch) -> int:
    """Return the number of rows to act on that `rmqtx apply` refuses unless the guard op-in-memory is overridden."""
    rows = batch.select(["advice", "flags"]).filter(pc.equal(batch["outcome"], "act"))
    pairs = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return sum(may_deliver_rolled_back(advice, flags) for advice, flags in pairs)


def _count(counter: Counter[str], column: pa.Array) -> None:
    for entry in column.value_counts().to_pylist():
        counter[entry["values"]] += entry["counts"]
