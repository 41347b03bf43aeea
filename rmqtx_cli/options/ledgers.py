"""The options that describe a business ledger, understood: where it is, what a row of it is about, what it says."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from readers.model.errors import BadRequest
from rmqtx_cli.options.filters import Filter, parse_filter
from rmqtx_cli.options.logins import JDBC, PASSWORD_VARIABLE, USER_VARIABLE, holds_login, holds_secret, login
from rmqtx_cli.options.matching import parse_match, parse_terms
from rmqtx_cli.words.text import count, escaped
from verdicts.ledger.join import LedgerFit
from verdicts.ledger.matching import SEPARATOR

if TYPE_CHECKING:
    import pyarrow as pa

    from verdicts.ledger.matching import Match


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a ledger, before its columns are known.

    Raises: BadRequest for comparisons that cannot be read, and for a user or password in the address.
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
                "--ledger holds a user or a password, which others could read",
                advice=f"set {USER_VARIABLE} and {PASSWORD_VARIABLE} in the environment",
            )
        if self.is_jdbc and self.table is None:
            raise BadRequest("--ledger-table is needed with jdbc:", advice="the table or view that holds the ledger")
        if self.driver_jar is not None and not self.is_jdbc:
            raise BadRequest("--ledger-driver-jar is for jdbc: ledgers")

    @property
    def is_jdbc(self) -> bool:
        """Whether only Spark can read it."""
        return self.location.startswith(JDBC)

    @property
    def files(self) -> tuple[Path, ...]:
        """Where it lies on this machine, if it does."""
        place = Path(self.location.removeprefix("sqlite:///"))
        return () if self.is_jdbc or not place.exists() else (place,)

    @property
    def name(self) -> str:
        """What people call it."""
        return self.location if self.table is None else f"{self.location}, table {self.table}"

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns that are compared as texts."""
        return tuple(term.ledger_column for term in parse_terms(self.match))

    def login(self) -> tuple[str | None, str | None]:
        """User and password, from the environment; they are given to the database and to nobody else."""
        return login()

    def understood(self, ledger: pa.Schema) -> Understood:
        """The same, with the ledger's columns known.

        Raises: BadRequest for a column that is not there, or a value that it cannot have.
        """
        from readers.model.tables import TRANSACTIONS

        match = parse_match(self.match, TRANSACTIONS, ledger)
        done = parse_filter(self.done, ledger, "--done")
        not_done = parse_filter(self.not_done, ledger, "--not-done")
        wanted = {*match.ledger_columns, *done.columns, *not_done.columns}
        return Understood(match, done, not_done, [name for name in ledger.names if name in wanted])

    def assert_fits(self, fit: LedgerFit) -> None:
        """Make sure that the comparison is one: that `--match` fits anything.

        Raises: BadRequest, with what was compared.
        """
        if not fit.rows_count and fit.keys_count:
            raise BadRequest(f"the ledger {self.name} has no rows", advice="is this the right file or table?")
        if fit.fits_nothing:
            raise BadRequest(
                f"--match {self.match!r} fits nothing: no transaction has what any of {count(fit.rows_count, 'row')} "
                f"of the ledger has; a transaction has {_shown(fit.key)}, a ledger row {_shown(fit.ledger_key)}",
                advice="compare other columns, or a part: --match \"keys ~ '^order-([0-9]+)$' = id\"",
            )


@dataclass(frozen=True, slots=True)
class Understood:
    """What is asked of a ledger; `columns` are those of it that are looked at."""

    match: Match
    done: Filter
    not_done: Filter
    columns: list[str]


def _shown(key: str | None) -> str:
    return "nothing" if key is None else " and ".join(repr(escaped(part)) for part in key.split(SEPARATOR))


@dataclass(slots=True)
class Comparison:
    """Counts of what a comparison with a ledger gave, taken as the rows go by."""

    outcomes: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    undecidable_count: int = 0
    advice: Counter[tuple[str, str]] = field(default_factory=Counter)
    fit: LedgerFit = field(default_factory=LedgerFit)

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        import pyarrow.compute as pc

        for batch in batches:
            _count(self.outcomes, batch["outcome"])
            _count(self.words, batch["ledger_word"])
            pairs: Counter[str] = Counter()
            _count(pairs, pc.binary_join_element_wise(batch["outcome"], batch["advice"], " "))
            for pair, number in pairs.items():
                outcome, _, advice = pair.partition(" ")
                self.advice[outcome, advice] += number
            self.undecidable_count += int(pc.sum(pc.equal(batch["state"], "UNDECIDABLE")).as_py() or 0)
            yield batch

    def answer(self) -> str:
        """The number of transactions of each outcome, in one line."""
        from verdicts.ledger.reconcile import OUTCOMES

        outcomes = ", ".join(f"{self.outcomes[outcome]} {outcome}" for outcome in OUTCOMES if self.outcomes[outcome])
        return f"{count(self.outcomes.total(), 'transaction')}{': ' + outcomes if outcomes else ''}"

    def lines(self) -> Iterator[str]:
        """Lines below the rows: what the ledger has, what each outcome is, ledger rows of no transaction."""
        from verdicts.ledger.reconcile import OUTCOMES, WORDS

        words = ", ".join(f"{self.words[word]} {word}" for word in WORDS if self.words[word])
        if words:
            yield f"in the ledger: {words}"
        for outcome, meaning in OUTCOMES.items():
            if self.outcomes[outcome]:
                advised = sorted((advice, number) for (of, advice), number in self.advice.items() if of == outcome)
                told = ", ".join(f"{number} {advice}" for advice, number in advised)
                yield f"{outcome}: {self.outcomes[outcome]} ({told}): {meaning}"
        if left := self.fit.unmatched_count:
            shown = "; ".join(escaped(text) for text in self.fit.unmatched)
            more = "; ..." if left > len(self.fit.unmatched) else ""
            of = count(self.fit.rows_count, "row")
            yield f"ledger: {left} of {of} are of no transaction in the stores: {shown}{more}"

    def next_line(self, plan: Path | None) -> str | None:
        """The next command, where there is something to act on; `plan`: the file that was written."""
        if not self.outcomes["act"]:
            return None
        if plan is not None:
            return f"next: rmqtx plan show {shlex.quote(str(plan))}"
        return "next: the same with --plan plan.json, then rmqtx plan show plan.json"


def _count(counter: Counter[str], column: pa.Array) -> None:
    for entry in column.value_counts().to_pylist():
        counter[entry["values"]] += entry["counts"]
